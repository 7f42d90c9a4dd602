//! What sans-IO code takes as arguments, from the operating system: clocks, entropy and key files.
//!
//! `slipgate-netcode` and `slipgate-session` never read a clock and never draw entropy. The libraries and programs around
//! them use this crate for both, and share the texts of errors that operators read.

#![forbid(unsafe_code)]

pub mod clock;
pub mod entropy;
pub mod key_file;
pub mod listen;
pub mod redact;
