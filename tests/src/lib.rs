//! What the tests of more than one file share: the interop vectors, a simulated world, attackers for it, and sessions on
//! real sockets.

// Test code says what it expects by panicking.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::print_stdout, reason = "this crate is test code")]

pub mod acknowledged;
pub mod channels;
pub mod connected;
pub mod counting;
pub mod hall;
pub mod holder;
pub mod liar;
pub mod live;
pub mod path;
pub mod promises;
pub mod vectors;
pub mod world;
