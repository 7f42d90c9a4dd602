//! The sender of one transfer: which slices the peer has, and which are sent next.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use super::TransferReason;
use super::frame::{SLICE_HEADER_BYTES, SliceRanges, TransferBegin, TransferFrame};
use super::store::{SliceState, TransferShape};
use super::{
    ControlState, Reception, SentTransferFrame, Transfer, TransferEvent, TransferId, TransferProgress,
    TransferViolation,
};
use crate::channel::steps;
use slipgate_netcode::slab::MustExist;

/// Sends a transfer.
///
/// ```text
///  Offered ──Accept──▶ Sending ──Done──▶ Over
///     │                   │                ▲
///     ├──────cancel───────┴──▶ Withdrawn ──┤ acknowledged
///     └──────Refuse────────────────────────┘
/// ```
pub(super) struct TransferSender {
    id: TransferId,
    label: u64,
    transfer: Transfer,
    shape: TransferShape,
    stage: SendStage,
    /// Whether a `Begin` was written, so that the peer may know of this transfer.
    is_known: bool,
    /// Slices that no `Accept` has covered. They are not sent yet, because the peer may have them.
    unannounced: SliceSet,
    /// Slices to be sent: not sent yet, or lost.
    waiting: SliceSet,
    /// Slices that the peer is not known to have, those in `waiting` included.
    missing: SliceSet,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SendStage {
    Offered(ControlState),
    Sending,
    Withdrawn(TransferReason, ControlState),
    Over(Option<SendEnd>),
}

/// The outcome of a transfer that was not reported to the application yet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SendEnd {
    Delivered,
    Refused(TransferReason),
}

impl TransferSender {
    /// Starts sending a transfer in slices of this many bytes.
    ///
    /// This allocates 160 KiB for 64 MiB in slices of 160 bytes. Nothing is allocated later.
    pub(super) fn begin(transfer: Transfer, id: TransferId, label: u64, slice_bytes: u16) -> Self {
        let shape = TransferShape { length: transfer.length, slice_bytes };
        let [unannounced, missing] = [(); 2].map(|()| SliceSet::full(shape.slices()));
        // Nothing is sent before the receiver has said which slices it lacks.
        let (stage, waiting) = (SendStage::Offered(ControlState::Queued), SliceSet::new(shape.slices()));
        Self { id, label, transfer, shape, stage, is_known: false, unannounced, waiting, missing }
    }

    /// Returns the transfer's number.
    pub(super) const fn id(&self) -> TransferId {
        self.id
    }

    /// Returns how much of it the peer is known to have.
    pub(super) fn progress(&self) -> TransferProgress {
        // The last slice may be shorter, so it is counted separately.
        let slices = self.shape.slices();
        let is_last_missing = self.missing.contains(slices.wrapping_sub(1));
        let last = if is_last_missing { SliceState::Missing } else { SliceState::Arrived };
        self.shape.progress(slices - self.missing.count(), last)
    }

    /// Returns whether there is a frame to write.
    pub(super) fn has_frames(&self) -> bool {
        self.has_control() || self.has_slices()
    }

    /// Returns whether there is a slice to write.
    pub(super) fn has_slices(&self) -> bool {
        self.stage == SendStage::Sending && self.waiting.count() > 0
    }

    fn has_control(&self) -> bool {
        matches!(self.stage, SendStage::Offered(ControlState::Queued) | SendStage::Withdrawn(_, ControlState::Queued))
    }

    /// Returns whether the transfer has ended and its outcome was reported.
    pub(super) fn is_over(&self) -> bool {
        self.stage == SendStage::Over(None)
    }

    /// Writes a `Begin` or a `Withdraw`, if one is queued.
    pub(super) fn write_control(&mut self, buf: &mut [u8]) -> Option<(usize, SentTransferFrame)> {
        match self.stage {
            SendStage::Offered(ControlState::Queued) => {
                let bytes = TransferFrame::Begin(self.announcement()).write(buf)?;
                self.stage = SendStage::Offered(ControlState::InFlight);
                // A cancellation must be announced by a `Withdraw` from here on.
                self.is_known = true;
                Some((bytes, SentTransferFrame::Begin(self.id)))
            }
            SendStage::Withdrawn(reason, ControlState::Queued) => {
                let bytes = TransferFrame::Withdraw { id: self.id, reason }.write(buf)?;
                self.stage = SendStage::Withdrawn(reason, ControlState::InFlight);
                Some((bytes, SentTransferFrame::Withdraw(self.id)))
            }
            _ => None,
        }
    }

    /// Writes the first slice that waits, and those directly behind it that wait as well, as many as fit.
    pub(super) fn write_slices(&mut self, buf: &mut [u8]) -> Option<(usize, SentTransferFrame)> {
        if !self.has_slices() {
            return None;
        }
        let (id, index) = (self.id, self.waiting.first()?);
        let most = buf.len().saturating_sub(SLICE_HEADER_BYTES);
        // The slices of a frame are contiguous in the content.
        let start = self.shape.slice(index)?.start;
        let fits = |slice: &Range<usize>| slice.end - start <= most;
        // Consecutive slices share one header of 7 bytes.
        let waiting = (index..).take_while(|index| self.waiting.contains(*index));
        let run = waiting.map_while(|index| self.shape.slice(index)).take_while(fits);
        let (count, end) = run.fold((0, start), |(count, _), slice| (count + 1, slice.end));
        let slices = self.transfer.bytes.get(start..end)?;
        let bytes =
            if count > 0 { TransferFrame::Slice { id, index, bytes: slices }.write(buf)? } else { return None };
        for index in run_of(index, count) {
            self.waiting.remove(index);
        }
        Some((bytes, SentTransferFrame::Slices { transfer: id, first: index, count }))
    }

    /// Handles the acknowledgement of a packet with a frame of this transfer.
    pub(super) fn on_acked(&mut self, sent: SentTransferFrame) {
        match (sent, &mut self.stage) {
            (SentTransferFrame::Begin(_), SendStage::Offered(state)) => *state = ControlState::Acked,
            // The peer has released the id: nothing is left to do.
            (SentTransferFrame::Withdraw(_), SendStage::Withdrawn(..)) => self.stage = SendStage::Over(None),
            (SentTransferFrame::Slices { first, count, .. }, _) => {
                for index in run_of(first, count) {
                    self.waiting.remove(index);
                    self.missing.remove(index);
                }
            }
            _ => {}
        }
    }

    /// Handles the loss of a packet with a frame of this transfer: the frame is queued again.
    pub(super) fn on_lost(&mut self, sent: SentTransferFrame) {
        match (sent, &mut self.stage) {
            (SentTransferFrame::Begin(_), SendStage::Offered(state))
            | (SentTransferFrame::Withdraw(_), SendStage::Withdrawn(_, state)) => state.on_lost(),
            (SentTransferFrame::Slices { first, count, .. }, _) => {
                // A copy may have been acked in another packet.
                for index in run_of(first, count).filter(|index| self.missing.contains(*index)) {
                    self.waiting.insert(index);
                }
            }
            _ => {}
        }
    }

    /// Handles a reply of the peer about this transfer, and ignores frames of the other direction.
    ///
    /// # Errors
    /// - [`TransferViolation::Range`] for slices that the transfer does not have.
    /// - [`TransferViolation::NeverStarted`] for a reply to a transfer that was not offered.
    pub(super) fn on_frame(&mut self, frame: &TransferFrame<'_>) -> Result<Reception, TransferViolation> {
        // A peer cannot reply to a transfer that it has not seen.
        if !self.is_known {
            return Err(TransferViolation::NeverStarted);
        }
        match *frame {
            TransferFrame::Accept { first, end, have, .. } => return self.on_accept(first, end, have),
            TransferFrame::Done { .. } => self.end(SendEnd::Delivered),
            TransferFrame::Refuse { reason, .. } => self.end(SendEnd::Refused(reason)),
            _ => return Ok(Reception::Ignored),
        }
        Ok(Reception::New)
    }

    /// Aborts the transfer. A `Withdraw` is queued if the peer may know of the transfer.
    pub(super) fn cancel(&mut self, reason: TransferReason) {
        self.stage = match self.stage {
            SendStage::Over(_) => return,
            SendStage::Withdrawn(..) => return,
            // The peer may hold state for it, which a `Withdraw` frees.
            _ if self.is_known => SendStage::Withdrawn(reason, ControlState::Queued),
            _ => SendStage::Over(None),
        };
    }

    /// Returns the transfer's outcome, once.
    pub(super) fn poll_event(&mut self) -> Option<TransferEvent> {
        // A cancelled transfer has no outcome to report.
        let SendStage::Over(Some(end)) = self.stage else { return None };
        self.stage = SendStage::Over(None);
        Some(match end {
            SendEnd::Delivered => TransferEvent::Delivered { id: self.id },
            SendEnd::Refused(reason) => TransferEvent::Refused { id: self.id, reason },
        })
    }

    const fn announcement(&self) -> TransferBegin {
        let TransferShape { length, slice_bytes } = self.shape;
        TransferBegin { id: self.id, slice_bytes, length, label: self.label, digest: self.transfer.digest }
    }

    /// Handles an `Accept`: queues the slices of its span that the peer lacks, and drops those that it has.
    ///
    /// Repeated information costs nothing. That matters because an `Accept` is one of the smallest frames and may cover
    /// 64 MiB.
    fn on_accept(&mut self, first: u32, end: u32, have: SliceRanges<'_>) -> Result<Reception, TransferViolation> {
        // Checked before the sets are touched, which are sized for the transfer.
        if end > self.shape.slices() {
            return Err(TransferViolation::Range);
        }
        let mut is_new = matches!(self.stage, SendStage::Offered(_));
        if is_new {
            self.stage = SendStage::Sending;
        }
        let Self { unannounced, missing, waiting, .. } = self;
        // Slices of the span are wanted unless an acknowledgement proved that they arrived.
        is_new |= unannounced
            .take(first..end, |word_index, bits| _ = waiting.add(word_index, bits & missing.word(word_index)));
        for range in have.iter() {
            // The receiver already has these, from an earlier connection.
            is_new |= missing
                .take(first + range.start..first + range.end, |word_index, bits| _ = waiting.clear(word_index, bits));
        }
        Ok(if is_new { Reception::New } else { Reception::Ignored })
    }

    /// Ends the transfer by a reply of the peer. After a withdrawal it is not reported.
    fn end(&mut self, end: SendEnd) {
        self.stage = match self.stage {
            SendStage::Offered(_) | SendStage::Sending => SendStage::Over(Some(end)),
            SendStage::Withdrawn(..) => SendStage::Over(None),
            SendStage::Over(_) => return,
        };
    }
}

/// Returns the numbers of consecutive slices.
fn run_of(first: u32, count: u16) -> Range<u32> {
    first..first + u32::from(count)
}

impl fmt::Debug for TransferSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransferSender")
            .field("id", &self.id)
            .field("progress", &self.progress())
            .finish_non_exhaustive()
    }
}

/// Slices in one word of a set.
const WORD: u32 = u64::BITS;

/// A set of slice numbers below a bound, with two levels of summary. 64 MiB in slices of 160 bytes take 52 KiB.
#[derive(Default)]
pub(super) struct SliceSet {
    words: Vec<u64>,
    /// A bit for each word that is not zero: 4,096 slices in each summary word.
    summary: Vec<u64>,
    /// A bit for each summary word that is not zero: 262,144 slices in each.
    top: Vec<u64>,
    count: u32,
}

impl SliceSet {
    /// Creates the empty set of numbers below `bound`.
    pub(super) fn new(bound: u32) -> Self {
        let words = bound.div_ceil(WORD);
        let summary = words.div_ceil(WORD);
        let [words, summary, top] = [words, summary, summary.div_ceil(WORD)].map(|length| vec![0; length as usize]);
        Self { words, summary, top, count: 0 }
    }

    /// Creates the set of all numbers below `bound`.
    pub(super) fn full(bound: u32) -> Self {
        let mut all = Self::new(bound);
        (0..bound.div_ceil(WORD)).for_each(|word_index| _ = all.add(word_index, mask(word_index, &(0..bound))));
        all
    }

    /// Returns how many numbers are in the set.
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn contains(&self, index: u32) -> bool {
        self.word(index / WORD) & bit(index) != 0
    }

    /// Adds a number. Returns whether it is new.
    pub(super) fn insert(&mut self, index: u32) -> bool {
        self.add(index / WORD, bit(index))
    }

    /// Removes a number. Returns whether it was in the set.
    pub(super) fn remove(&mut self, index: u32) -> bool {
        self.clear(index / WORD, bit(index))
    }

    /// Returns the smallest number.
    pub(super) fn first(&self) -> Option<u32> {
        self.next(0)
    }

    /// Removes the numbers of a range and passes them to `taken` word by word. Returns whether there were any. Takes
    /// one step for each word with a number, and one more: absent numbers cost nothing.
    pub(super) fn take(&mut self, range: Range<u32>, mut taken: impl FnMut(u32, u64)) -> bool {
        let before = self.count;
        let mut from = range.start;
        while let Some(next) = self.next(from).filter(|next| *next < range.end) {
            let word_index = next / WORD;
            let bits = self.word(word_index) & mask(word_index, &range);
            self.clear(word_index, bits);
            taken(word_index, bits);
            from = (word_index + 1) * WORD;
        }
        self.count < before
    }

    /// Returns the 64 bits of a word.
    pub(super) fn word(&self, word_index: u32) -> u64 {
        self.words.get(word_index as usize).copied().unwrap_or(0)
    }

    /// Adds the numbers of a word. Returns whether any is new.
    pub(super) fn add(&mut self, word_index: u32, bits: u64) -> bool {
        // A word beyond the bound has no numbers to add. The empty set of a default has no words at all.
        let Some(word) = self.words.get_mut(word_index as usize) else { return false };
        // Counted by word, so that `count` needs no search.
        let new = bits & !*word;
        *word |= new;
        self.count += new.count_ones();
        // The summaries only change when a word becomes non-zero.
        if new != 0 {
            mark(&mut self.summary, word_index);
            mark(&mut self.top, word_index / WORD);
        }
        new != 0
    }

    /// Removes the numbers of a word. Returns whether any was in the set.
    pub(super) fn clear(&mut self, word_index: u32, bits: u64) -> bool {
        // A word beyond the bound, as in `add`.
        let Some(word) = self.words.get_mut(word_index as usize) else { return false };
        let gone = bits & *word;
        *word &= !gone;
        self.count -= gone.count_ones();
        if gone != 0 && *word == 0 && unmark(&mut self.summary, word_index) {
            unmark(&mut self.top, word_index / WORD);
        }
        gone != 0
    }

    /// Returns the smallest number from `from` on.
    fn next(&self, from: u32) -> Option<u32> {
        next(&[&self.words, &self.summary, &self.top], from)
    }
}

/// Returns the first bit from `from` on in the lowest level. Each level above marks the words of the one below that are
/// not zero. The words of the top level are searched one by one: 64 MiB have two of them.
fn next(levels: &[&[u64]], from: u32) -> Option<u32> {
    let (words, above) = levels.split_first()?;
    steps::count(1);
    let word_index = from / WORD;
    // The bits from `from` on in its own word.
    let here = words.get(word_index as usize)? & u64::MAX << (from % WORD);
    if here != 0 {
        return Some(word_index * WORD + here.trailing_zeros());
    }
    // The rest of the word is empty: ask the level above for the next word.
    let later = match above {
        [] => (word_index + 1..).zip(words.get(word_index as usize + 1..)?).find(|(_, word)| **word != 0)?.0,
        above => next(above, word_index + 1)?,
    };
    Some(later * WORD + words.get(later as usize)?.trailing_zeros())
}

fn mark(words: &mut [u64], index: u32) {
    // A summary has a bit for each word of the level below it, so the word exists.
    if let Some(word) = words.get_mut((index / WORD) as usize).must_exist("a word of a summary") {
        *word |= bit(index);
    }
}

/// Clears a bit. Returns whether the word is zero now.
fn unmark(words: &mut [u64], index: u32) -> bool {
    let Some(word) = words.get_mut((index / WORD) as usize).must_exist("a word of a summary") else { return false };
    *word &= !bit(index);
    *word == 0
}

const fn bit(index: u32) -> u64 {
    1 << (index % WORD)
}

/// Returns the bits of a word that belong to a range that touches it.
fn mask(word_index: u32, range: &Range<u32>) -> u64 {
    let (from, to) = (
        range.start.max(word_index * WORD) - word_index * WORD,
        range.end.min(word_index * WORD + WORD) - word_index * WORD,
    );
    u64::MAX << from & u64::MAX >> (WORD - to)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(operations in prop::collection::vec((0u32..9000, any::<bool>(), 1u32..300), 0..200)) {
            let (mut slices, mut model) = (SliceSet::new(9300), BTreeSet::new());
            for (index, add, length) in operations {
                if length < 200 {
                    let news = if add { slices.insert(index) } else { slices.remove(index) };
                    prop_assert_eq!(news, if add { model.insert(index) } else { model.remove(&index) });
                } else {
                    let mut announced = BTreeSet::new();
                    if add {
                        (index..index + length).for_each(|index| _ = slices.insert(index));
                    } else {
                        let any = slices.take(index..index + length, |word_index, bits| {
                            let numbers = (0..64).filter(|index| bits >> index & 1 != 0);
                            announced.extend(numbers.map(|index| word_index * 64 + index));
                        });
                        prop_assert_eq!(any, !announced.is_empty());
                        prop_assert_eq!(announced, model.range(index..index + length).copied().collect());
                    }
                    (index..index + length).for_each(|i| { if add { model.insert(i); } else { model.remove(&i); } });
                }
                prop_assert_eq!(slices.first(), model.first().copied());
                prop_assert_eq!(slices.count() as usize, model.len());
                prop_assert_eq!(slices.contains(index), model.contains(&index));
            }
        }
    }

    #[test]
    fn the_full_set_has_every_number_and_is_emptied_once() {
        for bound in [0, 1, 63, 64, 65, 4096, 300_000] {
            let mut slices = SliceSet::full(bound);
            assert_eq!((slices.count(), slices.first()), (bound, (bound > 0).then_some(0)));
            assert!(!slices.contains(bound));
            let mut taken = 0;
            assert_eq!(slices.take(0..bound, |_, bits| taken += bits.count_ones()), bound > 0);
            assert_eq!((taken, slices.count(), slices.first()), (bound, 0, None));
            assert!(!slices.take(0..bound, |_, _| panic!("nothing is left")));
        }
    }

    #[test]
    fn distant_slice_is_found_in_few_steps_and_absent_cost_none() {
        let mut slices = SliceSet::new(524_288);
        slices.insert(524_287);
        assert!(steps::of(|| assert_eq!(slices.first(), Some(524_287))) <= 3);
        assert!(steps::of(|| assert!(!slices.take(0..524_287, |_, _| panic!("there is none")))) <= 3);
    }
}
