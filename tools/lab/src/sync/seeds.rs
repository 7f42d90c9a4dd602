//! Runs that differ by their seed, on all cores.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, available_parallelism};

/// The most threads: each one has a recording of up to 300 MB.
const MAX_THREADS: usize = 4;

/// Runs a function for each of the seeds from 1 on. The results are in the order of the seeds.
pub(super) fn for_seeds<F: Send>(seeds: u64, run: impl Fn(u64) -> F + Sync) -> Vec<F> {
    let next = AtomicU64::new(1);
    let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed <= seeds);
    let work = || std::iter::from_fn(take).map(|seed| (seed, run(seed))).collect::<Vec<_>>();
    let threads = available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let mut all: Vec<(u64, F)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a run does not panic")).collect()
    });
    all.sort_by_key(|(seed, _)| *seed);
    all.into_iter().map(|(_, figures)| figures).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_seed_runs_once_and_results_are_in_order() {
        assert_eq!(for_seeds(9, |seed| seed * 10), (1..=9).map(|seed| seed * 10).collect::<Vec<_>>());
        assert_eq!(for_seeds(0, |seed| seed), []);
    }
}
