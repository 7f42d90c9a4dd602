//! A dedicated game server's end of Slipgate: netcode 1.02 over UDP, polled by the game's own loop.
//!
//! No thread, no async runtime, no callback: the loop asks for events, answers while it still holds them, and sends.
//! An event's bytes lie in the [`Inbox`] where they arrived and were decrypted, and are gone at the next call.
//!
//! Who needs more than one core has shards of one server on one port: by [`Server::shards`] for threads of the game's own,
//! by a [`Crew`] for a game on each shard, or by a [`Hub`] for a game loop beside them.
//!
//! # Examples
//! An echo server of 32 slots:
//! ```no_run
//! use std::time::Duration;
//!
//! use slipgate_server::key_file::read_key_file;
//! use slipgate_server::{Clock, Config, Event, Inbox, Server, Sockets};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let sockets = Sockets::bind(&["0.0.0.0:40000".parse()?])?;
//!     // The address under which clients know this server, as it stands in their connect tokens.
//!     let advertised = vec!["127.0.0.1:40000".parse::<std::net::SocketAddr>()?.into()];
//!     let keys = read_key_file("private.key")?;
//!     let clock = Clock::start();
//!     let config = Config::new(0x1122_3344, 32, advertised);
//!     let mut server = Server::new(sockets, config, keys, clock.now())?;
//!     let mut inbox = Inbox::default();
//!     loop {
//!         server.begin_turn(clock.now());
//!         while let Some(event) = inbox.next(&mut server) {
//!             match event {
//!                 Event::Connected { client, client_id } => println!("{client_id} has slot {}", client.slot()),
//!                 Event::Payload { client, bytes, .. } => server.send(client, bytes).unwrap_or_default(),
//!                 Event::Disconnected { client_id, reason, .. } => println!("{client_id}: {reason}"),
//!                 _ => {}
//!             }
//!         }
//!         server.end_turn();
//!         server.wait(Duration::from_millis(16))?;
//!     }
//! }
//! ```
//!
//! The same server with channels, for clients that carry the same ones: chat that arrives once and in order, state of
//! which only the newest matters, and a map in the background.
//! ```no_run
//! use std::time::Duration;
//!
//! use slipgate_server::block::Block;
//! use slipgate_server::{ChannelConfig, ChannelId, Kind, Layout, Traffic, decode};
//! # use slipgate_server::key_file::read_key_file;
//! # use slipgate_server::{Clock, Config, Event, Inbox, Server, Sockets};
//!
//! const CHAT: ChannelId = ChannelId(0);
//! const STATE: ChannelId = ChannelId(1);
//! const MAP: ChannelId = ChannelId(2);
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//! #   let sockets = Sockets::bind(&["0.0.0.0:40000".parse()?])?;
//! #   let advertised = vec!["127.0.0.1:40000".parse::<std::net::SocketAddr>()?.into()];
//! #   let keys = read_key_file("private.key")?;
//! #   let clock = Clock::start();
//! #   let config = Config::new(0x1122_3344, 32, advertised);
//!     // State goes before chat, and both before the map.
//!     let channel = |kind, priority| ChannelConfig { priority, ..ChannelConfig::new(kind) };
//!     let layout = Layout::new(vec![
//!         channel(Kind::ReliableOrdered, 1),
//!         channel(Kind::Sequenced, 2),
//!         channel(Kind::Blocks, 0),
//!     ])?;
//!     let mut server = Server::new(sockets, config, keys, clock.now())?.carrying(Traffic::channels(layout))?;
//!     let map = Block::new(std::fs::read("map")?).ok_or("the map is larger than 64 MiB")?;
//!     let mut inbox = Inbox::default();
//!     for tick in 0_u64.. {
//!         server.begin_turn(clock.now());
//!         while let Some(event) = inbox.next(&mut server) {
//!             match event {
//!                 // One that has gone again in this turn needs no map, and ends nobody's game.
//!                 Event::Connected { client, .. } => {
//!                     let _ = server.send_block(client, MAP, map.clone(), 0);
//!                 }
//!                 Event::Message { client, channel: CHAT, bytes } => match decode::<&str>(client, CHAT, bytes) {
//!                     Ok(line) => println!("slot {}: {line}", client.slot()),
//!                     Err(error) => println!("{error}"),
//!                 },
//!                 _ => {}
//!             }
//!         }
//!         for client in server.clients().collect::<Vec<_>>() {
//!             // Ask before composing: where little may leave, send less detail, not the same later.
//!             let bytes = server.budget(client).map_or(0, |budget| budget.suggestion.payload_bytes);
//!             server.send_typed(client, STATE, &(tick, vec![0_u16; (bytes / 3).min(300) as usize])).unwrap_or_default();
//!         }
//!         server.end_turn();
//!         // A steady tick; what arrives meanwhile waits in the socket.
//!         std::thread::sleep(Duration::from_millis(16));
//!     }
//!     Ok(())
//! }
//! ```
//!
//! What became of a message is told once to whoever asks, as for snapshots that leave out what has not changed since the
//! newest one that a client has:
//! ```no_run
//! # use slipgate_server::{ChannelEvent, ChannelId, ClientHandle, Event, Fate, Inbox, SendError, SendOptions, Server};
//! # const STATE: ChannelId = ChannelId(1);
//! # fn turn(server: &mut Server, inbox: &mut Inbox, client: ClientHandle, tick: u64, baseline: &mut u64) -> Result<(), SendError> {
//! # let changes_since = |_: u64| [0; 8];
//! while let Some(event) = inbox.next(server) {
//!     if let Event::Channel { event: ChannelEvent::Receipt { channel: STATE, tag, fate: Fate::Arrived }, .. } = event {
//!         *baseline = tag.max(*baseline);
//!     }
//! }
//! let options = SendOptions { receipt: Some(tick), ..SendOptions::default() };
//! server.send_message_with(client, STATE, &changes_since(*baseline), options)
//! # }
//! ```
//!
//! A loop that answers at once sleeps in [`Server::wait`], which returns when something arrives, and ends its turns at
//! its own pace. Acknowledgements and blocks do not wait for the next tick then:
//! ```no_run
//! # use std::time::Duration;
//! # use slipgate_server::{Clock, Inbox, Server};
//! # fn run(mut server: Server, clock: Clock) -> std::io::Result<()> {
//! const TICK: Duration = Duration::from_millis(16);
//! let (mut inbox, mut next_tick) = (Inbox::default(), clock.monotonic());
//! loop {
//!     server.begin_turn(clock.now());
//!     while let Some(event) = inbox.next(&mut server) {
//!         // As above.
//! #       drop(event);
//!     }
//!     if clock.monotonic() < next_tick {
//!         server.flush();
//!     } else {
//!         // The game advances, and sends its state. One that was stopped for a while does not make up for it.
//!         next_tick = next_tick.after(TICK).max(clock.monotonic());
//!         server.end_turn();
//!     }
//!     server.wait(next_tick.since(clock.monotonic()))?;
//! }
//! # }
//! ```

#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod history_file;

mod crew;
mod filtering;
mod hub;
mod inbox;
mod journal;
mod loopback_error;
mod pace;
mod reading;
mod report;
mod server;
mod shards;
mod totals;
mod typed_messages;
mod unread;

pub use slipgate_netcode::address::Address;
pub use slipgate_netcode::crypto::key::{Key, KeyRing};
pub use slipgate_netcode::discard::{Discard, Discards};
pub use slipgate_netcode::server::{
    Budgets, ClientHandle, ClientInfo, Config, ConfigError, DisconnectReason, Fence, MAX_SHARDS, ShardId, Stats,
};
pub use slipgate_netcode::time::{Instant, Now, UnixMillis};
pub use slipgate_netcode::timing::TimeoutPolicy;
pub use slipgate_netcode::wire::{MAX_PAYLOAD_BYTES, UserData};
pub use slipgate_os::clock::Clock;
pub use slipgate_os::key_file;
pub use slipgate_session::channel::block;
pub use slipgate_session::channel::control::ByeCode;
pub use slipgate_session::channel::{
    ChannelConfig, ChannelEvent, ChannelId, Fate, Free, Kind, Layout, MAX_RECEIPTS, SendOptions,
};
pub use slipgate_session::congestion::{self, BytesPerSecond, Suggestion, Weight};
pub use slipgate_session::reliability::{Event as PacketEvent, MemoryBudget};
pub use slipgate_session::session::{Budget, Connection, End, Memory, PathStats, SendError, Traffic};
pub use slipgate_session::wire::reliable::Sequence;
pub use slipgate_typed as typed;
pub use slipgate_udp::{Batching, Buffers, Dscp, Marking, Overflow, SocketStats, Sockets, Steering, Trouble, Waker};

pub use self::crew::{Crew, Ended, Game, Panicked};
pub use self::history_file::HistoryFile;
pub use self::hub::{Hub, HubConfig, HubCounts, HubError, Member};
pub use self::inbox::{Event, Inbox};
pub use self::loopback_error::LoopbackError;
pub use self::pace::Pace;
pub use self::reading::{DEFAULT_PACKETS_PER_TURN, DEFAULT_TIME_PER_TURN};
pub use self::server::{Server, StartError};
pub use self::totals::Totals;
pub use self::typed_messages::{SendTypedError, TypedError, decode, decode_with};
