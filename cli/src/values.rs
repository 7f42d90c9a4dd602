//! Values with the same notation in flags, environment and files: protocol ids and spans of time.

use core::fmt::{self, Display};
use core::marker::PhantomData;
use core::str::FromStr;
use std::ffi::OsStr;
use std::time::Duration;

use clap::builder::{TypedValueParser, ValueParserFactory};
use clap::error::ErrorKind;
use clap::{Arg, Command};
use serde::de::{Deserialize, Deserializer, Error, Visitor};

use slipgate_os::redact::redact;

/// A protocol id, written in decimal or as 0x and hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProtocolId(pub u64);

impl FromStr for ProtocolId {
    type Err = NotAProtocolId;

    fn from_str(text: &str) -> Result<Self, NotAProtocolId> {
        let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => (digits, 16),
            None => (text, 10),
        };
        // `from_str_radix` also accepts a sign.
        let digits = Some(digits).filter(|digits| !digits.starts_with(['+', '-']));
        digits.and_then(|digits| u64::from_str_radix(digits, radix).ok()).map(Self).ok_or(NotAProtocolId)
    }
}

/// The text is not a protocol id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAProtocolId;

impl Display for NotAProtocolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a protocol id is a 64-bit number, in decimal or as 0x and hexadecimal digits")
    }
}

impl core::error::Error for NotAProtocolId {}

impl ValueParserFactory for ProtocolId {
    type Parser = ProtocolIdParser;

    fn value_parser() -> ProtocolIdParser {
        ProtocolIdParser
    }
}

/// Parses a flag's protocol id. clap's own parsers quote the value that they refuse, which may be a key.
#[derive(Clone, Copy, Debug)]
pub struct ProtocolIdParser;

impl TypedValueParser for ProtocolIdParser {
    type Value = ProtocolId;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<ProtocolId, clap::Error> {
        let text = value.to_string_lossy();
        text.parse().map_err(|error: NotAProtocolId| {
            let flag = arg.and_then(Arg::get_long).map_or_else(|| "a flag".to_owned(), |name| format!("--{name}"));
            let message = format!("{flag} cannot be '{}': {error}\n", redact(&text));
            clap::Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
        })
    }
}

/// Accepts a number or a string, because TOML's integers end at 2^63 - 1.
impl<'de> Deserialize<'de> for ProtocolId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_number(deserializer)
    }
}

/// The longest span of time that a setting accepts: 365 days.
pub const MAX_SPAN: Duration = Duration::from_secs(365 * 86_400);

/// A span of time: `250ms`, `45s`, `1m 30s` or `2h`. A number without a unit is in seconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = NotASpan;

    fn from_str(text: &str) -> Result<Self, NotASpan> {
        let seconds = text.parse().map(Duration::from_secs);
        let span = seconds.or_else(|_| humantime::parse_duration(text)).ok();
        span.filter(|span| *span <= MAX_SPAN).map(Self).ok_or(NotASpan)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_number(deserializer)
    }
}

/// The text is not a span of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotASpan;

impl Display for NotASpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a span of time is written as 250ms, 45s, 1m 30s or 2h, and is at most a year")
    }
}

impl core::error::Error for NotASpan {}

/// An upper limit: a span of time, or the word `unlimited`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// A maximum of this span.
    Span(Span),
    /// No limit.
    Unlimited,
}

impl FromStr for Limit {
    type Err = NotALimit;

    fn from_str(text: &str) -> Result<Self, NotALimit> {
        match text {
            "unlimited" => Ok(Self::Unlimited),
            _ => text.parse().map(Self::Span).map_err(|NotASpan| NotALimit),
        }
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_number(deserializer)
    }
}

/// The text is neither a span of time nor the word `unlimited`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotALimit;

impl Display for NotALimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NotASpan}, or the word unlimited")
    }
}

impl core::error::Error for NotALimit {}

/// Deserializes an optional value by its `FromStr`, for types that do not implement `Deserialize`.
///
/// # Errors
/// Returns an error if the value is neither a string nor a number, or if `FromStr` refuses it.
pub fn optional_text_or_number<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    text_or_number(deserializer).map(Some)
}

/// Deserializes a string or a number by the type's `FromStr`, so that files and flags accept the same notation.
fn text_or_number<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    struct TextOrNumber<T>(PhantomData<T>);

    impl<T: FromStr<Err: Display>> Visitor<'_> for TextOrNumber<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string or a number")
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
            self.visit_str(&number.to_string())
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
            self.visit_str(&number.to_string())
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }
    }
    deserializer.deserialize_any(TextOrNumber(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct File<T> {
        value: T,
    }

    fn of_file<T: serde::de::DeserializeOwned>(text: &str) -> Option<T> {
        toml::from_str::<File<T>>(&format!("value = {text}")).ok().map(|file| file.value)
    }

    #[test]
    fn protocol_id_is_decimal_or_hexadecimal() {
        let cases = [
            ("0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("0xffffffffffffffff", Some(u64::MAX)),
            ("0X1F", Some(31)),
            ("", None),
            ("0x", None),
            ("+1", None),
            ("0x+1", None),
            ("-1", None),
            ("1f", None),
            ("18446744073709551616", None),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse().ok(), expected.map(ProtocolId), "{text}");
            assert_eq!(of_file(&format!("\"{text}\"")), expected.map(ProtocolId), "{text}");
        }
        assert_eq!(of_file("7"), Some(ProtocolId(7)));
        assert_eq!(of_file::<ProtocolId>("-7"), None);
    }

    #[test]
    fn wrong_protocol_id_is_quoted_unless_it_may_be_a_key() {
        let message_for = |value: &str| {
            let flag = Arg::new("protocol_id").long("protocol-id").value_parser(clap::value_parser!(ProtocolId));
            let error = Command::new("game").arg(flag).try_get_matches_from(["game", "--protocol-id", value]);
            error.err().map(|error| error.to_string())
        };
        assert_eq!(message_for("0x7"), None);
        for (value, shown) in [("seven", "--protocol-id cannot be 'seven': "), (&"0a".repeat(32), "'…'")] {
            let message = message_for(value).unwrap();
            assert!(message.contains(shown) && message.contains("a protocol id is a 64-bit number"), "{message}");
            assert!(!message.contains("0a0a"), "{message}");
        }
    }

    #[test]
    fn span_of_time_has_a_unit_or_is_in_seconds() {
        let cases = [
            ("250ms", Some(250)),
            ("45s", Some(45_000)),
            ("45", Some(45_000)),
            ("0", Some(0)),
            ("5 m", Some(300_000)),
            ("2h", Some(7_200_000)),
            ("8760h", Some(31_536_000_000)),
            ("8761h", None),
            ("18446744073709551615h", None),
            ("", None),
            ("s", None),
            ("-1s", None),
            ("+1s", None),
            ("1.5s", Some(1_500)),
            ("1m 30s", Some(90_000)),
            ("1S", None),
            ("1x", None),
            ("unlimited", None),
        ];
        for (text, expected) in cases {
            let expected = expected.map(|millis| Span(Duration::from_millis(millis)));
            assert_eq!(text.parse().ok(), expected, "{text}");
            assert_eq!(of_file(&format!("\"{text}\"")), expected, "{text}");
        }
        assert_eq!(of_file("45"), Some(Span(Duration::from_secs(45))));
    }

    #[test]
    fn limit_may_be_unlimited() {
        assert_eq!("unlimited".parse(), Ok(Limit::Unlimited));
        assert_eq!("1m".parse(), Ok(Limit::Span(Span(Duration::from_secs(60)))));
        assert_eq!("none".parse::<Limit>(), Err(NotALimit));
    }
}
