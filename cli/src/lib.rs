//! Code that the programs share: configuration, private keys, log, signals, output and failures.
//!
//! ```text
//!  flags ─┐
//!  env   ─┼▶ each value from the highest that has it ─▶ checked ─▶ run ─▶ SIGTERM, SIGINT ─▶ exit 0
//!  file  ─┘                                                │        │
//!                                                          └────────┴─▶ one sentence, exit 2 or 1
//! ```

#![forbid(unsafe_code)]

pub mod config_file;
pub mod core_dumps;
pub mod descriptors;
pub mod failure;
pub mod file_watch;
pub mod issuer_authorities;
pub mod keys;
pub mod line_queue;
pub mod log;
pub mod output;
pub mod reload;
pub mod reload_thread;
pub mod reloaded_file;
pub mod reloaded_files;
pub mod signals;
pub mod stop_signal;
pub mod streams;
pub mod usage;
pub mod values;

pub use self::failure::Failure;

/// Returns `higher` unless it is empty. Lists are not merged, so that a shorter list can replace a longer one.
#[must_use]
pub fn first_non_empty<T>(higher: Vec<T>, lower: Vec<T>) -> Vec<T> {
    if higher.is_empty() { lower } else { higher }
}
