//! Delivery receipts: the delivery status of each message that requested one.
//! Each receipt reports once. Nothing is kept for messages without a receipt, and a message in flight only keeps its
//! receipt's id.

use alloc::collections::VecDeque;
use core::num::NonZeroU16;

use crate::channel::config::ChannelId;
use crate::channel::events::{ChannelEvent, DeliveryStatus};
use crate::channel::slab::{EntrySlab, entry_index};

/// The maximum number of receipts of a connection that are open or not polled: half the number of frames in flight that
/// are remembered. A further message that requests one is refused as
/// [`Backlogged`](crate::connection::SendError::Backlogged).
pub const MAX_RECEIPTS: u16 = 4096;
/// The maximum number of lost messages that wait for a late acknowledgement. Further ones never report
/// [`DeliveryStatus::ArrivedLate`], which bounds the memory on a path that loses everything.
const MAX_LATE_RECEIPTS: u16 = 256;

/// The receipt that a message requests.
#[derive(Clone, Copy)]
pub(crate) struct ReceiptRequest {
    pub(crate) channel: ChannelId,
    pub(crate) tag: u64,
}

entry_index! {
    /// The place of a receipt among those of its connection.
    ReceiptIndex
}

/// An open receipt, owned by the queue that has the message. [`Receipts::finish`] or [`Receipts::on_all_sent`] ends the
/// ownership.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReceiptId(NonZeroU16);

/// The part of a message in one packet: identifies the receipt when the packet is acked or lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReceiptPart {
    index: ReceiptIndex,
    /// Slots are used again: the part belongs to the receipt in the slot only if both have this number.
    number: u32,
}

struct PendingReceipt {
    request: ReceiptRequest,
    number: u32,
    /// Packets with a part of the message that were not acked, lost ones included.
    packets: u16,
    /// No part of the message is left to be sent.
    all_sent: bool,
    /// A part was lost, and that was reported.
    lost: bool,
    /// A lost packet of it was forgotten, so that it cannot be known to be complete any more.
    forgotten: bool,
}

/// All receipts of a connection.
pub(crate) struct Receipts {
    slots: EntrySlab<ReceiptIndex, PendingReceipt>,
    /// Receipts without a report.
    open: usize,
    /// Receipts in the slots that were reported as lost and may be acked late.
    late: u16,
    /// The number of the next receipt, wrapping.
    next_number: u32,
    ready: VecDeque<(ReceiptRequest, DeliveryStatus)>,
    /// How many of `ready` are second reports. They do not count against the maximum, and there is at most one for each
    /// receipt that does.
    ready_late: usize,
}

impl Receipts {
    pub(crate) const fn new() -> Self {
        Self { slots: EntrySlab::new(), open: 0, late: 0, next_number: 0, ready: VecDeque::new(), ready_late: 0 }
    }

    /// Returns how many more receipts may be opened.
    pub(crate) fn remaining(&self) -> u16 {
        MAX_RECEIPTS.saturating_sub((self.open + self.ready.len() - self.ready_late) as u16)
    }

    /// Opens a receipt.
    pub(crate) fn open(&mut self, request: ReceiptRequest) -> Option<ReceiptId> {
        let pending = PendingReceipt {
            request,
            number: self.next_number,
            packets: 0,
            all_sent: false,
            lost: false,
            forgotten: false,
        };
        self.next_number = self.next_number.wrapping_add(1);
        self.open += 1;
        // Ids start at 1, so that an optional id takes no more memory than an id.
        NonZeroU16::new(self.slots.insert(pending).0 + 1).map(ReceiptId)
    }

    /// Notes that a packet carries a part of the message. Only for messages that are sent once.
    pub(crate) fn add_part(&mut self, id: ReceiptId) -> Option<ReceiptPart> {
        let index = id.index();
        let pending = self.slots.get_mut(index)?;
        pending.packets += 1;
        Some(ReceiptPart { index, number: pending.number })
    }

    /// Notes that all of the message was sent: its delivery status now depends on the packets that carry it.
    pub(crate) fn on_all_sent(&mut self, id: Option<ReceiptId>) {
        let Some(index) = id.map(ReceiptId::index) else { return };
        let Some(pending) = self.slots.get_mut(index) else { return };
        pending.all_sent = true;
        if pending.lost {
            self.await_late(index);
        }
    }

    /// Closes a receipt with a status that the message's queue knows.
    pub(crate) fn finish(&mut self, id: Option<ReceiptId>, status: DeliveryStatus) {
        if let Some(pending) = id.and_then(|id| self.slots.remove(id.index()))
            && !pending.lost
        {
            self.report_first(pending.request, status);
        }
    }

    /// Handles the acknowledgement of a packet with a part of a message. It may follow [`Receipts::on_lost`].
    pub(crate) fn on_acked(&mut self, part: ReceiptPart) {
        let Some(pending) = self.pending(part) else { return };
        // A message in slices has arrived when all of its packets have.
        pending.packets = pending.packets.saturating_sub(1);
        if pending.packets > 0 || !pending.all_sent {
            return;
        }
        let (request, lost) = (pending.request, pending.lost);
        self.slots.remove(part.index);
        if lost {
            self.late -= 1;
            self.ready_late += 1;
            self.ready.push_back((request, DeliveryStatus::ArrivedLate));
        } else {
            self.report_first(request, DeliveryStatus::Arrived);
        }
    }

    /// Handles the loss of a packet with a part of a message: the message counts as lost.
    pub(crate) fn on_lost(&mut self, part: ReceiptPart) {
        // Further losses of the same message are no news.
        let Some(pending) = self.pending(part).filter(|pending| !pending.lost) else { return };
        pending.lost = true;
        let (request, all_sent) = (pending.request, pending.all_sent);
        self.report_first(request, DeliveryStatus::Lost);
        if all_sent {
            self.await_late(part.index);
        }
    }

    /// Handles that a lost packet is forgotten: an acknowledgement of it would not be recognized any more.
    pub(crate) fn on_forgotten(&mut self, part: ReceiptPart) {
        let Some(pending) = self.pending(part).filter(|pending| pending.lost) else { return };
        // The message can never be complete any more, even if its other parts are acked.
        pending.forgotten = true;
        if pending.all_sent {
            self.slots.remove(part.index);
            self.late -= 1;
        }
    }

    /// Returns whether a report was not polled yet.
    pub(crate) fn has_events(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns the oldest report that was not polled yet.
    pub(crate) fn poll(&mut self) -> Option<ChannelEvent> {
        let (ReceiptRequest { channel, tag }, status) = self.ready.pop_front()?;
        self.ready_late -= usize::from(status == DeliveryStatus::ArrivedLate);
        Some(ChannelEvent::Receipt { channel, tag, status })
    }

    /// Keeps a receipt that was reported as lost until its packets are acked after all, or forgotten.
    fn await_late(&mut self, index: ReceiptIndex) {
        self.late += 1;
        let Some(pending) = self.slots.get(index) else { return };
        if pending.forgotten || pending.packets == 0 || self.late > MAX_LATE_RECEIPTS {
            self.slots.remove(index);
            self.late -= 1;
        }
    }

    fn report_first(&mut self, request: ReceiptRequest, status: DeliveryStatus) {
        self.open -= 1;
        self.ready.push_back((request, status));
    }

    fn pending(&mut self, part: ReceiptPart) -> Option<&mut PendingReceipt> {
        self.slots.lookup_mut(part.index).filter(|pending| pending.number == part.number)
    }
}

impl ReceiptId {
    const fn index(self) -> ReceiptIndex {
        ReceiptIndex(self.0.get() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(tag: u64) -> ReceiptRequest {
        ReceiptRequest { channel: ChannelId(3), tag }
    }

    fn next(receipts: &mut Receipts) -> Option<(u64, DeliveryStatus)> {
        receipts.poll().map(|event| match event {
            ChannelEvent::Receipt { channel: ChannelId(3), tag, status } => (tag, status),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn message_arrives_with_its_last_packet_and_is_lost_with_first() {
        let mut receipts = Receipts::new();
        let ids = [1, 2].map(|tag| receipts.open(request(tag)).unwrap());
        let [arrives, is_lost] = ids.map(|id| [(); 3].map(|()| receipts.add_part(id).unwrap()));
        receipts.on_acked(arrives[2]);
        receipts.on_acked(arrives[0]);
        receipts.on_lost(is_lost[1]);
        assert_eq!((next(&mut receipts), next(&mut receipts)), (Some((2, DeliveryStatus::Lost)), None));
        receipts.on_acked(arrives[1]);
        assert_eq!(next(&mut receipts), None, "more of the message may be left to send");
        receipts.on_forgotten(is_lost[1]);
        ids.into_iter().for_each(|id| receipts.on_all_sent(Some(id)));
        receipts.on_forgotten(is_lost[2]);
        let last = receipts.open(request(3)).unwrap();
        // The slot of the second receipt, for which these packets are too late.
        assert_eq!(last, ids[1]);
        let part = receipts.add_part(last).unwrap();
        receipts.on_all_sent(Some(last));
        for late in is_lost {
            receipts.on_acked(late);
            receipts.on_lost(late);
        }
        assert_eq!(next(&mut receipts), None);
        receipts.on_acked(part);
        assert_eq!((next(&mut receipts), next(&mut receipts)), (Some((3, DeliveryStatus::Arrived)), None));
    }

    #[test]
    fn lost_message_that_is_acked_later_arrived_late_once() {
        let mut receipts = Receipts::new();
        let id = receipts.open(request(1)).unwrap();
        let parts = [(); 2].map(|()| receipts.add_part(id).unwrap());
        receipts.on_all_sent(Some(id));
        receipts.on_lost(parts[0]);
        assert_eq!(next(&mut receipts), Some((1, DeliveryStatus::Lost)));
        receipts.on_acked(parts[1]);
        assert_eq!(next(&mut receipts), None);
        receipts.on_acked(parts[0]);
        assert_eq!((next(&mut receipts), next(&mut receipts)), (Some((1, DeliveryStatus::ArrivedLate)), None));
        receipts.on_acked(parts[0]);
        assert_eq!((next(&mut receipts), receipts.late, receipts.remaining()), (None, 0, MAX_RECEIPTS));
    }

    #[test]
    fn lost_messages_awaited_for_late_acks_are_bounded() {
        let mut receipts = Receipts::new();
        let parts: alloc::vec::Vec<_> = (0..1000)
            .map(|tag| {
                let id = receipts.open(request(tag)).unwrap();
                let part = receipts.add_part(id).unwrap();
                receipts.on_all_sent(Some(id));
                receipts.on_lost(part);
                part
            })
            .collect();
        assert_eq!(receipts.late, MAX_LATE_RECEIPTS);
        while next(&mut receipts).is_some() {}
        parts.iter().for_each(|part| receipts.on_forgotten(*part));
        assert_eq!((receipts.late, receipts.remaining()), (0, MAX_RECEIPTS));
        parts.iter().for_each(|part| receipts.on_acked(*part));
        assert_eq!(next(&mut receipts), None);
    }

    #[test]
    fn open_and_unpolled_receipts_share_one_bound() {
        let mut receipts = Receipts::new();
        let ids: alloc::vec::Vec<_> =
            (0..MAX_RECEIPTS).map(|tag| receipts.open(request(tag.into())).unwrap()).collect();
        assert_eq!(receipts.remaining(), 0);
        receipts.finish(Some(ids[0]), DeliveryStatus::Expired);
        assert_eq!(receipts.remaining(), 0, "it was reported and not polled");
        assert_eq!(next(&mut receipts), Some((0, DeliveryStatus::Expired)));
        assert_eq!(receipts.remaining(), 1);
    }
}
