//! Reads the interop vectors of `specs/vectors`. A wrong field name or a skipped case fails a test.
//!
//! Fields keep their names in the files, with the suffix, so that a search finds both sides. `specs/vectors/README.md`
//! explains the cases.

mod otherwise;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

pub use self::otherwise::{DECIDED_OTHERWISE, Judge, Otherwise};

/// Cases that the reference accepts and we refuse: file, case, and reason.
///
/// The table is exact: a case that is refused and not listed fails its test, and so does a listed case that is
/// accepted. Valid cases cannot be listed.
pub const REFUSED_ON_PURPOSE: &[(&str, &str, &str)] = &[(
    "netcode_replay_protection.json",
    "maximum_sequence_is_never_remembered",
    "the reference marks an empty entry with 2^64-1, so that this number can be replayed; we have no such marker",
)];

/// One file of vectors.
pub struct Vectors {
    file: &'static str,
    json: Value,
    refused: RefCell<BTreeSet<String>>,
}

impl Vectors {
    /// Reads a file of `specs/vectors`.
    ///
    /// # Panics
    /// If it is missing or is not JSON.
    #[must_use]
    pub fn load(file: &'static str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/vectors").join(file);
        let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{file}: {error}"));
        let json = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
        Self { file, json, refused: RefCell::default() }
    }

    /// Returns all cases of a list. There must be `count` of them.
    ///
    /// # Panics
    /// If the number differs: then a person must look at the new cases.
    #[must_use]
    pub fn cases(&self, list: &str, count: usize) -> Vec<Case<'_>> {
        let Some(cases) = self.json.get(list).and_then(Value::as_array) else {
            panic!("{}: no list {list}", self.file)
        };
        assert_eq!(cases.len(), count, "{}: number of {list}", self.file);
        cases.iter().map(|json| Case { file: self.file, json }).collect()
    }

    /// Checks the outcome of a case that the reference accepts though no encoder produces it: accepted, or refused on
    /// purpose.
    ///
    /// # Panics
    /// If it was refused and is not listed in [`REFUSED_ON_PURPOSE`].
    pub fn tolerate<T, E: std::fmt::Debug>(&self, case: &Case<'_>, outcome: Result<T, E>) -> Option<T> {
        match outcome {
            Ok(accepted) => Some(accepted),
            Err(error) => {
                assert!(self.refused_on_purpose().contains(case.name()), "{case}: refused as {error:?}");
                self.refused.borrow_mut().insert(case.name().to_owned());
                None
            }
        }
    }

    /// Ends the tolerated cases of the file: checks that every entry of [`REFUSED_ON_PURPOSE`] for it was needed.
    ///
    /// # Panics
    /// If an entry was not needed: its case is accepted now, or does not exist.
    pub fn all_refusals_were_needed(&self) {
        let refused = self.refused.borrow();
        let refused: BTreeSet<&str> = refused.iter().map(String::as_str).collect();
        assert_eq!(refused, self.refused_on_purpose(), "{}: entries of REFUSED_ON_PURPOSE", self.file);
    }

    fn refused_on_purpose(&self) -> BTreeSet<&'static str> {
        REFUSED_ON_PURPOSE.iter().filter(|(file, ..)| *file == self.file).map(|(_, case, _)| *case).collect()
    }
}

/// One case of a file, or one step of a case. It displays as `file: name`, for the messages of failed tests.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    file: &'static str,
    json: &'a Value,
}

impl<'a> Case<'a> {
    /// Returns the name of the case.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.json.get("name").and_then(Value::as_str).unwrap_or("unnamed")
    }

    /// Returns whether the field exists and is not null.
    #[must_use]
    pub fn has(&self, field: &str) -> bool {
        self.json.get(field).is_some_and(|value| !value.is_null())
    }

    /// Returns a text.
    #[must_use]
    pub fn text(&self, field: &str) -> &'a str {
        self.read(field, "a text", Value::as_str)
    }

    /// Returns a `_hex` field: bytes in wire order.
    #[must_use]
    pub fn bytes(&self, field: &str) -> Vec<u8> {
        self.read(field, "hexadecimal digits", |value| hex::decode(value.as_str()?).ok())
    }

    /// Returns a `_hex` field of exactly `N` bytes.
    #[must_use]
    pub fn array<const N: usize>(&self, field: &str) -> [u8; N] {
        self.read(field, "hexadecimal digits of the right number", |value| {
            hex::decode(value.as_str()?).ok()?.try_into().ok()
        })
    }

    /// Returns a `_u64` field: a decimal number in a string.
    #[must_use]
    pub fn u64(&self, field: &str) -> u64 {
        self.read(field, "a decimal number in a string", |value| value.as_str()?.parse().ok())
    }

    /// Returns a `_u32` field.
    #[must_use]
    pub fn u32(&self, field: &str) -> u32 {
        self.read(field, "an unsigned number", |value| value.as_u64()?.try_into().ok())
    }

    /// Returns a `_i32` field.
    #[must_use]
    pub fn i32(&self, field: &str) -> i32 {
        self.read(field, "a signed number", |value| value.as_i64()?.try_into().ok())
    }

    /// Returns an address that is one text, like `127.0.0.1:40000`.
    #[must_use]
    pub fn address(&self, field: &str) -> SocketAddr {
        self.read(field, "an address with a port", |value| value.as_str()?.parse().ok())
    }

    /// Returns a list of addresses, each with `ip` and `port_u16`.
    #[must_use]
    pub fn addresses(&self, field: &str) -> Vec<SocketAddr> {
        self.read(field, "a list of addresses", |value| value.as_array()?.iter().map(address).collect())
    }

    /// Returns a list of texts.
    #[must_use]
    pub fn texts(&self, field: &str) -> Vec<&'a str> {
        self.read(field, "a list of texts", |value| value.as_array()?.iter().map(Value::as_str).collect())
    }

    /// Returns a `_u16` field.
    #[must_use]
    pub fn u16(&self, field: &str) -> u16 {
        self.read(field, "an unsigned number of 16 bits", |value| value.as_u64()?.try_into().ok())
    }

    /// Returns a list of `_u16` numbers.
    #[must_use]
    pub fn u16s(&self, field: &str) -> Vec<u16> {
        let number = |value: &Value| value.as_u64()?.try_into().ok();
        self.read(field, "a list of unsigned numbers of 16 bits", |value| {
            value.as_array()?.iter().map(number).collect()
        })
    }

    /// Returns a list of flags.
    #[must_use]
    pub fn flags(&self, field: &str) -> Vec<bool> {
        self.read(field, "a list of flags", |value| value.as_array()?.iter().map(Value::as_bool).collect())
    }

    /// Returns any number.
    #[must_use]
    pub fn number(&self, field: &str) -> f64 {
        self.read(field, "a number", Value::as_f64)
    }

    /// Returns the names of all fields of this object.
    #[must_use]
    pub fn fields(&self) -> Vec<&'a str> {
        self.json.as_object().into_iter().flat_map(|object| object.keys().map(String::as_str)).collect()
    }

    /// Returns a JSON number that is a time of the script, in seconds.
    #[must_use]
    pub fn seconds(&self, field: &str) -> Duration {
        self.read(field, "a number of seconds", |value| Duration::try_from_secs_f64(value.as_f64()?).ok())
    }

    /// Returns a flag.
    #[must_use]
    pub fn flag(&self, field: &str) -> bool {
        self.read(field, "true or false", Value::as_bool)
    }

    /// Returns an object inside of this one.
    #[must_use]
    pub fn part(&self, field: &str) -> Self {
        let json = self.read(field, "an object", |value| value.is_object().then_some(value));
        Self { file: self.file, json }
    }

    /// Returns a list of steps, each with its own fields.
    #[must_use]
    pub fn steps(&self, field: &str) -> Vec<Self> {
        let steps = self.read(field, "a list", Value::as_array);
        steps.iter().map(|json| Self { file: self.file, json }).collect()
    }

    fn read<T>(&self, field: &str, expected: &str, as_type: impl FnOnce(&'a Value) -> Option<T>) -> T {
        let value = self.json.get(field).unwrap_or_else(|| panic!("{self}: no field {field}"));
        as_type(value).unwrap_or_else(|| panic!("{self}: {field} is not {expected}"))
    }
}

impl std::fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.file, self.name())
    }
}

fn address(json: &Value) -> Option<SocketAddr> {
    let ip: IpAddr = json.get("ip")?.as_str()?.parse().ok()?;
    let port = json.get("port_u16")?.as_u64()?.try_into().ok()?;
    let family = if ip.is_ipv4() { "ipv4" } else { "ipv6" };
    (json.get("family")?.as_str()? == family).then(|| SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_refusal_names_an_existing_case() {
        for (file, case, _) in REFUSED_ON_PURPOSE {
            let Value::Object(lists) = Vectors::load(file).json else { panic!("{file}: not an object") };
            let mut cases = lists.values().filter_map(Value::as_array).flatten();
            assert!(cases.any(|json| Case { file, json }.name() == *case), "{file}: no case {case}");
        }
    }
}
