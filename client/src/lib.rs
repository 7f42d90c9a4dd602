//! A game client's end of Slipgate: netcode 1.02 over UDP, polled by the game's own loop.
//!
//! No thread, no async runtime, no callback. A connect token comes from the game's backend; the client turns it into an
//! encrypted connection to one of the token's servers.
//!
//! # Examples
//! ```no_run
//! use std::time::Duration;
//!
//! use slipgate_client::{Client, Clock, ConnectToken, Event, Inbox};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let token = ConnectToken::from_bytes(&std::fs::read("token")?)?;
//!     let clock = Clock::start();
//!     let (mut client, mut inbox) = (Client::new()?, Inbox::default());
//!     client.connect(token, clock.now())?;
//!     loop {
//!         client.begin_turn(clock.now());
//!         while let Some(event) = inbox.next(&mut client) {
//!             match event {
//!                 Event::Connected { client_index, .. } => println!("player {}", client_index + 1),
//!                 Event::Payload { bytes, .. } => println!("{} bytes", bytes.len()),
//!                 Event::Ended { reason } => return Ok(println!("{reason}")),
//!                 _ => {}
//!             }
//!         }
//!         if client.state().is_connected() {
//!             client.send(b"input of this frame")?;
//!         }
//!         client.end_turn();
//!         // Here the game draws; its frames set the pace. (A tool without frames sleeps in `client.wait` instead, which
//!         // returns as soon as something arrives.)
//!         std::thread::sleep(Duration::from_millis(16));
//!     }
//! }
//! ```

#![forbid(unsafe_code)]

mod client;
#[cfg(feature = "fetch")]
pub mod fetch;
mod inbox;
#[cfg(feature = "probe")]
pub mod probe;
mod used_tokens;

pub use slipgate_edge::clock::Clock;
pub use slipgate_edge::udp::{SocketStats, Trouble};
pub use slipgate_protocol::channel::{ChannelConfig, ChannelEvent, ChannelId, Free, Kind, Layout, SendOptions};
pub use slipgate_protocol::channel::{block, typed};
pub use slipgate_protocol::discard::{Discard, Discards};
pub use slipgate_protocol::netcode::client::{ClientState, ConnectError, EndReason};
pub use slipgate_protocol::netcode::timing::TimeoutPolicy;
pub use slipgate_protocol::session::{Budget, Connection, End, PathStats, SendError, Traffic};
pub use slipgate_protocol::time::Now;
pub use slipgate_protocol::token::{ConnectToken, PublicFacts};
pub use slipgate_protocol::wire::token::LayoutError;

pub use self::client::Client;
pub use self::inbox::{Event, Inbox};
