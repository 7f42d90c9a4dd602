//! The peers: other Rust libraries for netcode 1.02, as released, and used as in their examples.

mod official;
mod renet;
mod renetcode;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use slipgate_bench::subject::Subject;

/// All peers, in the order of the columns.
pub const ALL: [Subject; 3] = [official::OFFICIAL, renetcode::RENETCODE, renet::RENET];

/// Returns the wall clock. Two of the peers check tokens against it.
fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the time since the last turn.
fn since(last: &mut Duration, now: Duration) -> Duration {
    let passed = now.saturating_sub(*last);
    *last = now;
    passed
}
