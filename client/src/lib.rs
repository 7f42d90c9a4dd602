//! The client end of Slipgate: netcode 1.02 over UDP, polled by the game's own loop.
//!
//! There are no threads, async runtimes or callbacks. A connect token comes from the game's backend; the client turns
//! it into an encrypted connection to one of the token's servers.
//!
//! # Examples
//! A client that sends its input 60 times a second:
//! ```no_run
//! use std::time::Duration;
//!
//! use slipgate_client::{Client, Clock, ConnectToken, Event, Inbox, Pace};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let token = ConnectToken::from_bytes(&std::fs::read("token")?)?;
//!     let clock = Clock::start();
//!     let (mut client, mut inbox) = (Client::new()?, Inbox::default());
//!     let mut pace = Pace::new(clock, Duration::from_millis(16));
//!     client.connect(token, clock.now())?;
//!     loop {
//!         let now = clock.now();
//!         client.begin_turn(now);
//!         while let Some(event) = inbox.next(&mut client) {
//!             match event {
//!                 Event::Connected { client_index, .. } => println!("player {}", client_index.0 + 1),
//!                 Event::Payload { bytes, .. } => println!("{} bytes", bytes.len()),
//!                 // A sentence for the player, such as "The connection to the game server was lost."
//!                 Event::Ended { reason } => return Ok(println!("{reason}")),
//!                 _ => {}
//!             }
//!         }
//!         if pace.is_tick(now.monotonic) {
//!             if client.state().is_connected() {
//!                 // If it cannot leave now, the next tick has newer input.
//!                 let _ = client.send(b"input of this tick");
//!             }
//!             client.end_turn();
//!         } else {
//!             client.flush();
//!         }
//!         pace.rest(&mut client);
//!     }
//! }
//! ```
//! A game that draws frames calls `begin_turn`, takes events, sends, and calls `end_turn` once per frame instead.
//!
//! A client with channels, for a server with the same layout: chat arrives once and in order, only the newest state
//! matters, and the map is transferred in the background.
//! ```no_run
//! # use std::time::Duration;
//! #
//! use slipgate_client::transfer::TransferEvent;
//! use slipgate_client::{Channel, ChannelEvent, Layout, Traffic, decode};
//! # use slipgate_client::{Client, Clock, ConnectToken, Event, Inbox};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//! #   let token = ConnectToken::from_bytes(&std::fs::read("token")?)?;
//! #   let (clock, mut inbox) = (Clock::start(), Inbox::default());
//!     let mut layout = Layout::builder();
//!     let state = layout.add(Channel::sequenced("state").priority(2).newest_only());
//!     let chat = layout.add(Channel::reliable_ordered("chat"));
//!     layout.add(Channel::transfers("maps"));
//!     let mut client = Client::new()?.with_traffic(Traffic::channels(layout.build()?))?;
//!     client.connect(token, clock.now())?;
//!     loop {
//!         client.begin_turn(clock.now());
//!         while let Some(event) = inbox.next(&mut client) {
//!             match event {
//!                 Event::Connected { .. } => client.send_typed(chat, "hello, all")?,
//!                 Event::Message { channel, bytes, .. } if channel == state => {
//!                     match decode::<(u64, Vec<u16>)>(channel, bytes) {
//!                         Ok((tick, things)) => println!("tick {tick}: {} things", things.len()),
//!                         Err(error) => println!("{error}"),
//!                     }
//!                 }
//!                 Event::Channel(ChannelEvent::Transfer { event: TransferEvent::Received { content, .. }, .. }) => {
//!                     println!("a map of {} bytes", content.len());
//!                 }
//!                 Event::Ended { reason } => return Ok(println!("{reason}")),
//!                 _ => {}
//!             }
//!         }
//!         client.end_turn();
//! #       std::thread::sleep(Duration::from_millis(16));
//!     }
//! }
//! ```

#![forbid(unsafe_code)]

#[cfg(all(doctest, feature = "typed"))]
#[doc = include_str!("../README.md")]
struct ClientReadme;

mod client;
#[cfg(feature = "fetch")]
pub mod fetch;
mod inbox;
#[cfg(feature = "probe")]
pub mod probe;
#[cfg(feature = "typed")]
mod typed_messages;
mod used_tokens;

/// Acknowledged packets, for games with a message layer of their own.
pub mod packets {
    pub use slipgate_netcode::ids::PacketNumber;
    pub use slipgate_session::reliability::PacketEvent;
    pub use slipgate_session::wire::reliable::Sequence;
}

/// UDP sockets: their buffers, DSCP marks and counters.
pub mod sockets {
    pub use slipgate_udp::{Batching, Dscp, Marking, SocketBuffers, SocketErrorKind, SocketStats, Sockets};
}

/// The state of the path, what may leave in a tick, and the reasons for dropped datagrams.
pub mod stats {
    pub use crate::client::ServerInfo;
    pub use slipgate_netcode::discard::{Discard, Discards};
    pub use slipgate_netcode::ids::ClientIndex;
    pub use slipgate_session::connection::{Budget, PacketTimes, PathStats};
}

/// Connect tokens: the public part, and the errors of reading one.
pub mod token {
    pub use slipgate_netcode::timing::TimeoutPolicy;
    pub use slipgate_netcode::token::PublicFacts;
    pub use slipgate_netcode::wire::token::TokenLayoutError;
}

/// Transfers: large contents beside the game's messages, in slices.
pub mod transfer {
    pub use slipgate_session::channel::transfer::{
        ContentDigest, MAX_SLICE_BYTES, MAX_TRANSFER_BYTES, MIN_SLICE_BYTES, PartialTransfer, Transfer,
        TransferAdmission, TransferConfig, TransferConfigError, TransferContent, TransferEvent, TransferId,
        TransferOffer, TransferProgress, TransferReason, TransferSide, Transfers,
    };
}

/// Messages of Rust types, and the codecs for them.
#[cfg(feature = "typed")]
pub mod typed {
    pub use slipgate_typed::*;
}

pub use slipgate_netcode::client::{ClientState, ConnectError};
pub use slipgate_netcode::time::Now;
pub use slipgate_netcode::token::ConnectToken;
pub use slipgate_os::clock::Clock;
pub use slipgate_os::pace::Pace;
pub use slipgate_session::channel::{Channel, ChannelEvent, ChannelId, DeliveryStatus, Layout, SendOptions};
pub use slipgate_session::connection::{CloseCode, CloseKind, CloseReason, ClosedBy, SendError, Traffic};

pub use self::client::Client;
pub use self::inbox::{Event, Inbox};
#[cfg(feature = "typed")]
pub use slipgate_typed::decode;
