//! What Slipgate's server and client share where they meet the operating system: clocks, entropy, UDP sockets.
//!
//! The protocol takes all three as arguments; this crate is where they come from. Programs use it through
//! `slipgate-server` and `slipgate-client`.

#![forbid(unsafe_code)]

pub mod clock;
pub mod entropy;
pub mod udp;
