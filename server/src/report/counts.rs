//! How counters by name stand in a line of the log.

use std::fmt::Display;

/// Returns the counters above 0 with their names: `too_short: 1, replayed: 3`, or `none`.
pub(super) fn list<N: Display>(counts: impl Iterator<Item = (N, u64)>) -> String {
    let named: Vec<String> =
        counts.filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name}: {count}")).collect();
    if named.is_empty() { "none".to_owned() } else { named.join(", ") }
}
