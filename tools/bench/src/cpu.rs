//! Core pinning and CPU time.

use std::fmt;
use std::io;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

/// The calling thread.
const THIS_THREAD: Pid = Pid::from_raw(0);

/// The cores of the servers and the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cores {
    /// The core of the servers, of which one works at a time.
    pub server: usize,
    /// The core of the driver; the servers' core if there is no other.
    pub driver: usize,
}

impl Cores {
    /// Chooses the first permitted CPU for the servers, and for the driver the first one that is not a hardware thread
    /// of the same core. Two threads of one core slow each other, and the server's clock would include that. If there
    /// is no such CPU, the second thread is used, and the report says so.
    ///
    /// # Errors
    /// The error of the system if the affinity cannot be read.
    pub fn choose() -> io::Result<Self> {
        let allowed = sched_getaffinity(THIS_THREAD)?;
        let cores = (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap_or(false));
        Ok(Self::of(&cores.collect::<Vec<_>>(), are_one))
    }

    /// Chooses from these CPUs; `are_one` returns whether two of them are threads of one core.
    fn of(cores: &[usize], are_one: impl Fn(usize, usize) -> bool) -> Self {
        let server = cores.first().copied().unwrap_or(0);
        let others = || cores.iter().copied().skip(1);
        let driver = others().find(|core| !are_one(server, *core)).or_else(|| others().next());
        Self { server, driver: driver.unwrap_or(server) }
    }

    /// Returns what servers and driver share.
    #[must_use]
    pub fn sharing(self) -> Sharing {
        match self {
            Self { server, driver } if server == driver => Sharing::Everything,
            Self { server, driver } if are_one(server, driver) => Sharing::Core,
            _ => Sharing::Nothing,
        }
    }
}

/// Describes the cores, and how servers and driver disturb each other.
impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, driver } = self;
        match self.sharing() {
            Sharing::Nothing => write!(f, "server on CPU {server}, driver on CPU {driver}"),
            Sharing::Core => write!(
                f,
                "server on CPU {server}, driver on CPU {driver}, two THREADS OF ONE CORE, because no others \
                 are permitted: they slow each other"
            ),
            Sharing::Everything => {
                write!(
                    f,
                    "server and driver BOTH ON CPU {server}, because no other is permitted: they wait for each other"
                )
            }
        }
    }
}

/// Whether servers and driver share a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// Nothing: each has a core.
    Nothing,
    /// Each has a hardware thread of one core.
    Core,
    /// There is only one CPU.
    Everything,
}

/// Returns whether two CPUs are threads of one core; false if the system does not report it.
fn are_one(core: usize, other: usize) -> bool {
    let of =
        |core: usize| std::fs::read(format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")).ok();
    of(core).is_some_and(|siblings| of(other) == Some(siblings))
}

/// Pins the calling thread to a CPU.
///
/// # Errors
/// The error of the system if it refuses.
pub fn pin(core: usize) -> io::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core)?;
    Ok(sched_setaffinity(THIS_THREAD, &cores)?)
}

/// Returns the CPU time of the calling thread, system calls included.
#[must_use]
pub fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Returns the cost of two readings of [`thread_time`], which is subtracted from every measurement.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_and_driver_get_separate_cores() {
        // Threads of one core have adjacent numbers on some machines, and differ by half the number of CPUs on others.
        let (beside, apart) = (|a, b| a / 2 == b / 2, |a, b| a % 4 == b % 4);
        for (cores, are_one, expected) in [
            (&[0, 1, 2, 3][..], beside as fn(usize, usize) -> bool, (0, 2)),
            (&[0, 1, 2, 3, 4, 5, 6, 7], apart, (0, 1)),
            (&[1, 5, 6], apart, (1, 6)),
            (&[2, 3], beside, (2, 3)),
            (&[3], beside, (3, 3)),
            (&[], beside, (0, 0)),
        ] {
            let cores_of = Cores::of(cores, are_one);
            assert_eq!((cores_of.server, cores_of.driver), expected, "{cores:?}");
        }
    }

    #[test]
    fn shared_cpu_is_reported() {
        let one = Cores { server: 0, driver: 0 };
        assert_eq!(one.sharing(), Sharing::Everything);
        assert!(one.to_string().contains("BOTH ON CPU 0"), "{one}");
    }
}
