//! A registration as the JSON that stores keep.

use core::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::types::Registration;

#[derive(Serialize, Deserialize)]
struct StoredRegistration {
    id: String,
    protocol_id: u64,
    addresses: Vec<SocketAddr>,
    group: String,
    region: Option<String>,
    slots: u32,
    free_slots: u32,
    is_draining: bool,
    build: Option<String>,
}

/// Returns the JSON of a registration.
pub(super) fn to_json(registration: &Registration) -> String {
    let stored = StoredRegistration {
        id: registration.id.to_string(),
        protocol_id: registration.protocol_id,
        addresses: registration.addresses.clone(),
        group: registration.group.to_string(),
        region: registration.region.as_ref().map(ToString::to_string),
        slots: registration.slots,
        free_slots: registration.free_slots,
        is_draining: registration.is_draining,
        build: registration.build.clone(),
    };
    serde_json::to_string(&stored).unwrap_or_default()
}

/// Parses the JSON of a registration. `None` if another program wrote it.
pub(super) fn from_json(json: &str) -> Option<Registration> {
    let stored: StoredRegistration = serde_json::from_str(json).ok()?;
    Some(Registration {
        id: stored.id.parse().ok()?,
        protocol_id: stored.protocol_id,
        addresses: stored.addresses,
        group: stored.group.parse().ok()?,
        region: stored.region.map(|region| region.parse()).transpose().ok()?,
        slots: stored.slots,
        free_slots: stored.free_slots,
        is_draining: stored.is_draining,
        build: stored.build,
    })
}
