//! How much a turn reads: a flood must not keep the game from its next tick.

use std::time::Duration;

use slipgate_netcode::time::Instant;

/// Datagrams that one turn reads at most.
pub const DEFAULT_PACKETS_PER_TURN: u32 = 16_384;
/// How long one turn reads at most: half of what a game with 60 ticks a second has for one.
pub const DEFAULT_TIME_PER_TURN: Duration = Duration::from_millis(8);

/// What a turn may still read.
pub(crate) struct Reading {
    packets: u32,
    time: Duration,
    left: u32,
    /// When the turn began to read.
    since: Option<Instant>,
    /// The turn was asked for more than it may read.
    is_cut_short: bool,
    cut_short: u64,
}

impl Default for Reading {
    fn default() -> Self {
        Self {
            packets: DEFAULT_PACKETS_PER_TURN,
            time: DEFAULT_TIME_PER_TURN,
            left: DEFAULT_PACKETS_PER_TURN,
            since: None,
            is_cut_short: false,
            cut_short: 0,
        }
    }
}

impl Reading {
    pub(crate) fn set_packets(&mut self, packets: u32) {
        self.packets = packets;
    }

    pub(crate) fn set_time(&mut self, time: Duration) {
        self.time = time;
    }

    pub(crate) fn begin_turn(&mut self) {
        (self.left, self.since, self.is_cut_short) = (self.packets, None, false);
    }

    /// Whether the turn reads on. It reads one batch at least.
    pub(crate) fn goes_on(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let goes_on = self.left > 0 && (self.left == self.packets || now.since(since) < self.time);
        if !goes_on && !self.is_cut_short {
            self.is_cut_short = true;
            self.cut_short += 1;
        }
        goes_on
    }

    pub(crate) fn note(&mut self, packets: usize) {
        self.left = self.left.saturating_sub(u32::try_from(packets).unwrap_or(u32::MAX));
    }

    /// How many turns ended before all was read that waited.
    pub(crate) const fn cut_short(&self) -> u64 {
        self.cut_short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    #[test]
    fn a_turn_reads_until_its_packets_or_its_time_are_used_up_and_one_batch_at_least() {
        let mut reading = Reading::default();
        reading.set_packets(200);
        reading.set_time(Duration::from_millis(5));
        reading.begin_turn();
        assert!(reading.goes_on(at(100)));
        reading.note(64);
        assert!(reading.goes_on(at(104)));
        reading.note(136);
        for _ in 0..3 {
            assert!(!reading.goes_on(at(104)), "no packets are left");
        }
        reading.begin_turn();
        assert!(reading.goes_on(at(200)), "a turn's time begins when it begins to read");
        reading.note(64);
        assert!(!reading.goes_on(at(205)), "no time is left");
        reading.begin_turn();
        reading.set_time(Duration::ZERO);
        assert!(reading.goes_on(at(300)), "one batch");
        reading.note(1);
        assert!(!reading.goes_on(at(300)));
        assert_eq!(reading.cut_short(), 3);
    }
}
