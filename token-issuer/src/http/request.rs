//! Parses a JSON body into a request for a token. Errors name the wrong field.
//!
//! This module checks the form of each field. The issuer checks the values against its configuration.

use base64_simd::STANDARD;
use serde_json::Value;
use zeroize::Zeroizing;

use super::error::ApiError;
use super::fields::{Fields, invalid, out_of_range, read_addresses, read_bool, read_count, read_name, read_u64};
use crate::issuer::TokenRequest;
use crate::registry::{MAX_REGIONS, MAX_SERVERS_PER_GROUP_TOKEN, RegistryName};

/// The fields of a request. `client_id` or `player_jwt` is required, the others are optional.
pub const REQUEST_FIELDS: [&str; 11] = [
    CLIENT_ID,
    PLAYER_JWT,
    PROTOCOL_ID,
    SERVER_ADDRESSES,
    GROUP,
    REGIONS,
    ONLY_REGIONS,
    SERVER_COUNT,
    USER_DATA,
    LIFETIME_SECONDS,
    TIMEOUT_SECONDS,
];

pub(super) const CLIENT_ID: &str = "client_id";
pub(super) const PLAYER_JWT: &str = "player_jwt";
pub(super) const PROTOCOL_ID: &str = "protocol_id";
pub(super) const SERVER_ADDRESSES: &str = "server_addresses";
pub(super) const GROUP: &str = "group";
const REGIONS: &str = "regions";
const ONLY_REGIONS: &str = "only_regions";
const SERVER_COUNT: &str = "server_count";
const USER_DATA: &str = "user_data";
const LIFETIME_SECONDS: &str = "lifetime_seconds";
const TIMEOUT_SECONDS: &str = "timeout_seconds";

/// A parsed body of `POST /v1/tokens`.
pub(super) struct TokenBody {
    /// The player's id, if the request names it.
    pub(super) client_id: Option<u64>,
    /// The player's JSON Web Token, which names the player.
    pub(super) player_jwt: Option<Zeroizing<String>>,
    /// The game, unless the issuer has only one.
    pub(super) protocol_id: Option<u64>,
    pub(super) group: Option<GroupChoice>,
    /// The rest. Its client id is set by [`Self::with_client_id`].
    request: TokenRequest,
}

/// Servers by group.
pub(super) struct GroupChoice {
    pub(super) group: RegistryName,
    pub(super) regions: Vec<RegistryName>,
    pub(super) only_regions: bool,
    pub(super) server_count: usize,
}

impl TokenBody {
    /// Returns the issuer's request for this client.
    pub(super) fn with_client_id(self, client_id: u64) -> (TokenRequest, Option<GroupChoice>) {
        (TokenRequest { client_id: client_id.into(), ..self.request }, self.group)
    }

    /// Returns whether the request lists addresses or takes those of the allow-list.
    pub(super) const fn uses_allow_list(&self) -> bool {
        self.group.is_none()
    }
}

/// Parses the body of `POST /v1/tokens`. A `null` counts as absent.
pub(super) fn read(body: &[u8]) -> Result<TokenBody, ApiError> {
    let fields = Fields::read(body, &REQUEST_FIELDS)?;
    let player_jwt = fields.get(PLAYER_JWT).map(read_jwt).transpose()?;
    let client_id = match &player_jwt {
        None => Some(fields.require(CLIENT_ID)?),
        Some(_) => fields.get(CLIENT_ID),
    };
    let seconds = |name| fields.get(name).map(|value| read_seconds(name, value)).transpose();
    let servers = fields.get(SERVER_ADDRESSES).map(|value| read_addresses(SERVER_ADDRESSES, value)).transpose()?;
    let user_data = fields.get(USER_DATA).map(read_user_data).transpose()?.unwrap_or_default();
    Ok(TokenBody {
        client_id: client_id.map(|value| read_u64(CLIENT_ID, value)).transpose()?,
        player_jwt,
        protocol_id: fields.get(PROTOCOL_ID).map(|value| read_u64(PROTOCOL_ID, value)).transpose()?,
        group: read_group(&fields, servers.is_some())?,
        request: TokenRequest {
            servers,
            user_data,
            lifetime_seconds: seconds(LIFETIME_SECONDS)?,
            timeout_seconds: seconds(TIMEOUT_SECONDS)?,
            ..TokenRequest::new(0)
        },
    })
}

/// Parses the choice of a group, with which no addresses may be given.
fn read_group(fields: &Fields, has_addresses: bool) -> Result<Option<GroupChoice>, ApiError> {
    let Some(group) = fields.get(GROUP) else {
        let lonely = [REGIONS, ONLY_REGIONS, SERVER_COUNT].into_iter().find(|name| fields.get(name).is_some());
        return lonely.map_or(Ok(None), |name| Err(invalid(name, "needs a group")));
    };
    if has_addresses {
        return Err(invalid(GROUP, "and server_addresses exclude each other"));
    }
    let regions = fields.get(REGIONS).map(read_regions).transpose()?.unwrap_or_default();
    let only_regions = fields.get(ONLY_REGIONS).map(|value| read_bool(ONLY_REGIONS, value)).transpose()?;
    if only_regions == Some(true) && regions.is_empty() {
        return Err(invalid(ONLY_REGIONS, "needs regions, because it leaves all other servers out"));
    }
    let max = u32::try_from(MAX_SERVERS_PER_GROUP_TOKEN).unwrap_or(1);
    let count = fields.get(SERVER_COUNT).map(|value| read_count(SERVER_COUNT, value, (1, max))).transpose()?;
    Ok(Some(GroupChoice {
        group: read_name(GROUP, group)?,
        regions,
        only_regions: only_regions.unwrap_or_default(),
        server_count: count.map_or(1, |count| count as usize),
    }))
}

fn read_regions(value: &Value) -> Result<Vec<RegistryName>, ApiError> {
    let list = value.as_array().ok_or_else(|| invalid(REGIONS, "must be a list of strings"))?;
    if list.len() > MAX_REGIONS {
        return Err(out_of_range(REGIONS, &format!("must list at most {MAX_REGIONS} regions")));
    }
    list.iter().map(|region| read_name(REGIONS, region)).collect()
}

fn read_jwt(value: &Value) -> Result<Zeroizing<String>, ApiError> {
    let text = value.as_str().filter(|text| !text.is_empty());
    let text = text.ok_or_else(|| invalid(PLAYER_JWT, "must be a JSON Web Token as a string"))?;
    Ok(Zeroizing::new(text.to_owned()))
}

fn read_user_data(value: &Value) -> Result<Vec<u8>, ApiError> {
    let bytes = value.as_str().and_then(|text| STANDARD.decode_to_vec(text).ok());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::error::ErrorCode;

    #[test]
    fn complete_request_is_parsed() {
        let body = br#"{"client_id": "18446744073709551615", "server_addresses": ["192.0.2.1:1", "[2001:db8::1]:2"],
            "user_data": "AQI=", "lifetime_seconds": 4, "timeout_seconds": 5}"#;
        let (request, _) = read(body).unwrap().with_client_id(u64::MAX);
        assert_eq!(read(body).unwrap().client_id, Some(u64::MAX));
        assert_eq!(request.servers.unwrap().len(), 2);
        assert_eq!(request.user_data, [1, 2]);
        assert_eq!((request.lifetime_seconds, request.timeout_seconds), (Some(4), Some(5)));
    }

    #[test]
    fn only_client_id_is_required_and_null_is_absent() {
        let nulls = r#"{"client_id": 7, "server_addresses": null, "user_data": null, "lifetime_seconds": null}"#;
        for body in [r#"{"client_id": 7}"#, r#"{"client_id": "7"}"#, r#"{"client_id": "007"}"#, nulls] {
            let read = read(body.as_bytes()).unwrap();
            assert_eq!(read.client_id, Some(7), "{body}");
            assert!(read.with_client_id(7).0 == TokenRequest::new(7), "{body}");
        }
    }

    #[test]
    fn client_id_is_exact_up_to_the_maximum() {
        for id in [0, (1 << 53) + 1, u64::MAX] {
            assert_eq!(read(format!(r#"{{"client_id": {id}}}"#).as_bytes()).unwrap().client_id, Some(id));
            assert_eq!(read(format!(r#"{{"client_id": "{id}"}}"#).as_bytes()).unwrap().client_id, Some(id));
        }
    }

    #[test]
    fn wrong_body_is_refused_with_code_and_field() {
        use ErrorCode::{DuplicateField, InvalidField, MalformedBody, MissingField, OutOfRange, UnknownField};
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
            (r#"{"player_jwt": 7}"#, InvalidField, Some("player_jwt")),
            (r#"{"player_jwt": ""}"#, InvalidField, Some("player_jwt")),
            (r#"{"client_id": 7, "protocol_id": -7}"#, InvalidField, Some("protocol_id")),
            (r#"{"client_id": 7, "group": "a b"}"#, InvalidField, Some("group")),
            (r#"{"client_id": 7, "group": ["a"]}"#, InvalidField, Some("group")),
            (r#"{"client_id": 7, "group": "g", "server_addresses": ["192.0.2.1:1"]}"#, InvalidField, Some("group")),
            (r#"{"client_id": 7, "regions": ["eu"]}"#, InvalidField, Some("regions")),
            (r#"{"client_id": 7, "server_count": 2}"#, InvalidField, Some("server_count")),
            (r#"{"client_id": 7, "only_regions": true}"#, InvalidField, Some("only_regions")),
            (r#"{"client_id": 7, "group": "g", "only_regions": 1}"#, InvalidField, Some("only_regions")),
            (r#"{"client_id": 7, "group": "g", "regions": "eu"}"#, InvalidField, Some("regions")),
            (r#"{"client_id": 7, "group": "g", "only_regions": true}"#, InvalidField, Some("only_regions")),
            (
                r#"{"client_id": 7, "group": "g", "regions": [], "only_regions": true}"#,
                InvalidField,
                Some("only_regions"),
            ),
            (r#"{"client_id": 7, "group": "g", "regions": [""]}"#, InvalidField, Some("regions")),
            (r#"{"client_id": 7, "group": "g", "server_count": 0}"#, OutOfRange, Some("server_count")),
            (r#"{"client_id": 7, "group": "g", "server_count": 5}"#, OutOfRange, Some("server_count")),
            (r#"{"client_id": 7, "group": "g", "server_count": 1.0}"#, InvalidField, Some("server_count")),
        ];
        for (body, code, field) in cases {
            assert_eq!(read(body.as_bytes()).err().unwrap().code_and_field(), (code, field), "{body}");
        }
    }

    #[test]
    fn group_is_parsed_with_its_regions_and_count() {
        let body = r#"{"client_id": 7, "protocol_id": "8", "group": "g", "regions": ["eu", "us"], "only_regions": true,
            "server_count": 4}"#;
        let read = read(body.as_bytes()).unwrap();
        assert_eq!(read.protocol_id, Some(8));
        let group = read.group.unwrap();
        assert_eq!((group.group.as_str(), group.regions.len(), group.server_count), ("g", 2, 4));
        assert!(group.only_regions);
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
            read(body.as_bytes()).unwrap().with_client_id(7).0.lifetime_seconds.unwrap()
        };
        assert_eq!(seconds("-1"), 0);
        assert_eq!(seconds("-9223372036854775808"), 0);
        assert_eq!(seconds("4294967296"), u32::MAX);
    }
}
