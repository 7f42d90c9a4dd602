//! The support library of the tests: interop vectors, simulated worlds, attackers, and sessions on real sockets.

// Test code reports failed expectations by panicking.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::print_stdout, reason = "this crate is test code")]

#[cfg(doctest)]
mod guide;

pub mod acknowledged;
pub mod channel_world;
pub mod conditions;
pub mod connection_memory;
pub mod connection_world;
pub mod counting;
pub mod delivery_oracle;
pub mod endpoint_world;
pub mod hostile;
pub mod hostile_server;
pub mod live;
pub mod malicious_peer;
pub mod netcode_world;
pub mod nonce_sum;
pub mod raw_client;
pub mod raw_server;
pub mod reference_statistics;
pub mod scale;
pub mod session_world;
pub mod sinks;
pub mod uploads;
pub mod vectors;
pub mod world;
