//! The time slice of a thread: how long the scheduler lets it run before another thread has its turn.
//!
//! A thread that wakes while another one runs on its core may have to wait until the slice of that one is over, and
//! the kernel looks at that only at its next tick: up to 4 ms later. From Linux 6.12 on a thread with a shorter slice
//! interrupts one with a longer slice, as long as it does not use more than its share of the core.

#[cfg(target_os = "linux")]
use std::cell::Cell;
use std::time::Duration;

/// The slice that [`shorten_time_slice`] requests: the interval of wakeups during a flood. The default is 1.4 to 2.8 ms
/// on most machines.
#[cfg(target_os = "linux")]
const SHORT_SLICE: Duration = Duration::from_micros(250);

/// Requests a time slice of 0.25 ms for the calling thread, so that it runs soon after it wakes on a busy machine. It
/// needs no privilege, and takes no other thread's share of a core. Only the first call of a thread does something. A
/// thread of another scheduling policy than the usual one, or with a shorter slice, keeps what it has, and so do all
/// threads where the kernel is older than 6.12 or a sandbox forbids the call.
#[inline]
pub fn shorten_time_slice() {
    #[cfg(target_os = "linux")]
    {
        thread_local!(static HAS_REQUESTED: Cell<bool> = const { Cell::new(false) });
        if !HAS_REQUESTED.replace(true) {
            // A refusal leaves the thread as it was: it may wait longer for its turn on a busy machine.
            let _ = super::syscalls::shorten_time_slice(SHORT_SLICE);
        }
    }
}

/// Returns the time slice of the calling thread, `None` if the system does not report it.
#[must_use]
pub fn time_slice() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    {
        super::syscalls::time_slice()
    }
    #[cfg(not(target_os = "linux"))]
    {
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn slice_is_shortened_for_the_calling_thread_alone() {
        let before = time_slice();
        let shortened = thread::spawn(|| {
            shorten_time_slice();
            time_slice()
        });
        // Kernels before 6.12 have one slice for all threads, and do not report it.
        let expected = before.map(|before| before.min(SHORT_SLICE));
        assert_eq!(shortened.join().unwrap(), expected);
        assert_eq!(time_slice(), before);
    }

    #[test]
    fn thread_with_a_shorter_slice_keeps_it() {
        let kept = thread::spawn(|| {
            let is_set = crate::syscalls::shorten_time_slice(Duration::from_micros(150)).is_ok();
            shorten_time_slice();
            (is_set, time_slice())
        });
        let (is_set, kept) = kept.join().unwrap();
        assert!(!is_set || kept == Some(Duration::from_micros(150)), "{kept:?}");
    }
}
