//! How long a token may live and how long its connection may be silent: what a request may ask for.
//!
//! The checks of one request against these limits are the issuer's.

use core::fmt;
use core::ops::RangeInclusive;

/// The longest lifetime that can be configured, in seconds: one day. Who holds a token may use it until it expires, so
/// one that lives longer is a password.
pub const LONGEST_LIFETIME_SECONDS: u32 = 86_400;
/// The longest timeout that can be configured, in seconds. Our servers clamp longer ones to this.
pub const LONGEST_TIMEOUT_SECONDS: u32 = 60;

/// What a request may ask for, and what it gets when it does not ask. All in seconds.
///
/// A lifetime only has to cover one connect. Our servers refuse tokens that live longer than 45 s unless told
/// otherwise, hence the default limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    lifetime: Bound,
    timeout: Bound,
}

/// One configured range, and the value inside it that is the default.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bound {
    allowed: RangeInclusive<u32>,
    default: u32,
}

impl Bound {
    /// The value asked for, or the default; the allowed range if it lies outside.
    pub(crate) fn choose(&self, asked: Option<u32>) -> Result<u32, RangeInclusive<u32>> {
        let value = asked.unwrap_or(self.default);
        if self.allowed.contains(&value) { Ok(value) } else { Err(self.allowed.clone()) }
    }

    fn new(allowed: RangeInclusive<u32>, default: u32, longest: u32) -> Option<Self> {
        let sound = *allowed.start() >= 1 && *allowed.end() <= longest && allowed.contains(&default);
        sound.then_some(Self { allowed, default })
    }
}

impl Limits {
    /// These limits with another range of lifetimes, in seconds.
    ///
    /// # Errors
    /// The range is empty, does not hold the default, or leaves 1..=[`LONGEST_LIFETIME_SECONDS`].
    pub fn with_lifetime(self, allowed: RangeInclusive<u32>, default: u32) -> Result<Self, LimitsError> {
        let lifetime = Bound::new(allowed, default, LONGEST_LIFETIME_SECONDS).ok_or(LimitsError::Lifetime)?;
        Ok(Self { lifetime, ..self })
    }

    /// These limits with another range of timeouts, in seconds.
    ///
    /// # Errors
    /// The range is empty, does not hold the default, or leaves 1..=[`LONGEST_TIMEOUT_SECONDS`].
    pub fn with_timeout(self, allowed: RangeInclusive<u32>, default: u32) -> Result<Self, LimitsError> {
        let timeout = Bound::new(allowed, default, LONGEST_TIMEOUT_SECONDS).ok_or(LimitsError::Timeout)?;
        Ok(Self { timeout, ..self })
    }

    /// The lifetimes that a request may ask for, in seconds.
    #[must_use]
    pub const fn lifetime_seconds(&self) -> &RangeInclusive<u32> {
        &self.lifetime.allowed
    }

    /// The timeouts that a request may ask for, in seconds.
    #[must_use]
    pub const fn timeout_seconds(&self) -> &RangeInclusive<u32> {
        &self.timeout.allowed
    }

    pub(crate) const fn lifetime(&self) -> &Bound {
        &self.lifetime
    }

    pub(crate) const fn timeout(&self) -> &Bound {
        &self.timeout
    }
}

/// Lifetimes of 1 to 45 s, 30 s by default; timeouts of 1 to 60 s, 5 s by default.
impl Default for Limits {
    fn default() -> Self {
        Self {
            lifetime: Bound { allowed: 1..=45, default: 30 },
            timeout: Bound { allowed: 1..=LONGEST_TIMEOUT_SECONDS, default: 5 },
        }
    }
}

/// Which limit makes no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LimitsError {
    /// The lifetime's range or default.
    Lifetime,
    /// The timeout's range or default.
    Timeout,
}

impl fmt::Display for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, longest) = match self {
            Self::Lifetime => ("lifetime", LONGEST_LIFETIME_SECONDS),
            Self::Timeout => ("timeout", LONGEST_TIMEOUT_SECONDS),
        };
        write!(f, "the limits of a token's {name} must lie within 1 to {longest} seconds and include its default")
    }
}

impl core::error::Error for LimitsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ranges_that_include_their_default_and_stay_in_bounds_are_limits() {
        let limits = Limits::default;
        assert!(limits().with_lifetime(10..=20, 20).is_ok());
        assert!(limits().with_lifetime(1..=LONGEST_LIFETIME_SECONDS, 30).is_ok());
        #[expect(clippy::reversed_empty_ranges, reason = "the empty range is the case")]
        let wrong = [(0..=45, 30), (1..=45, 46), (20..=10, 15), (1..=LONGEST_LIFETIME_SECONDS + 1, 30)];
        for (allowed, default) in wrong {
            assert_eq!(limits().with_lifetime(allowed, default), Err(LimitsError::Lifetime));
        }
        assert_eq!(limits().with_timeout(1..=61, 5), Err(LimitsError::Timeout));
    }
}
