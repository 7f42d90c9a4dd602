//! CoDel as RFC 8289 has it: packets are dropped from a queue's head while it has stood for too long.

use core::time::Duration;

use slipgate_netcode::time::Instant;

/// The queueing delay that is acceptable (RFC 8289, section 4.4).
const TARGET: Duration = Duration::from_millis(5);
/// For how long a delay must last before anything is dropped (RFC 8289, section 4.3).
const INTERVAL: Duration = Duration::from_millis(100);
/// A queue of one packet is none.
const PACKET: u64 = 1500;

/// What to do with the packet at the queue's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It leaves.
    Send,
    /// It is dropped, and the next one is asked about.
    Drop,
}

/// The state of a queue under CoDel.
#[derive(Clone, Debug, Default)]
pub struct CoDel {
    above_since: Option<Instant>,
    dropping: Option<Dropping>,
    last_count: u32,
    last_left: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Dropping {
    next: Instant,
    count: u32,
}

impl CoDel {
    /// Judges the packet at the head, which has waited so long, with so many bytes behind it.
    pub fn judge(&mut self, waited: Duration, behind: u64, now: Instant) -> Verdict {
        let bad = self.is_bad(waited, behind, now);
        match self.dropping {
            Some(_) if !bad => self.stop(now),
            Some(state) if now >= state.next => {
                let count = state.count + 1;
                self.dropping = Some(Dropping { next: state.next.after(pause(count)), count });
                Verdict::Drop
            }
            Some(_) => Verdict::Send,
            None if bad => self.start(now),
            None => Verdict::Send,
        }
    }

    fn is_bad(&mut self, waited: Duration, behind: u64, now: Instant) -> bool {
        if waited < TARGET || behind <= PACKET {
            self.above_since = None;
            return false;
        }
        let since = *self.above_since.get_or_insert(now);
        now.reached(since, INTERVAL)
    }

    /// Starts dropping, about as fast as it last was needed if that is not long ago (RFC 8289, section 5.5).
    fn start(&mut self, now: Instant) -> Verdict {
        let recent = !now.reached(self.last_left, 16 * INTERVAL) && self.last_left != Instant::default();
        let count = if recent && self.last_count > 2 { self.last_count - 2 } else { 1 };
        self.dropping = Some(Dropping { next: now.after(pause(count)), count });
        Verdict::Drop
    }

    fn stop(&mut self, now: Instant) -> Verdict {
        self.last_count = self.dropping.take().map_or(1, |state| state.count);
        self.last_left = now;
        Verdict::Send
    }
}

/// The control law: drops come closer with the square root of their number.
fn pause(count: u32) -> Duration {
    Duration::from_secs_f64(INTERVAL.as_secs_f64() / libm::sqrt(f64::from(count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    fn drops(waited: Duration, until: u64) -> usize {
        let mut codel = CoDel::default();
        (0..until).filter(|now| codel.judge(waited, 50_000, at(*now)) == Verdict::Drop).count()
    }

    #[test]
    fn a_queue_below_the_target_loses_nothing() {
        assert_eq!(drops(Duration::from_millis(4), 10_000), 0);
    }

    #[test]
    fn a_standing_queue_loses_packets_after_an_interval_and_ever_faster() {
        let waited = Duration::from_millis(20);
        assert_eq!(drops(waited, 100), 0);
        assert_eq!(drops(waited, 101), 1);
        let (one, two) = (drops(waited, 1000), drops(waited, 2000));
        assert!(two - one > one, "{one} in the first second, {} in the next", two - one);
    }

    #[test]
    fn a_queue_that_empties_is_forgiven() {
        let mut codel = CoDel::default();
        for now in 0..500 {
            codel.judge(Duration::from_millis(20), 50_000, at(now));
        }
        assert_eq!(codel.judge(Duration::ZERO, 0, at(500)), Verdict::Send);
        assert_eq!(codel.judge(Duration::from_millis(20), 50_000, at(501)), Verdict::Send);
    }
}
