//! A registered server as the API shows it.

use serde::Serialize;

use crate::registry::ServerStatus;

/// A server in a response.
#[derive(Serialize)]
pub(super) struct ServerFacts {
    pub(super) id: String,
    state: &'static str,
    protocol_id: String,
    addresses: Vec<String>,
    group: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<String>,
    slots: u32,
    free_slots: u32,
    reserved_slots: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    build: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    heartbeat_age_millis: Option<u64>,
}

impl From<&ServerStatus> for ServerFacts {
    fn from(server: &ServerStatus) -> Self {
        let registration = &server.registration;
        Self {
            id: registration.id.to_string(),
            state: server.state().name(),
            protocol_id: registration.protocol_id.to_string(),
            addresses: registration.addresses.iter().map(ToString::to_string).collect(),
            group: registration.group.to_string(),
            region: registration.region.as_ref().map(ToString::to_string),
            slots: registration.slots,
            free_slots: registration.free_slots,
            reserved_slots: server.reserved_slots,
            build: registration.build.clone(),
            heartbeat_age_millis: u64::try_from(server.heartbeat_age.as_millis()).ok(),
        }
    }
}

impl ServerFacts {
    /// Returns the JSON of a server for an event. The age of the heartbeat is left out: it always changes.
    pub(super) fn event_data(server: &ServerStatus) -> String {
        let facts = Self { heartbeat_age_millis: None, ..Self::from(server) };
        serde_json::to_string(&facts).unwrap_or_default()
    }
}
