//! Messages of which some slices have come.

use alloc::vec::Vec;
use core::time::Duration;

use super::message_id::MessageId;
use super::piece_set::PieceSet;
use super::pieces::{Chain, Credit, PIECE_BYTES, Store, pieces_of};
use slipgate_netcode::time::Instant;

/// How long a message that is sent once waits for its next slice: what has not come by then is lost (Fiedler,
/// "Reliability, Ordering and Congestion Avoidance over UDP").
const LIFETIME: Duration = Duration::from_secs(1);
/// The most messages of an unreliable or sequenced channel that wait for slices; a newer one displaces the oldest.
const MAX_PARTIALS: usize = 16;
/// The most bytes of messages that wait for slices on such a channel, in messages of the largest size.
const MAX_PARTIAL_LARGEST: u64 = 4;

/// A message under way.
pub(super) struct Assembly {
    pub(super) bytes: u32,
    pub(super) chain: Chain,
    seen: PieceSet,
    missing: u16,
}

/// What a slice led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    Waiting,
    Complete,
    NoMemory,
}

impl Assembly {
    pub(super) fn new(bytes: u32) -> Self {
        Self { bytes, chain: Chain::default(), seen: PieceSet::default(), missing: pieces_of(bytes) }
    }

    /// How many pieces are missing.
    pub(super) const fn missing(&self) -> u16 {
        self.missing
    }

    /// Whether a piece is missing.
    pub(super) fn lacks(&self, piece: u16) -> bool {
        !self.seen.has(piece)
    }

    /// Takes the pieces of a slice that are new.
    pub(super) fn add(&mut self, first: u16, data: &[u8], store: &mut Store, credit: Credit) -> Progress {
        for (piece, data) in (first..).zip(data.chunks(PIECE_BYTES)) {
            if self.seen.has(piece) {
                continue;
            }
            if !store.append(&mut self.chain, piece, data, credit) {
                return Progress::NoMemory;
            }
            self.seen.insert(piece);
            self.missing -= 1;
        }
        if self.missing == 0 { Progress::Complete } else { Progress::Waiting }
    }
}

/// A message that is sent once, under way.
struct Partial {
    id: MessageId,
    latest: Instant,
    assembly: Assembly,
}

/// The unfinished messages of one unreliable or sequenced channel, the oldest first.
pub(super) struct Partials {
    list: Vec<Partial>,
}

/// A slice of a message that is sent once.
pub(super) struct Slice<'a> {
    pub(super) id: MessageId,
    pub(super) bytes: u32,
    pub(super) first: u16,
    pub(super) data: &'a [u8],
}

impl Partials {
    pub(super) const fn new() -> Self {
        Self { list: Vec::new() }
    }

    /// Takes a slice. Answers the message if it was the last one missing, and how many messages were given up.
    pub(super) fn add(
        &mut self,
        slice: &Slice<'_>,
        max_message_bytes: u32,
        store: &mut Store,
        now: Instant,
    ) -> (Option<Assembly>, u64) {
        let mut given_up = self.make_place(slice, max_message_bytes, store);
        let at = self.place_of(slice, now);
        let Some(partial) = self.list.get_mut(at) else { return (None, given_up) };
        partial.latest = now;
        let mut progress = partial.assembly.add(slice.first, slice.data, store, Credit::No);
        // The memory of all is used up: what is older has the smaller hope. The slice's own message has moved to the
        // end of the list.
        if progress == Progress::NoMemory {
            given_up += self.give_up_all_but_last(store);
            let again = |partial: &mut Partial| partial.assembly.add(slice.first, slice.data, store, Credit::No);
            progress = self.list.last_mut().map_or(Progress::NoMemory, again);
        }
        match progress {
            Progress::Waiting => (None, given_up),
            Progress::Complete => (self.list.pop().map(|partial| partial.assembly), given_up),
            Progress::NoMemory => (None, given_up + self.give_up_first(store)),
        }
    }

    /// Gives up the messages that `hopeless` says.
    pub(super) fn give_up_if(
        &mut self,
        store: &mut Store,
        mut hopeless: impl FnMut(MessageId, Instant) -> bool,
    ) -> u64 {
        let before = self.list.len();
        self.list.retain_mut(|partial| {
            let gone = hopeless(partial.id, partial.latest);
            if gone {
                store.release(core::mem::take(&mut partial.assembly.chain));
            }
            !gone
        });
        (before - self.list.len()) as u64
    }

    /// Gives up what has waited too long.
    pub(super) fn tick(&mut self, now: Instant, store: &mut Store) -> u64 {
        if self.list.is_empty() { 0 } else { self.give_up_if(store, |_, latest| now.reached(latest, LIFETIME)) }
    }

    /// Bounds what waits, as if the slice's message were a new one.
    fn make_place(&mut self, slice: &Slice<'_>, max_message_bytes: u32, store: &mut Store) -> u64 {
        if self.list.iter().any(|partial| partial.id == slice.id && partial.assembly.bytes == slice.bytes) {
            return 0;
        }
        // Another size under the same id: the ids have gone round since. The old message is gone.
        let mut given_up = self.give_up_if(store, |id, _| id == slice.id);
        let bytes = |list: &[Partial]| list.iter().map(|partial| u64::from(partial.assembly.bytes)).sum::<u64>();
        let most = u64::from(max_message_bytes) * MAX_PARTIAL_LARGEST;
        while self.list.len() >= MAX_PARTIALS || bytes(&self.list) + u64::from(slice.bytes) > most {
            given_up += self.give_up_first(store);
        }
        given_up
    }

    /// The place of the slice's message, which is the last one from then on.
    fn place_of(&mut self, slice: &Slice<'_>, now: Instant) -> usize {
        let known = self.list.iter().position(|partial| partial.id == slice.id);
        match known.and_then(|at| self.list.get_mut(at..)) {
            Some(behind) => behind.rotate_left(1),
            None => self.list.push(Partial { id: slice.id, latest: now, assembly: Assembly::new(slice.bytes) }),
        }
        self.list.len() - 1
    }

    fn give_up_first(&mut self, store: &mut Store) -> u64 {
        let mut first = true;
        self.give_up_if(store, |_, _| core::mem::take(&mut first))
    }

    fn give_up_all_but_last(&mut self, store: &mut Store) -> u64 {
        let mut left = self.list.len();
        self.give_up_if(store, |_, _| {
            left -= 1;
            left > 0
        })
    }
}
