//! The units of the congestion controller: arithmetic that mixes times and bytes does not compile (Glide §2).

use core::ops::{Add, AddAssign, Div, Mul, Neg, Sub};
use core::time::Duration;

use super::rate::BytesPerSecond;
use slipgate_netcode::time::Instant;

/// A time in seconds: a duration, or a moment since the start of the clock.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default)]
pub(super) struct Seconds(pub(super) f64);

/// A number of bytes on the path: payload and every header.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default)]
pub(super) struct Bytes(pub(super) f64);

impl Seconds {
    /// A moment before all others.
    pub(super) const NEVER: Self = Self(f64::NEG_INFINITY);
    pub(super) const ZERO: Self = Self(0.0);

    /// Returns the time of this many nanoseconds.
    #[inline]
    pub(super) const fn from_nanos(nanos: u64) -> Self {
        Self(float(nanos) / 1e9)
    }
}

impl Bytes {
    /// Returns this, times `part` / `whole`.
    pub(super) fn times(self, part: Self, whole: Self) -> Self {
        Self(self.0 * part.0 / whole.0)
    }
}

/// Bounds of numbers that are never NaN. Each takes one instruction, where `min` and `max` of a float take five.
pub(super) trait Bounded: Copy + PartialOrd {
    /// Returns the larger one of both.
    #[inline]
    fn at_least(self, min: Self) -> Self {
        if self > min { self } else { min }
    }

    /// Returns the smaller one of both.
    #[inline]
    fn at_most(self, max: Self) -> Self {
        if self < max { self } else { max }
    }
}

impl Bounded for f64 {}

/// Returns a count as a float. x86 converts only signed integers in one instruction, and no count takes 63 bits.
#[inline]
pub(super) const fn float(count: u64) -> f64 {
    count as i64 as f64
}

impl From<Instant> for Seconds {
    #[inline]
    fn from(moment: Instant) -> Self {
        Self::from_nanos(moment.as_nanos())
    }
}

impl From<Duration> for Seconds {
    fn from(time: Duration) -> Self {
        // As `as_secs_f64`, but x86 converts only signed integers in one instruction.
        Self(time.as_secs() as i64 as f64 + f64::from(time.subsec_nanos()) / 1e9)
    }
}

impl From<u32> for Bytes {
    fn from(bytes: u32) -> Self {
        Self(bytes.into())
    }
}

impl Neg for Bytes {
    type Output = Self;

    fn neg(self) -> Self {
        Self(-self.0)
    }
}

/// Implements the arithmetic that keeps a unit.
macro_rules! keeps_unit {
    ($unit:ident) => {
        impl $unit {
            pub(super) fn min(self, other: Self) -> Self {
                Self(self.0.at_most(other.0))
            }

            pub(super) fn max(self, other: Self) -> Self {
                Self(self.0.at_least(other.0))
            }
        }

        impl Add for $unit {
            type Output = Self;

            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }

        impl AddAssign for $unit {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }

        impl Sub for $unit {
            type Output = Self;

            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }

        impl Mul<$unit> for f64 {
            type Output = $unit;

            fn mul(self, other: $unit) -> $unit {
                $unit(self * other.0)
            }
        }

        impl Div for $unit {
            type Output = f64;

            fn div(self, other: Self) -> f64 {
                self.0 / other.0
            }
        }
    };
}

keeps_unit!(Seconds);
keeps_unit!(Bytes);

impl Mul<Seconds> for BytesPerSecond {
    type Output = Bytes;

    fn mul(self, time: Seconds) -> Bytes {
        Bytes(self.0 * time.0)
    }
}

impl Div<BytesPerSecond> for Bytes {
    type Output = Seconds;

    fn div(self, rate: BytesPerSecond) -> Seconds {
        Seconds(self.0 / rate.0)
    }
}
