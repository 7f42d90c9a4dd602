//! The transfers of the peer: admission, partial transfers of earlier connections, and close frames.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::TransferReason;
use super::frame::{TransferBegin, TransferFrame};
use super::receiver::{PartialTransfer, TransferReceiver};
use super::store::{HashBudget, HashingGrant, MemoryLease};
use super::{
    Reception, SentTransferFrame, TransferAdmission, TransferConfig, TransferEvent, TransferId, TransferProgress,
    TransferSide, TransferViolation, WINDOW,
};
use crate::channel::steps;
use crate::reliability::MemoryBudget;
use crate::wire::reliable::{Sequence, SequenceBits};

/// All incoming transfers of a channel.
pub(super) struct IncomingTransfers {
    config: TransferConfig,
    budget: Option<MemoryBudget>,
    ids: IdWindow,
    #[expect(clippy::vec_box, reason = "the list may be long, and a record is freed when its transfer ends")]
    active: Vec<Box<ActiveTransfer>>,
    close_frames: CloseFrames,
    hash_budget: HashBudget,
    /// Partial transfers of earlier connections.
    partials: Vec<PartialTransfer>,
}

/// Bytes of an active transfer, with its place in the list, which has at most twice the places that are in use.
const ACTIVE_BYTES: usize = size_of::<ActiveTransfer>() + 2 * size_of::<Box<ActiveTransfer>>();

struct ActiveTransfer {
    /// The memory of this entry.
    _lease: MemoryLease,
    receiver: TransferReceiver,
    /// The offer was reported to the application.
    was_offered: bool,
    /// The peer withdrew it.
    withdrawn: Option<TransferReason>,
}

impl IncomingTransfers {
    pub(super) fn new(config: TransferConfig, budget: Option<MemoryBudget>) -> Self {
        let (ids, close_frames, hash_budget) = (IdWindow::default(), CloseFrames::default(), HashBudget::default());
        Self { config, budget, ids, active: Vec::new(), close_frames, hash_budget, partials: Vec::new() }
    }

    /// Limits hashing to the grant.
    pub(super) fn hash_within(&mut self, grant: HashingGrant) {
        self.hash_budget.within(grant);
    }

    /// Keeps a partial transfer for a later offer of the same content. Returns it if `max_at_once` are kept already.
    pub(super) fn keep(&mut self, partial: PartialTransfer) -> Result<(), PartialTransfer> {
        if self.partials.len() >= self.config.max_at_once.into() {
            return Err(partial);
        }
        self.partials.push(partial);
        Ok(())
    }

    pub(super) fn into_partials(self) -> impl Iterator<Item = PartialTransfer> {
        self.active.into_iter().filter_map(|active| active.receiver.into_partial()).chain(self.partials)
    }

    pub(super) fn progress(&self) -> impl Iterator<Item = (TransferId, TransferProgress)> {
        self.active.iter().map(|active| (active.receiver.id(), active.receiver.progress()))
    }

    pub(super) fn on_begin(&mut self, begin: TransferBegin) -> Result<Reception, TransferViolation> {
        // Checks the announcement first: a malformed one is a violation even for a known id.
        let receiver = TransferReceiver::new(begin, self.budget.clone())?;
        if let Some(active) = self.find(begin.id) {
            let same = active.receiver.begin() == begin;
            return if same { Ok(Reception::Ignored) } else { Err(TransferViolation::BeginDiffers) };
        }
        // A late copy of a `Begin` of a transfer that has ended.
        if !self.mark(begin.id) {
            return Ok(Reception::Ignored);
        }
        if self.config.admission == TransferAdmission::Never {
            self.refuse(begin.id, TransferReason::Declined);
        } else if begin.length > self.config.max_transfer_bytes {
            self.refuse(begin.id, TransferReason::TooLarge);
        // A conforming sender respects the same limit; this one may be configured differently.
        } else if self.active.len() >= self.config.max_at_once.into() {
            self.refuse(begin.id, TransferReason::Busy);
        } else {
            let mut lease = MemoryLease::new(self.budget.clone());
            if lease.take(ACTIVE_BYTES) {
                let active = ActiveTransfer { _lease: lease, receiver, was_offered: false, withdrawn: None };
                self.active.push(Box::new(active));
                self.admit();
            } else {
                self.refuse(begin.id, TransferReason::NoMemory);
            }
        }
        Ok(Reception::New)
    }

    pub(super) fn on_slices(
        &mut self,
        id: TransferId,
        index: u32,
        bytes: &[u8],
    ) -> Result<Reception, TransferViolation> {
        if let Some(active) = self.active.iter_mut().find(|active| active.receiver.id() == id) {
            // Slices that were in flight when the sender withdrew.
            if active.withdrawn.is_some() {
                return Ok(Reception::Ignored);
            }
            return active.receiver.on_slices(index, bytes, &mut self.hash_budget);
        }
        if self.ids.contains(id) { Ok(Reception::Ignored) } else { Err(TransferViolation::NotAccepted) }
    }

    pub(super) fn on_withdraw(&mut self, id: TransferId, reason: TransferReason) -> Reception {
        // A `Withdraw` may overtake its `Begin`: the id counts as started all the same.
        let is_new = self.mark(id);
        self.drop_close(id);
        // The end of a transfer that was never announced here, or has ended.
        let Some(active) = self.find(id) else {
            return if is_new { Reception::New } else { Reception::Ignored };
        };
        if active.withdrawn.is_some() {
            return Reception::Ignored;
        }
        active.withdrawn = Some(reason);
        // A withdrawn offer that was never reported to the application ends without an event.
        self.active.retain(|active| active.withdrawn.is_none() || active.was_offered || !active.receiver.is_offered());
        self.shrink_list();
        self.admit();
        Reception::New
    }

    /// Accepts an offer of which the application was asked. Returns whether there is one and it fits into the limits.
    pub(super) fn accept(&mut self, id: TransferId) -> bool {
        let Some(index) = self.active.iter().position(|active| active.receiver.id() == id) else { return false };
        self.fits_limits(index) && self.accept_at(index)
    }

    /// Ends a transfer that is offered or in progress. Returns what has arrived of it.
    pub(super) fn cancel(&mut self, id: TransferId) -> Option<PartialTransfer> {
        let index = self.active.iter().position(|active| active.receiver.id() == id)?;
        let ActiveTransfer { receiver, withdrawn, .. } = self.remove(index);
        // The sender does not wait for a reply after its own withdrawal.
        if withdrawn.is_none() {
            self.refuse(id, if receiver.is_offered() { TransferReason::Declined } else { TransferReason::Cancelled });
        }
        self.admit();
        receiver.into_partial()
    }

    pub(super) fn has_frames(&self) -> bool {
        self.close_frames.has_frames()
            || self.active.iter().any(|active| active.withdrawn.is_none() && active.receiver.has_frames())
    }

    pub(super) fn write(&mut self, buf: &mut [u8]) -> Option<(usize, SentTransferFrame)> {
        self.close_frames.write(self.ids.oldest(), buf).or_else(|| {
            let mut wanted = self.active.iter_mut().filter(|active| active.withdrawn.is_none());
            wanted.find_map(|active| active.receiver.write(buf))
        })
    }

    pub(super) fn on_acked(&mut self, sent: SentTransferFrame) {
        if let SentTransferFrame::Close(id) = sent {
            self.drop_close(id);
        }
    }

    pub(super) fn on_lost(&mut self, sent: SentTransferFrame) {
        match sent {
            SentTransferFrame::Close(id) if self.ids.is_within(id) => self.close_frames.on_lost(id),
            SentTransferFrame::Accept { transfer, .. } => {
                if let Some(active) = self.find(transfer) {
                    active.receiver.on_lost(sent);
                }
            }
            _ => {}
        }
    }

    /// Returns whether received data waits to be hashed.
    pub(super) fn has_unhashed(&self) -> bool {
        self.active.iter().any(|active| active.receiver.has_unhashed())
    }

    /// Returns the next event, after some hashing.
    pub(super) fn poll_event(&mut self) -> Option<TransferEvent> {
        let event = self.next_event();
        if event.is_none() {
            // All events are polled: the turn is over.
            self.hash_budget.begin_turn();
        }
        event
    }

    fn next_event(&mut self) -> Option<TransferEvent> {
        steps::count(self.active.len());
        self.hash_budget.share(&mut self.active, |active, hash_budget| active.receiver.hash_arrived(hash_budget));
        if let Some(index) = self.active.iter().position(|active| active.is_finished()) {
            let ended = self.remove(index);
            let event = self.finish(ended);
            self.admit();
            return Some(event);
        }
        // Offers are reported after the ends of transfers, which make room for them.
        let asks = self.config.admission == TransferAdmission::Ask;
        let offered =
            self.active.iter_mut().find(|active| asks && active.receiver.is_offered() && !active.was_offered)?;
        offered.was_offered = true;
        Some(TransferEvent::Offered(offered.receiver.offer()))
    }

    fn finish(&mut self, ended: ActiveTransfer) -> TransferEvent {
        let ActiveTransfer { mut receiver, withdrawn, .. } = ended;
        let (id, label) = (receiver.id(), receiver.begin().label);
        // A transfer that was withdrawn when it was complete is delivered all the same.
        if let Some(content) = receiver.take() {
            if withdrawn.is_none() {
                self.queue_close(id, None);
            }
            return TransferEvent::Received { id, label, content };
        }
        let failure = receiver.failure();
        let (by, reason) = match (withdrawn, failure) {
            (Some(reason), _) => (TransferSide::Peer, reason),
            (None, reason) => (TransferSide::Us, reason.unwrap_or(TransferReason::Cancelled)),
        };
        if by == TransferSide::Us {
            self.refuse(id, reason);
        }
        TransferEvent::Broken { id, label, by, reason, partial: receiver.into_partial() }
    }

    fn refuse(&mut self, id: TransferId, reason: TransferReason) {
        self.queue_close(id, Some(reason));
    }

    /// Queues a close frame. Ids outside of the window need none: the peer has acted on their end.
    fn queue_close(&mut self, id: TransferId, refused: Option<TransferReason>) {
        if self.ids.is_within(id) {
            self.close_frames.queue_close(id, refused);
        }
    }

    /// Drops a close frame that was acked or is not needed. Ids outside of the window have none.
    fn drop_close(&mut self, id: TransferId) {
        if self.ids.is_within(id) {
            self.close_frames.drop(id);
        }
    }

    /// Marks an id as started. Returns whether it is new.
    fn mark(&mut self, id: TransferId) -> bool {
        let passed = self.ids.mark(id);
        self.close_frames.advance(id, passed.unwrap_or(0));
        passed.is_some()
    }

    fn remove(&mut self, index: usize) -> ActiveTransfer {
        let active = self.active.remove(index);
        self.shrink_list();
        *active
    }

    /// Frees places of the list beyond those that the leases of its transfers pay.
    fn shrink_list(&mut self) {
        if self.active.capacity() > 2 * self.active.len() {
            self.active.shrink_to(2 * self.active.len());
        }
    }

    fn find(&mut self, id: TransferId) -> Option<&mut ActiveTransfer> {
        self.active.iter_mut().find(|active| active.receiver.id() == id).map(Box::as_mut)
    }

    /// Accepts offers that wait for room, oldest first, unless the application decides.
    fn admit(&mut self) {
        // The application decides in its own time.
        if self.config.admission == TransferAdmission::Ask {
            return;
        }
        for index in 0..self.active.len() {
            let waits = self.active.get(index).is_some_and(|active| active.receiver.is_offered());
            if waits && (!self.fits_limits(index) || !self.accept_at(index)) {
                return;
            }
        }
    }

    /// Returns whether the transfer at this index fits into the bytes that may be received at once.
    fn fits_limits(&self, index: usize) -> bool {
        let length = |receiver: &TransferReceiver| u64::from(receiver.begin().length);
        // Announced lengths count, not received bytes: otherwise all could grow beyond the limit together.
        let accepted = self.active.iter().map(|active| &active.receiver).filter(|receiver| !receiver.is_offered());
        let taken: u64 = accepted.map(length).sum();
        self.active.get(index).is_some_and(|active| taken + length(&active.receiver) <= self.config.max_bytes_at_once)
    }

    fn accept_at(&mut self, index: usize) -> bool {
        let Some(active) = self.active.get_mut(index).filter(|active| active.receiver.is_offered()) else {
            return false;
        };
        // Resumes a transfer of an earlier connection with the same content.
        let index = self.partials.iter().position(|partial| active.receiver.continues(partial));
        let unused = active.receiver.accept(index.map(|index| self.partials.swap_remove(index)));
        self.partials.extend(unused);
        true
    }
}

impl ActiveTransfer {
    fn is_finished(&self) -> bool {
        self.withdrawn.is_some() || self.receiver.is_whole() || self.receiver.failure().is_some()
    }
}

/// The close frames of the last 1,024 ids that were not acked: `Done`, or `Refuse` with its reason. They are found by
/// id, so that a thousand of them cost no more than one.
pub(super) struct CloseFrames {
    unacked: SequenceBits,
    /// The close frames that must be written.
    state: SequenceBits,
    /// The codes of why transfers were refused, by their ids modulo the window, or [`COMPLETE`]. Grows with the ids in
    /// use. Two in a byte: a client with transfers on all channels makes 62 of these lists grow.
    reasons: Vec<u8>,
}

/// The code of a transfer that is complete. No reason of this end has it: their codes are at most 5.
const COMPLETE: u8 = 0xf;

impl Default for CloseFrames {
    fn default() -> Self {
        Self { unacked: SequenceBits::new(WINDOW), state: SequenceBits::new(WINDOW), reasons: Vec::new() }
    }
}

impl CloseFrames {
    /// Queues the close frame of a transfer among the last 1,024.
    pub(super) fn queue_close(&mut self, id: TransferId, refused: Option<TransferReason>) {
        let (index, shift) = place_of_reason(id);
        // Allocated as far as ids were used: most channels refuse nothing.
        if self.reasons.len() <= index {
            self.reasons.reserve_exact((index + 1).next_power_of_two() - self.reasons.len());
            self.reasons.resize(index + 1, COMPLETE << 4 | COMPLETE);
        }
        if let Some(two) = self.reasons.get_mut(index) {
            *two = (*two & !(COMPLETE << shift)) | refused.map_or(COMPLETE, TransferReason::code) << shift;
        }
        self.unacked.set(id.sequence());
        self.state.set(id.sequence());
    }

    /// Removes the close frame of a transfer.
    pub(super) fn drop(&mut self, id: TransferId) {
        self.unacked.take(id.sequence());
        self.state.take(id.sequence());
    }

    /// Advances the window by `count` ids, up to `last`. The peer has acted on the close frames of the ids that leave
    /// it, or it would not have started `last`.
    pub(super) fn advance(&mut self, last: TransferId, count: u16) {
        // The sender has started later ids, so it has seen the replies to these.
        clear(&mut self.unacked, last, count);
        clear(&mut self.state, last, count);
    }

    pub(super) fn on_lost(&mut self, id: TransferId) {
        if self.unacked.get(id.sequence()) {
            self.state.set(id.sequence());
        }
    }

    pub(super) fn has_frames(&self) -> bool {
        !self.state.is_empty()
    }

    /// Writes the close frame of the oldest transfer, counted from the window's start.
    pub(super) fn write(&mut self, oldest: TransferId, buf: &mut [u8]) -> Option<(usize, SentTransferFrame)> {
        let id = TransferId(self.state.first_set(oldest.sequence())?.0);
        steps::count(usize::from(id.0.wrapping_sub(oldest.0)) / u64::BITS as usize + 1);
        let (index, shift) = place_of_reason(id);
        let frame = match self.reasons.get(index).map_or(COMPLETE, |two| two >> shift & COMPLETE) {
            COMPLETE => TransferFrame::Done { id },
            code => TransferFrame::Refuse { id, reason: TransferReason::of(code) },
        };
        let bytes = frame.write(buf)?;
        self.state.take(id.sequence());
        Some((bytes, SentTransferFrame::Close(id)))
    }
}

/// Returns the index of the byte with the code of a transfer, and by how many bits it is shifted there.
fn place_of_reason(id: TransferId) -> (usize, u8) {
    let index = usize::from(id.0 % WINDOW);
    (index / 2, (index % 2 * 4) as u8)
}

/// The window of the ids that were started: a late copy of a `Begin` starts no transfer again (§4.1).
pub(super) struct IdWindow {
    /// One past the newest id.
    next: u16,
    marked: SequenceBits,
}

impl Default for IdWindow {
    fn default() -> Self {
        Self { next: 0, marked: SequenceBits::new(WINDOW) }
    }
}

impl IdWindow {
    /// Returns whether an id has left the window.
    const fn is_expired(&self, id: TransferId) -> bool {
        // Half of all ids count as past, the other half as future.
        let behind = self.behind(id);
        behind > WINDOW && behind <= 1 << 15
    }

    /// Returns whether an id is one of the last 1,024.
    pub(super) const fn is_within(&self, id: TransferId) -> bool {
        let behind = self.behind(id);
        behind > 0 && behind <= WINDOW
    }

    /// Returns the first id of the window.
    pub(super) const fn oldest(&self) -> TransferId {
        TransferId(self.next.wrapping_sub(WINDOW))
    }

    /// Returns whether a transfer with this id was started, or is too old to be started.
    pub(super) fn contains(&self, id: TransferId) -> bool {
        self.is_expired(id) || (self.is_within(id) && self.marked.get(id.sequence()))
    }

    /// Marks an id. Returns by how many ids the window advanced for it, or `None` if it is not new.
    pub(super) fn mark(&mut self, id: TransferId) -> Option<u16> {
        if self.contains(id) {
            return None;
        }
        let mut passed = 0;
        // A newer id: the window advances, and the oldest ids leave it.
        if !self.is_within(id) {
            passed = id.0.wrapping_sub(self.next).min(WINDOW - 1) + 1;
            clear(&mut self.marked, id, passed);
            self.next = id.0.wrapping_add(1);
        }
        self.marked.set(id.sequence());
        Some(passed)
    }

    const fn behind(&self, id: TransferId) -> u16 {
        self.next.wrapping_sub(id.0)
    }
}

/// Clears the bits of the `count` ids up to `last`, at most 1,024.
fn clear(bits: &mut SequenceBits, last: TransferId, count: u16) {
    steps::count(usize::from(count) / u64::BITS as usize + 1);
    bits.clear(last.sequence() - count + 1, count);
}

impl TransferId {
    /// Returns the id as the index of a bit: ids wrap as sequence numbers do.
    const fn sequence(self) -> Sequence {
        Sequence(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_is_new_once_in_any_order_across_the_wrap() {
        let mut ids = IdWindow::default();
        for round in 0..200u32 {
            let base = (round * 700) as u16;
            for step in [3, 0, 699, 2, 350, 1] {
                let id = TransferId(base.wrapping_add(step));
                assert!(ids.mark(id).is_some(), "{id} in round {round}");
                assert!(ids.mark(id).is_none(), "{id} in round {round}");
            }
        }
    }

    #[test]
    fn id_outside_of_the_window_counts_as_started() {
        let mut ids = IdWindow::default();
        assert_eq!(ids.mark(TransferId(2000)), Some(WINDOW));
        assert_eq!(ids.oldest(), TransferId(977));
        assert!(!ids.contains(TransferId(977)), "the last of the window");
        assert!(ids.contains(TransferId(976)));
        assert!(!ids.contains(TransferId(2001)));
    }
}
