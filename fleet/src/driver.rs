//! The thread of a driver: it waits for the next state or the driver's own time, and runs the driver.

use std::io;
use std::thread;
use std::time::Duration;

use crate::life_cycle::{LifeCycle, LifeState};

/// Reports the life of a server to something outside of it.
pub(crate) trait Driver: Send + 'static {
    /// Runs at each new state, and after the time that it returned last. Returns the time until the next run, and
    /// `None` when it has nothing left to do.
    fn run(&mut self, state: LifeState) -> Option<Duration>;
}

/// Runs a driver on a thread of its own until it has nothing left to do. The end of the life waits for it.
///
/// # Errors
/// The system refuses the thread.
pub(crate) fn spawn(name: &str, life: &LifeCycle, driver: impl Driver) -> io::Result<()> {
    life.add_driver();
    let finished = FinishedDriver(life.clone());
    let run = run(life.clone(), driver);
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _finished = finished;
        run();
    });
    spawned.map(drop)
}

/// Does the same with a driver that has nothing to do at the end of the life, and may be waiting for a stream then.
///
/// # Errors
/// The system refuses the thread.
pub(crate) fn spawn_unawaited(name: &str, life: &LifeCycle, driver: impl Driver) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(run(life.clone(), driver)).map(drop)
}

fn run(life: LifeCycle, mut driver: impl Driver) -> impl FnOnce() + Send + 'static {
    move || {
        loop {
            let state = life.state();
            match driver.run(state) {
                Some(pause) => life.wait(state, pause),
                None => break,
            }
        }
    }
}

/// Counts a driver as finished, also after a panic.
struct FinishedDriver(LifeCycle);

impl Drop for FinishedDriver {
    fn drop(&mut self) {
        self.0.remove_driver();
    }
}
