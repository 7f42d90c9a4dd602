//! Parses a JSON body into a [`TokenRequest`]. Errors name the wrong field.
//!
//! This module checks the form of each field. The issuer checks the values against its configuration.

use core::fmt;
use core::net::SocketAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::error::{ApiError, ErrorCode};
use crate::api_key::API_KEY_PREFIX;
use crate::issuer::TokenRequest;

/// The fields of a request. `client_id` is required, the others are optional.
pub const REQUEST_FIELDS: [&str; 5] = [CLIENT_ID, SERVER_ADDRESSES, USER_DATA, LIFETIME_SECONDS, TIMEOUT_SECONDS];

/// The longest unknown field name that a response quotes, in bytes: API keys are longer.
const MAX_SHOWN_FIELD: usize = 32;

const CLIENT_ID: &str = "client_id";
const SERVER_ADDRESSES: &str = "server_addresses";
const USER_DATA: &str = "user_data";
const LIFETIME_SECONDS: &str = "lifetime_seconds";
const TIMEOUT_SECONDS: &str = "timeout_seconds";

/// Parses the body of `POST /v1/tokens`. A `null` counts as absent.
pub(super) fn read(body: &[u8]) -> Result<TokenRequest, ApiError> {
    let Fields(fields) = serde_json::from_slice(body).map_err(|error| malformed(&error))?;
    refuse_unknown_and_duplicate(&fields)?;
    let field = |name| fields.iter().find(|(key, value)| key == name && !value.is_null()).map(|(_, value)| value);
    let client_id = field(CLIENT_ID)
        .ok_or_else(|| ApiError::of_field(ErrorCode::MissingField, CLIENT_ID, "client_id must be given"))?;
    Ok(TokenRequest {
        client_id: read_client_id(client_id)?.into(),
        servers: field(SERVER_ADDRESSES).map(read_servers).transpose()?,
        user_data: field(USER_DATA).map(read_user_data).transpose()?.unwrap_or_default(),
        lifetime_seconds: field(LIFETIME_SECONDS).map(|value| read_seconds(LIFETIME_SECONDS, value)).transpose()?,
        timeout_seconds: field(TIMEOUT_SECONDS).map(|value| read_seconds(TIMEOUT_SECONDS, value)).transpose()?,
    })
}

/// An object's fields in the order of the body, including duplicates. A map would keep one of two equal names, and
/// parsers disagree about which one, so duplicates are refused.
struct Fields(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

/// Returns the error for invalid JSON. It gives the position and does not quote the body, which may hold secrets.
fn malformed(error: &serde_json::Error) -> ApiError {
    let (line, column) = (error.line(), error.column());
    let message = format!("the body must be one JSON object: syntax error at line {line}, column {column}");
    ApiError::new(ErrorCode::MalformedBody, message)
}

fn refuse_unknown_and_duplicate(fields: &[(String, Value)]) -> Result<(), ApiError> {
    for (index, (name, _)) in fields.iter().enumerate() {
        if !REQUEST_FIELDS.contains(&name.as_str()) {
            let message = format!("unknown field; the fields are {}", REQUEST_FIELDS.join(", "));
            return Err(if may_be_secret(name) {
                ApiError::new(ErrorCode::UnknownField, message)
            } else {
                ApiError::of_field(ErrorCode::UnknownField, name, message)
            });
        }
        if fields.iter().take(index).any(|(earlier, _)| earlier == name) {
            return Err(ApiError::of_field(ErrorCode::DuplicateField, name, format!("{name} is given twice")));
        }
    }
    Ok(())
}

/// Returns whether an unknown field may be a misplaced API key. Responses are logged by callers, so it is not quoted.
fn may_be_secret(unknown: &str) -> bool {
    unknown.len() > MAX_SHOWN_FIELD || unknown.contains(API_KEY_PREFIX)
}

/// Parses a number or a decimal string: JavaScript cannot represent integers above 2^53 exactly.
fn read_client_id(value: &Value) -> Result<u64, ApiError> {
    let id = match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    };
    id.ok_or_else(|| invalid(CLIENT_ID, "must be an integer from 0 to 18446744073709551615, as a number or a string"))
}

fn read_servers(value: &Value) -> Result<Vec<SocketAddr>, ApiError> {
    let list = value.as_array().ok_or_else(|| invalid(SERVER_ADDRESSES, "must be a list of strings"))?;
    let read = |(index, entry): (usize, &Value)| {
        let address = entry.as_str().and_then(|text| text.parse().ok());
        address.ok_or_else(|| {
            let form = "must have the form \"192.0.2.1:40000\" or \"[2001:db8::1]:40000\"";
            invalid(SERVER_ADDRESSES, &format!("entry {index} {form}"))
        })
    };
    list.iter().enumerate().map(read).collect()
}

fn read_user_data(value: &Value) -> Result<Vec<u8>, ApiError> {
    let bytes = value.as_str().and_then(|text| STANDARD.decode(text).ok());
    bytes.ok_or_else(|| invalid(USER_DATA, "must be a base64 string with the standard alphabet and padding"))
}

/// Parses whole seconds. Values outside `u32` are clamped to values that every limit refuses.
fn read_seconds(field: &str, value: &Value) -> Result<u32, ApiError> {
    match (value.as_u64(), value.as_i64()) {
        (Some(seconds), _) => Ok(u32::try_from(seconds).unwrap_or(u32::MAX)),
        (None, Some(_negative)) => Ok(0),
        (None, None) => Err(invalid(field, "must be a whole number of seconds")),
    }
}

fn invalid(field: &str, problem: &str) -> ApiError {
    ApiError::of_field(ErrorCode::InvalidField, field, format!("{field} {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_request_is_parsed() {
        let body = br#"{"client_id": "18446744073709551615", "server_addresses": ["192.0.2.1:1", "[2001:db8::1]:2"],
            "user_data": "AQI=", "lifetime_seconds": 4, "timeout_seconds": 5}"#;
        let request = read(body).unwrap();
        assert_eq!(request.client_id.0, u64::MAX);
        assert_eq!(request.servers.unwrap().len(), 2);
        assert_eq!(request.user_data, [1, 2]);
        assert_eq!((request.lifetime_seconds, request.timeout_seconds), (Some(4), Some(5)));
    }

    #[test]
    fn only_client_id_is_required_and_null_is_absent() {
        let nulls = r#"{"client_id": 7, "server_addresses": null, "user_data": null, "lifetime_seconds": null}"#;
        for body in [r#"{"client_id": 7}"#, r#"{"client_id": "7"}"#, r#"{"client_id": "007"}"#, nulls] {
            assert!(read(body.as_bytes()).unwrap() == TokenRequest::new(7), "{body}");
        }
    }

    #[test]
    fn client_id_is_exact_up_to_the_maximum() {
        for id in [0, (1 << 53) + 1, u64::MAX] {
            assert_eq!(read(format!(r#"{{"client_id": {id}}}"#).as_bytes()).unwrap().client_id.0, id);
            assert_eq!(read(format!(r#"{{"client_id": "{id}"}}"#).as_bytes()).unwrap().client_id.0, id);
        }
    }

    #[test]
    fn wrong_body_is_refused_with_code_and_field() {
        use ErrorCode::{DuplicateField, InvalidField, MalformedBody, MissingField, UnknownField};
        let cases = [
            ("", MalformedBody, None),
            ("[]", MalformedBody, None),
            ("7", MalformedBody, None),
            (r#"{"client_id": 7"#, MalformedBody, None),
            (r#"{"client_id": 7} x"#, MalformedBody, None),
            ("{}", MissingField, Some("client_id")),
            (r#"{"client_id": null}"#, MissingField, Some("client_id")),
            (r#"{"client_id": 7, "clientId": 7}"#, UnknownField, Some("clientId")),
            (r#"{"client_id": 7, "client_id": 8}"#, DuplicateField, Some("client_id")),
            (r#"{"client_id": -1}"#, InvalidField, Some("client_id")),
            (r#"{"client_id": 1.5}"#, InvalidField, Some("client_id")),
            (r#"{"client_id": 18446744073709551616}"#, InvalidField, Some("client_id")),
            (r#"{"client_id": "18446744073709551616"}"#, InvalidField, Some("client_id")),
            (r#"{"client_id": ""}"#, InvalidField, Some("client_id")),
            (r#"{"client_id": "+7"}"#, InvalidField, Some("client_id")),
            (r#"{"client_id": true}"#, InvalidField, Some("client_id")),
            (r#"{"client_id": 7, "server_addresses": "192.0.2.1:1"}"#, InvalidField, Some("server_addresses")),
            (r#"{"client_id": 7, "server_addresses": ["game.example:1"]}"#, InvalidField, Some("server_addresses")),
            (r#"{"client_id": 7, "server_addresses": ["192.0.2.1"]}"#, InvalidField, Some("server_addresses")),
            (r#"{"client_id": 7, "server_addresses": [1]}"#, InvalidField, Some("server_addresses")),
            (r#"{"client_id": 7, "user_data": "AQI"}"#, InvalidField, Some("user_data")),
            (r#"{"client_id": 7, "user_data": "-_=="}"#, InvalidField, Some("user_data")),
            (r#"{"client_id": 7, "user_data": [1]}"#, InvalidField, Some("user_data")),
            (r#"{"client_id": 7, "lifetime_seconds": 1.5}"#, InvalidField, Some("lifetime_seconds")),
            (r#"{"client_id": 7, "timeout_seconds": "5"}"#, InvalidField, Some("timeout_seconds")),
        ];
        for (body, code, field) in cases {
            assert_eq!(read(body.as_bytes()).err().unwrap().code_and_field(), (code, field), "{body}");
        }
    }

    #[test]
    fn unknown_field_that_may_be_a_key_is_not_quoted() {
        for name in ["sgk_1", "Bearer sgk_1", &"0a".repeat(32), &"x".repeat(33)] {
            let error = read(format!(r#"{{"{name}": 7}}"#).as_bytes()).err().unwrap();
            assert_eq!(error.code_and_field(), (ErrorCode::UnknownField, None));
            assert!(!format!("{error:?}").contains(name));
        }
    }

    #[test]
    fn seconds_outside_u32_are_clamped_to_refused_values() {
        let seconds = |text: &str| {
            let body = format!(r#"{{"client_id": 7, "lifetime_seconds": {text}}}"#);
            read(body.as_bytes()).unwrap().lifetime_seconds.unwrap()
        };
        assert_eq!(seconds("-1"), 0);
        assert_eq!(seconds("-9223372036854775808"), 0);
        assert_eq!(seconds("4294967296"), u32::MAX);
    }
}
