//! Large transfers: up to 64 MiB in slices, delivered once and whole, or not at all.
//!
//! ```text
//!  sender                                   receiver
//!    │ Begin: digest, length, slice size       │
//!    │────────────────────────────────────────▶│ within its limits? perhaps the application is asked
//!    │   Accept: which slices it has already   │
//!    │◀────────────────────────────────────────│ (those of a PartialBlock that an earlier connection left)
//!    │ Slices, Slices … in any order           │
//!    │────────────────────────────────────────▶│ chunks of 16 slices, hashed as they get whole
//!    │                     Done: digest right  │
//!    │◀────────────────────────────────────────│ the application has the content
//! ```
//!
//! Either end may stop at any time: the sender by `Withdraw`, the receiver by `Refuse`, both with a reason.
//!
//! These machines send nothing by themselves. [`Blocks::write`] puts one frame into a packet that is being packed and
//! names it by a [`Part`]; whoever packs tells later what became of it, by [`Blocks::on_acked`] or [`Blocks::on_lost`].
//! A frame that was lost is written again, in another packet; there are no timers here.
//!
//! Sections §4.x in this module are those of `specs/blocks-1.md`.

mod bits;
mod blocks;
mod config;
mod content;
mod event;
mod farewells;
pub mod frame;
mod hashing;
mod incoming;
mod lease;
mod outgoing;
mod partial;
mod places;
mod receiver;
mod seen;
mod sender;
mod shape;
mod steps;
mod store;
#[cfg(test)]
mod tests;
mod violation;

use alloc::sync::Arc;
use core::fmt;

use sha2::{Digest as _, Sha256};

pub use self::blocks::Blocks;
pub use self::config::{Admission, Config, ConfigError};
pub use self::content::Content;
pub use self::event::{Event, Offer, Side};
pub use self::frame::Reason;
pub(crate) use self::hashing::HashingGrant;
pub use self::partial::PartialBlock;
pub use self::receiver::{BlockReceiver, Reception};
pub use self::sender::{BeginError, BlockSender};
pub use self::violation::Violation;

/// The most bytes of a block: 64 MiB (§4.1).
pub const MAX_BLOCK_BYTES: u32 = 64 << 20;
/// The fewest bytes of a slice (§4.1): it fits into the least packet, of 256 bytes on the path, in every encapsulation.
pub const MIN_SLICE_BYTES: u16 = 128;
/// The most bytes of a slice (§4.1): with its header it fits into the largest packet.
pub const MAX_SLICE_BYTES: u16 = 1152;
/// Room in which every frame but a slice can be written (§4.2): a `Begin` takes 49 bytes.
pub const MIN_ROOM_BYTES: usize = 64;

/// The number of a block, given by its sender; each direction has numbers of its own. After 65535 comes 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct BlockId(pub u16);

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The SHA-256 digest of a block's content (FIPS 180-4): by it a receiver knows what it has, and that it is whole.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentDigest(pub [u8; 32]);

impl ContentDigest {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Debug for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What is to be sent. Clones share the bytes, so that one map goes to a hundred clients out of one memory.
///
/// Making one hashes its bytes, which takes a second for some 300 MB to 2 GB: a server makes it beforehand, not in its
/// tick.
///
/// # Examples
///
/// ```
/// use slipgate_session::channel::block::Block;
///
/// let map = Block::new(vec![7; 100_000]).expect("at most 64 MiB");
/// assert_eq!(map.bytes().len(), 100_000);
/// ```
#[derive(Clone)]
pub struct Block {
    bytes: Arc<[u8]>,
    length: u32,
    digest: ContentDigest,
}

impl Block {
    /// The block with this content; `None` if it is larger than [`MAX_BLOCK_BYTES`].
    #[must_use]
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Option<Self> {
        let bytes = bytes.into();
        let length = u32::try_from(bytes.len()).ok().filter(|length| *length <= MAX_BLOCK_BYTES)?;
        let digest = ContentDigest::of(&bytes);
        Some(Self { bytes, length, digest })
    }

    /// The content.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The content's digest.
    #[must_use]
    pub const fn digest(&self) -> ContentDigest {
        self.digest
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("bytes", &self.length).field("digest", &self.digest).finish()
    }
}

/// How far a transfer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Bytes that have arrived: at the receiver those that it has, at the sender those that it knows the peer to have.
    pub bytes: u32,
    /// Bytes of the whole block.
    pub of: u32,
}

/// A frame that was written into a packet. Whoever packs keeps it until the packet's fate is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// A `Begin`.
    Begin(BlockId),
    /// A `Slice`: one or several consecutive ones.
    Slices {
        /// Of this block.
        block: BlockId,
        /// The number of the first slice.
        first: u32,
        /// How many there are.
        count: u16,
    },
    /// A `Withdraw`.
    Withdraw(BlockId),
    /// An `Accept` that spoke of the slices from `first` to the one before `end`.
    Accept {
        /// Of this block.
        block: BlockId,
        /// The first slice that it spoke of.
        first: u32,
        /// One behind the last.
        end: u32,
    },
    /// A `Done` or a `Refuse`.
    Farewell(BlockId),
}

/// Whether a frame that must arrive has to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owed {
    /// It has to be written.
    Now,
    /// It is under way.
    Flying,
    /// It arrived.
    Paid,
}

impl Owed {
    /// The packet that it was in is lost. A copy of it may have arrived all the same.
    fn lost(&mut self) {
        if *self == Self::Flying {
            *self = Self::Now;
        }
    }
}
