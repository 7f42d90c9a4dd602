//! Messages over the acknowledged-packet endpoint: what a game sends on channels, and what each channel promises.
//!
//! ```text
//!  send ──▶ queue ──▶ flights (reliable, until acknowledged)     frames in
//!              │         │  ▲                                        │
//!              ▼         ▼  │ lost: again, in another packet         ▼
//!           schedule: priority, weight, age                        frame
//!              │            │                                        │
//!              ▼            │                          assembly, window: once, in order
//!             pen ──▶ frames out, noted in carried                   │
//!                           ▲                                        ▼
//!              on_acked, on_lost, on_probe                     next: messages
//! ```
//!
//! Packets are never sent twice; messages are, under their own ids. What was lost is told from outside, by the
//! acknowledgements of packets and the path's round-trip time; there is no timer here that sends anything again.
//!
//! Sections §3.x in this module are those of `specs/channels-1.md`.

mod assembly;
pub mod block;
mod block_lane;
mod carried;
mod channels;
pub mod control;
mod flights;
mod frame;
mod frame_plan;
mod incoming;
mod key_index;
mod layout;
mod message_id;
mod outgoing;
mod pen;
mod piece_set;
mod pieces;
mod precedence;
mod queue;
mod receipts;
mod schedule;
mod sending;
mod slab;
mod stats;
mod violation;
mod window;

use core::fmt;
use core::ops::Range;
use core::time::Duration;

use self::message_id::IdRun;

pub use self::channels::Channels;
pub use self::layout::{
    ChannelConfig, ChannelId, Kind, Layout, LayoutError, LayoutFault, LayoutHash, MAX_CHANNELS, MAX_MESSAGE_BYTES,
    MAX_QUEUE_BYTES, MAX_QUEUE_MESSAGES,
};
pub use self::pieces::{PIECE_BYTES, RESERVE_BYTES};
pub use self::precedence::{Means, Wish};
pub use self::receipts::{Fate, MAX_RECEIPTS};
pub use self::schedule::{STARVED_AFTER, TURN_BYTES};
pub use self::stats::ChannelStats;
pub use self::violation::Violation;

/// Packets of which is remembered what they carried; before more are under way, [`Channels::is_full`]. A peer's window of
/// received packets may hold no more.
///
/// Seven eighths of them are 50 Mbit/s on a path of 300 ms, or 28 by way of a satellite (600 ms).
pub const MAX_PACKETS: u16 = 2048;

/// What a message may ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendOptions {
    /// How long it may wait to be sent, or sent again; `None`: as long as the channel's settings say.
    pub deadline: Option<Duration>,
    /// A newer message with the same key replaces an older one that was not sent or not acknowledged; but one that is
    /// being sent, in more than one packet, is sent to its end.
    ///
    /// In a full queue the older one makes room, if the newer one's bytes fit. One that is under way is given up: it is not sent
    /// again, its receipt says [`Superseded`](Fate::Superseded), and the newer one waits until the receiver's window has a
    /// place for it.
    ///
    /// Keys are those of one channel. Finding the older message costs the same however many wait or are under way.
    pub key: Option<u64>,
    /// A tag of the application's own: by [`ChannelEvent::Receipt`] it hears once what became of the message. `None`:
    /// nobody asks, and nothing is kept for it.
    pub receipt: Option<u64>,
}

/// Why a message was not taken. Nothing has changed; the connection lives on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum SendError {
    /// The channel's queue is full, or [`MAX_RECEIPTS`] are awaited or were not taken, and the message asks for one more:
    /// [`Free`] tells which.
    Backlogged,
    /// The message is larger than the channel's [`max_message_bytes`](ChannelConfig::max_message_bytes).
    TooLarge,
    /// The layout has no such channel.
    NoChannel,
    /// A message for a channel of blocks, or a block for one of messages.
    WrongKind,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Backlogged => "the channel's queue is full, or too many receipts are awaited",
            Self::TooLarge => "the message is larger than the channel's max_message_bytes",
            Self::NoChannel => "the layout has no such channel",
            Self::WrongKind => "the channel is of another kind",
        })
    }
}

impl core::error::Error for SendError {}

/// What a channel's queue can still take of messages without keys, and how many receipts its connection.
///
/// With a key, a message that replaces another needs less; where only the newest counts ([`ChannelConfig::newest_only`]) any
/// other needs more, for it does not take the room of those that a new one without a key would replace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Free {
    /// Bytes of messages.
    pub bytes: u32,
    /// Messages.
    pub messages: u16,
    /// Receipts that may still be asked for, on all channels of the connection together, which have [`MAX_RECEIPTS`].
    pub receipts: u16,
}

/// How far the frames of a packet have been read; the default is the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadAt {
    bytes: usize,
    ids: IdRun,
}

/// Where the bytes of a message lie.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// There in the packet's frames.
    Frames(Range<usize>),
    /// All of the scratch.
    Scratch,
}

impl Place {
    /// The message's bytes.
    #[must_use]
    pub fn bytes<'a>(&self, frames: &'a [u8], scratch: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Frames(range) => frames.get(range.clone()).unwrap_or(&[]),
            Self::Scratch => scratch,
        }
    }
}

/// What arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Arrival {
    /// A message.
    Message {
        /// Its channel.
        channel: ChannelId,
        /// Its bytes.
        place: Place,
    },
}

/// What the application has to hear beside messages.
#[derive(Debug)]
#[non_exhaustive]
pub enum ChannelEvent {
    /// What became of a block.
    Block {
        /// Its channel.
        channel: ChannelId,
        /// What became of it.
        event: block::Event,
    },
    /// What became of a message that asked for a receipt; told once. Those that are awaited when the connection ends are
    /// not told: of them nothing is known.
    Receipt {
        /// Its channel.
        channel: ChannelId,
        /// What stood in [`SendOptions::receipt`].
        tag: u64,
        /// What became of it.
        fate: Fate,
    },
}

#[cfg(test)]
mod tests;
