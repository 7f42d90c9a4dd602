//! Memory that a block under way has taken out of a shared budget; it is given back when the block is gone.

use crate::reliability::MemoryBudget;

/// Bytes taken, and where from.
pub(super) struct Lease {
    shared: Option<MemoryBudget>,
    bytes: usize,
}

impl Lease {
    pub(super) const fn new(shared: Option<MemoryBudget>) -> Self {
        Self { shared, bytes: 0 }
    }

    /// Takes more; answers false, and takes nothing, if the budget has not so much left.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let taken = self.shared.as_ref().is_none_or(|shared| shared.take(bytes));
        if taken {
            self.bytes += bytes;
        }
        taken
    }

    /// Bytes taken.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.give(self.bytes);
        }
    }
}
