//! Sequence numbers of 16 bits, which wrap (§2.1).

use core::fmt;

/// The number of a packet. After 65535 comes 0: at 30 packets a second in half an hour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub struct Sequence(pub u16);

/// Half of all numbers: what lies further ahead than this lies behind.
const HALF: u16 = 1 << 15;

impl Sequence {
    /// Whether this packet is more recent than `other` (§2.1; Fiedler, "Reliability, Ordering and Congestion Avoidance
    /// over UDP"). At a distance of exactly 32768 the larger number is the newer one.
    #[must_use]
    pub const fn is_newer_than(self, other: Self) -> bool {
        (self.0 > other.0 && self.0 - other.0 <= HALF) || (self.0 < other.0 && other.0 - self.0 > HALF)
    }

    /// Whether `other` is more recent than this packet.
    #[must_use]
    pub const fn is_older_than(self, other: Self) -> bool {
        other.is_newer_than(self)
    }

    /// The number `count` behind this one.
    #[must_use]
    pub const fn ahead(self, count: u16) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// The number `count` before this one.
    #[must_use]
    pub const fn back(self, count: u16) -> Self {
        Self(self.0.wrapping_sub(count))
    }

    /// How many numbers one counts up from `earlier` to this one, around the wrap if need be.
    #[must_use]
    pub const fn distance_from(self, earlier: Self) -> u16 {
        self.0.wrapping_sub(earlier.0)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
