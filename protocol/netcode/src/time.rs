//! Time as a value: this crate never reads a clock.
//!
//! The caller reads both clocks once per turn and passes them in as [`Now`].

use core::ops::Sub;
use core::time::Duration;

/// A moment of a monotonic clock, in nanoseconds since an arbitrary start that the caller chose.
///
/// Only differences have a meaning. 64 bits of nanoseconds last 584 years.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Instant(u64);

impl Instant {
    /// Returns the moment `since_start` after the caller's chosen start.
    #[inline]
    #[must_use]
    pub fn from_start(since_start: Duration) -> Self {
        Self(nanos(since_start))
    }

    /// Returns the moment this many nanoseconds after the caller's chosen start.
    #[inline]
    #[must_use]
    pub const fn from_nanos(since_start: u64) -> Self {
        Self(since_start)
    }

    /// The last moment of the clock: the deadline of a timer that is off.
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the time from the caller's chosen start to this moment.
    #[inline]
    #[must_use]
    pub const fn since_start(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Returns the nanoseconds from the caller's chosen start to this moment.
    #[inline]
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to this moment, or zero if `earlier` is later.
    #[inline]
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        // Saturating: shards read their clocks separately, so `earlier` can be slightly ahead.
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the moment `duration` after this one, at most [`NEVER`](Self::NEVER).
    #[inline]
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// Returns whether this moment is at least `duration` after `earlier`.
    #[inline]
    #[must_use]
    pub fn reached(self, earlier: Self, duration: Duration) -> bool {
        // Addition instead of subtraction: `after` saturates, so a deadline at the end of the clock is never reached.
        self >= earlier.after(duration)
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    /// Returns the moment `duration` before this one, at least the start of the clock.
    #[inline]
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }
}

/// Returns whole nanoseconds. Longer times than 64 bits hold, 584 years, are out of reach.
#[inline]
const fn nanos(duration: Duration) -> u64 {
    // 64 bits in each step: this takes fewer instructions than a product of 128 bits that is checked afterwards.
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos() as u64)
}

/// A moment of the wall clock, in whole seconds since 1970-01-01 UTC: the unit of a connect token's timestamps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct UnixSeconds(pub u64);

/// A moment of the wall clock, in milliseconds since 1970-01-01 UTC: the unit of a mint time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct UnixMillis(pub u64);

impl From<UnixMillis> for UnixSeconds {
    /// Returns the second in which the moment lies.
    #[inline]
    fn from(moment: UnixMillis) -> Self {
        // Rounded down, like the seconds that an issuer writes.
        Self(moment.0 / 1000)
    }
}

impl From<UnixSeconds> for UnixMillis {
    fn from(seconds: UnixSeconds) -> Self {
        Self(seconds.0.saturating_mul(1000))
    }
}

/// Both clocks, read together once per turn.
///
/// Timeouts and budgets use the monotonic clock. The timestamps of connect tokens use the wall clock. They are not
/// interchangeable, because administrators and NTP step a wall clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// The monotonic clock.
    pub monotonic: Instant,
    /// The wall clock.
    pub unix: UnixMillis,
}
