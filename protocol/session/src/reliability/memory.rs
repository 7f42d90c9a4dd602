//! Memory for fragments that wait: blocks of one size, bounded for an endpoint and, if one wants, for all of a server.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

/// How much memory the reassemblies of many endpoints may take together.
///
/// Clones share it. What an endpoint does not need it gives back: when it is dropped, or ten seconds after its last
/// fragment.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    left: Arc<AtomicUsize>,
}

impl MemoryBudget {
    /// A budget of so many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { left: Arc::new(AtomicUsize::new(bytes)) }
    }

    /// How many bytes are not taken.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }

    pub(crate) fn take(&self, bytes: usize) -> bool {
        // Relaxed: the number guards nothing but itself.
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }

    pub(crate) fn give(&self, bytes: usize) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The data of one fragment. Blocks are passed from hand to hand, and never copied or freed while the stream lasts.
pub(super) struct Block {
    next: Option<Box<Block>>,
    id: u8,
    data: Vec<u8>,
}

/// Blocks in a row.
#[derive(Default)]
pub(super) struct Chain(Option<Box<Block>>);

impl Chain {
    fn push(&mut self, mut block: Box<Block>) {
        block.next = self.0.take();
        self.0 = Some(block);
    }

    fn pop(&mut self) -> Option<Box<Block>> {
        let mut block = self.0.take()?;
        self.0 = block.next.take();
        Some(block)
    }

    /// Each fragment's number and data.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u8, &[u8])> {
        let mut at = self.0.as_deref();
        core::iter::from_fn(move || {
            let block = at?;
            at = block.next.as_deref();
            Some((block.id, block.data.as_slice()))
        })
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        // One by one: a long chain that frees itself recursively could overflow the stack.
        while self.pop().is_some() {}
    }
}

/// What an endpoint's reassemblies may take.
pub(super) struct Memory {
    block_bytes: usize,
    max_blocks: usize,
    blocks: usize,
    /// Bytes taken beside the blocks.
    fixed: usize,
    free: Chain,
    shared: Option<MemoryBudget>,
}

impl Memory {
    pub(super) fn new(block_bytes: usize, max_bytes: usize, shared: Option<MemoryBudget>) -> Self {
        let max_blocks = max_bytes / block_bytes.max(1);
        Self { block_bytes, max_blocks, blocks: 0, fixed: 0, free: Chain::default(), shared }
    }

    /// Takes `bytes` that are no blocks, of the shared budget alone: what every reassembly needs.
    pub(super) fn take_fixed(&mut self, bytes: usize) -> bool {
        let taken = self.shared.as_ref().is_none_or(|shared| shared.take(bytes));
        if taken {
            self.fixed += bytes;
        }
        taken
    }

    /// Puts a fragment's data in front of a chain; answers false if there is no memory.
    pub(super) fn store(&mut self, chain: &mut Chain, id: u8, data: &[u8]) -> bool {
        let Some(mut block) = self.free.pop().or_else(|| self.allocate()) else { return false };
        block.id = id;
        block.data.clear();
        block.data.extend_from_slice(data);
        chain.push(block);
        true
    }

    /// Takes the blocks of a chain back.
    pub(super) fn recycle(&mut self, mut chain: Chain) {
        while let Some(block) = chain.pop() {
            self.free.push(block);
        }
    }

    /// Gives everything back, to the shared budget and to the allocator. No chain may be in use.
    pub(super) fn release(&mut self) {
        self.free = Chain::default();
        if let Some(shared) = &self.shared {
            shared.give(self.blocks * self.block_bytes + self.fixed);
        }
        (self.blocks, self.fixed) = (0, 0);
    }

    /// Bytes that are taken now.
    pub(super) fn bytes(&self) -> usize {
        self.blocks * self.block_bytes + self.fixed
    }

    fn allocate(&mut self) -> Option<Box<Block>> {
        let fits = self.blocks < self.max_blocks;
        if !fits || self.shared.as_ref().is_some_and(|shared| !shared.take(self.block_bytes)) {
            return None;
        }
        self.blocks += 1;
        Some(Box::new(Block { next: None, id: 0, data: Vec::with_capacity(self.block_bytes) }))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_endpoint_takes_more_than_its_own_bound_and_all_together_no_more_than_the_shared_one() {
        let shared = MemoryBudget::new(1000);
        let mut memories = [0; 3].map(|_| Memory::new(100, 450, Some(shared.clone())));
        let mut chains = [0; 3].map(|_| Chain::default());
        let stored: Vec<usize> = memories
            .iter_mut()
            .zip(&mut chains)
            .map(|(memory, chain)| (0..10).filter(|id| memory.store(chain, *id, &[*id])).count())
            .collect();
        assert_eq!(stored, [4, 4, 2]);
        assert_eq!(shared.left(), 0);

        let chain = core::mem::take(&mut chains[0]);
        let kept: Vec<(u8, u8)> = chain.iter().map(|(id, data)| (id, data[0])).collect();
        assert_eq!(kept, [3, 2, 1, 0].map(|id| (id, id)));
        memories[0].recycle(chain);
        assert_eq!(shared.left(), 0, "kept for the next packet");
        memories[0].release();
        assert_eq!(shared.left(), 400);
        drop((memories, chains));
        assert_eq!(shared.left(), 1000);
    }
}
