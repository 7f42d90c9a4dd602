//! 16-bit sequence numbers, which wrap (§2.1).

use core::fmt;
use core::ops::{Add, Sub};

/// The sequence number of a packet. It wraps after 65,535: at 30 packets per second after half an hour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub struct Sequence(pub u16);

/// Half of the number space: a larger distance ahead is a distance behind.
const HALF: u16 = 1 << 15;

impl Sequence {
    /// Returns whether this packet is newer than `other` (§2.1; Fiedler, "Reliability, Ordering and Congestion
    /// Avoidance over UDP"). The larger number is the newer one at a distance of exactly 32,768.
    #[must_use]
    #[inline]
    pub const fn is_newer_than(self, other: Self) -> bool {
        let ahead = self.0.wrapping_sub(other.0);
        // One comparison for distances of 1 to 32,767.
        ahead.wrapping_sub(1) < HALF - 1 || (ahead == HALF && self.0 > other.0)
    }

    /// Returns whether this packet is older than `other`.
    #[inline]
    pub(crate) const fn is_older_than(self, other: Self) -> bool {
        other.is_newer_than(self)
    }
}

impl Add<u16> for Sequence {
    type Output = Self;

    /// Returns the number that is `count` after this one, across the wrap if necessary.
    #[inline]
    fn add(self, count: u16) -> Self {
        Self(self.0.wrapping_add(count))
    }
}

impl Sub<u16> for Sequence {
    type Output = Self;

    /// Returns the number that is `count` before this one, across the wrap if necessary.
    #[inline]
    fn sub(self, count: u16) -> Self {
        Self(self.0.wrapping_sub(count))
    }
}

impl Sub for Sequence {
    type Output = u16;

    /// Returns how many numbers one counts up from `earlier` to this one, across the wrap if necessary.
    #[inline]
    fn sub(self, earlier: Self) -> u16 {
        self.0.wrapping_sub(earlier.0)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
