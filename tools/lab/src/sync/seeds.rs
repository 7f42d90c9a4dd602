//! Runs that differ by their seed, on all cores.

use std::thread::available_parallelism;

use crate::play::in_parallel;

/// The most threads: each one has a recording of up to 300 MB.
const MAX_THREADS: usize = 4;

/// Runs a function for each of the seeds from 1 on. The results are in the order of the seeds.
pub(super) fn for_seeds<F: Send>(seeds: u64, run: impl Fn(u64) -> F + Sync) -> Vec<F> {
    let threads = available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    in_parallel(&(1..=seeds).collect::<Vec<_>>(), threads, |seed| run(*seed))
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
