//! Game networking without sockets: netcode 1.02 (connect tokens, the handshake, encrypted packets, replay protection),
//! reliable 1.0 in its payloads (acknowledgements, fragments), and above them channels and congestion avoidance.
//!
//! This crate is *sans-IO*. Datagrams are pushed in, datagrams are pulled out, and between the two nothing reads a
//! clock, draws entropy, opens a socket or asks for memory: all of those are arguments. So the same code runs under a
//! game server, in a browser, and in a simulated world where an hour passes in a second.
//!
//! ```text
//!  time  address  discard            values
//!        ▲
//!       wire                         bytes <-> meaning
//!        ▲ ▲ ▲
//!        │ │ └── congestion          how many bytes may leave now
//!        │ │          ▲
//!        │ └─ reliability ◀─ channel  acknowledged packets; messages over them
//!        │          ▲         ▲
//!        │          └─ session ┘      one connection put together
//!      crypto            ▲           keys, nonces, the replay window
//!        ▲               │
//!      token             │           the connect token as a story: issue, redeem, history, challenge
//!        ▲               │
//!     netcode            │           the handshake and encrypted payloads of both ends
//!        ▲               │
//!        └── server, client          netcode, and for each connection what its payloads carry
//! ```
//!
//! Most programs use `slipgate-server` and `slipgate-client`, which put sockets around this.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod channel;
pub mod client;
pub mod congestion;
pub mod reject;
pub mod reliability;
pub mod server;
pub mod session;
pub mod wire;
