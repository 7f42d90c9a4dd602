//! Reliable messages that have left and may have to leave again: from the oldest that is not acknowledged to the newest.

use alloc::collections::VecDeque;

use super::carried::Load;
use super::frame_plan::{Plan, plan};
use super::key_index::KeyIndex;
use super::layout::{ChannelConfig, Kind};
use super::message_id::MessageId;
use super::outgoing::Departure;
use super::pen::Prefix;
use super::piece_set::PieceSet;
use super::pieces::{Chain, PIECE_BYTES, pieces_of};
use super::queue::Waiting;
use super::receipts::{Fate, Ticket};
use super::sending::Sending;
use super::slab::Slab;
use slipgate_netcode::time::Instant;

/// A message that has an id.
struct Flight {
    chain: Chain,
    bytes: u32,
    deadline: Instant,
    since: Instant,
    key: Option<u64>,
    passed_over: bool,
    /// It was superseded: nobody waits for it but the window.
    given_up: bool,
    receipt: Option<Ticket>,
    state: State,
}

/// Messages, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Amount {
    pub(super) bytes: u32,
    pub(super) messages: u16,
}

/// ```text
///  Whole ──▶ Sliced ──▶ Done
///    │  └───────┼────────▲▲
///    └──────────┴──▶ Withdrawn
/// ```
/// `due`: to be sent, for the first time or again.
#[derive(Clone, Copy)]
enum State {
    Whole {
        due: bool,
    },
    /// The number is that of its [`Slices`].
    Sliced(u16),
    /// Superseded or too late: the receiver must learn that it will not come.
    Withdrawn {
        due: bool,
    },
    /// Acknowledged; it waits for those before it.
    Done,
}

/// The pieces of a message that travels in slices.
struct Slices {
    due: PieceSet,
    unacked: PieceSet,
}

/// The window of one channel. Ids are consecutive in it.
pub(super) struct Flights {
    kind: Kind,
    oldest: MessageId,
    window: VecDeque<Flight>,
    /// The ids of messages under keys.
    keys: KeyIndex,
    bytes: u32,
    /// What the window holds at most, and what of it was superseded.
    most: Amount,
    given_up: Amount,
    slices: Slab<Slices>,
    /// No flight before this place is due; it is due itself, or the end.
    first_due: usize,
}

impl Flights {
    pub(super) const fn new(config: &ChannelConfig) -> Self {
        Self {
            kind: config.kind,
            oldest: MessageId::new(0),
            window: VecDeque::new(),
            keys: KeyIndex::new(),
            bytes: 0,
            most: Amount { bytes: config.queue_bytes, messages: config.queue_messages },
            given_up: Amount { bytes: 0, messages: 0 },
            slices: Slab::new(),
            first_due: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.window.len()
    }

    /// Bytes of all messages from the oldest that is not acknowledged to the newest.
    pub(super) const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// What of that was superseded, and takes no memory.
    pub(super) const fn given_up(&self) -> Amount {
        self.given_up
    }

    /// Whether a message of so many bytes may be under way beside the others: the receiver counts them all (§3.7).
    pub(super) fn has_room(&self, bytes: u32) -> bool {
        self.window.len() < usize::from(self.most.messages) && bytes <= self.most.bytes.saturating_sub(self.bytes)
    }

    /// No more messages than this are due.
    pub(super) fn due_at_most(&self) -> usize {
        self.window.len().saturating_sub(self.first_due)
    }

    /// Since when the first message that is due waits.
    pub(super) fn due_since(&self) -> Option<Instant> {
        self.window.get(self.first_due).map(|flight| flight.since)
    }

    /// The id of the next message.
    pub(super) fn next_id(&self) -> MessageId {
        self.oldest.ahead(self.window.len() as u32)
    }

    #[cfg(test)]
    pub(super) fn begin_ids_at(&mut self, id: MessageId) {
        self.oldest = id;
    }

    /// Takes in a message that leaves whole.
    pub(super) fn admit_whole(&mut self, message: Waiting) {
        self.admit(message, State::Whole { due: true });
    }

    /// Takes in a message that will leave in slices.
    pub(super) fn admit_sliced(&mut self, message: Waiting) {
        let pieces = PieceSet::up_to(pieces_of(message.bytes));
        let slices = self.slices.insert(Slices { due: pieces, unacked: pieces });
        self.admit(message, State::Sliced(slices));
    }

    /// Writes the first message that is due, or as many pieces of it as fit. Answers whether anything was written.
    pub(super) fn write(&mut self, out: &mut Departure<'_, '_>) -> bool {
        if self.is_late(self.first_due, out.now) {
            self.withdraw(self.first_due, Fate::Expired, out.sending);
            out.counters.expired += 1;
        }
        let id = self.oldest.ahead(self.first_due as u32);
        let Some(flight) = self.window.get_mut(self.first_due) else { return false };
        let written = match &mut flight.state {
            State::Whole { .. } => match plan(out.pen, out.channel, Some(id), flight.bytes, flight.passed_over) {
                Plan::Whole => write_whole(flight, id, out),
                Plan::Slices => {
                    let pieces = PieceSet::up_to(pieces_of(flight.bytes));
                    let number = self.slices.insert(Slices { due: pieces, unacked: pieces });
                    flight.state = State::Sliced(number);
                    write_slice(flight, self.slices.get_mut(number), id, out)
                }
                Plan::Wait => false,
            },
            State::Sliced(number) => {
                let number = *number;
                write_slice(flight, self.slices.get_mut(number), id, out)
            }
            State::Withdrawn { due } => {
                *due = !write_withdrawn(id, out);
                !*due
            }
            State::Done => false,
        };
        flight.passed_over |= !written && out.pen.has_all_room();
        self.pass_over_not_due();
        written
    }

    /// Some messages, sent whole or withdrawn, have arrived.
    pub(super) fn acked(&mut self, first: MessageId, count: u16, sending: &mut Sending) {
        for ahead in 0..count {
            if let Some(place) = self.place_of(first.ahead(ahead.into())) {
                self.complete(place, sending);
            }
        }
        self.forget_done(sending);
    }

    /// Some pieces of a message have arrived.
    pub(super) fn acked_pieces(&mut self, id: MessageId, first: u16, count: u16, sending: &mut Sending) {
        let Some(place) = self.place_of(id) else { return };
        let Some(slices) = self.slices_of(place) else { return };
        for piece in first..first.saturating_add(count) {
            slices.due.remove(piece);
            slices.unacked.remove(piece);
        }
        if slices.unacked.is_empty() {
            self.complete(place, sending);
        }
        self.forget_done(sending);
    }

    /// Some messages may not have arrived.
    pub(super) fn offer(&mut self, first: MessageId, count: u16) {
        for ahead in 0..count {
            let Some(place) = self.place_of(first.ahead(ahead.into())) else { continue };
            let Some(flight) = self.window.get_mut(place) else { continue };
            if let State::Whole { due } | State::Withdrawn { due } = &mut flight.state {
                *due = true;
                self.first_due = self.first_due.min(place);
            }
        }
    }

    /// Some pieces of a message may not have arrived.
    pub(super) fn offer_pieces(&mut self, id: MessageId, first: u16, count: u16) {
        let Some(place) = self.place_of(id) else { return };
        let Some(slices) = self.slices_of(place) else { return };
        for piece in (first..first.saturating_add(count)).filter(|piece| slices.unacked.has(*piece)) {
            slices.due.insert(piece);
        }
        self.first_due = self.first_due.min(place);
        self.pass_over_not_due();
    }

    /// Withdraws what is under way under this key; answers whether there was something.
    ///
    /// One of which some pieces have left and others are due is let through: if it were withdrawn, a key that gets large
    /// messages faster than they leave would never get one across.
    pub(super) fn supersede(&mut self, key: u64, sending: &mut Sending) -> bool {
        let Some(place) = self.place_under(key) else { return false };
        self.withdraw(place, Fate::Superseded, sending);
        if let Some(flight) = self.window.get_mut(place) {
            flight.given_up = true;
            self.given_up.bytes += flight.bytes;
            self.given_up.messages += 1;
        }
        true
    }

    /// Bytes of the message under this key that would be withdrawn.
    pub(super) fn bytes_under(&self, key: Option<u64>) -> Option<u32> {
        self.place_under(key?).and_then(|place| self.window.get(place)).map(|flight| flight.bytes)
    }

    /// Where the message under this key is, if it can be superseded.
    fn place_under(&self, key: u64) -> Option<usize> {
        let place = self.keys.place(key).and_then(|id| self.place_of(MessageId::new(id as u32)))?;
        let flight = self.window.get(place).filter(|flight| flight.key == Some(key))?;
        (!self.is_half_way(flight)).then_some(place)
    }

    fn admit(&mut self, message: Waiting, state: State) {
        let Waiting { chain, bytes, deadline, since, key, receipt, .. } = message;
        self.bytes += bytes;
        if let Some(key) = key {
            self.keys.note(key, self.next_id().number().into());
        }
        let (passed_over, given_up) = (false, false);
        self.window.push_back(Flight { chain, bytes, deadline, since, key, passed_over, given_up, receipt, state });
    }

    fn is_late(&self, place: usize, now: Instant) -> bool {
        let flight = self.window.get(place);
        flight.is_some_and(|flight| now >= flight.deadline && !matches!(flight.state, State::Withdrawn { .. }))
    }

    /// The message will not be sent any more; that will.
    fn withdraw(&mut self, place: usize, fate: Fate, sending: &mut Sending) {
        self.let_go(place, State::Withdrawn { due: true }, Some(fate), sending);
        self.first_due = self.first_due.min(place);
    }

    fn complete(&mut self, place: usize, sending: &mut Sending) {
        // In order the peer's application has it only when it has all before it.
        let fate = (self.kind != Kind::ReliableOrdered).then_some(Fate::Arrived);
        self.let_go(place, State::Done, fate, sending);
        self.pass_over_not_due();
    }

    /// Gives back what the message takes in memory, and tells its fate if that is known. Its bytes still count: the
    /// receiver may hold them.
    fn let_go(&mut self, place: usize, state: State, fate: Option<Fate>, sending: &mut Sending) {
        let Some(flight) = self.window.get_mut(place) else { return };
        sending.store.release(core::mem::take(&mut flight.chain));
        if let Some(fate) = fate {
            sending.receipts.tell(flight.receipt.take(), fate);
        }
        if let State::Sliced(number) = core::mem::replace(&mut flight.state, state) {
            self.slices.remove(number);
        }
        self.keys.forget(flight.key.take(), self.oldest.ahead(place as u32).number().into());
    }

    fn forget_done(&mut self, sending: &mut Sending) {
        while self.window.front().is_some_and(|flight| matches!(flight.state, State::Done)) {
            let Some(flight) = self.window.pop_front() else { break };
            sending.receipts.tell(flight.receipt, Fate::Arrived);
            self.bytes -= flight.bytes;
            if flight.given_up {
                self.given_up.bytes -= flight.bytes;
                self.given_up.messages -= 1;
            }
            self.oldest = self.oldest.ahead(1);
            self.first_due = self.first_due.saturating_sub(1);
        }
    }

    fn pass_over_not_due(&mut self) {
        while self.window.get(self.first_due).is_some_and(|flight| !self.is_due(flight)) {
            self.first_due += 1;
        }
    }

    /// Whether some pieces of it have left, and others are due.
    fn is_half_way(&self, flight: &Flight) -> bool {
        let State::Sliced(number) = flight.state else { return false };
        let whole = PieceSet::up_to(pieces_of(flight.bytes));
        self.slices.get(number).is_some_and(|slices| !slices.due.is_empty() && slices.due != whole)
    }

    fn is_due(&self, flight: &Flight) -> bool {
        match flight.state {
            State::Whole { due } | State::Withdrawn { due } => due,
            State::Sliced(number) => self.slices.get(number).is_some_and(|slices| !slices.due.is_empty()),
            State::Done => false,
        }
    }

    fn place_of(&self, id: MessageId) -> Option<usize> {
        let ahead = id.ahead_of(self.oldest)? as usize;
        (ahead < self.window.len()).then_some(ahead)
    }

    fn slices_of(&mut self, place: usize) -> Option<&mut Slices> {
        match self.window.get(place)?.state {
            State::Sliced(number) => self.slices.get_mut(number),
            _ => None,
        }
    }
}

/// Writes a message whole; it fits.
fn write_whole(flight: &mut Flight, id: MessageId, out: &mut Departure<'_, '_>) -> bool {
    let room = out.pen.begin(out.channel, Prefix::Whole(Some(id)), flight.bytes as usize);
    out.sending.store.copy(&flight.chain, 0, room);
    flight.state = State::Whole { due: false };
    out.note(Load::Whole { channel: out.channel, first: id, count: 1 });
    true
}

/// Writes a run of pieces that are due, if one fits.
fn write_slice(flight: &Flight, slices: Option<&mut Slices>, id: MessageId, out: &mut Departure<'_, '_>) -> bool {
    let Some(slices) = slices else { return false };
    let Some((first, run)) = slices.due.first_run(u16::MAX) else { return false };
    let prefix = Prefix::Slice { id, bytes: flight.bytes, first };
    let end = flight.bytes as usize - usize::from(first) * PIECE_BYTES;
    let bytes = out.pen.pieces_that_fit(out.channel, prefix, end.min(usize::from(run) * PIECE_BYTES));
    if bytes == 0 {
        return false;
    }
    out.sending.store.copy(&flight.chain, first, out.pen.begin(out.channel, prefix, bytes));
    let count = pieces_of(bytes as u32);
    for piece in first..first + count {
        slices.due.remove(piece);
    }
    out.note(Load::Slice { channel: out.channel, id, first, count });
    true
}

/// Writes that a message will not come, if that fits.
fn write_withdrawn(id: MessageId, out: &mut Departure<'_, '_>) -> bool {
    let written = out.pen.withdraw(out.channel, id);
    if written {
        out.note(Load::Whole { channel: out.channel, first: id, count: 1 });
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_takes_no_memory_of_a_message_under_way() {
        struct Before {
            _chain: Chain,
            _bytes: u32,
            _times: [Instant; 2],
            _key: Option<u64>,
            _passed_over: bool,
            _state: State,
        }
        assert_eq!(size_of::<Flight>(), size_of::<Before>());
    }
}
