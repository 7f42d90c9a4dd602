//! File descriptors: raises the limit of the process, and refuses a start with too few.

use crate::Failure;

/// Returns how many descriptors can still be opened, at most `wanted`. Raises the soft limit if it is too low.
///
/// On Windows, which has no such limit, it returns `wanted`.
#[must_use]
pub fn available(wanted: usize) -> usize {
    match count(wanted) {
        fewer if fewer < wanted => {
            raise(wanted);
            count(wanted)
        }
        enough => enough,
    }
}

/// Checks that a program can open this number of descriptors.
///
/// # Errors
/// Returns a run-time failure with the remedy if it cannot.
pub fn require(needed: usize) -> Result<(), Failure> {
    let available = available(needed);
    if available >= needed {
        return Ok(());
    }
    Err(Failure::run_time(format!(
        "too few file descriptors: {available} more can be opened, and at least {needed} are needed; raise the limit \
         (`ulimit -n`, or LimitNOFILE of systemd)"
    )))
}

/// Opens up to `wanted` descriptors and closes them again. Unlike a look at the limit, this includes the descriptors
/// that the process inherited.
#[cfg(unix)]
fn count(wanted: usize) -> usize {
    use std::os::fd::AsFd;

    let stdin = std::io::stdin();
    let copies: Vec<_> = (0..wanted).map_while(|_| stdin.as_fd().try_clone_to_owned().ok()).collect();
    copies.len()
}

#[cfg(unix)]
fn raise(wanted: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(current) = current else { return };
    // The descriptors in use are not known, but they are at most the limit.
    let target = current.saturating_add(wanted as u64).min(maximum.unwrap_or(u64::MAX));
    // Ignored: the caller counts again.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(target), maximum });
}

#[cfg(not(unix))]
const fn count(wanted: usize) -> usize {
    wanted
}

#[cfg(not(unix))]
const fn raise(_wanted: usize) {}
