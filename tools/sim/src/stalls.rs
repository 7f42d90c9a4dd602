//! The schedule of link stalls, and how long a transmission takes across them.

use std::time::Duration;

use slipgate_netcode::time::Instant;

use crate::conditions::Stalls;
use crate::random::{Process, Random};

/// The link works for at least this long between two stalls, so that it always makes progress.
const MIN_WORK: Duration = Duration::from_millis(1);
/// After an idle time of this many average stall intervals the schedule restarts at the present. Planning each missed
/// stall would take unbounded time.
const MAX_IDLE_STALLS: u32 = 1000;

/// The next stall, or the current one.
#[derive(Debug)]
pub(crate) struct StallSchedule {
    stalls: Option<Stalls>,
    random: Random,
    begins: Instant,
    ends: Instant,
    met: u64,
}

impl StallSchedule {
    pub(crate) fn new(seed: u64) -> Self {
        let (never, random) = (Instant::NEVER, Process::Stalls.stream(seed));
        Self { stalls: None, random, begins: never, ends: never, met: 0 }
    }

    /// Returns how many stalls have delayed a transmission.
    pub(crate) const fn met(&self) -> u64 {
        self.met
    }

    /// Changes when the link stalls. Settings equal to the present ones keep the schedule.
    pub(crate) fn set(&mut self, stalls: Option<Stalls>, now: Instant) {
        if self.stalls != stalls {
            self.stalls = stalls;
            self.plan(now);
        }
    }

    /// Returns when `work` that begins at `start` is finished. Starts must not decrease from call to call.
    pub(crate) fn finish(&mut self, mut start: Instant, mut work: Duration) -> Instant {
        self.skip_idle_time(start);
        loop {
            while self.ends <= start && self.ends < Instant::NEVER {
                self.plan(self.ends);
            }
            // `begins` is `Instant::NEVER` without stalls, which is later than every `start`.
            let free = self.begins.since(start);
            if self.begins > start && work <= free {
                return start.after(work);
            }
            if self.ends == Instant::NEVER {
                return Instant::NEVER;
            }
            work = work.saturating_sub(free);
            start = self.ends;
            self.met += 1;
        }
    }

    /// Plans the next stall, after the link has worked since `working_since`.
    fn plan(&mut self, working_since: Instant) {
        (self.begins, self.ends) = match self.stalls {
            None => (Instant::NEVER, Instant::NEVER),
            Some(stalls) => {
                let begins = working_since.after(self.random.around(stalls.every).max(MIN_WORK));
                (begins, begins.after(self.random.nanos_between(stalls.shortest, stalls.longest)))
            }
        };
    }

    fn skip_idle_time(&mut self, start: Instant) {
        let Some(stalls) = self.stalls else { return };
        let usual = stalls.every.max(MIN_WORK).saturating_add(stalls.shortest);
        if start.since(self.ends) > usual.saturating_mul(MAX_IDLE_STALLS) {
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
    fn without_stalls_work_takes_its_own_duration() {
        let mut schedule = StallSchedule::new(1);
        assert_eq!(schedule.finish(at(5), 3 * MILLI), at(8));
        assert_eq!(schedule.finish(at(5), Duration::ZERO), at(5));
        assert_eq!(schedule.met(), 0);
    }

    #[test]
    fn work_resumes_after_a_stall() {
        let mut schedule = schedule(100, 40, 40);
        let (begins, ends) = (schedule.begins, schedule.ends);
        assert!((at(50)..=at(150)).contains(&begins), "{begins:?}");
        assert_eq!(ends.since(begins), 40 * MILLI);
        let before = Instant::from_start(begins.since_start() - 2 * MILLI);
        assert_eq!(schedule.finish(before, 2 * MILLI), begins, "finished before the stall");
        assert_eq!(schedule.finish(before, 5 * MILLI), ends.after(3 * MILLI), "3 ms remain after the stall");
        assert_eq!(schedule.met(), 1);
    }

    #[test]
    fn work_that_begins_in_a_stall_waits_for_its_end() {
        let mut schedule = schedule(100, 40, 40);
        let (begins, ends) = (schedule.begins, schedule.ends);
        for moment in [begins, begins.after(20 * MILLI)] {
            assert_eq!(schedule.finish(moment, Duration::ZERO), ends);
            schedule = self::schedule(100, 40, 40);
        }
        assert_eq!(schedule.finish(ends, Duration::ZERO), ends);
    }

    #[test]
    fn long_work_meets_the_expected_number_of_stalls() {
        let mut schedule = schedule(100, 50, 150);
        let work = Duration::from_secs(1000);
        let taken = schedule.finish(at(0), work).since_start().as_secs_f64() / work.as_secs_f64();
        // 100 ms of work alternate with 100 ms of stall on average.
        assert!((taken - 2.0).abs() < 0.05, "{taken}");
        assert!((schedule.met() as f64 - 10_000.0).abs() < 300.0, "{}", schedule.met());
    }

    #[test]
    fn long_idle_time_is_skipped_and_never_stays_never() {
        let mut schedule = schedule(1, 1, 1);
        let late = Instant::from_start(Duration::from_secs(500 * 365 * 86_400));
        assert!(schedule.finish(late, Duration::ZERO).since(late) <= 2 * MILLI);
        assert_eq!(schedule.finish(Instant::NEVER, MILLI), Instant::NEVER);
    }
}
