//! The order of heartbeats and removals: a late one of a run changes nothing.
//!
//! A run of a server numbers them. The number of the last one outlives the registration, so that a heartbeat that
//! arrives after the removal of its server does not register it again.

use core::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};

use slipgate_netcode::time::UnixMillis;

use super::name::RegistryName;
use super::types::{MAX_REMEMBERED_RUNS, RUN_FORGOTTEN_AFTER};

/// A run of a server: the server's id and the name of its instance.
type RunKey = (RegistryName, RegistryName);

/// The last number of each run.
#[derive(Default)]
pub(super) struct RunOrder {
    by_run: HashMap<RunKey, (u64, UnixMillis)>,
    /// The runs by the time of their last number, the earliest first.
    by_time: BTreeSet<(UnixMillis, RunKey)>,
}

impl RunOrder {
    /// Compares a number with the last one of its run. A run without one has only later ones.
    pub(super) fn compare(&self, id: &RegistryName, instance: &RegistryName, sequence: u64) -> Ordering {
        self.last(id, instance).map_or(Ordering::Greater, |(last, _)| sequence.cmp(&last))
    }

    /// Returns the last number of a run, and when it was recorded.
    pub(super) fn last(&self, id: &RegistryName, instance: &RegistryName) -> Option<(u64, UnixMillis)> {
        self.by_run.get(&(id.clone(), instance.clone())).copied()
    }

    /// Records the last number of a run. Beyond the maximum, the run with the earliest one is forgotten.
    pub(super) fn record(&mut self, id: &RegistryName, instance: &RegistryName, sequence: u64, now: UnixMillis) {
        let run = (id.clone(), instance.clone());
        if let Some((_, earlier)) = self.by_run.insert(run.clone(), (sequence, now)) {
            self.by_time.remove(&(earlier, run.clone()));
        }
        self.by_time.insert((now, run));
        if self.by_run.len() > MAX_REMEMBERED_RUNS {
            self.forget_first();
        }
    }

    /// Forgets the runs whose last numbers are old.
    pub(super) fn expire(&mut self, now: UnixMillis) {
        let age = u64::try_from(RUN_FORGOTTEN_AFTER.as_millis()).unwrap_or(u64::MAX);
        while self.by_time.first().is_some_and(|(time, _)| now.0.saturating_sub(time.0) >= age) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        if let Some((_, run)) = self.by_time.pop_first() {
            self.by_run.remove(&run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> RegistryName {
        format!("s{number}").parse().unwrap()
    }

    #[test]
    fn last_numbers_of_runs_are_bounded_and_forgotten() {
        let mut order = RunOrder::default();
        for number in 0..=MAX_REMEMBERED_RUNS {
            order.record(&name(number), &name(0), 5, UnixMillis(number as u64));
        }
        assert_eq!((order.by_run.len(), order.by_time.len()), (MAX_REMEMBERED_RUNS, MAX_REMEMBERED_RUNS));
        assert_eq!(order.compare(&name(0), &name(0), 1), Ordering::Greater, "it is forgotten");
        assert_eq!(order.compare(&name(1), &name(0), 4), Ordering::Less);
        assert_eq!(order.compare(&name(1), &name(1), 4), Ordering::Greater, "another run");
        order.record(&name(1), &name(0), 6, UnixMillis(60_000));
        assert_eq!(order.compare(&name(1), &name(0), 6), Ordering::Equal);
        order.expire(UnixMillis(119_999));
        assert_eq!((order.by_run.len(), order.by_time.len()), (1, 1));
        order.expire(UnixMillis(120_000));
        assert_eq!((order.by_run.len(), order.by_time.len()), (0, 0));
    }
}
