//! `CoDel` (RFC 8289): drops packets from the head of a queue while its delay stays above a target.

use core::time::Duration;

use slipgate_netcode::time::Instant;

/// The acceptable queueing delay (RFC 8289, section 4.4).
const TARGET: Duration = Duration::from_millis(5);
/// How long the delay must stay above the target before the first drop (RFC 8289, section 4.3).
const INTERVAL: Duration = Duration::from_millis(100);
/// A queue of at most one packet of this size is never dropped from (`MTU` in RFC 8289), in bytes.
const MTU: u64 = 1500;

/// What happens to the packet at the head of the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CodelAction {
    /// The packet is transmitted.
    Forward,
    /// The packet is dropped, and the next one is checked.
    Drop,
}

/// The state of a queue under `CoDel`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Codel {
    above_since: Option<Instant>,
    dropping: Option<Dropping>,
    last_count: u32,
    last_stopped_at: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Dropping {
    next: Instant,
    count: u32,
}

impl Codel {
    /// Decides about the packet at the head, which has waited for `waited`, with `bytes_behind` bytes behind it.
    pub(crate) fn on_dequeue(&mut self, waited: Duration, bytes_behind: u64, now: Instant) -> CodelAction {
        let is_above = self.is_above_for_an_interval(waited, bytes_behind, now);
        match self.dropping {
            Some(_) if !is_above => self.stop(now),
            Some(state) if now >= state.next => {
                let count = state.count + 1;
                self.dropping = Some(Dropping { next: state.next.after(drop_interval(count)), count });
                CodelAction::Drop
            }
            Some(_) => CodelAction::Forward,
            None if is_above => self.start(now),
            None => CodelAction::Forward,
        }
    }

    fn is_above_for_an_interval(&mut self, waited: Duration, bytes_behind: u64, now: Instant) -> bool {
        if waited < TARGET || bytes_behind <= MTU {
            self.above_since = None;
            return false;
        }
        let since = *self.above_since.get_or_insert(now);
        now.reached(since, INTERVAL)
    }

    /// Enters the dropping state. It resumes near the last drop rate if that state ended recently (RFC 8289,
    /// section 5.5).
    fn start(&mut self, now: Instant) -> CodelAction {
        let is_recent = !now.reached(self.last_stopped_at, 16 * INTERVAL) && self.last_stopped_at != Instant::default();
        let count = if is_recent && self.last_count > 2 { self.last_count - 2 } else { 1 };
        self.dropping = Some(Dropping { next: now.after(drop_interval(count)), count });
        CodelAction::Drop
    }

    fn stop(&mut self, now: Instant) -> CodelAction {
        self.last_count = self.dropping.take().map_or(1, |state| state.count);
        self.last_stopped_at = now;
        CodelAction::Forward
    }
}

/// Returns the time between drops by the control law (RFC 8289, section 3.3): it is inversely proportional to the
/// square root of their number.
fn drop_interval(count: u32) -> Duration {
    Duration::from_secs_f64(INTERVAL.as_secs_f64() / libm::sqrt(f64::from(count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    fn drops(waited: Duration, until: u64) -> usize {
        let mut codel = Codel::default();
        (0..until).filter(|now| codel.on_dequeue(waited, 50_000, at(*now)) == CodelAction::Drop).count()
    }

    #[test]
    fn queue_below_the_target_loses_nothing() {
        assert_eq!(drops(Duration::from_millis(4), 10_000), 0);
    }

    #[test]
    fn standing_queue_is_dropped_from_at_an_increasing_rate() {
        let waited = Duration::from_millis(20);
        assert_eq!(drops(waited, 100), 0);
        assert_eq!(drops(waited, 101), 1);
        let (one, two) = (drops(waited, 1000), drops(waited, 2000));
        assert!(two - one > one, "{one} in the first second, {} in the next", two - one);
    }

    #[test]
    fn emptied_queue_leaves_the_dropping_state() {
        let mut codel = Codel::default();
        for now in 0..500 {
            codel.on_dequeue(Duration::from_millis(20), 50_000, at(now));
        }
        assert_eq!(codel.on_dequeue(Duration::ZERO, 0, at(500)), CodelAction::Forward);
        assert_eq!(codel.on_dequeue(Duration::from_millis(20), 50_000, at(501)), CodelAction::Forward);
    }
}
