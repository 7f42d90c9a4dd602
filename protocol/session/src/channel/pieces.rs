//! Memory for messages: pieces of one size, which are passed from hand to hand and not freed while traffic lasts.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use crate::reliability::MemoryBudget;
use slipgate_netcode::time::Instant;

/// Bytes of a piece, the unit in which long messages are cut, acknowledged and sent again (§3.4).
pub const PIECE_BYTES: usize = 128;
/// The most pieces of a message.
pub(super) const MAX_PIECES: u16 = 512;

/// How many pieces are asked of the allocator together.
const GROUP: usize = 32;
/// What a group counts in the shared budget.
const GROUP_BYTES: usize = GROUP * size_of::<Piece>();
/// Pieces that every store may use outside the shared budget: a connection waits for what it lost although others hold
/// all of the budget.
const RESERVE: usize = GROUP;
/// Bytes of memory that every connection may take for what arrives, outside the budget that it shares with others.
pub const RESERVE_BYTES: usize = GROUP_BYTES;
/// How long after the last use the memory is kept for the next one.
pub(super) const RETENTION: Duration = Duration::from_secs(10);
/// The end of a chain.
const NONE: u32 = u32::MAX;

/// How many pieces a message of so many bytes has.
pub(super) const fn pieces_of(bytes: u32) -> u16 {
    bytes.div_ceil(PIECE_BYTES as u32) as u16
}

#[derive(Clone, Copy)]
struct Piece {
    next: u32,
    number: u16,
    bytes: u8,
    data: [u8; PIECE_BYTES],
}

const EMPTY: Piece = Piece { next: NONE, number: 0, bytes: 0, data: [0; PIECE_BYTES] };

/// The pieces of one message, in the order in which they were stored. It must be given back to its store.
#[derive(Debug)]
pub(super) struct Chain {
    first: u32,
    last: u32,
}

impl Default for Chain {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

/// Whether more memory may be taken than the shared budget has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Credit {
    No,
    /// For what lets go of memory when it is complete; what is taken so is bounded by the largest message.
    Overdraft,
}

/// A store of pieces.
pub(super) struct Store {
    groups: Vec<Box<[Piece; GROUP]>>,
    free: u32,
    used: usize,
    last_use: Instant,
    shared: Option<MemoryBudget>,
    /// Groups whose bytes are taken of the shared budget: as many as have been in use together beyond the reserve. What an
    /// overdraft left free is not among them, and nothing else is kept there.
    taken: usize,
}

impl Store {
    /// An empty store, which takes its memory from a budget shared with others, if there is one.
    pub(super) fn new(shared: Option<MemoryBudget>) -> Self {
        Self { groups: Vec::new(), free: NONE, used: 0, last_use: Instant::default(), shared, taken: 0 }
    }

    /// Stores a whole message. `None` if there is no memory.
    pub(super) fn store(&mut self, message: &[u8], credit: Credit) -> Option<Chain> {
        let mut chain = Chain::default();
        for (number, data) in (0..).zip(message.chunks(PIECE_BYTES)) {
            if !self.append(&mut chain, number, data, credit) {
                self.release(chain);
                return None;
            }
        }
        Some(chain)
    }

    /// Puts a piece of a message, at most [`PIECE_BYTES`], behind its others. Answers false if there is no memory.
    pub(super) fn append(&mut self, chain: &mut Chain, number: u16, data: &[u8], credit: Credit) -> bool {
        let Some(place) = self.take(credit) else { return false };
        if let Some(piece) = self.piece_mut(place) {
            piece.number = number;
            piece.bytes = data.len().min(PIECE_BYTES) as u8;
            piece.data.iter_mut().zip(data).for_each(|(to, from)| *to = *from);
        }
        match self.piece_mut(chain.last) {
            Some(last) => last.next = place,
            None => chain.first = place,
        }
        chain.last = place;
        true
    }

    /// Copies a stored message, from piece `from` on, until `to` is full.
    pub(super) fn copy(&self, chain: &Chain, from: u16, to: &mut [u8]) {
        let mut rest = to;
        for piece in self.iter(chain).skip(from.into()) {
            let bytes = rest.len().min(piece.bytes.into());
            if bytes == 0 {
                break;
            }
            let (room, behind) = rest.split_at_mut(bytes);
            room.iter_mut().zip(&piece.data).for_each(|(to, from)| *to = *from);
            rest = behind;
        }
        debug_assert!(rest.is_empty(), "a message is stored whole");
    }

    /// Puts a message together whose pieces were stored in any order.
    pub(super) fn gather(&self, chain: &Chain, bytes: u32, into: &mut Vec<u8>) {
        into.clear();
        into.resize(bytes as usize, 0);
        for piece in self.iter(chain) {
            let at = usize::from(piece.number) * PIECE_BYTES;
            if let Some(room) = into.get_mut(at..at + usize::from(piece.bytes)) {
                room.iter_mut().zip(&piece.data).for_each(|(to, from)| *to = *from);
            }
        }
    }

    /// Takes the pieces of a message back.
    #[expect(clippy::needless_pass_by_value, reason = "a chain that was given back is gone")]
    pub(super) fn release(&mut self, chain: Chain) {
        let mut at = chain.first;
        while let Some(piece) = self.piece_mut(at) {
            let next = core::mem::replace(&mut piece.next, NONE);
            self.put_back(at);
            at = next;
        }
    }

    /// Gives back memory that nobody has needed for a while.
    pub(super) fn tick(&mut self, now: Instant) {
        if self.used > 0 {
            self.last_use = now;
        } else if !self.groups.is_empty() && now.reached(self.last_use, RETENTION) {
            self.release_all();
        }
    }

    /// How many more pieces could be stored now without an overdraft, as far as `enough`.
    pub(super) fn spare(&self, enough: usize) -> usize {
        let Some(shared) = &self.shared else { return enough };
        let own = self.allowed().saturating_sub(self.used);
        if own >= enough { own } else { own + shared.left() / GROUP_BYTES * GROUP }
    }

    /// Bytes of memory that are taken now.
    pub(super) fn bytes(&self) -> usize {
        self.groups.len() * GROUP_BYTES
    }

    /// How many pieces may be in use for what has been taken of the shared budget.
    const fn allowed(&self) -> usize {
        RESERVE + self.taken * GROUP
    }

    fn take(&mut self, credit: Credit) -> Option<u32> {
        if !self.may_use_more() && credit == Credit::No {
            return None;
        }
        if self.free == NONE {
            self.grow();
        }
        let place = self.free;
        let piece = self.piece_mut(place)?;
        self.free = core::mem::replace(&mut piece.next, NONE);
        self.used += 1;
        Some(place)
    }

    fn put_back(&mut self, place: u32) {
        let free = self.free;
        if let Some(piece) = self.piece_mut(place) {
            piece.next = free;
            self.free = place;
            self.used -= 1;
        }
    }

    /// Whether the reserve and the shared budget allow one more piece, which is taken of the budget if need be.
    fn may_use_more(&mut self) -> bool {
        let Some(shared) = &self.shared else { return true };
        if self.used < self.allowed() {
            return true;
        }
        let taken = shared.take(GROUP_BYTES);
        self.taken += usize::from(taken);
        taken
    }

    fn grow(&mut self) {
        let first = self.groups.len() * GROUP;
        self.groups.push(Box::new([EMPTY; GROUP]));
        for place in (first..first + GROUP).rev() {
            self.used += 1;
            self.put_back(place as u32);
        }
    }

    fn release_all(&mut self) {
        (self.groups, self.free) = (Vec::new(), NONE);
        if let Some(shared) = &self.shared {
            shared.give(core::mem::take(&mut self.taken) * GROUP_BYTES);
        }
    }

    fn iter(&self, chain: &Chain) -> impl Iterator<Item = &Piece> {
        let mut at = chain.first;
        core::iter::from_fn(move || {
            let piece = self.groups.get(at as usize / GROUP)?.get(at as usize % GROUP)?;
            at = piece.next;
            Some(piece)
        })
    }

    fn piece_mut(&mut self, place: u32) -> Option<&mut Piece> {
        self.groups.get_mut(place as usize / GROUP)?.get_mut(place as usize % GROUP)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.release_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn message(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at * 7) as u8).collect()
    }

    #[test]
    fn a_message_is_copied_out_from_any_piece_on() {
        let mut store = Store::new(None);
        let message = message(1000);
        let chain = store.store(&message, Credit::No).unwrap();
        for from in 0..8 {
            let mut out = vec![0; 1000 - usize::from(from) * PIECE_BYTES];
            store.copy(&chain, from, &mut out);
            assert_eq!(out, message[usize::from(from) * PIECE_BYTES..]);
        }
        store.release(chain);
        assert_eq!(store.used, 0);
    }

    #[test]
    fn pieces_that_came_in_any_order_make_the_message() {
        let mut store = Store::new(None);
        let message = message(700);
        let mut chain = Chain::default();
        for number in [3, 0, 5, 4, 1, 2] {
            let data = message.chunks(PIECE_BYTES).nth(number.into()).unwrap();
            assert!(store.append(&mut chain, number, data, Credit::No));
        }
        let mut whole = Vec::new();
        store.gather(&chain, 700, &mut whole);
        assert_eq!(whole, message);
    }

    #[test]
    fn a_shared_budget_bounds_all_stores_but_for_reserves_and_overdrafts_and_gets_everything_back() {
        let shared = MemoryBudget::new(3 * GROUP_BYTES);
        let mut stores = [0; 2].map(|_| Store::new(Some(shared.clone())));
        let large = message(3 * GROUP * PIECE_BYTES);
        let chain = stores[0].store(&large, Credit::No).unwrap();
        assert_eq!(shared.left(), GROUP_BYTES, "one of the three groups is the reserve");
        assert!(stores[1].store(&large, Credit::No).is_none());
        assert_eq!(stores[1].spare(2 * GROUP), 2 * GROUP, "what was not enough is kept for later");
        let overdraft = stores[1].store(&large, Credit::Overdraft).unwrap();
        assert_eq!(shared.left(), 0);
        stores[1].release(overdraft);
        stores[0].release(chain);
        let at = |seconds| Instant::from_start(Duration::from_secs(seconds));
        for store in &mut stores {
            store.tick(at(9));
            assert!(store.bytes() > 0);
            store.tick(at(10));
            assert_eq!(store.bytes(), 0);
        }
        assert_eq!(shared.left(), 3 * GROUP_BYTES);
    }

    #[test]
    fn what_an_overdraft_left_free_is_not_kept_for_other_messages() {
        let mut store = Store::new(Some(MemoryBudget::new(0)));
        let large = message(10 * GROUP * PIECE_BYTES);
        let mut kept = Vec::new();
        for _ in 0..5 {
            let overdraft = store.store(&large, Credit::Overdraft).unwrap();
            assert_eq!(store.spare(1), 0);
            store.release(overdraft);
            while store.spare(1) > 0 {
                kept.push(store.store(&[1], Credit::No).unwrap());
            }
        }
        assert_eq!(kept.len(), RESERVE);
        assert_eq!(store.bytes(), 11 * GROUP_BYTES);
        kept.into_iter().for_each(|chain| store.release(chain));
    }
}
