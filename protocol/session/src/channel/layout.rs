//! Which channels there are, and what each may cost. Both ends must have the same layout; its hash tells.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use sha2::{Digest, Sha256};

use super::block;
use super::pieces::{MAX_PIECES, PIECE_BYTES};

/// The most channels of a layout: six bits of a frame's head, without 0 (control) and 63 (kept for later).
pub const MAX_CHANNELS: usize = 62;
/// The most bytes of any message; what is larger travels as a block.
pub const MAX_MESSAGE_BYTES: u32 = MAX_PIECES as u32 * PIECE_BYTES as u32;
/// The most messages that any queue holds: a small share of the 2,097,152 message ids, so that old and new are
/// never mistaken.
pub const MAX_QUEUE_MESSAGES: u16 = 1 << 14;
/// The most bytes that any queue holds.
pub const MAX_QUEUE_BYTES: u32 = 1 << 24;
/// How long a message waits to be sent that would be of little use later, unless one says otherwise: beyond 250 ms the
/// seed calls conditions bad ("Fiedler, Reliability, Ordering and Congestion Avoidance over UDP").
const STALE_AFTER: Duration = Duration::from_millis(250);
/// What the canonical encoding of a layout begins with (§3.6).
const LABEL: &[u8] = b"slipgate channels 1\0";

/// A channel: its index in the layout, 0 to 61.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct ChannelId(pub u8);

/// What a channel promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Kind {
    /// Messages arrive once or not at all, in any order.
    Unreliable,
    /// Messages arrive once or not at all, and never after a newer one.
    ///
    /// On a path that is too thin for all of them they wait their turn like others, as long as their deadline. States, of
    /// which only the newest is of use, have a key ([`SendOptions::key`](super::SendOptions::key)) or a channel of their own
    /// with [`ChannelConfig::newest_only`]: then the newest leaves first.
    Sequenced,
    /// Every message arrives once, as soon as it can.
    ReliableUnordered,
    /// Every message arrives once, in the order in which they were sent.
    ReliableOrdered,
    /// Large blocks of data arrive once and whole.
    Blocks,
}

impl Kind {
    /// Whether what was lost is sent again.
    #[must_use]
    pub const fn is_reliable(self) -> bool {
        matches!(self, Self::ReliableUnordered | Self::ReliableOrdered | Self::Blocks)
    }

    /// Its byte in the canonical encoding (§3.6).
    const fn code(self) -> u8 {
        match self {
            Self::Unreliable => 0,
            Self::Sequenced => 1,
            Self::ReliableUnordered => 2,
            Self::ReliableOrdered => 3,
            Self::Blocks => 4,
        }
    }
}

/// The settings of one channel.
///
/// `kind`, `queue_bytes`, `queue_messages` and `max_message_bytes` must be the same at both ends and are part of the
/// layout's hash: they bound what the receiver must be ready to hold. The others matter to one end alone.
#[derive(Clone, Debug)]
pub struct ChannelConfig {
    /// What the channel promises.
    pub kind: Kind,
    /// Its class: while a higher class has something to send, lower ones wait (but see [`super::STARVED_AFTER`]), and what
    /// they are granted never keeps the next message of a higher class from leaving. Blocks are in class 0 and messages
    /// in class 1, unless one says otherwise: so no transfer delays the game's own stream, on thin paths either.
    pub priority: u8,
    /// Its share among the channels of its class, at least 1.
    pub weight: u16,
    /// How many bytes of frames may leave in a tick; `None`: as many as fit. The last message of a tick may go over it,
    /// and the next tick has so much less. Each turn that a program ends is a tick: one that wakes for every arrival
    /// had best flush then, which is none, and end its turns at its own pace.
    pub bytes_per_tick: Option<u32>,
    /// The most bytes of messages that wait to be sent or acknowledged, at least `max_message_bytes`. Counted from the
    /// oldest message that is not acknowledged.
    pub queue_bytes: u32,
    /// The most messages that wait to be sent or acknowledged, 1 to 16,384. Counted likewise.
    pub queue_messages: u16,
    /// The most bytes of a message, 1 to 65,536.
    pub max_message_bytes: u32,
    /// How long a message may wait to be sent, unless it says otherwise itself; `None`: for ever.
    pub deadline: Option<Duration>,
    /// Of a sequenced channel: whether of the messages without a key only the newest counts. Then what was sent without a
    /// key in one tick, and could not leave, is given up when something without a key is sent in a later tick: so the
    /// newest state never waits for older ones on a path that is too thin for all. What is sent in one tick arrives whole
    /// and in order, as far as it fits. Not unless one says so; the states of several things need a key for each
    /// ([`SendOptions::key`](super::SendOptions::key)), by which each of them has this without being asked.
    pub newest_only: bool,
    /// Of a channel of blocks, for which the queue's and message's limits say nothing: what it may take. Only
    /// `max_at_once` must be the same at both ends, and is part of the layout's hash.
    pub blocks: block::Config,
}

impl ChannelConfig {
    /// A channel of this kind with the usual settings: class 1, or 0 for blocks; weight 1, messages up to 16 KiB, and
    /// 64 KiB or 256 of them in the queue. What is unreliable or sequenced waits for a quarter of a second at most, so that
    /// the newest data never stands behind old data for long.
    #[must_use]
    pub const fn new(kind: Kind) -> Self {
        Self {
            kind,
            priority: if matches!(kind, Kind::Blocks) { 0 } else { 1 },
            weight: 1,
            bytes_per_tick: None,
            queue_bytes: 64 * 1024,
            queue_messages: 256,
            max_message_bytes: 16 * 1024,
            deadline: if kind.is_reliable() { None } else { Some(STALE_AFTER) },
            newest_only: false,
            blocks: block::Config::usual(),
        }
    }

    /// Whether a message without a key makes older ones useless that wait.
    pub(super) const fn gives_up_older(&self) -> bool {
        self.newest_only && matches!(self.kind, Kind::Sequenced)
    }

    fn check(&self) -> Result<(), LayoutFault> {
        let fault = match self {
            Self { weight: 0, .. } => LayoutFault::NoWeight,
            Self { bytes_per_tick: Some(0), .. } => LayoutFault::NoBytesPerTick,
            _ if !(1..=MAX_MESSAGE_BYTES).contains(&self.max_message_bytes) => LayoutFault::MessageBytes,
            _ if !(self.max_message_bytes..=MAX_QUEUE_BYTES).contains(&self.queue_bytes) => LayoutFault::QueueBytes,
            _ if !(1..=MAX_QUEUE_MESSAGES).contains(&self.queue_messages) => LayoutFault::QueueMessages,
            _ => return self.blocks.check().map_err(LayoutFault::Blocks),
        };
        Err(fault)
    }

    /// The part of the settings that both ends must agree upon (§3.6).
    fn encode(&self, hash: &mut Sha256) {
        hash.update([self.kind.code()]);
        if self.kind == Kind::Blocks {
            return hash.update([self.blocks.max_at_once]);
        }
        hash.update(self.max_message_bytes.to_le_bytes());
        hash.update(self.queue_bytes.to_le_bytes());
        hash.update(self.queue_messages.to_le_bytes());
    }
}

/// The channels of a connection, the same at both ends.
#[derive(Clone, Debug)]
pub struct Layout {
    channels: Vec<ChannelConfig>,
    hash: LayoutHash,
}

/// What is wrong with a channel's settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayoutFault {
    /// Its weight is 0.
    NoWeight,
    /// It may send 0 bytes per tick.
    NoBytesPerTick,
    /// `max_message_bytes` is not within 1 to 65,536.
    MessageBytes,
    /// `queue_bytes` is less than `max_message_bytes`, or more than 16 MiB.
    QueueBytes,
    /// `queue_messages` is not within 1 to 16,384.
    QueueMessages,
    /// The settings of its blocks make no sense.
    Blocks(block::ConfigError),
}

/// Why a layout is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayoutError {
    /// More than 62 channels.
    TooManyChannels,
    /// A channel's settings are wrong.
    Channel(ChannelId, LayoutFault),
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (channel, fault) = match self {
            Self::TooManyChannels => return write!(f, "a layout has at most {MAX_CHANNELS} channels"),
            Self::Channel(channel, fault) => (channel.0, fault),
        };
        let says = match fault {
            LayoutFault::NoWeight => "the weight is at least 1",
            LayoutFault::NoBytesPerTick => "a budget is at least 1 byte per tick",
            LayoutFault::MessageBytes => "messages have at most 1 to 65,536 bytes",
            LayoutFault::QueueBytes => "the queue holds at least one message and at most 16 MiB",
            LayoutFault::QueueMessages => "the queue holds 1 to 16,384 messages",
            LayoutFault::Blocks(error) => return write!(f, "channel {channel}: {error}"),
        };
        write!(f, "channel {channel}: {says}")
    }
}

impl core::error::Error for LayoutError {}

/// A digest of what both ends must agree upon: the first 8 bytes of a SHA-256 (§3.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct LayoutHash(pub [u8; 8]);

impl fmt::Display for LayoutHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Layout {
    /// A layout of these channels, in the order of their ids. There may be none: then a connection greets, knows its path,
    /// and says why it ends, and nothing else.
    ///
    /// # Errors
    /// When there are more than 62, or the settings of one make no sense.
    pub fn new(channels: Vec<ChannelConfig>) -> Result<Self, LayoutError> {
        if channels.len() > MAX_CHANNELS {
            return Err(LayoutError::TooManyChannels);
        }
        for (id, channel) in (0..).zip(&channels) {
            channel.check().map_err(|fault| LayoutError::Channel(ChannelId(id), fault))?;
        }
        let hash = hash(&channels);
        Ok(Self { channels, hash })
    }

    /// The digest that the two ends compare.
    #[must_use]
    pub const fn hash(&self) -> LayoutHash {
        self.hash
    }

    /// The settings of a channel, if there is such a channel.
    #[must_use]
    pub fn channel(&self, channel: ChannelId) -> Option<&ChannelConfig> {
        self.channels.get(usize::from(channel.0))
    }

    /// All channels, in the order of their ids.
    pub fn channels(&self) -> impl ExactSizeIterator<Item = &ChannelConfig> {
        self.channels.iter()
    }
}

fn hash(channels: &[ChannelConfig]) -> LayoutHash {
    let mut hash = Sha256::new();
    hash.update(LABEL);
    hash.update([channels.len() as u8]);
    for channel in channels {
        channel.encode(&mut hash);
    }
    let mut cut = [0; 8];
    cut.iter_mut().zip(hash.finalize()).for_each(|(to, from)| *to = from);
    LayoutHash(cut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn the_hash_tells_what_both_ends_must_agree_upon_and_nothing_else() {
        let base = ChannelConfig::new(Kind::ReliableOrdered);
        let hash = |config: &ChannelConfig| Layout::new(vec![config.clone()]).unwrap().hash();
        for differs in [
            ChannelConfig { kind: Kind::ReliableUnordered, ..base.clone() },
            ChannelConfig { max_message_bytes: 1000, ..base.clone() },
            ChannelConfig { queue_bytes: 65_537, ..base.clone() },
            ChannelConfig { queue_messages: 255, ..base.clone() },
        ] {
            assert_ne!(hash(&differs), hash(&base), "{differs:?}");
        }
        for alike in [
            ChannelConfig { priority: 9, ..base.clone() },
            ChannelConfig { weight: 9, ..base.clone() },
            ChannelConfig { bytes_per_tick: Some(9), ..base.clone() },
            ChannelConfig { deadline: Some(Duration::ZERO), ..base.clone() },
        ] {
            assert_eq!(hash(&alike), hash(&base), "{alike:?}");
        }
        let of = |max_at_once| {
            let blocks = block::Config { max_at_once, ..base.blocks.clone() };
            hash(&ChannelConfig { blocks, ..ChannelConfig::new(Kind::Blocks) })
        };
        assert_ne!(of(4), of(5));
        let two = Layout::new(vec![base.clone(), base.clone()]).unwrap().hash();
        assert_ne!(two, hash(&base));
    }

    #[test]
    fn settings_that_make_no_sense_are_refused_with_the_channel_and_the_reason() {
        let base = ChannelConfig::new(Kind::Unreliable);
        for (config, fault) in [
            (ChannelConfig { weight: 0, ..base.clone() }, LayoutFault::NoWeight),
            (ChannelConfig { bytes_per_tick: Some(0), ..base.clone() }, LayoutFault::NoBytesPerTick),
            (ChannelConfig { max_message_bytes: 0, ..base.clone() }, LayoutFault::MessageBytes),
            (
                ChannelConfig { max_message_bytes: 65_537, queue_bytes: 65_537, ..base.clone() },
                LayoutFault::MessageBytes,
            ),
            (ChannelConfig { queue_bytes: 16_383, ..base.clone() }, LayoutFault::QueueBytes),
            (ChannelConfig { queue_bytes: (16 << 20) + 1, ..base.clone() }, LayoutFault::QueueBytes),
            (ChannelConfig { queue_messages: 0, ..base.clone() }, LayoutFault::QueueMessages),
            (ChannelConfig { queue_messages: 16_385, ..base.clone() }, LayoutFault::QueueMessages),
            (
                ChannelConfig { blocks: block::Config { max_at_once: 0, ..block::Config::default() }, ..base.clone() },
                LayoutFault::Blocks(block::ConfigError::AtOnce),
            ),
        ] {
            let refused = Layout::new(vec![base.clone(), config]).unwrap_err();
            assert_eq!(refused, LayoutError::Channel(ChannelId(1), fault));
        }
        assert!(Layout::new(vec![base.clone(); 62]).is_ok());
        assert_eq!(Layout::new(vec![base; 63]).unwrap_err(), LayoutError::TooManyChannels);
    }
}
