//! When the link stops, and how long work takes on it.

use std::time::Duration;

use slipgate_netcode::time::Instant;

use crate::conditions::Stalls;
use crate::random::{Cause, Random};

/// The link works for this long at least between two stalls, so that it always gets on.
const LEAST_WORK: Duration = Duration::from_millis(1);
/// Stalls that nobody was there to see are not counted one by one: after silence of so many, the schedule begins anew.
const SILENT_STALLS: u32 = 1000;

/// The next stall, or the present one.
#[derive(Debug)]
pub(crate) struct StallSchedule {
    stalls: Option<Stalls>,
    random: Random,
    begins: Instant,
    ends: Instant,
    passed: u64,
}

impl StallSchedule {
    pub(crate) fn new(seed: u64) -> Self {
        let never = Instant::NEVER;
        Self { stalls: None, random: Random::new(seed, Cause::Stalls), begins: never, ends: never, passed: 0 }
    }

    /// How many stalls work has met.
    pub(crate) const fn passed(&self) -> u64 {
        self.passed
    }

    /// When the link stops from now on. The same stalls as before leave the schedule as it is.
    pub(crate) fn set(&mut self, stalls: Option<Stalls>, now: Instant) {
        if self.stalls != stalls {
            self.stalls = stalls;
            self.plan(now);
        }
    }

    /// When `work` that begins at `start` is done. Starts never go back.
    pub(crate) fn done(&mut self, mut start: Instant, mut work: Duration) -> Instant {
        self.skip_silence(start);
        loop {
            while self.ends <= start && self.ends < Instant::NEVER {
                self.plan(self.ends);
            }
            // Without stalls, or at the end of time, this is later than everything.
            let free = self.begins.since(start);
            if self.begins > start && work <= free {
                return start.after(work);
            }
            if self.ends == Instant::NEVER {
                return Instant::NEVER;
            }
            work = work.saturating_sub(free);
            start = self.ends;
            self.passed += 1;
        }
    }

    /// Plans the next stall, after the link has worked since `working_since`.
    fn plan(&mut self, working_since: Instant) {
        (self.begins, self.ends) = match self.stalls {
            None => (Instant::NEVER, Instant::NEVER),
            Some(stalls) => {
                let begins = working_since.after(self.random.about(stalls.every).max(LEAST_WORK));
                (begins, begins.after(self.random.time(stalls.shortest, stalls.longest)))
            }
        };
    }

    fn skip_silence(&mut self, start: Instant) {
        let Some(stalls) = self.stalls else { return };
        let usual = stalls.every.max(LEAST_WORK).saturating_add(stalls.shortest);
        if start.since(self.ends) > usual.saturating_mul(SILENT_STALLS) {
            self.plan(start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn at(millis: u32) -> Instant {
        Instant::from_start(MILLI * millis)
    }

    fn schedule(every: u32, shortest: u32, longest: u32) -> StallSchedule {
        let mut schedule = StallSchedule::new(1);
        let stalls = Stalls { every: MILLI * every, shortest: MILLI * shortest, longest: MILLI * longest };
        schedule.set(Some(stalls), at(0));
        schedule
    }

    #[test]
    fn without_stalls_work_takes_its_time() {
        let mut schedule = StallSchedule::new(1);
        assert_eq!(schedule.done(at(5), 3 * MILLI), at(8));
        assert_eq!(schedule.done(at(5), Duration::ZERO), at(5));
        assert_eq!(schedule.passed(), 0);
    }

    #[test]
    fn work_waits_for_the_end_of_a_stall_and_goes_on_where_it_was() {
        let mut schedule = schedule(100, 40, 40);
        let (begins, ends) = (schedule.begins, schedule.ends);
        assert!((at(50)..=at(150)).contains(&begins), "{begins:?}");
        assert_eq!(ends.since(begins), 40 * MILLI);
        let before = Instant::from_start(begins.since_start() - 2 * MILLI);
        assert_eq!(schedule.done(before, 2 * MILLI), begins, "done in time");
        assert_eq!(schedule.done(before, 5 * MILLI), ends.after(3 * MILLI), "3 ms are left");
        assert_eq!(schedule.passed(), 1);
    }

    #[test]
    fn what_comes_while_the_link_stands_still_leaves_when_it_works_again() {
        let mut schedule = schedule(100, 40, 40);
        let (begins, ends) = (schedule.begins, schedule.ends);
        for moment in [begins, begins.after(20 * MILLI)] {
            assert_eq!(schedule.done(moment, Duration::ZERO), ends);
            schedule = self::schedule(100, 40, 40);
        }
        assert_eq!(schedule.done(ends, Duration::ZERO), ends);
    }

    #[test]
    fn stalls_take_their_share_of_a_long_time() {
        let mut schedule = schedule(100, 50, 150);
        let work = Duration::from_secs(1000);
        let taken = schedule.done(at(0), work).since_start().as_secs_f64() / work.as_secs_f64();
        // 100 ms of work for 100 ms of stall.
        assert!((taken - 2.0).abs() < 0.05, "{taken}");
        assert!((schedule.passed() as f64 - 10_000.0).abs() < 300.0, "{}", schedule.passed());
    }

    #[test]
    fn a_silence_of_centuries_costs_nothing_and_the_end_of_time_is_reached() {
        let mut schedule = schedule(1, 1, 1);
        let late = Instant::from_start(Duration::from_secs(500 * 365 * 86_400));
        assert!(schedule.done(late, Duration::ZERO).since(late) <= 2 * MILLI);
        assert_eq!(schedule.done(Instant::NEVER, MILLI), Instant::NEVER);
    }
}
