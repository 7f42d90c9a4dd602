//! What the sender's halves of all channels share: memory, and receipts.

use super::pieces::{Chain, Store};
use super::receipts::{Fate, Receipts, Ticket};

pub(super) struct Sending {
    pub(super) store: Store,
    pub(super) receipts: Receipts,
}

impl Sending {
    pub(super) fn new() -> Self {
        Self { store: Store::new(None), receipts: Receipts::new() }
    }

    /// A message is of no more use here: its memory is free, and its fate is told to whom it may concern.
    pub(super) fn close(&mut self, chain: Chain, receipt: Option<Ticket>, fate: Fate) {
        self.store.release(chain);
        self.receipts.tell(receipt, fate);
    }
}
