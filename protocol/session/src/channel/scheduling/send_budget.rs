//! The send budget: the capacity of the path now, and how much of it a class leaves to higher ones.
//!
//! A thin path grants its bytes slowly. A channel that always has data to send, as transfers have, could take each byte
//! as it is granted, and the game's next state would always come too late, whatever its priority. Therefore all classes
//! draw on one credit with different limits:
//!
//! ```text
//!            ┌──────────────── what has been granted, at most two packets ──────────┐
//!            │                                                                      │
//!     ───────┼──────────────────────────────────────────────────────────────────────┼──▶ bytes
//!     −burst 0 the lowest class that waits stops here
//!       └───── a higher class goes on to here: as far as its usual burst
//! ```
//!
//! DECISION: higher classes overdraw the credit, instead of a part of it being reserved for them. Both are the same on
//! average. But a reserved part would have to fit into the credit beside a whole packet of the lowest class, and with
//! that much more credit an idle connection could send a larger burst into a thin path.

use core::time::Duration;

use slipgate_netcode::time::Instant;

/// The time for which the largest burst of a channel is remembered.
const BURST_MEMORY: Duration = Duration::from_secs(1);
/// About what a packet costs on the path besides its frames, in bytes.
pub(crate) const PACKET_BYTES: u64 = 80;
/// The maximum cost of a message besides its bytes, unless it is sliced.
pub(crate) const FRAME_OVERHEAD_BYTES: u64 = 8;
/// The maximum that is reserved for higher classes, about a packet: larger bursts must fit into what is granted
/// meanwhile.
pub(crate) const MAX_RESERVE_BYTES: u64 = 1200;

/// The capacity of the path for a packet, in bytes of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SendBudget {
    /// Bytes that the path's rate has granted. Below zero after higher classes overdrew it.
    pub credit: i64,
    /// How much more may be in flight.
    pub window: i64,
    /// Up to where transfers may fill the packet, if a slice fits: data behind it must not wait for long.
    pub bulk: usize,
}

impl SendBudget {
    /// Nothing limits the packet but its size.
    pub const UNLIMITED: Self = Self { credit: i64::MAX, window: i64::MAX, bulk: usize::MAX };

    /// Returns whether the budget suffices for this many bytes, whatever is reserved or overdrawn.
    pub(crate) fn is_ample_for(self, bytes: u64) -> bool {
        let needed = i64::try_from(bytes.saturating_add(MAX_RESERVE_BYTES)).unwrap_or(i64::MAX);
        self == Self::UNLIMITED || (self.credit >= needed && self.window >= needed)
    }

    /// Returns what is left of the budget after this many bytes of the packet.
    #[must_use]
    pub(crate) fn after(self, bytes: usize) -> Self {
        if self == Self::UNLIMITED {
            return self;
        }
        // May become negative: the next packet waits for that much more.
        let left = |budget: i64| budget.saturating_sub_unsigned(bytes as u64);
        Self { credit: left(self.credit), window: left(self.window), bulk: self.bulk.saturating_sub(bytes) }
    }
}

/// The data that leaves next, and what it may draw on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PendingDemand {
    /// About how many bytes of frames wait. `u64::MAX` for transfers, which always have more.
    pub bytes: u64,
    /// About how many bytes the largest message has, with its header, if none of them is retransmitted: it is not
    /// sliced to fit a smaller packet. `u64::MAX` if a message of a reliable channel waits.
    pub largest: u64,
    /// How far the data may overdraw the credit, because lower classes wait.
    pub overdraft: u64,
    /// How much of the window the data leaves to higher classes, because their data may come at any moment.
    pub reserve: u64,
}

/// The largest burst of one channel: how much it writes within a tick.
#[derive(Default)]
pub(crate) struct ChannelBurst {
    /// The last tick in which the channel wrote, and its bytes.
    tick: u32,
    tick_bytes: u64,
    max_bytes: u64,
    measured_at: Instant,
}

impl ChannelBurst {
    /// Notes that the channel has written this many bytes of frames in a tick.
    #[inline]
    pub(crate) fn on_written(&mut self, tick: u32, bytes: usize, now: Instant) {
        let before = if self.tick == tick { self.tick_bytes } else { 0 };
        (self.tick, self.tick_bytes) = (tick, before + bytes as u64);
        // A maximum over a window: a larger burst replaces it at once, a smaller one after a second.
        if self.tick_bytes >= self.max_bytes || now.reached(self.measured_at, BURST_MEMORY) {
            (self.max_bytes, self.measured_at) = (self.tick_bytes, now);
        }
    }

    /// Returns the bytes to reserve on the path for the next burst; 0 if there was none lately.
    pub(crate) fn reserved_bytes(&self, now: Instant) -> u64 {
        let is_recent = self.max_bytes > 0 && !now.reached(self.measured_at, BURST_MEMORY);
        // Each burst leaves in a packet of its own, in the worst case.
        if is_recent { self.max_bytes + PACKET_BYTES } else { 0 }
    }
}
