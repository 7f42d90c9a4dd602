//! All channels of one connection: messages in, frames out; frames in, messages out.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::carried::{Carried, Load};
use super::frame::Frame;
use super::incoming::{Incoming, Receipt};
use super::layout::{ChannelId, Kind, Layout};
use super::outgoing::{Outgoing, Packet};
use super::pen::Pen;
use super::pieces::Store;
use super::queue::Terms;
use super::schedule::{Candidate, Schedule};
use super::stats::ChannelStats;
use super::violation::Violation;
use super::window::Outcome;
use super::wrap_guard::PacketNumber;
use super::{Arrival, Free, Place, ReadAt, SendError, SendOptions};
use crate::reliability::MemoryBudget;
use crate::time::Instant;
use crate::wire::reliable::Sequence;

/// The channels of one connection.
///
/// Messages go in by [`Channels::send`] and leave as frames by [`Channels::write`]; what the peer's packets carry comes
/// out by [`Channels::next`]. It takes memory as messages need it, at most what the layout allows for each channel, and
/// keeps it for ten seconds after the last use; while traffic lasts nothing is allocated.
pub struct Channels {
    layout: Arc<Layout>,
    outgoing: Vec<Outgoing>,
    incoming: Vec<Incoming>,
    schedule: Schedule,
    carried: Carried,
    /// Of messages that leave.
    sending: Store,
    /// Of messages that arrive.
    receiving: Store,
    /// The newest packet, and its number without the wrap.
    newest: Option<(Sequence, PacketNumber)>,
    /// A channel whose next message in order may have waited for the one that was delivered last.
    draining: Option<ChannelId>,
}

impl Channels {
    /// The channels of a new connection. What arrives and must wait is stored in memory of `memory`, if it is given:
    /// a budget that many connections share. Ask [`Channels::can_take`] then before a packet is accepted.
    #[must_use]
    pub fn new(layout: Arc<Layout>, memory: Option<MemoryBudget>) -> Self {
        Self {
            outgoing: layout.channels().map(|_| Outgoing::new()).collect(),
            incoming: layout.channels().map(|config| Incoming::new(config.kind)).collect(),
            schedule: Schedule::new(&layout),
            carried: Carried::default(),
            sending: Store::new(None),
            receiving: Store::new(memory),
            newest: None,
            draining: None,
            layout,
        }
    }

    /// The layout.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Takes a message into the channel's queue; it is copied once. It leaves by [`Channels::write`].
    ///
    /// # Errors
    /// `NoChannel` and `WrongKind` for a channel that does not exist or is one of blocks; `TooLarge` for a message that
    /// the layout does not allow; `Backlogged` when the queue is full, which [`Channels::free`] tells before.
    pub fn send(
        &mut self,
        channel: ChannelId,
        message: &[u8],
        options: SendOptions,
        now: Instant,
    ) -> Result<(), SendError> {
        let config = self.layout.channel(channel).ok_or(SendError::NoChannel)?;
        let outgoing = self.outgoing.get_mut(usize::from(channel.0)).ok_or(SendError::NoChannel)?;
        if config.kind == Kind::Blocks {
            return Err(SendError::WrongKind);
        }
        if message.len() > config.max_message_bytes as usize {
            return Err(SendError::TooLarge);
        }
        let deadline = options.deadline.or(config.deadline).map_or(Instant::NEVER, |after| now.after(after));
        let sent = outgoing.push(config, message, Terms { deadline, key: options.key, now }, &mut self.sending);
        match sent {
            Ok(()) => outgoing.counters.sent += 1,
            Err(_) => outgoing.counters.backlogged += 1,
        }
        sent
    }

    /// What the channel's queue could still take; nothing for a channel that does not exist.
    #[must_use]
    pub fn free(&self, channel: ChannelId) -> Free {
        let outgoing = self.outgoing.get(usize::from(channel.0));
        let config = self.layout.channel(channel).filter(|config| config.kind != Kind::Blocks);
        outgoing.zip(config).map_or(Free::default(), |(outgoing, config)| outgoing.free(config))
    }

    /// What the channel has counted; `None` for a channel that does not exist.
    #[must_use]
    pub fn stats(&self, channel: ChannelId) -> Option<ChannelStats> {
        self.outgoing.get(usize::from(channel.0)).map(|outgoing| outgoing.counters)
    }

    /// Bytes of memory that messages take now, those that leave and those that arrive.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.sending.bytes() + self.receiving.bytes()
    }

    /// A tick begins: budgets are filled up, and what is past its deadline is dropped.
    pub fn begin_tick(&mut self, now: Instant) {
        self.schedule.begin_tick(&self.layout);
        for (outgoing, incoming) in self.outgoing.iter_mut().zip(&mut self.incoming) {
            outgoing.tick(now, &mut self.sending);
            outgoing.counters.dropped += incoming.tick(now, &mut self.receiving);
        }
        self.sending.tick(now);
        self.receiving.tick(now);
    }

    /// Whether anything waits that could leave now.
    #[must_use]
    pub fn wants_to_send(&self) -> bool {
        self.channels().any(|channel| self.candidate(channel).is_some())
    }

    /// Writes frames into the rest of a packet, and answers how many bytes they take: 0 if nothing waits or fits.
    ///
    /// Packets are written in the order of their numbers. The frames end where the packet ends: nothing may be written
    /// behind them. Of a packet in which reliable messages left, [`Channels::on_acked`] or [`Channels::on_lost`] must
    /// tell later.
    pub fn write(&mut self, packet: Sequence, now: Instant, room: &mut [u8]) -> usize {
        self.count(packet);
        let mut left = self.ready();
        if left == 0 {
            return 0;
        }
        let Self { layout, outgoing, schedule, .. } = self;
        schedule.begin_packet(layout, |channel| outgoing.get(usize::from(channel.0)).is_some_and(Outgoing::is_ready));
        let mut pen = Pen::new(room);
        while let Some(channel) = self.first(left, now) {
            if !self.write_frame(channel, &mut pen, packet, now) || self.candidate(channel).is_none() {
                left &= !(1 << channel.0);
            }
            if pen.is_closed() {
                break;
            }
        }
        pen.finish()
    }

    /// A packet arrived at the peer; also after it was called lost.
    pub fn on_acked(&mut self, packet: Sequence) {
        let Self { carried, outgoing, sending, .. } = self;
        for load in carried.acked(packet) {
            if let Some(outgoing) = outgoing_of(outgoing, load) {
                outgoing.acked(load, sending);
            }
        }
    }

    /// A packet is lost: what it carried of reliable channels leaves anew, in another packet.
    pub fn on_lost(&mut self, packet: Sequence) {
        let Self { carried, outgoing, .. } = self;
        for load in carried.lost(packet) {
            offer(outgoing, load);
        }
    }

    /// Nothing has been heard for longer than the path explains: what the oldest packet carried that is neither
    /// acknowledged nor lost may leave anew.
    pub fn on_probe(&mut self) {
        let Self { carried, outgoing, .. } = self;
        for load in carried.probe() {
            offer(outgoing, load);
        }
    }

    /// Whether there is memory for what the frames of a packet may have to leave here. If there is not, the packet
    /// should be refused, so that its sender holds it for lost. Without a shared budget there always is.
    #[must_use]
    pub fn can_take(&self, frames: &[u8]) -> bool {
        let (mut at, mut pieces) = (0, 0);
        while let Ok((frame, end)) = Frame::read(frames, at, &self.layout) {
            let incoming = self.incoming.get(usize::from(frame.channel.0));
            pieces += incoming.map_or(0, |incoming| incoming.pieces_to_keep(&frame.body));
            at = end;
        }
        pieces == 0 || self.receiving.spare(pieces) >= pieces
    }

    /// Reads on in the frames of a packet, and answers the next message. `scratch` holds those that do not lie in the
    /// packet in one piece. Call it until it answers `None`, before the next packet.
    ///
    /// # Errors
    /// When the frames cannot be those of an honest peer with the same layout. The connection is of no use then.
    pub fn next(
        &mut self,
        frames: &[u8],
        at: &mut ReadAt,
        scratch: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<Arrival>, Violation> {
        loop {
            if let Some(arrival) = self.drain(scratch) {
                return Ok(Some(arrival));
            }
            if at.0 >= frames.len() {
                return Ok(None);
            }
            let (frame, end) = Frame::read(frames, at.0, &self.layout)?;
            at.0 = end;
            if let Some(arrival) = self.take(frame, frames, scratch, now)? {
                return Ok(Some(arrival));
            }
        }
    }

    /// Takes a frame, and answers its message if that is to be delivered at once.
    fn take(
        &mut self,
        frame: Frame,
        packet: &[u8],
        scratch: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<Arrival>, Violation> {
        let Frame { channel, body } = frame;
        let index = usize::from(channel.0);
        let (Some(incoming), Some(config)) = (self.incoming.get_mut(index), self.layout.channel(channel)) else {
            return Err(Violation::NoChannel(channel));
        };
        let whole = body.whole();
        let receipt = &mut Receipt { channel, config, packet, store: &mut self.receiving, scratch, now };
        let (outcome, given_up) = incoming.take(body, receipt)?;
        if config.kind == Kind::ReliableOrdered {
            self.draining = Some(channel);
        }
        let place = match outcome {
            Outcome::Deliver => Some(Place::Frames(whole)),
            Outcome::Gathered => Some(Place::Scratch),
            Outcome::Kept | Outcome::Dropped => None,
        };
        if let Some(outgoing) = self.outgoing.get_mut(index) {
            outgoing.counters.dropped += given_up + u64::from(outcome == Outcome::Dropped);
            outgoing.counters.delivered += u64::from(place.is_some());
        }
        Ok(place.map(|place| Arrival::Message { channel, place }))
    }

    /// Takes a message that waited for the one that was delivered last.
    fn drain(&mut self, scratch: &mut Vec<u8>) -> Option<Arrival> {
        let channel = self.draining?;
        let index = usize::from(channel.0);
        if self.incoming.get_mut(index).is_some_and(|incoming| incoming.pop(&mut self.receiving, scratch)) {
            if let Some(outgoing) = self.outgoing.get_mut(index) {
                outgoing.counters.delivered += 1;
            }
            return Some(Arrival::Message { channel, place: Place::Scratch });
        }
        self.draining = None;
        None
    }

    /// Counts packets without the wrap, and forgets what the oldest ones carried.
    fn count(&mut self, packet: Sequence) {
        let (newest, number) = self.newest.unwrap_or((packet, PacketNumber::default()));
        let passed = packet.distance_from(newest);
        debug_assert!(passed < 1 << 15, "packets are written in the order of their numbers");
        self.newest = Some((packet, PacketNumber(number.0 + u64::from(passed))));
        let Self { carried, outgoing, .. } = self;
        carried.make_place(packet, |load| offer(outgoing, load));
    }

    /// One bit for each channel that could write a frame.
    fn ready(&self) -> u64 {
        let ready = self.channels().filter(|channel| self.candidate(*channel).is_some());
        ready.fold(0, |mask, channel| mask | 1 << channel.0)
    }

    fn first(&self, mask: u64, now: Instant) -> Option<ChannelId> {
        let left = self.channels().filter(|channel| mask >> channel.0 & 1 != 0);
        self.schedule.first(&self.layout, left.filter_map(|channel| self.candidate(channel)), now)
    }

    fn candidate(&self, channel: ChannelId) -> Option<Candidate> {
        let since = self.outgoing.get(usize::from(channel.0))?.waits_since()?;
        self.schedule.allows(channel).then_some(Candidate { channel, since })
    }

    fn channels(&self) -> impl Iterator<Item = ChannelId> + use<> {
        (0..self.layout.channels().len()).map(|id| ChannelId(id as u8))
    }

    /// Lets a channel write a frame, and answers whether it did.
    fn write_frame(&mut self, channel: ChannelId, pen: &mut Pen<'_>, sequence: Sequence, now: Instant) -> bool {
        let (Some(outgoing), Some(config)) =
            (self.outgoing.get_mut(usize::from(channel.0)), self.layout.channel(channel))
        else {
            return false;
        };
        let before = pen.at();
        let number = self.newest.map_or(PacketNumber::default(), |(_, number)| number);
        let (store, carried) = (&mut self.sending, &mut self.carried);
        let packet = &mut Packet { pen, store, carried, sequence, number, now };
        let written = outgoing.write(channel, config.kind, packet);
        let bytes = pen.at() - before;
        if written {
            outgoing.counters.frame_bytes += bytes as u64;
            self.schedule.charge(&self.layout, channel, bytes, now);
        }
        written
    }
}

fn outgoing_of(outgoing: &mut [Outgoing], load: Load) -> Option<&mut Outgoing> {
    let (Load::Whole { channel, .. } | Load::Slice { channel, .. }) = load;
    outgoing.get_mut(usize::from(channel.0))
}

fn offer(outgoing: &mut [Outgoing], load: Load) {
    if let Some(outgoing) = outgoing_of(outgoing, load) {
        outgoing.offer(load);
    }
}
