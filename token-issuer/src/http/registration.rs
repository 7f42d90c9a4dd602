//! Parses a JSON body into a heartbeat of a game server.

use std::time::Duration;

use serde_json::Value;
use slipgate_netcode::address::is_dialable;

use super::error::{ApiError, ErrorCode};
use super::fields::{
    Fields, invalid, out_of_range, parse_u64, read_addresses, read_bool, read_count, read_name, read_u64,
};
use crate::registry::{
    Heartbeat, MAX_ADDRESSES_PER_SERVER, MAX_ADMITTED_PER_HEARTBEAT, MAX_SLOTS, Registration, RegistryName,
    ServerInstance,
};

/// The fields of a heartbeat.
pub const REGISTRATION_FIELDS: [&str; 12] =
    [PROTOCOL_ID, ADDRESSES, GROUP, REGION, SLOTS, FREE_SLOTS, DRAINING, BUILD, ADMITTED, RUNNING, INSTANCE, SEQUENCE];

/// The maximum length of the name of a build, in bytes.
const MAX_BUILD_BYTES: usize = 64;

const PROTOCOL_ID: &str = "protocol_id";
const ADDRESSES: &str = "addresses";
const GROUP: &str = "group";
const REGION: &str = "region";
const SLOTS: &str = "slots";
const FREE_SLOTS: &str = "free_slots";
const DRAINING: &str = "draining";
const BUILD: &str = "build";
const ADMITTED: &str = "admitted_client_ids";
const RUNNING: &str = "running_millis";
pub(super) const INSTANCE: &str = "instance";
pub(super) const SEQUENCE: &str = "sequence";

/// Parses the body of `PUT /v1/servers/{id}`.
pub(super) fn read(id: RegistryName, body: &[u8]) -> Result<Heartbeat, ApiError> {
    let fields = Fields::read(body, &REGISTRATION_FIELDS)?;
    let slots = read_count(SLOTS, fields.require(SLOTS)?, (1, MAX_SLOTS))?;
    let registration = Registration {
        id,
        protocol_id: read_u64(PROTOCOL_ID, fields.require(PROTOCOL_ID)?)?,
        addresses: read_own_addresses(fields.require(ADDRESSES)?)?,
        group: read_name(GROUP, fields.require(GROUP)?)?,
        region: fields.get(REGION).map(|value| read_name(REGION, value)).transpose()?,
        slots,
        free_slots: read_count(FREE_SLOTS, fields.require(FREE_SLOTS)?, (0, slots))?,
        is_draining: fields.get(DRAINING).map(|value| read_bool(DRAINING, value)).transpose()?.unwrap_or(false),
        build: fields.get(BUILD).map(read_build).transpose()?,
    };
    let admitted = fields.get(ADMITTED).map(read_admitted).transpose()?.unwrap_or_default();
    let running = fields.get(RUNNING).map(|value| read_u64(RUNNING, value).map(Duration::from_millis)).transpose()?;
    let name = fields.get(INSTANCE).map(|value| read_name(INSTANCE, value)).transpose()?;
    let sequence = fields.get(SEQUENCE).map(|value| read_u64(SEQUENCE, value)).transpose()?;
    let instance = server_instance(name, sequence)?;
    Ok(Heartbeat { registration, admitted, running, instance })
}

/// Returns the run of a server. Numbers of heartbeats are those of a run.
pub(super) fn server_instance(
    name: Option<RegistryName>,
    sequence: Option<u64>,
) -> Result<Option<ServerInstance>, ApiError> {
    if name.is_none() && sequence.is_some() {
        let message = format!("{INSTANCE} must be given with {SEQUENCE}");
        return Err(ApiError::of_field(ErrorCode::MissingField, INSTANCE, message));
    }
    Ok(name.map(|name| ServerInstance { name, sequence }))
}

fn read_own_addresses(value: &Value) -> Result<Vec<core::net::SocketAddr>, ApiError> {
    let addresses = read_addresses(ADDRESSES, value)?;
    if !(1..=MAX_ADDRESSES_PER_SERVER).contains(&addresses.len()) {
        return Err(out_of_range(ADDRESSES, &format!("must list 1 to {MAX_ADDRESSES_PER_SERVER} addresses")));
    }
    for (index, address) in addresses.iter().enumerate() {
        if !is_dialable(*address) {
            let problem = "lists an address to which clients cannot send: a unicast address and a port are required";
            return Err(invalid(ADDRESSES, problem));
        }
        if addresses.iter().take(index).any(|earlier| earlier == address) {
            return Err(invalid(ADDRESSES, "lists an address twice"));
        }
    }
    Ok(addresses)
}

fn read_build(value: &Value) -> Result<String, ApiError> {
    let is_harmless =
        |text: &&str| (1..=MAX_BUILD_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    let build = value.as_str().filter(is_harmless).map(str::to_owned);
    build.ok_or_else(|| invalid(BUILD, "must be a string of 1 to 64 visible ASCII characters"))
}

fn read_admitted(value: &Value) -> Result<Vec<slipgate_netcode::ids::ClientId>, ApiError> {
    let list = value.as_array().ok_or_else(|| invalid(ADMITTED, "must be a list of client ids"))?;
    if list.len() > MAX_ADMITTED_PER_HEARTBEAT {
        let limit = format!("must list at most {MAX_ADMITTED_PER_HEARTBEAT} client ids");
        return Err(ApiError::of_field(ErrorCode::OutOfRange, ADMITTED, format!("{ADMITTED} {limit}")));
    }
    let read = |value| parse_u64(value).map(Into::into).ok_or_else(|| invalid(ADMITTED, "must list client ids"));
    list.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPLETE: &str = r#"{"protocol_id": "7", "addresses": ["192.0.2.1:1", "[2001:db8::1]:2"], "group": "g",
        "region": "eu", "slots": 64, "free_slots": 3, "draining": true, "build": "1.2",
        "admitted_client_ids": ["1", 2], "running_millis": 1500, "instance": "1f", "sequence": 18446744073709551615}"#;

    fn id() -> RegistryName {
        "a".parse().unwrap()
    }

    #[test]
    fn complete_heartbeat_is_parsed() {
        let Heartbeat { registration, admitted, running, instance } = read(id(), COMPLETE.as_bytes()).unwrap();
        assert_eq!((registration.protocol_id, registration.addresses.len()), (7, 2));
        assert_eq!((registration.slots, registration.free_slots, registration.is_draining), (64, 3, true));
        assert_eq!(registration.region.unwrap().as_str(), "eu");
        assert_eq!((registration.build.as_deref(), admitted.len()), (Some("1.2"), 2));
        let run = ServerInstance { name: "1f".parse().unwrap(), sequence: Some(u64::MAX) };
        assert_eq!((running, instance), (Some(Duration::from_millis(1500)), Some(run)));
    }

    #[test]
    fn wrong_heartbeat_is_refused_with_code_and_field() {
        use ErrorCode::{InvalidField, MalformedBody, MissingField, OutOfRange, UnknownField};
        let with = |field: &str, value: &str| {
            let mut json: serde_json::Map<String, Value> = serde_json::from_str(COMPLETE).unwrap();
            json.insert(field.to_owned(), serde_json::from_str(value).unwrap());
            serde_json::to_string(&json).unwrap()
        };
        let refused = |body: &str| {
            let error = read(id(), body.as_bytes()).unwrap_err();
            let (code, field) = error.code_and_field();
            (code, field.map(str::to_owned))
        };
        assert_eq!(refused("[]"), (MalformedBody, None));
        for field in ["protocol_id", "addresses", "group", "slots", "free_slots"] {
            assert_eq!(refused(&with(field, "null")), (MissingField, Some(field.to_owned())));
        }
        let cases = [
            ("name", "1", UnknownField),
            ("protocol_id", "-1", InvalidField),
            ("addresses", "[]", OutOfRange),
            ("addresses", r#"["192.0.2.1:1","192.0.2.1:2","192.0.2.1:3","192.0.2.1:4","192.0.2.1:5"]"#, OutOfRange),
            ("addresses", r#"["192.0.2.1:1","192.0.2.1:1"]"#, InvalidField),
            ("addresses", r#"["0.0.0.0:1"]"#, InvalidField),
            ("addresses", r#"["game.example:1"]"#, InvalidField),
            ("group", r#""a/b""#, InvalidField),
            ("region", "7", InvalidField),
            ("slots", "0", OutOfRange),
            ("slots", "65537", OutOfRange),
            ("slots", r#""64""#, InvalidField),
            ("free_slots", "65", OutOfRange),
            ("free_slots", "-1", OutOfRange),
            ("draining", "1", InvalidField),
            ("build", r#""a b""#, InvalidField),
            ("build", r#""""#, InvalidField),
            ("admitted_client_ids", "7", InvalidField),
            ("admitted_client_ids", r#"["x"]"#, InvalidField),
            ("running_millis", "-1", InvalidField),
            ("running_millis", "1.5", InvalidField),
            ("instance", r#""""#, InvalidField),
            ("instance", "7", InvalidField),
            ("instance", "null", MissingField),
            ("sequence", "-1", InvalidField),
            ("sequence", "18446744073709551616", InvalidField),
            ("admitted_client_ids", &format!("[{}1]", "1,".repeat(128)), OutOfRange),
        ];
        for (field, value, code) in cases {
            assert_eq!(refused(&with(field, value)), (code, Some(field.to_owned())), "{field}: {value}");
        }
    }
}
