//! netcode 1.02 without sockets: connect tokens, the handshake, encrypted packets, replay protection; and reliable 1.0
//! in its payloads: acknowledgements, fragments, what the path is like.
//!
//! This crate is *sans-IO*. Datagrams are pushed in, datagrams are pulled out, and between the two nothing reads a
//! clock, draws entropy, opens a socket or asks for memory: all of those are arguments. So the same code runs under a
//! game server, in a browser, and in a simulated world where an hour passes in a second.
//!
//! ```text
//!  time  address  discard     values
//!        ▲
//!       wire                  bytes <-> meaning
//!        ▲ ▲
//!        │ └── reliability    the acknowledged-packet endpoint
//!      crypto                 keys, nonces, the replay window
//!        ▲
//!      token                  the connect token as a story: issue, redeem, history, challenge
//!        ▲
//!     netcode                 the server and the client
//! ```
//!
//! Most programs use `slipgate-server` and `slipgate-client`, which put sockets around this.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod address;
pub mod channel;
pub mod client;
pub mod congestion;
pub mod crypto;
pub mod discard;
pub mod netcode;
pub mod reliability;
pub mod server;
pub mod session;
pub mod time;
pub mod token;
pub mod wire;
