//! The library `libslipgate`: the functions of the crate, with the name that games link.

#![forbid(unsafe_code)]

// The functions are exported by their names. This makes the linker see the crate.
pub use slipgate_c::*;
