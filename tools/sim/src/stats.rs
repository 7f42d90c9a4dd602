//! The counters of a path.

use core::ops::AddAssign;

/// What one direction of a path has done since it was created.
///
/// `pushed + duplicated = delivered + lost + tail_dropped + overflowed + in transit`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DirectionStats {
    /// Datagrams that were pushed in.
    pub pushed: u64,
    /// Their bytes.
    pub pushed_bytes: u64,
    /// Datagrams that were taken out, copies included.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Datagrams lost behind the link.
    pub lost: u64,
    /// Datagrams that did not fit into the link's buffer.
    pub tail_dropped: u64,
    /// Datagrams beyond the path's [`Bounds`](crate::Bounds): the bounds are too small for these conditions.
    pub overflowed: u64,
    /// Copies that were made.
    pub duplicated: u64,
    /// Datagrams in which a bit was flipped.
    pub corrupted: u64,
    /// Datagrams that were held back.
    pub held_back: u64,
    /// Datagrams that arrived after one that was sent later.
    pub overtaken: u64,
    /// Stalls that delayed datagrams.
    pub stalls: u64,
}

impl AddAssign for DirectionStats {
    fn add_assign(&mut self, other: Self) {
        self.pushed += other.pushed;
        self.pushed_bytes += other.pushed_bytes;
        self.delivered += other.delivered;
        self.delivered_bytes += other.delivered_bytes;
        self.lost += other.lost;
        self.tail_dropped += other.tail_dropped;
        self.overflowed += other.overflowed;
        self.duplicated += other.duplicated;
        self.corrupted += other.corrupted;
        self.held_back += other.held_back;
        self.overtaken += other.overtaken;
        self.stalls += other.stalls;
    }
}
