//! The limits on how much a turn reads: a flood must not keep the game from its next tick.

use std::time::Duration;

use slipgate_netcode::time::Instant;

/// How much one turn reads at most. Unread datagrams stay in the sockets, and the next wait returns at once.
///
/// # Examples
/// ```
/// use slipgate_server::ReadLimits;
///
/// // A server at 120 Hz with few clients.
/// let limits = ReadLimits { max_time: std::time::Duration::from_millis(4), ..ReadLimits::default() };
/// assert_eq!(limits.max_packets, 16_384);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadLimits {
    /// Datagrams, at least 64: 16,384.
    pub max_packets: u32,
    /// Time since the first read of the turn, including the time that the game spends on events: 8 ms, half of a tick
    /// at 60 Hz. A turn reads at least one batch.
    pub max_time: Duration,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self { max_packets: 16_384, max_time: Duration::from_millis(8) }
    }
}

/// The remainder of the limits in the current turn.
pub(crate) struct ReadBudget {
    limits: ReadLimits,
    packets_left: u32,
    /// The time of the turn's first read.
    started_at: Option<Instant>,
    is_cut_short: bool,
    turns_cut_short: u64,
    events: u32,
    max_events: u32,
}

impl Default for ReadBudget {
    fn default() -> Self {
        let limits = ReadLimits::default();
        let packets_left = limits.max_packets;
        Self {
            limits,
            packets_left,
            started_at: None,
            is_cut_short: false,
            turns_cut_short: 0,
            events: 0,
            max_events: 0,
        }
    }
}

impl ReadBudget {
    pub(crate) fn set_limits(&mut self, limits: ReadLimits) {
        self.limits = ReadLimits { max_packets: limits.max_packets.max(64), ..limits };
    }

    pub(crate) fn begin_turn(&mut self) {
        (self.packets_left, self.started_at, self.is_cut_short) = (self.limits.max_packets, None, false);
        self.events = 0;
    }

    /// Returns whether the turn may read another batch. The first batch is always allowed.
    pub(crate) fn may_read(&mut self, now: Instant) -> bool {
        let started_at = *self.started_at.get_or_insert(now);
        let is_first = self.packets_left == self.limits.max_packets;
        let may_read = self.packets_left > 0 && (is_first || now.since(started_at) < self.limits.max_time);
        if !may_read && !self.is_cut_short {
            self.is_cut_short = true;
            self.turns_cut_short += 1;
        }
        may_read
    }

    pub(crate) fn on_read(&mut self, packets: usize) {
        self.packets_left = self.packets_left.saturating_sub(u32::try_from(packets).unwrap_or(u32::MAX));
    }

    /// Counts an event that the game takes.
    pub(crate) const fn on_event(&mut self) {
        self.events = self.events.saturating_add(1);
        if self.events > self.max_events {
            self.max_events = self.events;
        }
    }

    /// Returns the largest number of events that the game took in a turn.
    pub(crate) const fn max_events_per_turn(&self) -> u32 {
        self.max_events
    }

    /// Returns the number of turns that ended before the sockets were empty.
    pub(crate) const fn turns_cut_short(&self) -> u64 {
        self.turns_cut_short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    #[test]
    fn a_turn_reads_one_batch_and_then_up_to_its_limits() {
        let mut budget = ReadBudget::default();
        let limits = ReadLimits { max_packets: 200, max_time: Duration::from_millis(5) };
        budget.set_limits(limits);
        budget.begin_turn();
        assert!(budget.may_read(at(100)));
        budget.on_read(64);
        assert!(budget.may_read(at(104)));
        budget.on_read(136);
        for _ in 0..3 {
            assert!(!budget.may_read(at(104)), "no packets are left");
        }
        budget.begin_turn();
        assert!(budget.may_read(at(200)), "the time starts with the first read");
        budget.on_read(64);
        assert!(!budget.may_read(at(205)), "no time is left");
        budget.begin_turn();
        budget.set_limits(ReadLimits { max_time: Duration::ZERO, ..limits });
        assert!(budget.may_read(at(300)), "one batch");
        budget.on_read(1);
        assert!(!budget.may_read(at(300)));
        assert_eq!(budget.turns_cut_short(), 3);
    }
}
