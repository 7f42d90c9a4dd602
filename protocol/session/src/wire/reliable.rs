//! The wire format of reliable 1.0: packets that carry acknowledgements, and fragments of large packets.
//!
//! ```text
//!  packet                                        fragment
//!  ┌────────┬──────────┬──────┬──────────┐       ┌───┬──────────┬────┬───────────┐
//!  │ prefix │ sequence │ ack  │ ack bits │ data  │ 1 │ sequence │ id │ count - 1 │ packet header, data
//!  │ 1      │ 2        │ 1..2 │ 0..4     │       │ 1 │ 2        │ 1  │ 1         │ (the header in id 0 only)
//!  └────────┴──────────┴──────┴──────────┘       └───┴──────────┴────┴───────────┘
//! ```
//!
//! Section numbers in this module are those of `specs/reliable-1.0.md`. The rules for accepting packets and
//! processing acknowledgements are in `reliability`.

mod fragment;
mod header;
mod sequence;
mod sequence_bits;

pub use self::fragment::{Fragment, FragmentLimits};
pub use self::header::{Acks, ReliableHeader};
pub use self::sequence::Sequence;
pub(crate) use self::sequence_bits::{SequenceBits, low_bits};

/// The minimum bytes of a packet header (§2.2).
pub const MIN_HEADER_BYTES: usize = 4;
/// The maximum bytes of a packet header (§2.2).
pub const MAX_HEADER_BYTES: usize = 9;
/// Bytes of a fragment header (§2.3).
pub const FRAGMENT_HEADER_BYTES: usize = 5;
/// The maximum bytes of a datagram beside its data: the two headers of a first fragment (§2.3).
pub const MAX_OVERHEAD_BYTES: usize = FRAGMENT_HEADER_BYTES + MAX_HEADER_BYTES;
/// The maximum fragments of one packet (§2.3).
pub const MAX_FRAGMENTS: u16 = 256;
/// The packets that one header acknowledges: `ack` itself, which is bit 0, and the 31 before it (§2.2).
pub const ACKS_PER_HEADER: u16 = 32;

/// The first byte of a fragment (§2.3).
const FRAGMENT_PREFIX: u8 = 1;

/// Returns whether a datagram is a fragment, which bit 0 of its first byte says (§2).
#[must_use]
#[inline]
pub fn is_fragment(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|prefix| prefix & FRAGMENT_PREFIX != 0)
}
