//! The few metrics that the view shows, from the text of `/metrics`.

use std::collections::BTreeMap;

use slipgate_netcode::discard::Discard;

/// The first part of the name of each metric.
const PREFIX: &str = "slipgate";

/// The values of metrics by their name without prefix, with labels as in the text.
#[derive(Debug, Default)]
pub(super) struct TopMetrics(BTreeMap<String, f64>);

impl TopMetrics {
    /// Parses the text. Lines that are no values are skipped.
    pub(super) fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pairs = lines.filter_map(|line| line.rsplit_once(' '));
        let name_of = |name: &str| name.strip_prefix(PREFIX)?.strip_prefix('_').map(str::to_owned);
        Self(pairs.filter_map(|(name, value)| Some((name_of(name)?, value.parse().ok()?))).collect())
    }

    /// Returns a value, 0 without it.
    pub(super) fn get(&self, name: &str) -> f64 {
        self.0.get(name).copied().unwrap_or(0.0)
    }

    /// Returns the sum over all labels.
    pub(super) fn sum(&self, name: &str) -> f64 {
        let labels = format!("{name}{{");
        let is_of = |key: &str| key == name || key.starts_with(&labels);
        self.0.iter().filter(|(key, _)| is_of(key)).map(|(_, value)| value).sum()
    }

    /// Returns the values by a label, those above 0.
    pub(super) fn by_label(&self, name: &str, label: &str) -> Vec<(&str, f64)> {
        let prefix = format!("{name}{{{label}=\"");
        let named = self.0.iter().filter(|(_, value)| **value > 0.0);
        named.filter_map(|(key, value)| Some((key.strip_prefix(&prefix)?.strip_suffix("\"}")?, *value))).collect()
    }

    /// Returns the dropped datagrams by reason, without those that follow a clean leave.
    pub(super) fn drops(&self) -> Vec<(&str, f64)> {
        let mut drops = self.by_label("dropped_datagrams_total", "reason");
        drops.retain(|(reason, _)| *reason != Discard::ConnectionEnded.name());
        drops
    }

    /// Returns the mean of the values that a histogram got since an earlier reading, `None` without one.
    pub(super) fn mean_since(&self, earlier: &Self, histogram: &str) -> Option<f64> {
        let of = |metrics: &Self, part: &str| metrics.get(&format!("{histogram}_{part}"));
        let count = of(self, "count") - of(earlier, "count");
        (count > 0.0).then(|| (of(self, "sum") - of(earlier, "sum")) / count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_labels_and_means_are_read() {
        let text = "# EOF\nP_a_total 7\nP_b{reason=\"x\"} 1\nP_b{reason=\"y\"} 0\nP_t_sum 2.5\nP_t_count 5\n";
        let parse = |text: &str| TopMetrics::parse(&text.replace('P', PREFIX));
        let metrics = parse(text);
        assert_eq!((metrics.get("a_total"), metrics.get("missing"), metrics.sum("b")), (7.0, 0.0, 1.0));
        assert_eq!(metrics.by_label("b", "reason"), [("x", 1.0)]);
        assert_eq!(metrics.mean_since(&parse("P_t_sum 1.5\nP_t_count 3\n"), "t"), Some(0.5));
        assert_eq!(metrics.mean_since(&metrics, "t"), None);
    }
}
