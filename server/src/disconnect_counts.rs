//! How many connections of a server ended for each reason, for metrics.

use std::ops::AddAssign;

use crate::CloseKind;

/// The names of the kinds that a server reports, in the order of the counters.
const NAMES: [&str; 11] = [
    "left",
    "kicked",
    "server_stopped",
    "timed_out",
    "taken_over",
    "sequences_used_up",
    "layout_mismatch",
    "version_mismatch",
    "not_a_session",
    "violation",
    "accused",
];

/// A counter for each kind of [`CloseReason`](crate::CloseReason) that a server reports. Counters saturate
/// and are never reset.
///
/// # Examples
/// ```
/// use slipgate_server::CloseKind;
/// use slipgate_server::counters::DisconnectCounts;
///
/// let mut counts = DisconnectCounts::default();
/// counts += CloseKind::TimedOut;
/// assert_eq!(counts.iter().find(|(reason, _)| *reason == "timed_out"), Some(("timed_out", 1)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DisconnectCounts([u64; NAMES.len()]);

impl DisconnectCounts {
    /// Returns the name of each reason and its count, also where that is 0. The names are those of
    /// [`CloseKind::name`].
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        NAMES.into_iter().zip(self.0)
    }
}

impl AddAssign<CloseKind> for DisconnectCounts {
    /// Counts the end of a connection. The kinds that only clients report are not counted.
    fn add_assign(&mut self, kind: CloseKind) {
        let counter = NAMES.iter().zip(&mut self.0).find(|(name, _)| **name == kind.name());
        counter.into_iter().for_each(|(_, count)| *count = count.saturating_add(1));
    }
}

impl AddAssign<&Self> for DisconnectCounts {
    /// Adds the counts of another shard.
    fn add_assign(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count = count.saturating_add(more));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Returns the kinds at the server of the first table of the page about close reasons, as words of metrics.
    fn documented() -> BTreeSet<String> {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/close-reasons.md");
        let page = std::fs::read_to_string(page).unwrap();
        let rows = page.lines().skip_while(|line| !line.starts_with("| event |")).skip(2);
        let kinds = rows.take_while(|line| line.starts_with('|')).filter_map(|row| row.split('|').nth(4));
        let kinds = kinds.map(|kind| kind.trim().trim_matches('`').to_owned()).filter(|kind| !kind.is_empty());
        kinds.map(|kind| name(&page, &kind)).collect()
    }

    /// Returns the word of a kind in the table of texts.
    fn name(page: &str, kind: &str) -> String {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{kind}` | `"))).unwrap();
        row.split('`').nth(3).unwrap().to_owned()
    }

    #[test]
    fn each_kind_that_a_server_reports_has_a_counter() {
        let mut names: BTreeSet<_> = documented();
        // The page has no row for them: their causes are no events of a game.
        names.extend(["taken_over", "sequences_used_up"].map(str::to_owned));
        assert_eq!(names, NAMES.map(str::to_owned).into());
    }

    #[test]
    fn counts_of_shards_are_added_by_reason() {
        let (mut all, mut other) = (DisconnectCounts::default(), DisconnectCounts::default());
        all += CloseKind::Left;
        other += CloseKind::Left;
        other += CloseKind::Violation(slipgate_session::channel::ChannelViolation::Control);
        all += &other;
        let counts: Vec<_> = all.iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counts, [("left", 2), ("violation", 1)]);
        assert_eq!(all.iter().count(), NAMES.len());
    }
}
