//! The configuration file: the flags' names with underscores, in TOML.

use core::fmt;
use core::str::FromStr;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

use crate::failure::Failure;
use crate::log::LogFormat;

/// What the file may say. All of it is optional; a key that does not exist is refused, for it is a typing error.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    pub(crate) bind: Option<SocketAddr>,
    pub(crate) insecure_http: Option<bool>,
    pub(crate) protocol_id: Option<ProtocolId>,
    #[serde(default)]
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) key_file: Option<PathBuf>,
    #[serde(default)]
    pub(crate) api_key_digests: Digests,
    pub(crate) max_lifetime: Option<u32>,
    pub(crate) default_lifetime: Option<u32>,
    pub(crate) max_timeout: Option<u32>,
    pub(crate) default_timeout: Option<u32>,
    pub(crate) max_connections: Option<usize>,
    pub(crate) log: Option<LogFormat>,
}

/// The digests of API keys: a list, or one alone. Were one alone refused, the refusal would show it, and people mistake
/// the key for its digest; this kind of enum is refused without its content.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Digests {
    One(String),
    Many(Vec<String>),
}

impl Default for Digests {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl From<Digests> for Vec<String> {
    fn from(digests: Digests) -> Self {
        match digests {
            Digests::One(digest) => vec![digest],
            Digests::Many(digests) => digests,
        }
    }
}

impl File {
    /// Reads the file. Its key file, if relative, lies beside it: a service's working directory is anywhere.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let text = fs::read_to_string(path)
            .map_err(|error| Failure::config(format!("the configuration file {shown} cannot be read: {error}")))?;
        // The error's own text quotes the line at fault; a secret put there by mistake would be shown.
        let mut file: Self = toml::from_str(&text).map_err(|error| {
            let line = line_of(&text, error.span().map_or(0, |span| span.start));
            Failure::config(format!("the configuration file {shown} is wrong in line {line}: {}", error.message()))
        })?;
        file.key_file = file.key_file.map(|key_file| path.parent().unwrap_or(Path::new("")).join(key_file));
        Ok(file)
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

/// A protocol id, decimal or 0x and hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProtocolId(pub(crate) u64);

impl FromStr for ProtocolId {
    type Err = NotAProtocolId;

    fn from_str(text: &str) -> Result<Self, NotAProtocolId> {
        let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => (digits, 16),
            None => (text, 10),
        };
        // The standard library also takes a sign.
        let digits = Some(digits).filter(|digits| !digits.starts_with(['+', '-']));
        digits.and_then(|digits| u64::from_str_radix(digits, radix).ok()).map(Self).ok_or(NotAProtocolId)
    }
}

/// The text is no protocol id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotAProtocolId;

impl fmt::Display for NotAProtocolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a protocol id is a 64-bit number, decimal or 0x and hexadecimal digits")
    }
}

impl core::error::Error for NotAProtocolId {}

/// TOML's integers end at 2^63 - 1, so that a string is taken, too.
impl<'de> Deserialize<'de> for ProtocolId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrText;
        impl Visitor<'_> for NumberOrText {
            type Value = ProtocolId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&NotAProtocolId, f)
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<ProtocolId, E> {
                u64::try_from(number).map(ProtocolId).map_err(|_| E::custom(NotAProtocolId))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<ProtocolId, E> {
                Ok(ProtocolId(number))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<ProtocolId, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(NumberOrText)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_id_is_decimal_or_hexadecimal() {
        let cases = [
            ("0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("0xffffffffffffffff", Some(u64::MAX)),
            ("0X1F", Some(31)),
            ("", None),
            ("0x", None),
            ("+1", None),
            ("0x+1", None),
            ("1f", None),
            ("18446744073709551616", None),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse().ok(), expected.map(ProtocolId), "{text}");
        }
    }

    #[test]
    fn a_file_may_say_everything_and_nothing_else() {
        let text = r#"
            bind = "127.0.0.1:1"
            insecure_http = true
            protocol_id = "0xffffffffffffffff"
            servers = ["192.0.2.1:1", "[2001:db8::1]:2"]
            key_file = "keys"
            api_key_digests = ["hmac-sha256:…"]
            max_lifetime = 1
            default_lifetime = 1
            max_timeout = 1
            default_timeout = 1
            max_connections = 1
            log = "json"
        "#;
        let file: File = toml::from_str(text).unwrap();
        assert_eq!(file.protocol_id, Some(ProtocolId(u64::MAX)));
        assert_eq!((file.servers.len(), file.log), (2, Some(LogFormat::Json)));
        assert_eq!(toml::from_str::<File>("protocol_id = 7").unwrap().protocol_id, Some(ProtocolId(7)));
        for wrong in ["protocol_id = -1", "private_key = \"00\"", "servers = [\"game.example:1\"]", "log = \"xml\""] {
            assert!(toml::from_str::<File>(wrong).is_err(), "{wrong}");
        }
    }
}
