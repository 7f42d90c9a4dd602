//! What the admin port of the server that is checked shows: its metrics and its clients.

use std::collections::BTreeMap;

use serde::Deserialize;

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
        status => Err(admin.explain_status("/metrics", status)),
    }
}

/// Returns how many datagrams the server has dropped.
pub(super) fn drops(metrics: &str) -> Drops {
    let rows = metrics.lines().filter_map(|line| line.strip_prefix(PREFIX)?.strip_prefix(DROPPED));
    rows.filter_map(|row| row.split_once("\"} "))
        .filter_map(|(name, count)| Some((name.into(), count.parse().ok()?)))
        .collect()
}

/// The maximum number of lists of clients that are read, of 256 clients each.
const MAX_LISTS: usize = 64;

#[derive(Deserialize)]
struct DoctorClientList {
    clients: Vec<DoctorClient>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct DoctorClient {
    id: String,
}

/// Returns whether a client is connected to the server of this admin port, `None` if the port does not say.
pub(super) fn has_client(admin: &HttpPort, client_id: u64) -> Option<bool> {
    let (id, mut path) = (client_id.to_string(), "/clients".to_owned());
    for _ in 0..MAX_LISTS {
        let list: DoctorClientList = admin.get_json(&path).ok()?;
        if list.clients.iter().any(|client| client.id == id) {
            return Some(true);
        }
        let Some(next) = list.next else { return Some(false) };
        path = format!("/clients?after={next}");
    }
    None
}
