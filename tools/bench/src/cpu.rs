//! Cores and CPU time: where a thread runs, and how long it has run.

use std::fmt;
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
    /// The first core that this process may use, and the first one beside it that is no thread of the same core: two
    /// threads of one core take time from each other, and the server's clock would count that. Where there is no such
    /// choice it is told with the figures, and the second thread must do.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn choose() -> io::Result<Self> {
        let allowed = sched_getaffinity(THIS_THREAD)?;
        let cores = (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap_or(false));
        Ok(Self::of(&cores.collect::<Vec<_>>(), are_one))
    }

    /// Of these, as far as two of them are threads of one core.
    fn of(cores: &[usize], are_one: impl Fn(usize, usize) -> bool) -> Self {
        let server = cores.first().copied().unwrap_or(0);
        let others = || cores.iter().copied().skip(1);
        let driver = others().find(|core| !are_one(server, *core)).or_else(|| others().next());
        Self { server, driver: driver.unwrap_or(server) }
    }

    /// What they share.
    #[must_use]
    pub fn sharing(self) -> Sharing {
        match self {
            Self { server, driver } if server == driver => Sharing::Everything,
            Self { server, driver } if are_one(server, driver) => Sharing::Core,
            _ => Sharing::Nothing,
        }
    }
}

/// Where servers and driver run, and what they take from each other.
impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, driver } = self;
        match self.sharing() {
            Sharing::Nothing => write!(f, "server on CPU {server}, driver on CPU {driver}"),
            Sharing::Core => write!(
                f,
                "server on CPU {server}, driver on CPU {driver}, which are two THREADS OF ONE CORE, for no others may be \
                 used: they take time from each other"
            ),
            Sharing::Everything => {
                write!(f, "server and driver BOTH ON CPU {server}, for no other may be used: they wait for each other")
            }
        }
    }
}

/// What servers and driver share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// Each has a core.
    Nothing,
    /// Each has a thread of one core.
    Core,
    /// There is but one CPU.
    Everything,
}

/// Whether two cores are threads of one, as the system tells; no if it does not.
fn are_one(core: usize, other: usize) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_and_driver_have_cores_of_their_own_where_there_is_a_choice() {
        // Threads of one core are numbered side by side on some machines, and half the CPUs apart on others.
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
    fn one_cpu_for_both_is_told() {
        let one = Cores { server: 0, driver: 0 };
        assert_eq!(one.sharing(), Sharing::Everything);
        assert!(one.to_string().contains("BOTH ON CPU 0"), "{one}");
    }
}
