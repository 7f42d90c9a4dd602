//! Receipts: what became of the messages of which the application wants to know.
//!
//! Each is told once. Where nothing is asked for nothing is kept, and of a message that is under way no more than a number.

use alloc::collections::VecDeque;
use core::num::NonZeroU16;

use super::ChannelEvent;
use super::layout::ChannelId;
use super::slab::Slab;

/// The most receipts of a connection that are awaited, or were not taken yet: half of the loads of which is remembered
/// what packets carried. Beyond it a message that asks for one is [`Backlogged`](super::SendError::Backlogged).
pub const MAX_RECEIPTS: u16 = 4096;

/// What became of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Fate {
    /// The peer has all of it and hands it to its application; on an ordered channel, all before it as well.
    ///
    /// Of a sequenced channel the newest that has arrived counts, when all events are taken: what came behind it was passed
    /// over. Of a message in slices on a channel that is not reliable the peer gives up those that come too far apart
    /// (§3.8): a message that fits into one packet is sure.
    ///
    /// What comes when the peer has left is not acknowledged, and so never told as this. An application that leaves over
    /// one message of a packet does not look at those behind it in the same packet.
    Arrived,
    /// A packet that carried some of it counts as lost, and the channel does not send again. That is a judgement by
    /// newer packets which arrived, or by time: it may have arrived all the same.
    Lost,
    /// Its deadline came first. One that had left by then may have arrived.
    Expired,
    /// A newer one with the same key took its place, or one without a key where only the newest counts
    /// ([`ChannelConfig::newest_only`](super::ChannelConfig::newest_only)). One that had left by then may have arrived.
    Superseded,
}

/// What a message asks for.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) channel: ChannelId,
    pub(super) tag: u64,
}

/// A receipt that is awaited, in the hand of whoever still has the message: it is given back by [`Receipts::tell`] or
/// [`Receipts::all_left`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ticket(NonZeroU16);

/// The share of a packet in a message: when it arrives or is lost, this says whose that is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Share {
    place: u16,
    /// Places are used again: it is of this message only if that has the same number.
    number: u32,
}

struct Awaited {
    asked: Asked,
    number: u32,
    /// Packets under way that carry some of it.
    packets: u16,
    /// Nothing of it is left to be sent.
    all_left: bool,
    /// Something of it was lost: that was told.
    lost: bool,
}

/// All receipts of a connection.
pub(super) struct Receipts {
    places: Slab<Awaited>,
    /// How many were not told yet.
    awaited: usize,
    /// How many were ever asked for, wrapping.
    asked: u32,
    told: VecDeque<(Asked, Fate)>,
}

impl Receipts {
    pub(super) const fn new() -> Self {
        Self { places: Slab::new(), awaited: 0, asked: 0, told: VecDeque::new() }
    }

    /// How many more may be asked for.
    pub(super) fn free(&self) -> u16 {
        MAX_RECEIPTS.saturating_sub((self.awaited + self.told.len()) as u16)
    }

    /// Takes note that one is awaited.
    pub(super) fn ask(&mut self, asked: Asked) -> Option<Ticket> {
        let awaited = Awaited { asked, number: self.asked, packets: 0, all_left: false, lost: false };
        self.asked = self.asked.wrapping_add(1);
        self.awaited += 1;
        NonZeroU16::new(self.places.insert(awaited) + 1).map(Ticket)
    }

    /// A packet carries some of the message; nobody else sends it again.
    pub(super) fn share(&mut self, ticket: Ticket) -> Option<Share> {
        let place = ticket.place();
        let awaited = self.places.get_mut(place)?;
        awaited.packets += 1;
        Some(Share { place, number: awaited.number })
    }

    /// All of the message has left, and what becomes of it depends on the packets that carry it.
    pub(super) fn all_left(&mut self, ticket: Option<Ticket>) {
        let Some(place) = ticket.map(Ticket::place) else { return };
        if let Some(awaited) = self.places.get_mut(place) {
            awaited.all_left = true;
            if awaited.lost {
                self.places.remove(place);
            }
        }
    }

    /// Whoever has the message knows its fate.
    pub(super) fn tell(&mut self, ticket: Option<Ticket>, fate: Fate) {
        if let Some(awaited) = ticket.and_then(|ticket| self.places.remove(ticket.place()))
            && !awaited.lost
        {
            self.note(awaited.asked, fate);
        }
    }

    /// A packet that carried some of a message has arrived.
    pub(super) fn acked(&mut self, share: Share) {
        let Some(awaited) = self.of(share) else { return };
        awaited.packets = awaited.packets.saturating_sub(1);
        if awaited.packets == 0 && awaited.all_left && !awaited.lost {
            let asked = awaited.asked;
            self.places.remove(share.place);
            self.note(asked, Fate::Arrived);
        }
    }

    /// A packet that carried some of a message is lost, and the message with it.
    pub(super) fn lost(&mut self, share: Share) {
        let Some(awaited) = self.of(share).filter(|awaited| !awaited.lost) else { return };
        awaited.lost = true;
        let (asked, all_left) = (awaited.asked, awaited.all_left);
        if all_left {
            self.places.remove(share.place);
        }
        self.note(asked, Fate::Lost);
    }

    /// Whether something was not taken yet.
    pub(super) fn has_news(&self) -> bool {
        !self.told.is_empty()
    }

    /// The oldest fate that was not taken yet.
    pub(super) fn poll(&mut self) -> Option<ChannelEvent> {
        let (Asked { channel, tag }, fate) = self.told.pop_front()?;
        Some(ChannelEvent::Receipt { channel, tag, fate })
    }

    fn note(&mut self, asked: Asked, fate: Fate) {
        self.awaited -= 1;
        self.told.push_back((asked, fate));
    }

    fn of(&mut self, share: Share) -> Option<&mut Awaited> {
        self.places.get_mut(share.place).filter(|awaited| awaited.number == share.number)
    }
}

impl Ticket {
    const fn place(self) -> u16 {
        self.0.get() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(tag: u64) -> Asked {
        Asked { channel: ChannelId(3), tag }
    }

    fn told(receipts: &mut Receipts) -> Option<(u64, Fate)> {
        receipts.poll().map(|event| match event {
            ChannelEvent::Receipt { channel: ChannelId(3), tag, fate } => (tag, fate),
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_message_has_arrived_with_its_last_packet_and_is_lost_with_its_first() {
        let mut receipts = Receipts::new();
        let tickets = [1, 2].map(|tag| receipts.ask(asked(tag)).unwrap());
        let [arrives, is_lost] = tickets.map(|ticket| [(); 3].map(|()| receipts.share(ticket).unwrap()));
        receipts.acked(arrives[2]);
        receipts.acked(arrives[0]);
        receipts.lost(is_lost[1]);
        assert_eq!((told(&mut receipts), told(&mut receipts)), (Some((2, Fate::Lost)), None));
        receipts.acked(arrives[1]);
        assert_eq!(told(&mut receipts), None, "there may be more to leave");
        tickets.into_iter().for_each(|ticket| receipts.all_left(Some(ticket)));
        let last = receipts.ask(asked(3)).unwrap();
        // The second one's place, which these are too late for.
        assert_eq!(last, tickets[1]);
        let share = receipts.share(last).unwrap();
        receipts.all_left(Some(last));
        for late in is_lost {
            receipts.acked(late);
            receipts.lost(late);
        }
        assert_eq!(told(&mut receipts), None);
        receipts.acked(share);
        assert_eq!((told(&mut receipts), told(&mut receipts)), (Some((3, Fate::Arrived)), None));
    }

    #[test]
    fn what_is_awaited_or_was_not_taken_has_a_bound_together() {
        let mut receipts = Receipts::new();
        let tickets: alloc::vec::Vec<_> = (0..MAX_RECEIPTS).map(|tag| receipts.ask(asked(tag.into()))).collect();
        assert_eq!(receipts.free(), 0);
        receipts.tell(tickets[0], Fate::Expired);
        assert_eq!(receipts.free(), 0, "it was told, and not taken");
        assert_eq!(told(&mut receipts), Some((0, Fate::Expired)));
        assert_eq!(receipts.free(), 1);
    }
}
