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
