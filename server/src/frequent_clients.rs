//! Finds the clients that send far more often than games do: a single one must not delay the wakeups for all.
//!
//! Many datagrams make a server sleep before it reads them ([`WakePolicy::Adaptive`](slipgate_udp::WakePolicy)). Many
//! clients must have sent them: a single one may send 15,000 a second within its budgets.

use std::time::Duration;

use slipgate_netcode::ids::SlotIndex;
use slipgate_netcode::time::Instant;

/// The interval in which datagrams are counted.
const WINDOW: Duration = Duration::from_millis(50);
/// The datagrams of a client in [`WINDOW`] after which it sends often: 320 a second, more than twice as many as ticks
/// at 128 Hz send.
const MAX_DATAGRAMS: u8 = 16;
/// The entries of the table. Clients of a larger server share them.
const ENTRIES: usize = 1024;

/// The datagrams of clients in a window.
pub(crate) struct FrequentClients {
    since: Instant,
    counts: [u8; ENTRIES],
}

impl Default for FrequentClients {
    fn default() -> Self {
        Self { since: Instant::default(), counts: [0; ENTRIES] }
    }
}

impl FrequentClients {
    /// Counts a datagram of the client in a slot. Returns whether the client has sent more than [`MAX_DATAGRAMS`] in
    /// this window.
    pub(crate) fn add(&mut self, slot: SlotIndex, now: Instant) -> bool {
        if now.reached(self.since, WINDOW) {
            self.since = now;
            self.counts.fill(0);
        }
        let Some(count) = self.counts.get_mut(slot.0 as usize % ENTRIES) else { return false };
        let is_frequent = *count >= MAX_DATAGRAMS;
        *count = count.saturating_add(1);
        is_frequent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    #[test]
    fn client_that_sends_more_than_320_a_second_is_frequent() {
        let mut clients = FrequentClients::default();
        for window in 1..100 {
            let now = at(50 * window);
            let frequent = (0..1000).filter(|_| clients.add(SlotIndex(7), now)).count();
            assert_eq!(frequent, 1000 - 16);
            assert!((0..16).all(|_| !clients.add(SlotIndex(8), now)), "another client");
            assert!((0..16).all(|_| !clients.add(SlotIndex(65_535), now)), "the last slot of the largest server");
        }
    }

    #[test]
    fn clients_that_share_an_entry_at_60_hz_are_not_frequent() {
        let mut clients = FrequentClients::default();
        for tick in 0..600 {
            for slot in 0..4096 {
                assert!(!clients.add(SlotIndex(slot), at(tick * 1000 / 60)), "slot {slot} in tick {tick}");
            }
        }
    }
}
