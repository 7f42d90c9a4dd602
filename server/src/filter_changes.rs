//! How often the kernel's list of blocked senders changes: eight times at once, and then once per 16 ms.
//!
//! Each change compiles a program in the kernel, which takes 0.5 ms for a few senders on a busy machine, and 2 ms for
//! 64. An attacker decides how often the list should change: by a thousand pieces of junk from each of many addresses,
//! or by packets with sequence numbers that jump ahead beside junk under the same address.

use std::time::Duration;

use slipgate_netcode::time::Instant;

/// The interval of changes: a tick at 60 Hz. A client sends 256 packets in it, and the window that follows them has
/// room for 768 more.
const INTERVAL: Duration = Duration::from_millis(16);
/// The changes at once, less one. A flood causes three within its first 64 ms.
const AHEAD: u32 = 7;

/// The changes of the list that are allowed now.
#[derive(Default)]
pub(crate) struct FilterChanges {
    /// When all earlier changes have had their interval.
    free_at: Instant,
    is_due: bool,
}

impl FilterChanges {
    /// Returns whether the list may change now, and counts the change. Otherwise it is due.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        self.is_due = self.free_at.since(now) > INTERVAL * AHEAD;
        if !self.is_due {
            self.free_at = self.free_at.max(now).after(INTERVAL);
        }
        !self.is_due
    }

    /// Returns whether a change was put off.
    pub(crate) const fn is_due(&self) -> bool {
        self.is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    #[test]
    fn list_changes_eight_times_at_once_and_then_once_a_tick() {
        let mut changes = FilterChanges::default();
        let mut taken = |millis| (0..100).filter(|_| changes.take(at(millis))).count();
        assert_eq!(taken(1000), 8);
        assert_eq!((1001..=2600).map(&mut taken).sum::<usize>(), 100);
        assert_eq!(taken(10_000), 8);
        assert!(changes.is_due());
        assert!(changes.take(at(10_016)) && !changes.is_due());
    }
}
