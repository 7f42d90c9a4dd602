//! Messages over encrypted payloads: acknowledgements and fragments of reliable 1.0, channels, transfers, and
//! congestion avoidance, for each connection of a netcode 1.02 server or client.
//!
//! This crate is *sans-IO*. Datagrams and the current time go in; datagrams and events come out. Nothing here reads a
//! clock, draws entropy, opens a socket or starts a thread, so the same code runs in a game server, in a browser, and
//! in a simulation where an hour passes in a second.
//!
//! ```text
//!  server, client          netcode and one connection for each client; the server also divides its uplink
//!    │
//!    ▼
//!  connection              one connection: packets, messages, path measurements, close
//!    │        │        │
//!    ▼        ▼        ▼
//!  channel   reliability  congestion
//!  messages  which packets  how many bytes may be sent now
//!    │       arrived
//!    ▼        │
//!  transfer   ▼
//!  64 MiB    wire          bytes of headers, fragments and session frames
//! ```
//!
//! # Where to find what
//!
//! | module | contents | specification |
//! | --- | --- | --- |
//! | [`wire`] | packet headers, fragments, the session frame | `specs/reliable-1.0.md`, `specs/session-1.md` |
//! | [`reliability`] | acknowledgements, loss by time, reassembly, statistics | `specs/reliable-1.0.md` |
//! | [`reject`] | reasons why a packet is dropped, with counters | |
//! | [`congestion`] | packets in flight, the controllers Glide, Binary and Fixed, pacing | |
//! | [`channel`] | ordered, unordered and unreliable messages, priorities, receipts | `specs/channels-1.md` |
//! | [`channel::transfer`] | resumable transfers of up to 64 MiB | `specs/transfers-1.md` |
//! | [`connection`] | one connection put together | `specs/session-1.md` |
//! | [`client`], [`server`] | netcode with a connection for each client; [`server::scheduling`] divides the uplink | |
//!
//! Connect tokens, the handshake and encryption are in `slipgate-netcode`. Games use `slipgate-server` and
//! `slipgate-client`, which add sockets.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod channel;
mod channel_id;
pub mod client;
pub mod congestion;
pub mod connection;
pub mod reject;
pub mod reliability;
mod send_error;
pub mod server;
pub mod wire;
