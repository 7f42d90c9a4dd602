//! The metrics of the server that is checked.

use std::collections::BTreeMap;

use crate::http_port::HttpPort;

/// The prefix of all metrics, and the name of that of dropped datagrams with its label.
pub(super) const PREFIX: &str = "slipgate";
pub(super) const DROPPED: &str = "_dropped_datagrams_total{reason=\"";

/// The number of dropped datagrams by reason.
pub(super) type Drops = BTreeMap<String, u64>;

/// Reads the metrics of the server.
pub(super) fn metrics(admin: &HttpPort) -> Result<String, String> {
    let response = admin.get("/metrics")?;
    match response.status {
        200 => Ok(response.body),
        401 => Err("the admin port requires its token: give --admin-token-file".to_owned()),
        status => Err(format!("/metrics returned HTTP {status}")),
    }
}

/// Returns how many datagrams the server has dropped.
pub(super) fn drops(metrics: &str) -> Drops {
    let rows = metrics.lines().filter_map(|line| line.strip_prefix(PREFIX)?.strip_prefix(DROPPED));
    rows.filter_map(|row| row.split_once("\"} "))
        .filter_map(|(name, count)| Some((name.into(), count.parse().ok()?)))
        .collect()
}
