//! What the programs share: where settings come from, what the log looks like, when to stop, and how they fail.
//!
//! ```text
//!  flags ─┐
//!  env   ─┼▶ each value from the highest that has it ─▶ checked ─▶ run ─▶ SIGTERM, SIGINT ─▶ exit 0
//!  file  ─┘                                                │        │
//!                                                          └────────┴─▶ one sentence, exit 2 or 1
//! ```

#![forbid(unsafe_code)]

pub mod failure;
pub mod file;
pub mod keys;
pub mod log;
pub mod signals;
pub mod values;

pub use self::failure::Failure;

/// A list is taken as a whole from one place: a shorter list must be able to replace a longer one.
#[must_use]
pub fn either<T>(higher: Vec<T>, lower: Vec<T>) -> Vec<T> {
    if higher.is_empty() { lower } else { higher }
}
