//! Runs that differ by their seed, on all cores.

use std::thread::available_parallelism;

use crate::play::in_parallel;

/// The most threads: each one has a recording of up to 300 MB.
const MAX_THREADS: usize = 4;

/// Seeds in a row.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    /// The first seed.
    pub first: u64,
    /// The number of seeds.
    pub count: u64,
}

impl From<u64> for Seeds {
    /// Returns this number of seeds from 1 on.
    fn from(count: u64) -> Self {
        Self { first: 1, count }
    }
}

/// Runs a function for each seed. The results are in the order of the seeds.
pub(super) fn for_seeds<F: Send>(seeds: impl Into<Seeds>, run: impl Fn(u64) -> F + Sync) -> Vec<F> {
    let Seeds { first, count } = seeds.into();
    let threads = available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    in_parallel(&(first..first.saturating_add(count)).collect::<Vec<_>>(), threads, |seed| run(*seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_seed_runs_once_and_results_are_in_order() {
        assert_eq!(for_seeds(9, |seed| seed * 10), (1..=9).map(|seed| seed * 10).collect::<Vec<_>>());
        assert_eq!(for_seeds(0, |seed| seed), []);
        assert_eq!(for_seeds(Seeds { first: 1001, count: 2 }, |seed| seed), [1001, 1002]);
    }
}
