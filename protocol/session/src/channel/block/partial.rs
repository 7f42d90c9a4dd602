//! What has arrived of a block whose transfer broke off.

use alloc::boxed::Box;
use core::fmt;

use super::lease::Lease;
use super::shape::Shape;
use super::store::Store;
use super::{ContentDigest, Progress};

/// A block of which some slices have arrived. It belongs to the application, which hands it to the next connection by
/// [`super::Blocks::keep`]; there only the rest is sent, if the peer offers the same content in slices of the same size.
///
/// It takes the memory of what has arrived, and that is in no [`crate::reliability::MemoryBudget`] while it is in the
/// application's hands.
pub struct PartialBlock {
    digest: ContentDigest,
    store: Box<Store>,
    /// Bytes that the store takes.
    memory: usize,
}

impl PartialBlock {
    /// What a receiver had; `None` if that is nothing.
    pub(super) fn new(digest: ContentDigest, store: Store, lease: &Lease) -> Option<Self> {
        (store.progress().bytes > 0).then(|| Self { digest, store: Box::new(store), memory: lease.bytes() })
    }

    /// The digest of the whole content.
    #[must_use]
    pub const fn digest(&self) -> ContentDigest {
        self.digest
    }

    /// How much of it is there.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.store.progress()
    }

    /// Whether this is the start of the announced block.
    pub(super) fn is_of(&self, digest: ContentDigest, shape: Shape) -> bool {
        self.digest == digest && self.store.shape == shape
    }

    /// The store, its memory taken from the budget of a connection; the block itself if there is none.
    pub(super) fn into_store(self, lease: &mut Lease) -> Result<Store, Self> {
        if lease.take(self.memory) { Ok(*self.store) } else { Err(self) }
    }
}

impl fmt::Debug for PartialBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartialBlock").field("digest", &self.digest).field("progress", &self.progress()).finish()
    }
}
