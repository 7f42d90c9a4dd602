//! What an application hears of its blocks.

use super::{BlockId, Content, ContentDigest, PartialBlock, Reason};

/// What became of a block. `Offered`, `Received` and `Broken` are of the peer's blocks, the others of ours.
#[derive(Debug)]
pub enum Event {
    /// The peer offers a block, and [`super::Admission::Ask`] is set: accept it or refuse it.
    Offered(Offer),
    /// A block has arrived, whole. It comes once.
    Received {
        /// The block.
        id: BlockId,
        /// What the peer calls it.
        label: u64,
        /// Its content.
        content: Content,
    },
    /// A block of the peer's that was offered or accepted will not arrive.
    Broken {
        /// The block.
        id: BlockId,
        /// What the peer calls it.
        label: u64,
        /// Which side ended it.
        by: Side,
        /// Why.
        reason: Reason,
        /// What had arrived of it, to go on with later; `None` if that is nothing, or not the start of that content.
        partial: Option<PartialBlock>,
    },
    /// The peer has the whole of a block of ours.
    Delivered {
        /// The block.
        id: BlockId,
    },
    /// The peer does not want a block of ours, or not any more.
    Refused {
        /// The block.
        id: BlockId,
        /// Why.
        reason: Reason,
    },
}

/// A block that the peer would send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The block.
    pub id: BlockId,
    /// What the peer calls it.
    pub label: u64,
    /// Its bytes.
    pub length: u32,
    /// The digest of its content, as the peer says: it is checked before the content is handed out.
    pub digest: ContentDigest,
}

/// One of the two ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Side {
    /// This end.
    Us,
    /// The other end.
    Peer,
}
