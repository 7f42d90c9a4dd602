//! Attempts on a path of the kernel's, of which one must succeed.
//!
//! A busy machine holds datagrams up as a path does, and nothing but the program makes them quicker: who stays within the
//! bounds once in three attempts can do it, and an attempt in which the programs were kept from running does not count.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use super::place::Place;

/// One at a time: they would measure each other.
static ONE: Mutex<()> = Mutex::new(());

/// Says so past libtest, which keeps what passing tests print to itself.
pub(crate) fn skipped(reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED, the kernel's word on congestion avoidance: {reason}");
}

/// The place, or the reason why there is none.
pub(crate) fn place(name: &str, rate: &str, buffer: u32) -> Option<Place> {
    match Place::new(name, rate, buffer) {
        Ok(place) => Some(place),
        Err(reason) => {
            skipped(&format!("no network namespaces with a bottleneck: {reason}"));
            None
        }
    }
}

/// Of an attempt: whether it stayed within its bounds, and the share of the time in which the machine kept it from running.
pub(crate) struct Attempt {
    pub(crate) within: bool,
    pub(crate) kept_waiting: f64,
}

/// With so little of waiting an attempt counts.
const UNDISTURBED: f64 = 0.01;
/// So many attempts that count, and so many in all.
const COUNTING: usize = 3;
const ATTEMPTS: usize = 6;

/// Attempts it until it is within its bounds; `None` for what cannot be attempted here.
pub(crate) fn once_in_three(attempt: impl Fn() -> Option<Attempt>) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut counted = 0;
    for _ in 0..ATTEMPTS {
        let Some(Attempt { within, kept_waiting }) = attempt() else { return };
        eprintln!("  kept from running for {:.2} % of the time", 100.0 * kept_waiting);
        if within {
            return;
        }
        counted += usize::from(kept_waiting < UNDISTURBED);
        assert!(counted < COUNTING, "not once in three attempts within the bounds");
    }
    skipped("the machine is too busy");
}
