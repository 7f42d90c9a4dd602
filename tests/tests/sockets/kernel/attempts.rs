//! Attempts on a path of the kernel, of which one must succeed.
//!
//! A busy machine delays datagrams as a path does, but nothing except the program makes them faster. One of three
//! attempts within the bounds proves the property, and attempts in which the programs did not get the processor do not
//! count.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use slipgate_tests::scale::pick;

use super::bottleneck::Bottleneck;

/// Runs the tests one at a time: they would disturb each other.
static ONE: Mutex<()> = Mutex::new(());

/// Reports a skipped test on stderr, which libtest does not hide.
pub(crate) fn skipped(reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED, congestion avoidance on kernel paths: {reason}");
}

/// Returns whether a test of many seconds in real time is left out: it runs with `SLIPGATE_TESTS=all`.
pub(crate) fn is_left_out() -> bool {
    let is_all = pick(false, true);
    if !is_all {
        skipped("a long test, which SLIPGATE_TESTS=all runs");
    }
    !is_all
}

/// Returns the bottleneck, or reports why there is none.
pub(crate) fn bottleneck(name: &str, rate: &str, buffer: u32) -> Option<Bottleneck> {
    match Bottleneck::new(name, rate, buffer) {
        Ok(bottleneck) => Some(bottleneck),
        Err(reason) => {
            skipped(&format!("no network namespaces with a bottleneck: {reason}"));
            None
        }
    }
}

/// An attempt: whether it stayed within its bounds, and the share of the time without the processor.
pub(crate) struct Attempt {
    pub(crate) within: bool,
    pub(crate) kept_waiting: f64,
}

/// The maximum share of waiting for an attempt that counts.
const UNDISTURBED: f64 = 0.01;
/// The attempts that must count, and all attempts.
const COUNTING: usize = 3;
const ATTEMPTS: usize = 6;

/// Repeats an attempt until it is within its bounds; `None` means that it cannot run here.
pub(crate) fn once_in_three(attempt: impl Fn() -> Option<Attempt>) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut counted = 0;
    for _ in 0..ATTEMPTS {
        let Some(Attempt { within, kept_waiting }) = attempt() else { return };
        eprintln!("  without the processor for {:.2} % of the time", 100.0 * kept_waiting);
        if within {
            return;
        }
        counted += usize::from(kept_waiting < UNDISTURBED);
        assert!(counted < COUNTING, "not within the bounds in three attempts");
    }
    skipped("the machine is too busy");
}
