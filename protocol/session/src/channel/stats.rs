//! What a channel counts.

/// The messages of one channel, counted since the connection began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChannelStats {
    /// Messages that were taken for sending.
    pub sent: u64,
    /// Messages that were refused because the queue was full.
    pub backlogged: u64,
    /// Messages that were dropped because their deadline had come.
    pub expired: u64,
    /// Messages that were replaced by a newer one with the same key; and those without a key that were given up for a newer
    /// one, where only the newest counts.
    pub superseded: u64,
    /// Bytes of frames that left, repetitions included.
    pub frame_bytes: u64,
    /// Messages that arrived and were delivered.
    pub delivered: u64,
    /// Messages and slices that arrived and were dropped: repeated, older than what was delivered, or incomplete for too
    /// long.
    pub dropped: u64,
}
