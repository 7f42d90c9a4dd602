//! reliable 1.0 as it stands on the wire: packets that carry acknowledgements, and fragments of large ones.
//!
//! ```text
//!  packet                                        fragment
//!  ┌────────┬──────────┬──────┬──────────┐       ┌───┬──────────┬────┬───────────┐
//!  │ prefix │ sequence │ ack  │ ack bits │ data  │ 1 │ sequence │ id │ count - 1 │ packet header, data
//!  │ 1      │ 2        │ 1..2 │ 0..4     │       │ 1 │ 2        │ 1  │ 1         │ (the header in id 0 only)
//!  └────────┴──────────┴──────┴──────────┘       └───┴──────────┴────┴───────────┘
//! ```
//!
//! Section numbers in this module are those of `specs/reliable-1.0.md`. When a packet is accepted, and what becomes of
//! its acknowledgements, is `reliability`'s work.

mod fragment;
mod header;
mod sequence;

pub use self::fragment::{Fragment, FragmentLimits};
pub use self::header::{Acks, Header};
pub use self::sequence::Sequence;

/// The fewest bytes of a packet header (§2.2).
pub const MIN_HEADER_BYTES: usize = 4;
/// The most bytes of a packet header (§2.2).
pub const MAX_HEADER_BYTES: usize = 9;
/// Bytes of a fragment header (§2.3).
pub const FRAGMENT_HEADER_BYTES: usize = 5;
/// The most bytes that a datagram has beside data: those of a first fragment (§2.3).
pub const MAX_OVERHEAD_BYTES: usize = FRAGMENT_HEADER_BYTES + MAX_HEADER_BYTES;
/// The most fragments of one packet (§2.3).
pub const MAX_FRAGMENTS: u16 = 256;
/// How many packets one header acknowledges: `ack` itself, which is bit 0, and the 31 before it (§2.2).
pub const ACKS_PER_HEADER: u16 = 32;

/// The first byte of a fragment (§2.3).
const FRAGMENT_PREFIX: u8 = 1;

/// Whether a datagram is a fragment: bit 0 of its first byte tells the two kinds apart (§2).
#[must_use]
pub fn is_fragment(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|prefix| prefix & FRAGMENT_PREFIX != 0)
}
