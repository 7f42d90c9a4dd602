//! The peers: other Rust libraries for netcode 1.02, as they come from the registry and as their examples use them.

mod official;
mod renet;
mod renetcode;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use slipgate_bench::contestant::Contestant;

/// All of them, in the order of the columns.
pub const ALL: [Contestant; 3] = [official::OFFICIAL, renetcode::RENETCODE, renet::RENET];

/// The wall clock, by which two of them judge tokens.
fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// How much time has passed since the last turn.
fn since(last: &mut Duration, now: Duration) -> Duration {
    let passed = now.saturating_sub(*last);
    *last = now;
    passed
}
