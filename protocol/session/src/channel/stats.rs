//! Counters of a channel.

/// The messages of one channel, counted since the connection began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChannelStats {
    /// Messages that were queued for sending.
    pub sent: u64,
    /// Messages that were refused because the queue was full.
    pub backlogged: u64,
    /// Messages that were discarded because their deadline passed.
    pub expired: u64,
    /// Messages that were replaced by a newer one with the same key, or by a newer one without a key on a channel with
    /// `newest_only`.
    pub superseded: u64,
    /// Bytes of frames that were sent, retransmissions included.
    pub frame_bytes: u64,
    /// Messages that arrived and were delivered.
    pub delivered: u64,
    /// Messages and slices that arrived and were dropped: duplicates, older than what was delivered, or incomplete for
    /// too long.
    pub dropped: u64,
}

/// The counters of a channel's sender.
#[derive(Clone, Copy, Default)]
pub(crate) struct SenderStats {
    pub(crate) sent: u64,
    pub(crate) backlogged: u64,
    pub(crate) expired: u64,
    pub(crate) superseded: u64,
    pub(crate) frame_bytes: u64,
}

/// The counters of a channel's receiver.
#[derive(Clone, Copy, Default)]
pub(crate) struct ReceiverStats {
    pub(crate) delivered: u64,
    pub(crate) dropped: u64,
}

impl ChannelStats {
    pub(crate) const fn of(sender: SenderStats, receiver: ReceiverStats) -> Self {
        let SenderStats { sent, backlogged, expired, superseded, frame_bytes } = sender;
        let ReceiverStats { delivered, dropped } = receiver;
        Self { sent, backlogged, expired, superseded, frame_bytes, delivered, dropped }
    }
}
