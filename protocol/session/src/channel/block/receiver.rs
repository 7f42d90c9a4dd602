//! One block on its way in: where its slices go, what the sender is told, and when it is whole.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use super::frame::{ACCEPT_HEADER_BYTES, Begin, RangesWriter, Reason, accept_header};
use super::hashing::Hashing;
use super::lease::Lease;
use super::shape::Shape;
use super::store::{Store, Stored, Verdict};
use super::{BlockId, Content, Offer, Part, PartialBlock, Progress, Violation};
use crate::reliability::MemoryBudget;
use slipgate_netcode::wire::cursor::Writer;

/// Chunks that are hashed with slices that arrive: a gap that closes is caught up with bit by bit.
const CHUNKS_PER_FRAME: u32 = 1;

/// Receives a block.
///
/// ```text
///  Offered ──accept──▶ Receiving ──all slices, digest right──▶ Whole
///                          │
///                          └──digest wrong, no memory──▶ Failed
/// ```
pub struct BlockReceiver {
    begin: Begin,
    shape: Shape,
    stage: Stage,
    lease: Lease,
}

enum Stage {
    Offered,
    Receiving(Receiving),
    Whole(Store),
    Failed(Reason, Option<Store>),
}

/// An accepted block.
struct Receiving {
    store: Store,
    /// The sender was told what is missing up to here.
    told_to: u32,
    /// Spans before that whose `Accept` was lost.
    tell_again: Vec<Range<u32>>,
}

/// What became of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Reception {
    /// It brought something.
    New,
    /// It is a copy, or came too late to matter: nothing changed.
    Ignored,
}

impl BlockReceiver {
    /// A block that a peer announces. Nothing is accepted yet, and no memory taken.
    ///
    /// # Errors
    ///
    /// [`Violation::BlockTooLong`] and [`Violation::SliceBytes`] for what no sender may announce.
    pub fn new(begin: Begin, budget: Option<MemoryBudget>) -> Result<Self, Violation> {
        let shape = Shape::check(begin.length, begin.slice_bytes)?;
        Ok(Self { begin, shape, stage: Stage::Offered, lease: Lease::new(budget) })
    }

    /// The block's number.
    #[must_use]
    pub const fn id(&self) -> BlockId {
        self.begin.id
    }

    /// What the peer said of the block.
    #[must_use]
    pub const fn begin(&self) -> Begin {
        self.begin
    }

    /// The same for the application.
    #[must_use]
    pub const fn offer(&self) -> Offer {
        let Begin { id, label, length, digest, .. } = self.begin;
        Offer { id, label, length, digest }
    }

    /// How much of it has arrived.
    #[must_use]
    pub fn progress(&self) -> Progress {
        match &self.stage {
            Stage::Offered | Stage::Failed(_, None) => Progress { bytes: 0, of: self.shape.length },
            Stage::Receiving(Receiving { store, .. }) | Stage::Whole(store) | Stage::Failed(_, Some(store)) => {
                store.progress()
            }
        }
    }

    /// Whether nobody has accepted it yet.
    pub(super) const fn is_offered(&self) -> bool {
        matches!(self.stage, Stage::Offered)
    }

    /// Whether `partial` is a part of this very block.
    pub(super) fn continues(&self, partial: &PartialBlock) -> bool {
        partial.is_of(self.begin.digest, self.shape)
    }

    /// Accepts the block, with what an earlier connection left of it. A part of another block is given back, and so is
    /// any if there is no memory: then the block has failed with [`Reason::NoMemory`].
    pub fn accept(&mut self, partial: Option<PartialBlock>) -> Option<PartialBlock> {
        if !self.is_offered() {
            return partial;
        }
        let (partial, other) = match partial {
            Some(partial) if self.continues(&partial) => (Some(partial), None),
            other => (None, other),
        };
        let store = match partial {
            Some(partial) => partial.into_store(&mut self.lease).map_err(Some),
            None => Store::new(self.shape, &mut self.lease).ok_or(None),
        };
        match store {
            Ok(store) => {
                self.stage = Stage::Receiving(Receiving { store, told_to: 0, tell_again: Vec::new() });
                self.verify(0, &mut Hashing::default());
                other
            }
            Err(unused) => {
                self.stage = Stage::Failed(Reason::NoMemory, None);
                unused.or(other)
            }
        }
    }

    /// Takes consecutive slices.
    ///
    /// # Errors
    ///
    /// The [`Violation`] of slices that no honest sender of this block sends; nothing of them is kept.
    pub fn on_slices(&mut self, index: u32, bytes: &[u8]) -> Result<Reception, Violation> {
        self.on_slices_within(index, bytes, &mut Hashing::default())
    }

    /// The same, with as much hashing as is left of what several blocks share.
    pub(super) fn on_slices_within(
        &mut self,
        index: u32,
        bytes: &[u8],
        hashing: &mut Hashing,
    ) -> Result<Reception, Violation> {
        let receiving = match &mut self.stage {
            Stage::Offered => return Err(Violation::NotAccepted),
            Stage::Receiving(receiving) => receiving,
            Stage::Whole(_) | Stage::Failed(..) => return Ok(Reception::Ignored),
        };
        self.shape.run(index, bytes.len())?;
        let mut reception = Reception::Ignored;
        for (index, slice) in (index..).zip(bytes.chunks(self.shape.slice_bytes.into())) {
            match receiving.store.put(index, slice, &mut self.lease) {
                Stored::New => reception = Reception::New,
                Stored::Duplicate => {}
                Stored::NoMemory => {
                    self.fail(Reason::NoMemory);
                    return Ok(reception);
                }
            }
        }
        if reception == Reception::New {
            self.verify(CHUNKS_PER_FRAME, hashing);
        }
        Ok(reception)
    }

    /// Goes on with hashing what has arrived, about a megabyte in each turn. To be called once a tick.
    pub fn work(&mut self) {
        self.work_within(&mut Hashing::default());
    }

    /// The same, with what is left of what several blocks share.
    pub(super) fn work_within(&mut self, hashing: &mut Hashing) {
        if self.has_work() {
            self.verify(u32::MAX, hashing);
        }
    }

    /// Whether [`BlockReceiver::work`] would hash something.
    #[must_use]
    pub fn has_work(&self) -> bool {
        matches!(&self.stage, Stage::Receiving(receiving) if receiving.store.has_work())
    }

    /// Whether there is a frame to write.
    #[must_use]
    pub fn wants_room(&self) -> bool {
        matches!(&self.stage, Stage::Receiving(receiving)
            if receiving.told_to < self.shape.slices() || !receiving.tell_again.is_empty())
    }

    /// Writes one `Accept`, or answers `None` if the sender was told everything or the room is too small.
    pub fn write(&mut self, room: &mut [u8]) -> Option<(usize, Part)> {
        let (id, slices) = (self.begin.id, self.shape.slices());
        let Stage::Receiving(receiving) = &mut self.stage else { return None };
        let again = receiving.tell_again.pop();
        let span = again.clone().unwrap_or(receiving.told_to..slices);
        let written = (!span.is_empty()).then(|| write_accept(id, &receiving.store, span.clone(), room)).flatten();
        let end = written.map_or(span.start, |(_, end)| end);
        if again.is_none() {
            receiving.told_to = end;
        } else if end < span.end {
            receiving.tell_again.push(end..span.end);
        }
        written.map(|(bytes, end)| (bytes, Part::Accept { block: id, first: span.start, end }))
    }

    /// An `Accept` was lost: what it said is said again.
    pub fn on_lost(&mut self, part: Part) {
        if let (Part::Accept { first, end, .. }, Stage::Receiving(receiving)) = (part, &mut self.stage) {
            receiving.tell_again.push(first..end);
        }
    }

    /// Whether all of it is here, and is what was announced.
    pub(super) const fn is_whole(&self) -> bool {
        matches!(self.stage, Stage::Whole(_))
    }

    /// Why it will not get whole, if so.
    pub(super) const fn failure(&self) -> Option<Reason> {
        match self.stage {
            Stage::Failed(reason, _) => Some(reason),
            _ => None,
        }
    }

    /// The content, once: when it is whole and its digest is right.
    pub fn take(&mut self) -> Option<Content> {
        if !self.is_whole() {
            return None;
        }
        let taken = core::mem::replace(&mut self.stage, Stage::Failed(Reason::Cancelled, None));
        let Stage::Whole(store) = taken else { return None };
        Some(Content::new(store))
    }

    /// What has arrived, to go on with it later; `None` if that is nothing.
    #[must_use]
    pub fn into_partial(self) -> Option<PartialBlock> {
        match self.stage {
            Stage::Receiving(Receiving { store, .. }) | Stage::Whole(store) | Stage::Failed(_, Some(store)) => {
                PartialBlock::new(self.begin.digest, store, &self.lease)
            }
            Stage::Offered | Stage::Failed(_, None) => None,
        }
    }

    fn verify(&mut self, chunks: u32, hashing: &mut Hashing) {
        let Stage::Receiving(receiving) = &mut self.stage else { return };
        match receiving.store.verify(self.begin.digest, chunks, hashing) {
            Verdict::Unfinished => {}
            Verdict::Right => self.become_whole(),
            // What arrived is not what was announced: it is of no use for any later transfer either.
            Verdict::Wrong => self.stage = Stage::Failed(Reason::WrongDigest, None),
        }
    }

    fn become_whole(&mut self) {
        let before = core::mem::replace(&mut self.stage, Stage::Offered);
        self.stage = match before {
            Stage::Receiving(receiving) => Stage::Whole(receiving.store),
            other => other,
        };
    }

    fn fail(&mut self, reason: Reason) {
        let before = core::mem::replace(&mut self.stage, Stage::Failed(reason, None));
        if let Stage::Receiving(receiving) = before {
            self.stage = Stage::Failed(reason, Some(receiving.store));
        }
    }
}

impl fmt::Debug for BlockReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockReceiver").field("begin", &self.begin).field("progress", &self.progress()).finish()
    }
}

/// Writes an `Accept` of as much of a span as there is room for; answers its bytes and the end of what it speaks of.
fn write_accept(id: BlockId, store: &Store, span: Range<u32>, room: &mut [u8]) -> Option<(usize, u32)> {
    let (header, rest) = room.split_at_mut_checked(ACCEPT_HEADER_BYTES)?;
    let (mut ranges, mut end) = (RangesWriter::new(rest), span.start);
    while let Some(range) = store.next_range(end, span.end) {
        if !ranges.push(range.start - span.start..range.end - span.start) {
            // What is missing before a range that has no room can be told all the same.
            end = range.start;
            break;
        }
        end = range.end;
        if end == span.end {
            break;
        }
    }
    let end = if store.next_range(end, span.end).is_none() { span.end } else { end };
    let mut writer = Writer::new(header);
    accept_header(&mut writer, id, span.start, end);
    (end > span.start).then(|| Some((writer.written()? + ranges.bytes(), end)))?
}
