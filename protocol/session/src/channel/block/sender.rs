//! One block on its way out: what the peer is known to have, and what is to be sent next.

use core::fmt;
use core::ops::Range;

use super::bits::Slices;
use super::frame::{Begin, Frame, Ranges, Reason, SLICE_HEADER_BYTES};
use super::receiver::Reception;
use super::shape::Shape;
use super::{Block, BlockId, Event, Owed, Part, Progress, Violation};

/// Sends a block.
///
/// ```text
///  Offered ──Accept──▶ Sending ──Done──▶ Over
///     │                   │                ▲
///     ├──────cancel───────┴──▶ Withdrawn ──┤ acknowledged
///     └──────Refuse────────────────────────┘
/// ```
pub struct BlockSender {
    id: BlockId,
    label: u64,
    block: Block,
    shape: Shape,
    stage: Stage,
    /// Whether a `Begin` was written, so that the peer may know of this block.
    is_known: bool,
    /// Slices that the peer has not spoken of. They are not sent yet, for it may have them.
    untold: Slices,
    /// Slices that are to be sent: not yet sent, or lost.
    waiting: Slices,
    /// Slices that the peer is not known to have. Those that wait are among them.
    missing: Slices,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Offered(Owed),
    Sending,
    Withdrawn(Reason, Owed),
    Over(Option<End>),
}

/// An end that the application has not heard of yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Delivered,
    Refused(Reason),
}

impl BlockSender {
    /// Starts sending a block in slices of so many bytes.
    ///
    /// For a block of 64 MiB this takes 160 KiB, in slices of 160 bytes; nothing more is asked for later.
    #[must_use]
    pub fn begin(block: Block, id: BlockId, label: u64, slice_bytes: u16) -> Self {
        let shape = Shape { length: block.length, slice_bytes };
        let [untold, missing] = [(); 2].map(|()| Slices::full(shape.slices()));
        let (stage, waiting) = (Stage::Offered(Owed::Now), Slices::new(shape.slices()));
        Self { id, label, block, shape, stage, is_known: false, untold, waiting, missing }
    }

    /// The block's number.
    #[must_use]
    pub const fn id(&self) -> BlockId {
        self.id
    }

    /// How much of it the peer is known to have.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let slices = self.shape.slices();
        self.shape.progress(slices - self.missing.count(), !self.missing.contains(slices.wrapping_sub(1)))
    }

    /// Whether there is a frame to write.
    #[must_use]
    pub fn wants_room(&self) -> bool {
        self.owes_control() || self.has_slices()
    }

    /// Whether there is a slice to write.
    pub(super) fn has_slices(&self) -> bool {
        self.stage == Stage::Sending && self.waiting.count() > 0
    }

    fn owes_control(&self) -> bool {
        matches!(self.stage, Stage::Offered(Owed::Now) | Stage::Withdrawn(_, Owed::Now))
    }

    /// Whether nothing is left to do or to tell.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over(None)
    }

    /// Writes one frame; answers its bytes and what it was, or `None` if there is nothing to write or no room for it.
    pub fn write(&mut self, room: &mut [u8]) -> Option<(usize, Part)> {
        self.write_control(room).or_else(|| self.write_slices(room))
    }

    /// Writes a `Begin` or a `Withdraw`, if one is owed.
    pub(super) fn write_control(&mut self, room: &mut [u8]) -> Option<(usize, Part)> {
        match self.stage {
            Stage::Offered(Owed::Now) => {
                let bytes = Frame::Begin(self.announcement()).write(room)?;
                self.stage = Stage::Offered(Owed::Flying);
                self.is_known = true;
                Some((bytes, Part::Begin(self.id)))
            }
            Stage::Withdrawn(reason, Owed::Now) => {
                let bytes = Frame::Withdraw { id: self.id, reason }.write(room)?;
                self.stage = Stage::Withdrawn(reason, Owed::Flying);
                Some((bytes, Part::Withdraw(self.id)))
            }
            _ => None,
        }
    }

    /// Writes the first slice that waits, and those behind it that wait as well, as many as there is room for.
    pub(super) fn write_slices(&mut self, room: &mut [u8]) -> Option<(usize, Part)> {
        if !self.has_slices() {
            return None;
        }
        let (id, index) = (self.id, self.waiting.first()?);
        let most = room.len().saturating_sub(SLICE_HEADER_BYTES);
        let start = self.shape.slice(index)?.start;
        let fits = |slice: &Range<usize>| slice.end - start <= most;
        let waiting = (index..).take_while(|index| self.waiting.contains(*index));
        let run = waiting.map_while(|index| self.shape.slice(index)).take_while(fits);
        let (count, end) = run.fold((0, start), |(count, _), slice| (count + 1, slice.end));
        let slices = self.block.bytes.get(start..end)?;
        let bytes = if count > 0 { Frame::Slice { id, index, bytes: slices }.write(room)? } else { return None };
        for index in run_of(index, count) {
            self.waiting.remove(index);
        }
        Some((bytes, Part::Slices { block: id, first: index, count }))
    }

    /// A packet arrived that a frame of this block was in.
    pub fn on_acked(&mut self, part: Part) {
        match (part, &mut self.stage) {
            (Part::Begin(_), Stage::Offered(owed)) => *owed = Owed::Paid,
            (Part::Withdraw(_), Stage::Withdrawn(..)) => self.stage = Stage::Over(None),
            (Part::Slices { first, count, .. }, _) => {
                for index in run_of(first, count) {
                    self.waiting.remove(index);
                    self.missing.remove(index);
                }
            }
            _ => {}
        }
    }

    /// A packet is lost, or taken for lost, that a frame of this block was in: it will be written again.
    pub fn on_lost(&mut self, part: Part) {
        match (part, &mut self.stage) {
            (Part::Begin(_), Stage::Offered(owed)) | (Part::Withdraw(_), Stage::Withdrawn(_, owed)) => owed.lost(),
            (Part::Slices { first, count, .. }, _) => {
                for index in run_of(first, count).filter(|index| self.missing.contains(*index)) {
                    self.waiting.insert(index);
                }
            }
            _ => {}
        }
    }

    /// Takes an answer of the peer about this block; frames of the other direction are not looked at.
    ///
    /// # Errors
    ///
    /// [`Violation::Range`] for slices that the block does not have, [`Violation::NeverBegun`] for an answer to what was
    /// not offered.
    pub fn on_frame(&mut self, frame: &Frame<'_>) -> Result<Reception, Violation> {
        if !self.is_known {
            return Err(Violation::NeverBegun);
        }
        match *frame {
            Frame::Accept { first, end, have, .. } => return self.on_accept(first, end, have),
            Frame::Done { .. } => self.end(End::Delivered),
            Frame::Refuse { reason, .. } => self.end(End::Refused(reason)),
            _ => return Ok(Reception::Ignored),
        }
        Ok(Reception::New)
    }

    /// Gives the block up: the peer is told, if it may know of it.
    pub fn cancel(&mut self, reason: Reason) {
        self.stage = match self.stage {
            Stage::Over(_) => return,
            Stage::Withdrawn(..) => return,
            _ if self.is_known => Stage::Withdrawn(reason, Owed::Now),
            _ => Stage::Over(None),
        };
    }

    /// What the application has to hear of this block.
    pub fn poll_event(&mut self) -> Option<Event> {
        let Stage::Over(Some(end)) = self.stage else { return None };
        self.stage = Stage::Over(None);
        Some(match end {
            End::Delivered => Event::Delivered { id: self.id },
            End::Refused(reason) => Event::Refused { id: self.id, reason },
        })
    }

    const fn announcement(&self) -> Begin {
        let Shape { length, slice_bytes } = self.shape;
        Begin { id: self.id, slice_bytes, length, label: self.label, digest: self.block.digest }
    }

    /// The peer spoke of slices: those that it has not are sent, those that it has are not.
    ///
    /// What it said before costs nothing: an `Accept` is as long as the smallest frames are, and speaks of 64 MiB.
    fn on_accept(&mut self, first: u32, end: u32, have: Ranges<'_>) -> Result<Reception, Violation> {
        if end > self.shape.slices() {
            return Err(Violation::Range);
        }
        let mut is_new = matches!(self.stage, Stage::Offered(_));
        if is_new {
            self.stage = Stage::Sending;
        }
        let Self { untold, missing, waiting, .. } = self;
        is_new |= untold.take(first..end, |at, bits| _ = waiting.add(at, bits & missing.word(at)));
        for range in have.iter() {
            is_new |= missing.take(first + range.start..first + range.end, |at, bits| _ = waiting.clear(at, bits));
        }
        Ok(if is_new { Reception::New } else { Reception::Ignored })
    }

    /// The peer ended it. After a withdrawal that is the answer to it, and no news.
    fn end(&mut self, end: End) {
        self.stage = match self.stage {
            Stage::Offered(_) | Stage::Sending => Stage::Over(Some(end)),
            Stage::Withdrawn(..) => Stage::Over(None),
            Stage::Over(_) => return,
        };
    }
}

/// Consecutive slices.
fn run_of(first: u32, count: u16) -> Range<u32> {
    first..first + u32::from(count)
}

impl fmt::Debug for BlockSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockSender").field("id", &self.id).field("progress", &self.progress()).finish_non_exhaustive()
    }
}

/// Why a block was not taken to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum BeginError {
    /// So many wait already as the settings allow.
    Backlogged,
}

impl fmt::Display for BeginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Backlogged => "too many blocks wait to be sent",
        })
    }
}

impl core::error::Error for BeginError {}
