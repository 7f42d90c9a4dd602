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
//!             // What cannot leave now is not missed: the next frame's input is newer. (`Backlogged` passes, and `Gone` is
//!             // told by an event.)
//!             let _ = client.send(b"input of this frame");
//!         }
//!         client.end_turn();
//!         // Here the game draws; its frames set the pace. (A tool without frames sleeps in `client.wait` instead, which
//!         // returns as soon as something arrives; `client.flush` answers that at once, without ending the turn.)
//!         std::thread::sleep(Duration::from_millis(16));
//!     }
//! }
//! ```
//!
//! The same client with channels, for a server that carries the same ones: chat that arrives once and in order, state of
//! which only the newest matters, and a map in the background.
//! ```no_run
//! # use std::time::Duration;
//! #
//! use slipgate_client::{ChannelConfig, ChannelEvent, ChannelId, Kind, Layout, Traffic, block, decode};
//! # use slipgate_client::{Client, Clock, ConnectToken, Event, Inbox};
//!
//! const CHAT: ChannelId = ChannelId(0);
//! const STATE: ChannelId = ChannelId(1);
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//! #   let token = ConnectToken::from_bytes(&std::fs::read("token")?)?;
//! #   let (clock, mut inbox) = (Clock::start(), Inbox::default());
//!     let channel = |kind, priority| ChannelConfig { priority, ..ChannelConfig::new(kind) };
//!     let layout = Layout::new(vec![
//!         channel(Kind::ReliableOrdered, 1),
//!         channel(Kind::Sequenced, 2),
//!         channel(Kind::Blocks, 0),
//!     ])?;
//!     let mut client = Client::new()?.carrying(Traffic::channels(layout))?;
//!     client.connect(token, clock.now())?;
//!     loop {
//!         client.begin_turn(clock.now());
//!         while let Some(event) = inbox.next(&mut client) {
//!             match event {
//!                 // The first line of an empty queue has a place.
//!                 Event::Connected { .. } => {
//!                     let _ = client.send_typed(CHAT, "hello, all");
//!                 }
//!                 Event::Message { channel: STATE, bytes } => match decode::<(u64, Vec<u16>)>(STATE, bytes) {
//!                     Ok((tick, things)) => println!("tick {tick}: {} things", things.len()),
//!                     Err(error) => println!("{error}"),
//!                 },
//!                 Event::Channel(ChannelEvent::Block { event: block::Event::Received { content, .. }, .. }) => {
//!                     println!("a map of {} bytes, whole", content.len());
//!                 }
//!                 Event::Ended { reason } => {
//!                     // A server that kicks somebody can say why.
//!                     return Ok(println!("{}", client.farewell().unwrap_or(&reason.to_string())));
//!                 }
//!                 _ => {}
//!             }
//!         }
//!         client.end_turn();
//! #       std::thread::sleep(Duration::from_millis(16));
//!     }
//! }
//! ```

#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod client;
#[cfg(feature = "fetch")]
pub mod fetch;
mod inbox;
#[cfg(feature = "probe")]
pub mod probe;
mod typed_messages;
mod used_tokens;

pub use slipgate_netcode::client::{ClientState, ConnectError, EndReason};
pub use slipgate_netcode::discard::{Discard, Discards};
pub use slipgate_netcode::time::{Instant, Now};
pub use slipgate_netcode::timing::TimeoutPolicy;
pub use slipgate_netcode::token::{ConnectToken, PublicFacts};
pub use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
pub use slipgate_netcode::wire::token::LayoutError;
pub use slipgate_os::clock::Clock;
pub use slipgate_session::channel::block;
pub use slipgate_session::channel::control::ByeCode;
pub use slipgate_session::channel::{
    ChannelConfig, ChannelEvent, ChannelId, Fate, Free, Kind, Layout, MAX_RECEIPTS, SendOptions,
};
pub use slipgate_session::congestion::{self, BytesPerSecond, Suggestion};
pub use slipgate_session::reliability::Event as PacketEvent;
pub use slipgate_session::session::{Budget, Connection, End, PathStats, SendError, Traffic};
pub use slipgate_session::wire::reliable::Sequence;
pub use slipgate_typed as typed;
pub use slipgate_typed::TypedError;
pub use slipgate_udp::{Batching, Buffers, Dscp, Marking, SocketStats, Sockets, Trouble};

pub use self::client::Client;
pub use self::inbox::{Event, Inbox};
pub use self::typed_messages::{SendTypedError, decode, decode_with};
