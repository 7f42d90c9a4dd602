//! The operating system's side of sans-IO code: clocks, entropy, key files and the texts of listen errors.
//!
//! `slipgate-netcode` and `slipgate-session` never read a clock and never draw entropy; both are arguments. The
//! libraries and programs around them get them from this crate, which also holds the texts of errors for operators.

#![forbid(unsafe_code)]

#[cfg(feature = "authorities")]
pub mod authorities;
pub mod clock;
pub mod entropy;
pub mod key_file;
pub mod listen;
pub mod pace;
pub mod redact;
pub mod turn_watch;
