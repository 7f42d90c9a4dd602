//! Which kinds of channels there are, and the settings of one channel.

use alloc::borrow::Cow;
use core::time::Duration;

use sha2::{Digest, Sha256};

use super::transfer::{TransferConfig, TransferConfigError};
use crate::channel::wire::pieces::{MAX_PIECES, PIECE_BYTES};
pub use crate::channel_id::ChannelId;

/// The maximum bytes of any message. Larger data is sent as a transfer.
pub const MAX_MESSAGE_BYTES: u32 = MAX_PIECES as u32 * PIECE_BYTES as u32;
/// The maximum number of messages in any queue: a small share of the 2,097,152 message ids, so that old and new ids are
/// never confused.
pub const MAX_QUEUE_MESSAGES: u16 = 1 << 14;
/// The maximum bytes in any queue.
pub const MAX_QUEUE_BYTES: u32 = 1 << 24;
/// The maximum bytes of a channel's name (§3.6).
pub const MAX_NAME_BYTES: usize = 64;
/// The default deadline of messages that are not retransmitted. The source calls conditions beyond 250 ms bad (Fiedler,
/// "Reliability, Ordering and Congestion Avoidance over UDP").
const DEFAULT_DEADLINE: Duration = Duration::from_millis(250);

/// The delivery guarantee of a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Kind {
    /// Each message arrives once or not at all, in any order.
    Unreliable,
    /// Each message arrives once or not at all, and never after a newer one.
    ///
    /// Messages wait in order, up to their deadline, on a path that is too thin for all of them. States of which only
    /// the newest matters should have a key ([`SendOptions::key`](super::SendOptions::key)) or a channel of their own
    /// with [`ChannelConfig::newest_only`]: then the newest state leaves first.
    Sequenced,
    /// Every message arrives once, as soon as possible.
    ReliableUnordered,
    /// Every message arrives once, in the order in which the messages were sent.
    ReliableOrdered,
    /// Transfers of up to 64 MiB arrive once and whole.
    Transfers,
}

impl Kind {
    /// Returns whether lost data is sent again.
    #[must_use]
    pub const fn is_reliable(self) -> bool {
        matches!(self, Self::ReliableUnordered | Self::ReliableOrdered | Self::Transfers)
    }

    /// Returns the kind's byte in the canonical encoding (§3.6).
    const fn code(self) -> u8 {
        match self {
            Self::Unreliable => 0,
            Self::Sequenced => 1,
            Self::ReliableUnordered => 2,
            Self::ReliableOrdered => 3,
            Self::Transfers => 4,
        }
    }
}

/// The settings of one channel.
///
/// `name`, `kind`, `queue_bytes`, `queue_messages` and `max_message_bytes` must be the same at both ends and are part
/// of the layout's hash: the limits bound what the receiver must be able to hold. The other settings concern one end
/// only.
///
/// # Examples
///
/// ```
/// use slipgate_session::channel::Channel;
///
/// let chat = Channel::reliable_ordered("chat").priority(2).max_message_bytes(1024);
/// assert_eq!((chat.priority, chat.name.as_ref()), (2, "chat"));
/// ```
#[derive(Clone, Debug)]
pub struct ChannelConfig {
    /// The channel's name, at most 64 bytes and unique in the layout. Empty: the channel has no name.
    pub name: Cow<'static, str>,
    /// The delivery guarantee.
    pub kind: Kind,
    /// The priority class. While a higher class has data to send, lower ones wait, up to
    /// [`STARVED_AFTER`](super::STARVED_AFTER). The data of a lower class never delays the next message of a higher
    /// one. The default is 0 for transfers and 1 for messages, so that a transfer does not delay the game's own stream.
    pub priority: u8,
    /// The share among the channels of the same class, at least 1.
    pub weight: u16,
    /// How many bytes of frames may leave in a tick. `None` sets no limit. The last message of a tick may exceed it;
    /// the next tick is charged for the excess. Each turn that a program ends is a tick: a server that wakes on every
    /// datagram should call `flush` on arrival and `end_turn` once per tick.
    pub bytes_per_tick: Option<u32>,
    /// The maximum bytes of messages that wait to be sent or acked, at least `max_message_bytes`. Counted from the
    /// oldest message that is not acked.
    pub queue_bytes: u32,
    /// The maximum number of messages that wait to be sent or acked, 1 to 16,384. Counted likewise.
    ///
    /// Each takes up to 256 bytes of memory beside its own bytes, outside of the memory that clients share: a server
    /// that replies to each message of a client keeps as many replies while the client acknowledges none.
    pub queue_messages: u16,
    /// The maximum bytes of a message, 1 to 65,536.
    pub max_message_bytes: u32,
    /// How long a message may wait to be sent if its own options say nothing. `None` sets no limit.
    pub deadline: Option<Duration>,
    /// Whether only the newest of the messages without a key counts, on unreliable and sequenced channels. Messages of
    /// one tick that could not leave are then discarded when a message without a key is sent in a later tick, so that
    /// the newest state never waits for older ones on a thin path. Messages of the same tick all stay queued. Off by
    /// default. States of several objects need a key for each ([`SendOptions::key`](super::SendOptions::key)); keys
    /// have this effect on any channel.
    pub newest_only: bool,
    /// The settings of a channel of transfers, for which the limits of messages and queues have no meaning. Only
    /// `max_at_once` must be the same at both ends, and is part of the layout's hash.
    pub transfers: TransferConfig,
}

impl From<Kind> for ChannelConfig {
    /// Creates the default settings of a kind, without a name: class 1, or 0 for transfers; weight 1; messages of up to
    /// 16 KiB; at most 64 KiB and 256 messages in the queue. Unreliable and sequenced messages have a deadline of
    /// 250 ms, so that new data does not wait for old data for long.
    fn from(kind: Kind) -> Self {
        Self::named(kind, "")
    }
}

impl ChannelConfig {
    const fn named(kind: Kind, name: &'static str) -> Self {
        Self {
            name: Cow::Borrowed(name),
            kind,
            priority: if matches!(kind, Kind::Transfers) { 0 } else { 1 },
            weight: 1,
            bytes_per_tick: None,
            queue_bytes: 64 * 1024,
            queue_messages: 256,
            max_message_bytes: 16 * 1024,
            deadline: if kind.is_reliable() { None } else { Some(DEFAULT_DEADLINE) },
            newest_only: false,
            transfers: TransferConfig::standard(),
        }
    }

    /// Creates a channel of [`Kind::Unreliable`] with this name.
    #[must_use]
    pub const fn unreliable(name: &'static str) -> Self {
        Self::named(Kind::Unreliable, name)
    }

    /// Creates a channel of [`Kind::Sequenced`] with this name.
    #[must_use]
    pub const fn sequenced(name: &'static str) -> Self {
        Self::named(Kind::Sequenced, name)
    }

    /// Creates a channel of [`Kind::ReliableUnordered`] with this name.
    #[must_use]
    pub const fn reliable_unordered(name: &'static str) -> Self {
        Self::named(Kind::ReliableUnordered, name)
    }

    /// Creates a channel of [`Kind::ReliableOrdered`] with this name.
    #[must_use]
    pub const fn reliable_ordered(name: &'static str) -> Self {
        Self::named(Kind::ReliableOrdered, name)
    }

    /// Creates a channel of [`Kind::Transfers`] with this name.
    #[must_use]
    pub const fn transfers(name: &'static str) -> Self {
        Self::named(Kind::Transfers, name)
    }

    /// Sets the priority class.
    #[must_use]
    pub const fn priority(mut self, class: u8) -> Self {
        self.priority = class;
        self
    }

    /// Sets the share among the channels of the same class.
    #[must_use]
    pub const fn weight(mut self, weight: u16) -> Self {
        self.weight = weight;
        self
    }

    /// Sets the limit of the queue in bytes and messages.
    #[must_use]
    pub const fn queue(mut self, bytes: u32, messages: u16) -> Self {
        (self.queue_bytes, self.queue_messages) = (bytes, messages);
        self
    }

    /// Sets the maximum bytes of a message. The queue's limit is raised to it if needed.
    #[must_use]
    pub const fn max_message_bytes(mut self, bytes: u32) -> Self {
        self.max_message_bytes = bytes;
        // A queue must hold at least one message.
        if self.queue_bytes < bytes {
            self.queue_bytes = bytes;
        }
        self
    }

    /// Sets how long a message may wait to be sent.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets [`newest_only`](Self::newest_only).
    #[must_use]
    pub const fn newest_only(mut self) -> Self {
        self.newest_only = true;
        self
    }

    /// Returns whether a message without a key replaces older ones that wait.
    pub(crate) const fn replaces_older(&self) -> bool {
        self.newest_only && matches!(self.kind, Kind::Sequenced | Kind::Unreliable)
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// - `NoWeight`, `NoBytesPerTick`: the weight or `bytes_per_tick` is 0.
    /// - `LongName`: the name has more than 64 bytes.
    /// - `MessageBytes`, `QueueBytes`, `QueueMessages`: the limit is out of its bounds.
    /// - `NewestOnly`: the channel is reliable, or it is one of transfers.
    /// - `Transfers`: a setting of its transfers is out of its bounds.
    pub(crate) fn check(&self) -> Result<(), LayoutFault> {
        let fault = match self {
            Self { weight: 0, .. } => LayoutFault::NoWeight,
            Self { bytes_per_tick: Some(0), .. } => LayoutFault::NoBytesPerTick,
            _ if self.name.len() > MAX_NAME_BYTES => LayoutFault::LongName,
            _ if !(1..=MAX_MESSAGE_BYTES).contains(&self.max_message_bytes) => LayoutFault::MessageBytes,
            _ if !(self.max_message_bytes..=MAX_QUEUE_BYTES).contains(&self.queue_bytes) => LayoutFault::QueueBytes,
            _ if !(1..=MAX_QUEUE_MESSAGES).contains(&self.queue_messages) => LayoutFault::QueueMessages,
            _ if self.newest_only && !self.replaces_older() => LayoutFault::NewestOnly,
            // Checked for every kind, because a setting may be copied between channels.
            _ => return self.transfers.check().map_err(LayoutFault::Transfers),
        };
        Err(fault)
    }

    /// Hashes the part of the settings that both ends must agree upon (§3.6).
    pub(crate) fn encode(&self, hash: &mut Sha256) {
        hash.update([self.kind.code()]);
        // The limits of messages have no meaning for transfers.
        if self.kind == Kind::Transfers {
            return hash.update([self.transfers.max_at_once]);
        }
        hash.update(self.max_message_bytes.to_le_bytes());
        hash.update(self.queue_bytes.to_le_bytes());
        hash.update(self.queue_messages.to_le_bytes());
    }
}

/// A setting of a channel that is out of its bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LayoutFault {
    /// The weight is 0.
    NoWeight,
    /// `bytes_per_tick` is 0.
    NoBytesPerTick,
    /// `max_message_bytes` is not within 1 to 65,536.
    MessageBytes,
    /// `queue_bytes` is less than `max_message_bytes`, or more than 16 MiB.
    QueueBytes,
    /// `queue_messages` is not within 1 to 16,384.
    QueueMessages,
    /// `newest_only` is set for a channel that is neither unreliable nor sequenced: a reliable channel drops nothing.
    NewestOnly,
    /// The name has more than 64 bytes.
    LongName,
    /// Another channel of the layout has the same name.
    DuplicateName,
    /// A setting of its transfers is out of its bounds.
    Transfers(TransferConfigError),
}
