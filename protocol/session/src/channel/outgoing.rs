//! The sender's half of one channel: what waits, and how it leaves.

use super::carried::{Carried, Load};
use super::flights::Flights;
use super::frame_plan::{Plan, plan};
use super::layout::{ChannelConfig, ChannelId, Kind};
use super::message_id::MessageId;
use super::pen::{Pen, Prefix};
use super::pieces::{PIECE_BYTES, pieces_of};
use super::precedence::FRAME_BYTES;
use super::queue::{Queue, Terms, Waiting};
use super::receipts::Ticket;
use super::sending::Sending;
use super::stats::ChannelStats;
use super::{Free, SendError};
use crate::wire::reliable::Sequence;
use slipgate_netcode::time::Instant;

/// The packet that is being written, and what all channels share.
pub(super) struct Packet<'a, 'room> {
    pub(super) pen: &'a mut Pen<'room>,
    pub(super) sending: &'a mut Sending,
    pub(super) carried: &'a mut Carried,
    pub(super) sequence: Sequence,
    pub(super) now: Instant,
}

/// What a channel needs to write a frame into a packet.
pub(super) struct Departure<'a, 'room> {
    pub(super) channel: ChannelId,
    pub(super) pen: &'a mut Pen<'room>,
    pub(super) sending: &'a mut Sending,
    carried: &'a mut Carried,
    pub(super) counters: &'a mut ChannelStats,
    sequence: Sequence,
    pub(super) now: Instant,
}

impl Departure<'_, '_> {
    /// Notes cargo of the packet whose fate matters.
    pub(super) fn note(&mut self, load: Load) {
        self.carried.note(self.sequence, load);
    }

    /// Notes that the packet carries some of a message that is sent once, if somebody wants to hear of that.
    fn note_share(&mut self, receipt: Option<Ticket>) {
        if let Some(share) = receipt.and_then(|ticket| self.sending.receipts.share(ticket)) {
            self.note(Load::Once { channel: self.channel, share });
        }
    }
}

/// The sender's half of one channel.
pub(super) struct Outgoing {
    queue: Queue,
    flights: Flights,
    /// The next id of what is sent once.
    next_id: MessageId,
    pub(super) counters: ChannelStats,
}

impl Outgoing {
    pub(super) fn new(config: &ChannelConfig) -> Self {
        Self {
            queue: Queue::default(),
            flights: Flights::new(config),
            next_id: MessageId::default(),
            counters: ChannelStats::default(),
        }
    }

    /// The first ids are these, instead of 0.
    #[cfg(test)]
    pub(super) fn begin_ids_at(&mut self, id: MessageId) {
        self.next_id = id;
        self.flights.begin_ids_at(id);
    }

    /// What could still be given to the channel, without keys.
    pub(super) fn free(&self, config: &ChannelConfig, sending: &Sending) -> Free {
        let outdated = if config.gives_up_older() { self.queue.outdated() } else { (0, 0) };
        self.free_without(outdated, config, sending)
    }

    /// As [`free`](Self::free), when so many messages that wait, and bytes of them, make room.
    fn free_without(&self, going: (usize, u32), config: &ChannelConfig, sending: &Sending) -> Free {
        let given_up = self.flights.given_up();
        let bytes = self.queue.bytes() - going.1 + self.flights.bytes() - given_up.bytes;
        let messages = self.queue.len() - going.0 + self.flights.len() - usize::from(given_up.messages);
        Free {
            bytes: config.queue_bytes.saturating_sub(bytes),
            messages: config.queue_messages.saturating_sub(messages as u16),
            receipts: sending.receipts.free(),
        }
    }

    /// Takes a message into the queue.
    pub(super) fn push(
        &mut self,
        config: &ChannelConfig,
        message: &[u8],
        terms: Terms,
        sending: &mut Sending,
    ) -> Result<(), SendError> {
        let replaced = [self.queue.bytes_under(terms.key), self.flights.bytes_under(terms.key)];
        let newest_counts = config.gives_up_older() && terms.key.is_none();
        let free = if newest_counts { self.free(config, sending) } else { self.free_without((0, 0), config, sending) };
        let fits = message.len() as u64
            <= replaced.iter().flatten().fold(free.bytes.into(), |free, old| free + u64::from(*old));
        if !fits || (replaced == [None; 2] && free.messages == 0) {
            return Err(SendError::Backlogged);
        }
        if newest_counts {
            self.counters.superseded += self.queue.push_newest(message, terms, sending);
            return Ok(());
        }
        let under_way = terms.key.is_some_and(|key| self.flights.supersede(key, sending));
        let waited = self.queue.push(message, terms, sending);
        self.counters.superseded += u64::from(under_way) + u64::from(waited);
        Ok(())
    }

    /// A tick begins.
    pub(super) fn begin_tick(&mut self, now: Instant, sending: &mut Sending) {
        self.queue.begin_tick();
        self.tick(now, sending);
    }

    /// Drops what waited too long to be sent for the first time.
    pub(super) fn tick(&mut self, now: Instant, sending: &mut Sending) {
        self.counters.expired += self.queue.expire(now, sending);
    }

    /// Whether anything could leave.
    pub(super) fn is_ready(&self) -> bool {
        self.waits_since().is_some()
    }

    /// Bytes of messages that wait; of those that were sent, all, if any of them waits to be sent anew.
    pub(super) fn waiting_bytes(&self) -> u64 {
        let anew = if self.flights.due_since().is_some() { self.flights.bytes() } else { 0 };
        let first_time = if self.first_to_leave().is_some() { self.queue.bytes() } else { 0 };
        u64::from(first_time) + u64::from(anew)
    }

    /// About how many bytes of frames wait, with what stands before each message.
    pub(super) fn waiting_frame_bytes(&self) -> u64 {
        let first_time = if self.first_to_leave().is_some() { self.queue.len() } else { 0 };
        self.waiting_bytes() + FRAME_BYTES * (first_time + self.flights.due_at_most()) as u64
    }

    /// Since when the message that leaves next has waited.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        self.flights.due_since().or_else(|| self.first_to_leave().map(|message| message.since))
    }

    /// The first message of the queue, unless the window has no room for it until something is acknowledged: what was given
    /// up makes room in the queue at once, and in the window when the receiver knows of it (§3.7).
    fn first_to_leave(&self) -> Option<&Waiting> {
        self.queue.front().filter(|message| self.flights.has_room(message.bytes))
    }

    /// Writes one frame, and answers whether there was room for it.
    pub(super) fn write(&mut self, channel: ChannelId, kind: Kind, packet: &mut Packet<'_, '_>) -> bool {
        self.tick(packet.now, packet.sending);
        let Self { queue, flights, next_id, counters } = self;
        let mut out = Departure {
            channel,
            pen: packet.pen,
            sending: packet.sending,
            carried: packet.carried,
            counters,
            sequence: packet.sequence,
            now: packet.now,
        };
        if kind.is_reliable() {
            flights.write(&mut out) || (flights.due_since().is_none() && write_first_time(queue, flights, &mut out))
        } else {
            write_once(queue, next_id, kind, &mut out)
        }
    }

    /// What a packet carried of this channel has arrived.
    pub(super) fn acked(&mut self, load: Load, sending: &mut Sending) {
        match load {
            Load::Whole { first, count, .. } => self.flights.acked(first, count, sending),
            Load::Slice { id, first, count, .. } => self.flights.acked_pieces(id, first, count, sending),
            Load::Once { share, .. } => sending.receipts.acked(share),
            Load::Block { .. } => debug_assert!(false, "a block is not a channel's of messages"),
        }
    }

    /// What a packet carried of this channel may not have arrived: it is to be sent anew.
    pub(super) fn offer(&mut self, load: Load) {
        match load {
            Load::Whole { first, count, .. } => self.flights.offer(first, count),
            Load::Slice { id, first, count, .. } => self.flights.offer_pieces(id, first, count),
            Load::Once { .. } => {}
            Load::Block { .. } => debug_assert!(false, "a block is not a channel's of messages"),
        }
    }
}

/// Writes the first message of the queue; from then on it is under way until it is acknowledged.
fn write_first_time(queue: &mut Queue, flights: &mut Flights, out: &mut Departure<'_, '_>) -> bool {
    let id = flights.next_id();
    let Some(message) = queue.front_mut().filter(|message| flights.has_room(message.bytes)) else { return false };
    match plan(out.pen, out.channel, Some(id), message.bytes, message.passed_over) {
        Plan::Wait => {
            message.passed_over |= out.pen.has_all_room();
            false
        }
        Plan::Slices => {
            if let Some(message) = queue.pop() {
                flights.admit_sliced(message);
            }
            flights.write(out)
        }
        Plan::Whole => {
            if let Some(message) = queue.pop() {
                flights.admit_whole(message);
            }
            flights.write(out)
        }
    }
}

/// Writes the first message of a queue whose messages are sent once, or a slice of it.
fn write_once(queue: &mut Queue, next_id: &mut MessageId, kind: Kind, out: &mut Departure<'_, '_>) -> bool {
    let Some(message) = queue.front_mut() else { return false };
    let id = (kind == Kind::Sequenced).then_some(*next_id);
    let slices = Plan::Slices;
    match message.begun.map_or_else(|| plan(out.pen, out.channel, id, message.bytes, message.passed_over), |_| slices) {
        Plan::Wait => {
            message.passed_over |= out.pen.has_all_room();
            false
        }
        Plan::Whole => {
            let room = out.pen.begin(out.channel, Prefix::Whole(id), message.bytes as usize);
            out.sending.store.copy(&message.chain, 0, room);
            if id.is_some() {
                *next_id = next_id.ahead(1);
            }
            out.note_share(message.receipt);
            let_first_go(queue, out.sending);
            true
        }
        Plan::Slices => {
            let begun = message.begun.unwrap_or((*next_id, 0));
            if message.begun.is_none() {
                *next_id = next_id.ahead(1);
            }
            write_next_slice(queue, begun, out)
        }
    }
}

/// Writes the next pieces of the first message of a queue, if any fit.
fn write_next_slice(queue: &mut Queue, (id, first): (MessageId, u16), out: &mut Departure<'_, '_>) -> bool {
    let Some(message) = queue.front_mut() else { return false };
    message.begun = Some((id, first));
    let prefix = Prefix::Slice { id, bytes: message.bytes, first };
    let left = message.bytes as usize - usize::from(first) * PIECE_BYTES;
    let bytes = out.pen.pieces_that_fit(out.channel, prefix, left);
    if bytes == 0 {
        return false;
    }
    out.sending.store.copy(&message.chain, first, out.pen.begin(out.channel, prefix, bytes));
    message.begun = Some((id, first + pieces_of(bytes as u32)));
    out.note_share(message.receipt);
    if bytes == left {
        let_first_go(queue, out.sending);
    }
    true
}

/// All of a message has left that is sent once.
fn let_first_go(queue: &mut Queue, sending: &mut Sending) {
    if let Some(message) = queue.pop() {
        sending.store.release(message.chain);
        sending.receipts.all_left(message.receipt);
    }
}
