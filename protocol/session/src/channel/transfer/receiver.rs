//! The receiver of one transfer: where its slices are stored, which spans are requested, and when it is complete.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use super::TransferReason;
use super::frame::{ACCEPT_HEADER_BYTES, SliceRangesWriter, TransferBegin, accept_header};
use super::store::{DigestCheck, HashBudget, MemoryLease, SliceRegion, SliceStore, SliceStored, TransferShape};
use super::{
    ContentDigest, Reception, SentTransferFrame, TransferId, TransferOffer, TransferProgress, TransferViolation,
};
use crate::reliability::MemoryBudget;
use slipgate_netcode::wire::cursor::Writer;

/// Chunks that are hashed for each frame of slices. After a gap closes, the hash catches up over several frames.
const CHUNKS_PER_FRAME: u32 = 1;

/// Receives a transfer.
///
/// ```text
///  Offered ──accept──▶ TransferInProgress ──all slices, digest right──▶ Whole
///                          │
///                          └──digest wrong, no memory──▶ Failed
/// ```
pub(super) struct TransferReceiver {
    begin: TransferBegin,
    shape: TransferShape,
    stage: ReceiveStage,
    lease: MemoryLease,
}

enum ReceiveStage {
    Offered,
    TransferInProgress(TransferInProgress),
    Whole(SliceStore),
    Failed(TransferReason, Option<SliceStore>),
}

/// The state of an accepted transfer.
struct TransferInProgress {
    store: SliceStore,
    /// Spans before this slice were requested by an `Accept`.
    accepted_to: u32,
    /// Spans before it of which the `Accept` was lost.
    lost_spans: LostSpans,
}

/// Spans to request again: a fixed number, so that a peer that acknowledges nothing takes no memory with them.
#[derive(Default)]
struct LostSpans([Range<u32>; 4]);

impl TransferReceiver {
    /// Creates the receiver of an announced transfer. Nothing is accepted yet, and no memory is taken.
    ///
    /// # Errors
    /// [`TransferViolation::TransferTooLong`] and [`TransferViolation::SliceBytes`] for an announcement out of bounds.
    pub(super) fn new(begin: TransferBegin, budget: Option<MemoryBudget>) -> Result<Self, TransferViolation> {
        // Announced sizes are checked before any memory is taken.
        let shape = TransferShape::check(begin.length, begin.slice_bytes)?;
        Ok(Self { begin, shape, stage: ReceiveStage::Offered, lease: MemoryLease::new(budget) })
    }

    /// Returns the transfer's number.
    pub(super) const fn id(&self) -> TransferId {
        self.begin.id
    }

    /// Returns the announcement.
    pub(super) const fn begin(&self) -> TransferBegin {
        self.begin
    }

    /// Returns the announcement for the application.
    pub(super) const fn offer(&self) -> TransferOffer {
        let TransferBegin { id, label, length, digest, .. } = self.begin;
        TransferOffer { id, label, length, digest }
    }

    /// Returns how much of it has arrived.
    pub(super) fn progress(&self) -> TransferProgress {
        match &self.stage {
            ReceiveStage::Offered | ReceiveStage::Failed(_, None) => {
                TransferProgress { bytes: 0, of: self.shape.length }
            }
            ReceiveStage::TransferInProgress(TransferInProgress { store, .. })
            | ReceiveStage::Whole(store)
            | ReceiveStage::Failed(_, Some(store)) => store.progress(),
        }
    }

    /// Returns whether it was not accepted yet.
    pub(super) const fn is_offered(&self) -> bool {
        matches!(self.stage, ReceiveStage::Offered)
    }

    /// Returns whether `partial` is a part of this transfer.
    pub(super) fn continues(&self, partial: &PartialTransfer) -> bool {
        partial.is_of(self.begin.digest, self.shape)
    }

    /// Accepts the transfer, and resumes it with what an earlier connection received. Returns a partial transfer that
    /// was not used: one of another transfer, or any if there is no memory. The transfer has failed with
    /// [`TransferReason::NoMemory`] then.
    pub(super) fn accept(&mut self, partial: Option<PartialTransfer>) -> Option<PartialTransfer> {
        if !self.is_offered() {
            return partial;
        }
        // Another content or slice size: its chunks do not match this transfer.
        let (partial, other) = match partial {
            Some(partial) if self.continues(&partial) => (Some(partial), None),
            other => (None, other),
        };
        let store = match partial {
            Some(partial) => partial.into_store(&mut self.lease).map_err(Some),
            None => SliceStore::new(self.shape, &mut self.lease).ok_or(None),
        };
        match store {
            Ok(store) => {
                self.stage = ReceiveStage::TransferInProgress(TransferInProgress {
                    store,
                    accepted_to: 0,
                    lost_spans: LostSpans::default(),
                });
                // An empty or complete transfer has nothing to wait for.
                self.verify(0, &mut HashBudget::default());
                other
            }
            Err(unused) => {
                self.stage = ReceiveStage::Failed(TransferReason::NoMemory, None);
                unused.or(other)
            }
        }
    }

    /// Handles consecutive slices, and hashes within a budget that several transfers share.
    ///
    /// # Errors
    ///
    /// A [`TransferViolation`] for slices that no conforming sender of this transfer sends. None of them is stored.
    pub(super) fn on_slices(
        &mut self,
        index: u32,
        bytes: &[u8],
        hash_budget: &mut HashBudget,
    ) -> Result<Reception, TransferViolation> {
        let receiving = match &mut self.stage {
            // A sender must wait for an `Accept`.
            ReceiveStage::Offered => return Err(TransferViolation::NotAccepted),
            ReceiveStage::TransferInProgress(receiving) => receiving,
            ReceiveStage::Whole(_) | ReceiveStage::Failed(..) => return Ok(Reception::Ignored),
        };
        // All slices of the frame are checked before the first is stored.
        self.shape.run(index, bytes.len())?;
        let mut reception = Reception::Ignored;
        for (index, slice) in (index..).zip(bytes.chunks(self.shape.slice_bytes.into())) {
            match receiving.store.put(index, slice, &mut self.lease) {
                SliceStored::New => reception = Reception::New,
                SliceStored::Duplicate => {}
                // The budget is shared: this transfer fails, and the peer may offer it again later.
                SliceStored::NoMemory => {
                    self.fail(TransferReason::NoMemory);
                    return Ok(reception);
                }
            }
        }
        // Duplicates cannot complete a chunk.
        if reception == Reception::New {
            self.verify(CHUNKS_PER_FRAME, hash_budget);
        }
        Ok(reception)
    }

    /// Hashes what has arrived, within a budget that several transfers share.
    pub(super) fn hash_arrived(&mut self, hash_budget: &mut HashBudget) {
        if self.has_unhashed() {
            self.verify(u32::MAX, hash_budget);
        }
    }

    /// Returns whether data waits to be hashed.
    pub(super) fn has_unhashed(&self) -> bool {
        matches!(&self.stage, ReceiveStage::TransferInProgress(receiving) if receiving.store.has_unhashed())
    }

    /// Returns whether there is a frame to write.
    pub(super) fn has_frames(&self) -> bool {
        matches!(&self.stage, ReceiveStage::TransferInProgress(receiving)
            if receiving.accepted_to < self.shape.slices() || !receiving.lost_spans.is_empty())
    }

    /// Writes one `Accept`. Returns `None` if all spans were requested or the buffer is too small.
    pub(super) fn write(&mut self, buf: &mut [u8]) -> Option<(usize, SentTransferFrame)> {
        let (id, slices) = (self.begin.id, self.shape.slices());
        let ReceiveStage::TransferInProgress(receiving) = &mut self.stage else { return None };
        let again = receiving.lost_spans.pop();
        let span = again.clone().unwrap_or(receiving.accepted_to..slices);
        let written = (!span.is_empty()).then(|| write_accept(id, &receiving.store, span.clone(), buf)).flatten();
        let end = written.map_or(span.start, |(_, end)| end);
        if again.is_none() {
            receiving.accepted_to = end;
        } else if end < span.end {
            receiving.lost_spans.push(end..span.end);
        }
        written.map(|(bytes, end)| (bytes, SentTransferFrame::Accept { transfer: id, first: span.start, end }))
    }

    /// Handles the loss of an `Accept`: its span is requested again.
    pub(super) fn on_lost(&mut self, sent: SentTransferFrame) {
        // Requests of a transfer that is complete or failed are not repeated.
        if let (SentTransferFrame::Accept { first, end, .. }, ReceiveStage::TransferInProgress(receiving)) =
            (sent, &mut self.stage)
        {
            receiving.lost_spans.push(first..end);
        }
    }

    /// Returns whether the content is complete and its digest right.
    pub(super) const fn is_whole(&self) -> bool {
        matches!(self.stage, ReceiveStage::Whole(_))
    }

    /// Returns why the transfer failed, if it did.
    pub(super) const fn failure(&self) -> Option<TransferReason> {
        match self.stage {
            ReceiveStage::Failed(reason, _) => Some(reason),
            _ => None,
        }
    }

    /// Returns the content, once, when it is complete and its digest right.
    pub(super) fn take(&mut self) -> Option<TransferContent> {
        if !self.is_whole() {
            return None;
        }
        // The stage left behind is never reported: the transfer is removed with its content.
        let taken = core::mem::replace(&mut self.stage, ReceiveStage::Failed(TransferReason::Cancelled, None));
        let ReceiveStage::Whole(store) = taken else { return None };
        Some(TransferContent::new(store))
    }

    /// Returns what has arrived, to resume it later. `None` if nothing has.
    pub(super) fn into_partial(self) -> Option<PartialTransfer> {
        match self.stage {
            ReceiveStage::TransferInProgress(TransferInProgress { store, .. })
            | ReceiveStage::Whole(store)
            | ReceiveStage::Failed(_, Some(store)) => PartialTransfer::new(self.begin.digest, store, &self.lease),
            ReceiveStage::Offered | ReceiveStage::Failed(_, None) => None,
        }
    }

    fn verify(&mut self, chunks: u32, hash_budget: &mut HashBudget) {
        let ReceiveStage::TransferInProgress(receiving) = &mut self.stage else { return };
        match receiving.store.verify(self.begin.digest, chunks, hash_budget) {
            DigestCheck::Unfinished => {}
            DigestCheck::Right => self.become_whole(),
            // The data is not what was announced: it is of no use for any later transfer either.
            DigestCheck::Wrong => self.stage = ReceiveStage::Failed(TransferReason::WrongDigest, None),
        }
    }

    fn become_whole(&mut self) {
        let before = core::mem::replace(&mut self.stage, ReceiveStage::Offered);
        self.stage = match before {
            ReceiveStage::TransferInProgress(receiving) => ReceiveStage::Whole(receiving.store),
            other => other,
        };
    }

    fn fail(&mut self, reason: TransferReason) {
        let before = core::mem::replace(&mut self.stage, ReceiveStage::Failed(reason, None));
        if let ReceiveStage::TransferInProgress(receiving) = before {
            self.stage = ReceiveStage::Failed(reason, Some(receiving.store));
        }
    }
}

impl LostSpans {
    /// Adds a span. If there is no place for it, one of the others becomes longer and covers it, too.
    fn push(&mut self, span: Range<u32>) {
        let hull = |other: &Range<u32>| match other.len() {
            0 => span.clone(),
            _ => other.start.min(span.start)..other.end.max(span.end),
        };
        // A place that is free grows by what must be requested in any case.
        let growth = |other: &Range<u32>| (hull(other).len() - other.len()).saturating_sub(span.len());
        if let Some(other) = self.0.iter_mut().min_by_key(|other| growth(other)) {
            *other = hull(other);
        }
    }

    /// Removes and returns a span.
    fn pop(&mut self) -> Option<Range<u32>> {
        self.0.iter_mut().find(|span| !Range::is_empty(span)).map(core::mem::take)
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(Range::is_empty)
    }
}

impl fmt::Debug for TransferReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransferReceiver").field("begin", &self.begin).field("progress", &self.progress()).finish()
    }
}

/// Writes an `Accept` of as much of a span as fits. Returns its bytes and the end of what it covers.
fn write_accept(id: TransferId, store: &SliceStore, span: Range<u32>, buf: &mut [u8]) -> Option<(usize, u32)> {
    let (header, rest) = buf.split_at_mut_checked(ACCEPT_HEADER_BYTES)?;
    let (mut ranges, mut end) = (SliceRangesWriter::new(rest), span.start);
    while let Some(range) = store.next_range(end, span.end) {
        // The rest of the span goes into the next `Accept`.
        if !ranges.push(range.start - span.start..range.end - span.start) {
            // The gap before a range that does not fit can be requested all the same.
            end = range.start;
            break;
        }
        end = range.end;
        if end == span.end {
            break;
        }
    }
    // No range is left in the span: the rest of it is one gap.
    let end = if store.next_range(end, span.end).is_none() { span.end } else { end };
    let mut writer = Writer::new(header);
    accept_header(&mut writer, id, span.start, end);
    (end > span.start).then(|| Some((writer.written()? + ranges.bytes(), end)))?
}

/// The content of a received transfer, verified by its digest. It is stored in chunks.
///
/// # Examples
/// ```
/// use slipgate_session::channel::transfer::TransferContent;
///
/// /// Writes the content to a file without copying it first.
/// fn save(content: &TransferContent, file: &mut impl std::io::Write) -> std::io::Result<()> {
///     content.chunks().try_for_each(|chunk| file.write_all(chunk))
/// }
/// ```
pub struct TransferContent {
    length: u32,
    regions: Vec<Option<Box<SliceRegion>>>,
}

impl TransferContent {
    pub(super) fn new(store: SliceStore) -> Self {
        Self { length: store.shape.length, regions: store.into_regions() }
    }

    /// Returns its length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length as usize
    }

    /// Returns whether the content is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the bytes in order, some kilobytes at a time, to process them without a copy.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.regions.iter().flatten().flat_map(|region| region.chunks.iter().flatten()).map(Box::as_ref)
    }

    /// Returns the bytes in one piece. They are copied, and each chunk is freed as soon as it was copied.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        // One allocation; at most one chunk is stored twice at a time.
        let mut whole = Vec::with_capacity(self.len());
        for mut region in self.regions.into_iter().flatten() {
            for chunk in &mut region.chunks {
                whole.extend_from_slice(&chunk.take().unwrap_or_default());
            }
        }
        whole
    }
}

impl fmt::Debug for TransferContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransferContent").field("bytes", &self.length).finish_non_exhaustive()
    }
}

/// An incomplete transfer. The application owns it and passes it to the next connection with
/// [`Transfers::keep`](super::Transfers::keep). Only the rest is sent then, if the peer offers the same content in
/// slices of the same size.
///
/// It takes the memory of what has arrived, which counts in no [`MemoryBudget`] while the application owns it.
///
/// # Examples
/// ```
/// use slipgate_session::channel::transfer::{PartialTransfer, Transfers};
///
/// /// Continues the transfers of a broken connection on the next one.
/// fn resume(partials: Vec<PartialTransfer>, transfers: &mut Transfers) {
///     for partial in partials {
///         println!("{} bytes have arrived", partial.progress().bytes);
///         let _ = transfers.keep(partial);
///     }
/// }
/// ```
pub struct PartialTransfer {
    digest: ContentDigest,
    store: Box<SliceStore>,
    /// Bytes of memory of the store.
    memory: usize,
}

impl PartialTransfer {
    /// Creates the partial transfer of a receiver. `None` if nothing has arrived.
    pub(super) fn new(digest: ContentDigest, store: SliceStore, lease: &MemoryLease) -> Option<Self> {
        (store.progress().bytes > 0).then(|| Self { digest, store: Box::new(store), memory: lease.bytes() })
    }

    /// Returns the digest of the complete content.
    #[must_use]
    pub const fn digest(&self) -> ContentDigest {
        self.digest
    }

    /// Returns how many bytes of memory it takes, with its tables.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.memory
    }

    /// Returns how much of it has arrived.
    #[must_use]
    pub fn progress(&self) -> TransferProgress {
        self.store.progress()
    }

    /// Returns whether this is a part of the announced transfer.
    pub(super) fn is_of(&self, digest: ContentDigest, shape: TransferShape) -> bool {
        self.digest == digest && self.store.shape == shape
    }

    /// Returns the store, with its memory taken from the budget of a connection. Returns the partial transfer itself if
    /// the budget has not enough.
    pub(super) fn into_store(self, lease: &mut MemoryLease) -> Result<SliceStore, Self> {
        if lease.take(self.memory) { Ok(*self.store) } else { Err(self) }
    }
}

impl fmt::Debug for PartialTransfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartialTransfer").field("digest", &self.digest).field("progress", &self.progress()).finish()
    }
}
