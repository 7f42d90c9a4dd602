//! Cores and CPU time: where a thread runs, and how long it has run.

use std::io;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// The calling thread.
const THIS_THREAD: Pid = Pid::from_raw(0);

/// Which core the servers have, and which the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cores {
    /// The servers' core: one of them works at a time.
    pub server: usize,
    /// The driver's core; the servers' where there is no other.
    pub driver: usize,
}

impl Cores {
    /// The first two cores that this process may use.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn choose() -> io::Result<Self> {
        let allowed = sched_getaffinity(THIS_THREAD)?;
        let mut cores = (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap_or(false));
        let server = cores.next().unwrap_or(0);
        Ok(Self { server, driver: cores.next().unwrap_or(server) })
    }
}

/// Whether two cores are threads of one, as the system tells; no if it does not.
#[must_use]
pub fn are_one(core: usize, other: usize) -> bool {
    let of =
        |core: usize| std::fs::read(format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")).ok();
    of(core).is_some_and(|siblings| of(other) == Some(siblings))
}

/// Keeps the calling thread on one core.
///
/// # Errors
/// When the system does not allow it.
pub fn pin(core: usize) -> io::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core)?;
    Ok(sched_setaffinity(THIS_THREAD, &cores)?)
}

/// How long the calling thread has run, system calls included.
#[must_use]
pub fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// What reading [`thread_time`] twice costs by itself: it is taken off every measurement.
#[must_use]
pub fn clock_cost() -> Duration {
    (0..1000)
        .map(|_| {
            let start = thread_time();
            thread_time().saturating_sub(start)
        })
        .min()
        .unwrap_or_default()
}
