//! What Slipgate's programs share where they meet the operating system: clocks, entropy, key files, UDP sockets.
//!
//! The protocol takes time, entropy and datagrams as arguments; this crate is where they come from. Games use it through
//! `slipgate-server` and `slipgate-client`.
//!
//! | feature | brings |
//! | --- | --- |
//! | `udp` | the module `udp`: sockets for IPv4 and IPv6, in batches |
//! | `cli` | the module `cli`: settings, log, signals and failures of the command-line programs |

// But for one module, `udp::system`, which calls what the standard library has no name for.
#![deny(unsafe_code)]

#[cfg(feature = "cli")]
pub mod cli;
pub mod clock;
pub mod entropy;
pub mod key_file;
pub mod listen;
mod redact;
#[cfg(feature = "udp")]
pub mod udp;
