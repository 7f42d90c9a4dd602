//! The server end of Slipgate: netcode 1.02 over UDP, polled by the game's own loop.
//!
//! There are no threads, async runtimes or callbacks: the loop takes events, replies while it still holds them, and
//! sends. The bytes of an event lie in the [`Inbox`] in which they arrived, and are valid until its next call.
//!
//! [`sharded`] has servers that use more than one core.
//!
//! # Examples
//! An echo server with 32 slots:
//! ```no_run
//! use std::time::Duration;
//!
//! use slipgate_server::keys::read_key_file;
//! use slipgate_server::{Clock, Event, Inbox, Pace, Server, ServerConfig, Sockets};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let sockets = Sockets::bind(&["0.0.0.0:40000".parse()?])?;
//!     // The address of this server in connect tokens.
//!     let config = ServerConfig::new(0x1122_3344, 32, &["127.0.0.1:40000".parse()?]);
//!     let clock = Clock::start();
//!     let mut server = Server::new(sockets, config, read_key_file("private.key")?, clock.now())?;
//!     let (mut inbox, mut pace) = (Inbox::default(), Pace::new(clock, Duration::from_millis(16)));
//!     loop {
//!         let now = clock.now();
//!         server.begin_turn(now);
//!         while let Some(event) = inbox.next(&mut server) {
//!             match event {
//!                 Event::Connected { client, client_id } => println!("{client_id} has slot {}", client.slot()),
//!                 // A payload may be lost like a datagram, so that an error needs no handling.
//!                 Event::Payload { client, bytes, .. } => drop(server.send(client, bytes)),
//!                 Event::Disconnected { client_id, reason, .. } => println!("{client_id}: {}", reason.kind),
//!                 _ => {}
//!             }
//!         }
//!         if pace.is_tick(now.monotonic) {
//!             // The game advances here, 60 times a second.
//!             server.end_turn();
//!         } else {
//!             // The replies to what has arrived leave at once.
//!             server.flush();
//!         }
//!         pace.rest(&mut server);
//!     }
//! }
//! ```
//!
//! A server with channels: chat arrives once and in order, only the newest state matters, and the map is transferred in
//! the background. Clients must have the same layout.
//! ```no_run
//! # use std::time::Duration;
//! #
//! use slipgate_server::transfer::Transfer;
//! use slipgate_server::{Channel, Layout, Traffic, decode};
//! # use slipgate_server::keys::read_key_file;
//! # use slipgate_server::{Clock, Event, Inbox, Pace, Server, ServerConfig, Sockets};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//! #   let sockets = Sockets::bind(&["0.0.0.0:40000".parse()?])?;
//! #   let config = ServerConfig::new(0x1122_3344, 32, &["127.0.0.1:40000".parse()?]);
//! #   let (keys, clock) = (read_key_file("private.key")?, Clock::start());
//! #   let mut pace = Pace::new(clock, Duration::from_millis(16));
//!     let mut layout = Layout::builder();
//!     // State is sent before chat, and both before the map.
//!     let state = layout.add(Channel::sequenced("state").priority(2).newest_only());
//!     let chat = layout.add(Channel::reliable_ordered("chat"));
//!     let maps = layout.add(Channel::transfers("maps"));
//!     let traffic = Traffic::channels(layout.build()?);
//!     let mut server = Server::new(sockets, config, keys, clock.now())?.with_traffic(traffic)?;
//!     let map = Transfer::new(std::fs::read("map")?).ok_or("the map is larger than 64 MiB")?;
//!     let mut inbox = Inbox::default();
//!     let mut tick = 0_u64;
//!     loop {
//!         let now = clock.now();
//!         server.begin_turn(now);
//!         while let Some(event) = inbox.next(&mut server) {
//!             match event {
//!                 Event::Connected { client, .. } => {
//!                     let Some(mut client) = server.client(client) else { continue };
//!                     let _ = client.send_transfer(maps, map.clone(), 0);
//!                 }
//!                 Event::Message { client, channel, bytes, .. } if channel == chat => {
//!                     match decode::<&str>(channel, bytes) {
//!                         Ok(line) => println!("slot {}: {line}", client.slot()),
//!                         Err(error) => println!("slot {}: {error}", client.slot()),
//!                     }
//!                 }
//!                 _ => {}
//!             }
//!         }
//!         if pace.is_tick(now.monotonic) {
//!             tick += 1;
//!             server.for_each_client(|mut client| {
//!                 // On a path with little bandwidth, send fewer details instead of late ones.
//!                 let bytes = client.budget().map_or(0, |budget| budget.suggestion.payload_bytes);
//!                 let _ = client.send_typed(state, &(tick, vec![0_u16; (bytes / 3).min(300) as usize]));
//!             });
//!             server.end_turn();
//!         } else {
//!             server.flush();
//!         }
//!         pace.rest(&mut server);
//!     }
//! }
//! ```
//!
//! A receipt reports the delivery status of one message, for example for snapshots that contain only the changes since
//! the newest snapshot that a client has:
//! ```no_run
//! # use slipgate_server::{ChannelEvent, ChannelId, ClientHandle, DeliveryStatus, Event, Inbox};
//! # use slipgate_server::{SendError, SendOptions};
//! # const STATE: ChannelId = ChannelId(1);
//! # type Server = slipgate_server::Server;
//! # fn turn(
//! #     server: &mut Server, inbox: &mut Inbox, client: ClientHandle, tick: u64, baseline: &mut u64,
//! # ) -> Result<(), SendError> {
//! # let changes_since = |_: u64| [0; 8];
//! while let Some(event) = inbox.next(server) {
//!     let Event::Channel { event, .. } = event else { continue };
//!     if let ChannelEvent::Receipt { tag, status: DeliveryStatus::Arrived, .. } = event {
//!         *baseline = tag.max(*baseline);
//!     }
//! }
//! let Some(mut client) = server.client(client) else { return Ok(()) };
//! client.send_message_with(STATE, &changes_since(*baseline), SendOptions::default().receipt(tick))
//! # }
//! ```

#![forbid(unsafe_code)]

#[cfg(all(doctest, feature = "typed"))]
#[doc = include_str!("../README.md")]
struct ServerReadme;

pub mod history_file;
pub mod sharded;

mod disconnect_counts;
mod filter_changes;
mod flood_guard;
mod frequent_clients;
mod inbox;
mod journal;
mod junk_counts;
mod kernel_filter;
mod loopback_error;
mod memory_return;
mod new_clients;
mod read_budget;
mod receive_lag;
mod report;
mod rounded;
mod server;
mod shard_threads;
mod shards;
#[cfg(test)]
mod test_log;
mod totals;
#[cfg(feature = "typed")]
mod typed_messages;

/// Settings that most games leave at their defaults.
pub mod config {
    pub use slipgate_netcode::server::{Budgets, ServerConfigError, TokenCutoff};
    pub use slipgate_netcode::timing::TimeoutPolicy;
    pub use slipgate_session::connection::{ConnectionConfig, ConnectionConfigError, Memory, WorkLimits};
    pub use slipgate_session::reliability::MemoryBudget;
}

/// Private keys, and the file that holds them.
pub mod keys {
    pub use slipgate_netcode::crypto::key::{Key, KeyRing};
    pub use slipgate_os::key_file::{KeyFileError, read_key_file};
}

/// A client's connection: its path, what may leave in a tick, its queues, the result of a broadcast, and the token of a
/// redirect.
pub mod connection {
    pub use crate::server::{ClientActivity, QueuedMessages};
    pub use slipgate_netcode::token::ConnectToken;
    pub use slipgate_session::channel::Remaining;
    pub use slipgate_session::connection::{Budget, Connection, PacketTimes, PathStats};
    pub use slipgate_session::server::BroadcastReport;
}

/// Acknowledged packets, for games with a message layer of their own.
pub mod packets {
    pub use slipgate_session::reliability::PacketEvent;
    pub use slipgate_session::wire::reliable::Sequence;
}

/// UDP sockets: their buffers, DSCP marks, counters and wakers.
pub mod sockets {
    pub use slipgate_udp::{
        Batching, Dscp, Marking, Overflow, SocketBuffers, SocketErrorKind, SocketStats, Steering, WakePolicy, Waker,
    };
}

/// The counters of a server, with the reasons for dropped datagrams and for ends of connections.
pub mod counters {
    pub use crate::disconnect_counts::DisconnectCounts;
    pub use crate::new_clients::TakeNewClients;
    pub use crate::totals::ServerTotals;
    pub use slipgate_netcode::discard::{Discard, Discards};
    pub use slipgate_netcode::server::NetcodeStats;
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

pub use slipgate_netcode::ids;
pub use slipgate_netcode::server::{ClientHandle, ServerConfig};
pub use slipgate_netcode::time::{Instant, Now};
pub use slipgate_netcode::wire::{MAX_PAYLOAD_BYTES, UserData};
pub use slipgate_os::clock::Clock;
pub use slipgate_os::pace::Pace;
pub use slipgate_session::channel::{
    Channel, ChannelConfig, ChannelEvent, ChannelId, DeliveryStatus, Kind, Layout, SendOptions,
};
pub use slipgate_session::congestion;
pub use slipgate_session::connection::{CloseCode, CloseKind, CloseReason, ClosedBy, SendError, Traffic};
pub use slipgate_session::server::scheduling;
pub use slipgate_udp::Sockets;

pub use self::inbox::{Event, Inbox};
pub use self::loopback_error::LoopbackError;
pub use self::memory_return::leave_freed_memory;
pub use self::read_budget::ReadLimits;
pub use self::server::{ClientRef, Server, StartError};
pub(crate) use self::totals::ServerTotals;
#[cfg(feature = "typed")]
pub use slipgate_typed::decode;
