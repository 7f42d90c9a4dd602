//! The content of a block that has arrived, checked by its digest.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use super::store::{Region, Store};

/// A whole block. It lies in chunks, as it arrived.
pub struct Content {
    length: u32,
    regions: Vec<Option<Box<Region>>>,
}

impl Content {
    pub(super) fn new(store: Store) -> Self {
        Self { length: store.shape.length, regions: store.into_regions() }
    }

    /// Its bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length as usize
    }

    /// Whether it is the block without bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Its bytes in order, some kilobytes at a time: to write them to a file, or to read them where they lie.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.regions.iter().flatten().flat_map(|region| region.chunks.iter().flatten()).map(Box::as_ref)
    }

    /// Its bytes in one piece. They are copied, and each chunk is freed as soon as it is.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        let mut whole = Vec::with_capacity(self.len());
        for mut region in self.regions.into_iter().flatten() {
            for chunk in &mut region.chunks {
                whole.extend_from_slice(&chunk.take().unwrap_or_default());
            }
        }
        whole
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content").field("bytes", &self.length).finish_non_exhaustive()
    }
}
