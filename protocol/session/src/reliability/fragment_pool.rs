//! Memory for fragments in reassembly: buffers of one size, bounded for each endpoint and, with a budget, for a whole
//! server.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

/// A bound on the memory that the reassemblies of many endpoints take together.
///
/// Clones share it. An endpoint returns its part when it is dropped, or ten seconds after its last fragment.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    left: Arc<AtomicUsize>,
}

impl MemoryBudget {
    /// Creates a budget of `bytes` bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { left: Arc::new(AtomicUsize::new(bytes)) }
    }

    /// Returns how many bytes are not taken.
    #[must_use]
    pub fn left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }

    pub(crate) fn take(&self, bytes: usize) -> bool {
        // Relaxed: the number orders no other memory.
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes)).is_ok()
    }

    /// Takes memory for a holder of `held` bytes that must not hold more than is left then. However many such holders
    /// there are, each leaves as much as it has.
    pub(crate) fn take_share(&self, bytes: usize, held: usize) -> bool {
        let rest = |left: usize| left.checked_sub(bytes).filter(|left| held.saturating_add(bytes) <= *left);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).is_ok()
    }

    pub(crate) fn give(&self, bytes: usize) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The data of one fragment. Buffers are recycled, never copied, and not freed while the stream lasts.
pub(super) struct FragmentBuf {
    next: Option<Box<FragmentBuf>>,
    id: u8,
    data: Vec<u8>,
}

/// A linked list of buffers.
#[derive(Default)]
pub(super) struct FragmentList(Option<Box<FragmentBuf>>);

impl FragmentList {
    fn push(&mut self, mut block: Box<FragmentBuf>) {
        block.next = self.0.take();
        self.0 = Some(block);
    }

    fn pop(&mut self) -> Option<Box<FragmentBuf>> {
        let mut block = self.0.take()?;
        self.0 = block.next.take();
        Some(block)
    }

    /// Returns the index and data of each fragment.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u8, &[u8])> {
        let mut at = self.0.as_deref();
        core::iter::from_fn(move || {
            let block = at?;
            at = block.next.as_deref();
            Some((block.id, block.data.as_slice()))
        })
    }
}

impl Drop for FragmentList {
    fn drop(&mut self) {
        // One by one: dropping a long list recursively could overflow the stack.
        while self.pop().is_some() {}
    }
}

/// The buffers of one endpoint, in use and free.
pub(super) struct FragmentPool {
    block_bytes: usize,
    max_blocks: usize,
    blocks: usize,
    /// Bytes taken for other things than fragment buffers.
    fixed: usize,
    free: FragmentList,
    shared: Option<MemoryBudget>,
}

impl FragmentPool {
    pub(super) fn new(block_bytes: usize, max_bytes: usize, shared: Option<MemoryBudget>) -> Self {
        let max_blocks = max_bytes / block_bytes.max(1);
        Self { block_bytes, max_blocks, blocks: 0, fixed: 0, free: FragmentList::default(), shared }
    }

    /// Takes `bytes` from the shared budget alone, for what every reassembly needs. Returns false if the budget is
    /// exhausted.
    pub(super) fn take_fixed(&mut self, bytes: usize) -> bool {
        let taken = self.shared.as_ref().is_none_or(|shared| shared.take(bytes));
        if taken {
            self.fixed += bytes;
        }
        taken
    }

    /// Pushes a copy of a fragment onto a list. Returns false if there is no memory.
    pub(super) fn store(&mut self, chain: &mut FragmentList, id: u8, data: &[u8]) -> bool {
        // Reuse a buffer before allocating: a stream of fragments then allocates nothing.
        let Some(mut block) = self.free.pop().or_else(|| self.allocate()) else { return false };
        block.id = id;
        block.data.clear();
        block.data.extend_from_slice(data);
        chain.push(block);
        true
    }

    /// Returns the buffers of a list to the pool.
    pub(super) fn recycle(&mut self, mut chain: FragmentList) {
        while let Some(block) = chain.pop() {
            self.free.push(block);
        }
    }

    /// Returns everything to the shared budget and to the allocator. No list may be in use.
    pub(super) fn release(&mut self) {
        self.free = FragmentList::default();
        if let Some(shared) = &self.shared {
            // Exactly what was taken, or the shared budget would drift over the lifetime of a server.
            shared.give(self.blocks * self.block_bytes + self.fixed);
        }
        (self.blocks, self.fixed) = (0, 0);
    }

    /// Returns the bytes of memory in use.
    pub(super) fn bytes(&self) -> usize {
        self.blocks * self.block_bytes + self.fixed
    }

    fn allocate(&mut self) -> Option<Box<FragmentBuf>> {
        let fits = self.blocks < self.max_blocks;
        // The own bound first: an endpoint at its limit must not take from the shared budget.
        if !fits || self.shared.as_ref().is_some_and(|shared| !shared.take(self.block_bytes)) {
            return None;
        }
        self.blocks += 1;
        Some(Box::new(FragmentBuf { next: None, id: 0, data: Vec::with_capacity(self.block_bytes) }))
    }
}

impl Drop for FragmentPool {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_respect_own_bound_and_shared_budget() {
        let shared = MemoryBudget::new(1000);
        let mut memories = [0; 3].map(|_| FragmentPool::new(100, 450, Some(shared.clone())));
        let mut chains = [0; 3].map(|_| FragmentList::default());
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
