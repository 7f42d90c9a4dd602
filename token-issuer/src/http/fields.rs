//! The fields of a JSON body: no unknown ones, none twice, `null` as absent. Errors name the wrong field.

use core::fmt;
use core::net::SocketAddr;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::error::{ApiError, ErrorCode};
use crate::api_key::API_KEY_PREFIX;
use crate::registry::RegistryName;

/// The longest unknown field name that a response quotes, in bytes: API keys are longer.
const MAX_SHOWN_FIELD: usize = 32;

/// An object's fields in the order of the body, including duplicates. A map would keep one of two equal names, and
/// parsers disagree about which one, so duplicates are refused.
pub(super) struct Fields(Vec<(String, Value)>);

impl Fields {
    /// Parses a body that may have these fields.
    pub(super) fn read(body: &[u8], known: &[&str]) -> Result<Self, ApiError> {
        let fields: Self = serde_json::from_slice(body).map_err(|error| malformed(&error))?;
        fields.refuse_unknown_and_duplicate(known)?;
        Ok(fields)
    }

    /// Returns the value of a field, unless it is absent or `null`.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(key, value)| key == name && !value.is_null()).map(|(_, value)| value)
    }

    /// Returns the value of a field that must be given.
    pub(super) fn require(&self, name: &str) -> Result<&Value, ApiError> {
        let missing = || ApiError::of_field(ErrorCode::MissingField, name, format!("{name} must be given"));
        self.get(name).ok_or_else(missing)
    }

    fn refuse_unknown_and_duplicate(&self, known: &[&str]) -> Result<(), ApiError> {
        for (index, (name, _)) in self.0.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let message = format!("unknown field; the fields are {}", known.join(", "));
                return Err(if may_be_secret(name) {
                    ApiError::new(ErrorCode::UnknownField, message)
                } else {
                    ApiError::of_field(ErrorCode::UnknownField, name, message)
                });
            }
            if self.0.iter().take(index).any(|(earlier, _)| earlier == name) {
                return Err(ApiError::of_field(ErrorCode::DuplicateField, name, format!("{name} is given twice")));
            }
        }
        Ok(())
    }
}

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

/// Returns whether an unknown field may be a misplaced API key. Responses are logged by callers, so it is not quoted.
fn may_be_secret(unknown: &str) -> bool {
    unknown.len() > MAX_SHOWN_FIELD || unknown.contains(API_KEY_PREFIX)
}

/// Returns the error of a value of the wrong form.
pub(super) fn invalid(field: &str, problem: &str) -> ApiError {
    ApiError::of_field(ErrorCode::InvalidField, field, format!("{field} {problem}"))
}

/// Returns the error of a value that exceeds a limit.
pub(super) fn out_of_range(field: &str, limit: &str) -> ApiError {
    ApiError::of_field(ErrorCode::OutOfRange, field, format!("{field} {limit}"))
}

/// Parses a number or a decimal string: JavaScript cannot represent integers above 2^53 exactly.
pub(super) fn read_u64(field: &str, value: &Value) -> Result<u64, ApiError> {
    parse_u64(value).ok_or_else(|| {
        invalid(field, "must be a decimal integer from 0 to 18446744073709551615, as a number or a string")
    })
}

pub(super) fn parse_u64(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => parse_digits(text),
        _ => None,
    }
}

/// Parses a decimal number without a sign.
pub(super) fn parse_digits(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Parses a list of addresses.
pub(super) fn read_addresses(field: &str, value: &Value) -> Result<Vec<SocketAddr>, ApiError> {
    let list = value.as_array().ok_or_else(|| invalid(field, "must be a list of strings"))?;
    let read = |(index, entry): (usize, &Value)| {
        let address = entry.as_str().and_then(|text| text.parse().ok());
        address.ok_or_else(|| {
            let form = "must have the form \"192.0.2.1:40000\" or \"[2001:db8::1]:40000\"";
            invalid(field, &format!("entry {index} {form}"))
        })
    };
    list.iter().enumerate().map(read).collect()
}

/// Parses the name of a group or a region.
pub(super) fn read_name(field: &str, value: &Value) -> Result<RegistryName, ApiError> {
    let name = value.as_str().and_then(|text| text.parse().ok());
    name.ok_or_else(|| invalid(field, "must be a string of 1 to 64 characters of A-Z a-z 0-9 . _ -, not `.` or `..`"))
}

/// Parses a whole number within limits.
pub(super) fn read_count(field: &str, value: &Value, (min, max): (u32, u32)) -> Result<u32, ApiError> {
    let number = value.as_i64().ok_or_else(|| invalid(field, "must be a whole number"))?;
    let count = u32::try_from(number).ok().filter(|count| (min..=max).contains(count));
    count.ok_or_else(|| out_of_range(field, &format!("must be {min} to {max}")))
}

/// Parses `true` or `false`.
pub(super) fn read_bool(field: &str, value: &Value) -> Result<bool, ApiError> {
    value.as_bool().ok_or_else(|| invalid(field, "must be true or false"))
}
