//! Units: shares of datagrams and rates of links. Each value is valid by construction.

use core::fmt::{self, Display};
use core::str::FromStr;
use std::time::Duration;

const WHOLE: u32 = 1_000_000_000;

/// A share of all datagrams, from none to all, in steps of 1e-9.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Share(u32);

impl Share {
    /// No datagram.
    pub const NONE: Self = Self(0);
    /// All datagrams.
    pub const ALL: Self = Self(WHOLE);

    /// Creates a share from a percentage.
    ///
    /// # Panics
    /// If `percent` is below 0, above 100 or NaN. Values from outside the program come through [`Share::from_fraction`]
    /// or as text.
    #[must_use]
    pub const fn percent(percent: f64) -> Self {
        assert!(percent >= 0.0 && percent <= 100.0, "a share is from 0 to 100 per cent");
        Self((percent * 1e7 + 0.5) as u32)
    }

    /// Creates a share from a fraction; `None` unless it is from 0 to 1.
    #[must_use]
    pub fn from_fraction(fraction: f64) -> Option<Self> {
        (0.0..=1.0).contains(&fraction).then(|| Self((fraction * f64::from(WHOLE)).round() as u32))
    }

    /// Returns the share as a fraction from 0 to 1.
    #[must_use]
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / f64::from(WHOLE)
    }
}

impl Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.fraction() * 100.0)
    }
}

/// The text is not a share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParseShareError;

impl Display for ParseShareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a share is written as 2% or 0.5%, from 0% to 100%")
    }
}

impl core::error::Error for ParseShareError {}

/// Parses a number with the sign `%`. The sign is required, because 0.02 could mean 2 % or 0.02 %.
impl FromStr for Share {
    type Err = ParseShareError;

    fn from_str(text: &str) -> Result<Self, ParseShareError> {
        let number = text.strip_suffix('%').and_then(decimal).ok_or(ParseShareError)?;
        Self::from_fraction(number / 100.0).ok_or(ParseShareError)
    }
}

/// The rate of a link in bits per second, at least 1 kbit/s.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Rate(u64);

impl Rate {
    /// The lowest rate.
    pub const MIN: Self = Self(1_000);
    /// The highest rate that text can name, 100 Gbit/s.
    pub const MAX: Self = Self(100_000_000_000);

    /// Creates a rate from bits per second.
    ///
    /// # Panics
    /// If `bits` is below 1,000. Values from outside the program come as text.
    #[must_use]
    pub const fn bits_per_second(bits: u64) -> Self {
        assert!(bits >= Self::MIN.0, "a rate is at least 1 kbit/s");
        Self(bits)
    }

    /// Creates a rate from kbit/s (1,000 bits per second).
    ///
    /// # Panics
    /// If it is 0.
    #[must_use]
    pub const fn kbit(kbit: u32) -> Self {
        Self::bits_per_second(kbit as u64 * 1_000)
    }

    /// Creates a rate from Mbit/s (1,000,000 bits per second).
    ///
    /// # Panics
    /// If it is 0.
    #[must_use]
    pub const fn mbit(mbit: u32) -> Self {
        Self::bits_per_second(mbit as u64 * 1_000_000)
    }

    /// Returns the rate in bits per second.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns how long the transmission of this many bytes takes, in whole nanoseconds.
    #[must_use]
    pub fn time_for(self, bytes: usize) -> Duration {
        let nanos = bytes as u128 * 8 * 1_000_000_000 / u128::from(self.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Returns how many bytes the link transmits in this time.
    #[must_use]
    pub fn bytes_in(self, time: Duration) -> usize {
        let bytes = time.as_nanos().saturating_mul(u128::from(self.0)) / 8_000_000_000;
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

impl Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bits if bits >= 1_000_000 => write!(f, "{} Mbit/s", bits as f64 / 1e6),
            bits => write!(f, "{} kbit/s", bits as f64 / 1e3),
        }
    }
}

/// The text is not a rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParseRateError;

impl Display for ParseRateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rate is written in bits per second, as 256k, 1.5M or 1G (also 256kbit), from 1k to 100G")
    }
}

impl core::error::Error for ParseRateError {}

/// Parses a number with k, M or G and an optional `bit` or `bit/s`. With `bit` the case of the unit is ignored.
impl FromStr for Rate {
    type Err = ParseRateError;

    fn from_str(text: &str) -> Result<Self, ParseRateError> {
        // An `m` without `bit` is ambiguous (milli).
        let lower = text.to_ascii_lowercase();
        let bits = lower.strip_suffix("/s").unwrap_or(&lower).strip_suffix("bit");
        let (text, units) = match bits {
            Some(text) => (text, [('k', 1e3), ('m', 1e6), ('g', 1e9)]),
            None => (text.strip_suffix("/s").unwrap_or(text), [('k', 1e3), ('M', 1e6), ('G', 1e9)]),
        };
        let number = units.into_iter().find_map(|(unit, factor)| Some(decimal(text.strip_suffix(unit)?)? * factor));
        let rate = Self(number.ok_or(ParseRateError)?.round() as u64);
        if (Self::MIN..=Self::MAX).contains(&rate) { Ok(rate) } else { Err(ParseRateError) }
    }
}

/// Parses digits with an optional decimal point. The parser of the standard library also accepts signs, exponents and
/// `inf`.
fn decimal(text: &str) -> Option<f64> {
    let plain = text.starts_with(|first: char| first.is_ascii_digit())
        && text.chars().all(|letter| letter.is_ascii_digit() || letter == '.');
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_parsed_only_with_a_percent_sign() {
        let cases = [
            ("0%", Some(Share::NONE)),
            ("2%", Some(Share::percent(2.0))),
            ("0.5%", Some(Share::percent(0.5))),
            ("100%", Some(Share::ALL)),
            ("100.1%", None),
            ("-1%", None),
            ("+1%", None),
            ("1e1%", None),
            ("nan%", None),
            (".5%", None),
            ("2", None),
            ("0.02", None),
            ("%", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse().ok(), expected, "{text}");
        }
        assert_eq!(Share::percent(0.5).to_string(), "0.5%");
        assert_eq!(Share::percent(2.0).fraction(), 0.02);
    }

    #[test]
    fn rate_is_parsed_only_with_a_unit() {
        let cases = [
            ("256k", Some(256_000)),
            ("1.5M", Some(1_500_000)),
            ("1G", Some(1_000_000_000)),
            ("10Mbit", Some(10_000_000)),
            ("64kbit/s", Some(64_000)),
            ("20mbit", Some(20_000_000)),
            ("20MBit/s", Some(20_000_000)),
            ("1gbit", Some(1_000_000_000)),
            ("0.9k", None),
            ("0k", None),
            ("101G", None),
            ("1000", None),
            ("1m", None),
            ("1MB", None),
            ("-1M", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(text.parse::<Rate>().ok().map(Rate::bits), expected, "{text}");
        }
        assert_eq!(
            (Rate::mbit(10).to_string(), Rate::kbit(256).to_string()),
            ("10 Mbit/s".into(), "256 kbit/s".into())
        );
    }

    #[test]
    fn transmission_times_are_exact() {
        assert_eq!(Rate::mbit(1).time_for(125), Duration::from_millis(1));
        assert_eq!(Rate::kbit(1).time_for(65_507), Duration::from_nanos(524_056_000_000));
        assert_eq!(Rate::mbit(1).bytes_in(Duration::from_millis(1)), 125);
        assert_eq!(Rate::MAX.bytes_in(Duration::MAX), usize::MAX);
    }
}
