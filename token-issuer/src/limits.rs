//! Limits on the token lifetime and the connection timeout that a request may ask for.
//!
//! The issuer checks requests against these limits.

use core::fmt;
use core::ops::RangeInclusive;

/// The longest lifetime that can be configured, in seconds: one day. Any holder can use a token until it expires, so a
/// longer-lived token would be a password.
pub const MAX_LIFETIME_SECONDS: u32 = 86_400;
/// The longest timeout that can be configured, in seconds. Slipgate servers clamp longer ones to this.
pub const MAX_TIMEOUT_SECONDS: u32 = 60;

/// The allowed ranges and the defaults of lifetime and timeout, in seconds.
///
/// A lifetime needs to cover only one connect. Slipgate servers refuse tokens that live longer than 45 s by default,
/// hence the default limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    lifetime: AllowedRange,
    timeout: AllowedRange,
}

/// A configured range and the default value within it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AllowedRange {
    allowed: RangeInclusive<u32>,
    default: u32,
}

impl AllowedRange {
    /// Returns the requested value or the default. The error is the allowed range if the value lies outside.
    pub(crate) fn choose(&self, requested: Option<u32>) -> Result<u32, RangeInclusive<u32>> {
        let value = requested.unwrap_or(self.default);
        if self.allowed.contains(&value) { Ok(value) } else { Err(self.allowed.clone()) }
    }

    fn new(allowed: RangeInclusive<u32>, default: u32, max: u32) -> Option<Self> {
        let is_valid = *allowed.start() >= 1 && *allowed.end() <= max && allowed.contains(&default);
        is_valid.then_some(Self { allowed, default })
    }
}

impl Limits {
    /// Returns these limits with another range of lifetimes, in seconds.
    ///
    /// # Errors
    /// [`LimitsError::Lifetime`] if the range does not hold the default or exceeds 1..=[`MAX_LIFETIME_SECONDS`].
    pub fn with_lifetime(self, allowed: RangeInclusive<u32>, default: u32) -> Result<Self, LimitsError> {
        let lifetime = AllowedRange::new(allowed, default, MAX_LIFETIME_SECONDS).ok_or(LimitsError::Lifetime)?;
        Ok(Self { lifetime, ..self })
    }

    /// Returns these limits with another range of timeouts, in seconds.
    ///
    /// # Errors
    /// [`LimitsError::Timeout`] if the range does not hold the default or exceeds 1..=[`MAX_TIMEOUT_SECONDS`].
    pub fn with_timeout(self, allowed: RangeInclusive<u32>, default: u32) -> Result<Self, LimitsError> {
        let timeout = AllowedRange::new(allowed, default, MAX_TIMEOUT_SECONDS).ok_or(LimitsError::Timeout)?;
        Ok(Self { timeout, ..self })
    }

    /// Returns the lifetimes that a request may ask for, in seconds.
    #[must_use]
    pub const fn lifetime_seconds(&self) -> &RangeInclusive<u32> {
        &self.lifetime.allowed
    }

    /// Returns the timeouts that a request may ask for, in seconds.
    #[must_use]
    pub const fn timeout_seconds(&self) -> &RangeInclusive<u32> {
        &self.timeout.allowed
    }

    pub(crate) const fn lifetime(&self) -> &AllowedRange {
        &self.lifetime
    }

    pub(crate) const fn timeout(&self) -> &AllowedRange {
        &self.timeout
    }
}

/// Allows lifetimes of 1 to 45 s (default 30 s) and timeouts of 1 to 60 s (default 5 s).
impl Default for Limits {
    fn default() -> Self {
        Self {
            lifetime: AllowedRange { allowed: 1..=45, default: 30 },
            timeout: AllowedRange { allowed: 1..=MAX_TIMEOUT_SECONDS, default: 5 },
        }
    }
}

/// Which limit is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LimitsError {
    /// The range or the default of the lifetime.
    Lifetime,
    /// The range or the default of the timeout.
    Timeout,
}

impl fmt::Display for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, max) = match self {
            Self::Lifetime => ("lifetime", MAX_LIFETIME_SECONDS),
            Self::Timeout => ("timeout", MAX_TIMEOUT_SECONDS),
        };
        write!(f, "the range of a token's {name} must be within 1 to {max} seconds and include its default")
    }
}

impl core::error::Error for LimitsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_must_include_its_default_and_stay_in_bounds() {
        let limits = Limits::default;
        assert!(limits().with_lifetime(10..=20, 20).is_ok());
        assert!(limits().with_lifetime(1..=MAX_LIFETIME_SECONDS, 30).is_ok());
        #[expect(clippy::reversed_empty_ranges, reason = "the empty range is the case")]
        let wrong = [(0..=45, 30), (1..=45, 46), (20..=10, 15), (1..=MAX_LIFETIME_SECONDS + 1, 30)];
        for (allowed, default) in wrong {
            assert_eq!(limits().with_lifetime(allowed, default), Err(LimitsError::Lifetime));
        }
        assert_eq!(limits().with_timeout(1..=61, 5), Err(LimitsError::Timeout));
    }
}
