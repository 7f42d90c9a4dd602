//! Runs many simulations on several threads. The result does not depend on the threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::controllers::{ControllerKind, congestion};
use crate::measure::{Figures, measure};
use crate::scenario::Scenario;
use crate::world::{Outcome, Simulation};

/// A run: a scenario, a controller and a seed.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The scenario.
    pub scenario: &'a Scenario,
    /// The measured controller.
    pub controller: ControllerKind,
    /// The seed of all randomness.
    pub seed: u64,
}

impl Run<'_> {
    /// Runs the simulation.
    #[must_use]
    pub fn play(&self) -> Outcome {
        Simulation::new(self.scenario, self.seed, |flow| congestion(self.controller, self.scenario, flow)).play()
    }

    /// Runs the simulation and computes its figures.
    #[must_use]
    pub fn figures(&self) -> Figures {
        measure(self.scenario, &self.play().log)
    }
}

/// Returns the figures of all runs, in their order.
#[must_use]
pub fn play_all(runs: &[Run<'_>], threads: usize) -> Vec<Figures> {
    in_parallel(runs, threads, Run::figures)
}

/// Maps all items on several threads. Returns the results in the order of the items.
pub fn in_parallel<T: Sync, R: Send>(items: &[T], threads: usize, map: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(items.len()));
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some((index, item)) = take(items, &next) {
                    let result = map(item);
                    if let Ok(mut results) = results.lock() {
                        results.push((index, result));
                    }
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

fn take<'a, T>(items: &'a [T], next: &AtomicUsize) -> Option<(usize, &'a T)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    items.get(index).map(|item| (index, item))
}
