//! Channels: messages over the acknowledged packets of a connection, each channel with its own delivery guarantee.
//!
//! ```text
//!  send ──▶ queue ──▶ retransmit queue (reliable, until acked)      frames in
//!              │            │  ▲                                         │
//!              ▼            ▼  │ lost: sent again in a new packet        ▼
//!           scheduler: priority, weight, age                     wire: parse frame
//!              │                                                         │
//!              ▼                                            recv: assembly, window
//!        frame writer ──▶ frames out ──▶ frames in flight                │
//!                                              ▲                         ▼
//!                                 on_acked, on_lost, on_pto        next: messages
//! ```
//!
//! A packet is never sent twice. A message is sent again in a new packet, under its own id. The connection reports
//! acked and lost packets; channels have no retransmission timer of their own.
//!
//! Sections §3.x in this module are those of `specs/channels-1.md`, sections §4.x those of `specs/transfers-1.md`.

mod channel_table;
mod channels;
mod chunks;
pub(crate) mod close_code;
mod config;
mod events;
mod layout;
mod options;
mod recv;
mod scheduling;
mod send;
mod shared;
mod slab;
mod stats;
pub(crate) mod steps;
pub mod transfer;
mod transfer_channel;
mod violation;
mod wire;

pub use self::channels::Channels;
pub use self::chunks::RESERVE_BYTES;
pub use self::config::{
    ChannelConfig, ChannelId, Kind, LayoutFault, MAX_MESSAGE_BYTES, MAX_NAME_BYTES, MAX_QUEUE_BYTES, MAX_QUEUE_MESSAGES,
};
pub use self::events::{ChannelEvent, DeliveryStatus, ReceivedMessage};
pub use self::layout::{Channel, Layout, LayoutBuilder, LayoutError, LayoutHash, MAX_CHANNELS};
pub use self::options::{Remaining, SendOptions};
pub use self::scheduling::scheduler::STARVED_AFTER;
pub(crate) use self::scheduling::send_budget::MAX_RESERVE_BYTES;
pub use self::scheduling::send_budget::{PendingDemand, SendBudget};
pub use self::scheduling::turn::QUANTUM_BYTES;
pub use self::send::receipts::MAX_RECEIPTS;
pub use self::shared::SharedMessage;
pub use self::stats::ChannelStats;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use self::steps::search_steps;
pub use self::violation::ChannelViolation;
pub use self::wire::control;
pub use self::wire::frame::FrameCursor;
pub use self::wire::pieces::PIECE_BYTES;

/// The maximum number of packets that are remembered with their frames until they are acked or lost. When the limit is
/// near, a connection sends no more until a packet is acked or lost. A peer's window of received packets may hold no
/// more.
///
/// Seven eighths of them carry 50 Mbit/s on a path with a round trip of 300 ms, or 28 Mbit/s by satellite (600 ms).
pub const MAX_PACKETS: u16 = 2048;

#[cfg(test)]
mod tests;
