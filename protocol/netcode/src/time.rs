//! Time as a value: the core never reads a clock.
//!
//! Reading the two clocks is the edge's work, once a turn; see [`Now`].

use core::time::Duration;

/// A moment of a monotonic clock, in nanoseconds since an arbitrary start that the caller chose.
///
/// Only differences mean anything. Nanoseconds in 64 bits last 584 years.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The moment `since_start` after the caller's chosen start.
    #[must_use]
    pub fn from_start(since_start: Duration) -> Self {
        Self(u64::try_from(since_start.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Later than every moment that comes: the deadline of what has none.
    pub const NEVER: Self = Self(u64::MAX);

    /// How long after the caller's chosen start this moment lies.
    #[must_use]
    pub const fn since_start(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// The time that passed from `earlier` to this moment; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This moment moved into the future; the far end of the clock if it would not fit.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Whether `duration` or more has passed since `earlier`.
    #[must_use]
    pub fn reached(self, earlier: Self, duration: Duration) -> bool {
        self >= earlier.after(duration)
    }
}

/// A moment of the wall clock, in whole seconds since 1970-01-01 UTC: the unit of a connect token's timestamps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct UnixSeconds(pub u64);

/// A moment of the wall clock, in milliseconds since 1970-01-01 UTC: the unit of a mint time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// The second in which this moment lies.
    #[must_use]
    pub const fn seconds(self) -> UnixSeconds {
        UnixSeconds(self.0 / 1000)
    }
}

impl From<UnixSeconds> for UnixMillis {
    fn from(seconds: UnixSeconds) -> Self {
        Self(seconds.0.saturating_mul(1000))
    }
}

/// Both clocks, read together once a turn.
///
/// Timeouts and budgets use the monotonic clock, the timestamps of connect tokens the wall clock; never one for the
/// other, because a wall clock is stepped by people and by NTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// The monotonic clock.
    pub monotonic: Instant,
    /// The wall clock.
    pub unix: UnixMillis,
}
