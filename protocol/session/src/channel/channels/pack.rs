//! Messages out: which frames a packet carries, and what its fate means to them. Which class may spend how much of what
//! the path would carry is decided in `share`.

use super::Channels;
use super::share::Share;
use crate::channel::block_lane::BlockLane;
use crate::channel::carried::Load;
use crate::channel::layout::{ChannelId, Kind};
use crate::channel::outgoing::{Outgoing, Packet};
use crate::channel::pen::Pen;
use crate::channel::precedence::Means;
use crate::channel::schedule::Candidate;
use crate::channel::sending::Sending;
use crate::wire::reliable::Sequence;
use slipgate_netcode::time::Instant;

impl Channels {
    /// Whether anything waits that could leave now.
    #[must_use]
    pub fn wants_to_send(&self) -> bool {
        self.channels().any(|channel| self.is_ready(channel))
    }

    /// About how many bytes wait to leave, without what frames add: for whoever shares an uplink between connections.
    /// `None` when blocks wait, of which there is always more.
    #[must_use]
    pub fn waiting_bytes(&self) -> Option<u64> {
        let blocks = self.blocks.iter().any(BlockLane::wants_room);
        (!blocks).then(|| self.outgoing.iter().map(Outgoing::waiting_bytes).sum())
    }

    /// Writes frames into the rest of a packet, and answers how many bytes they take: 0 if nothing waits or fits.
    ///
    /// Packets are written in the order of their numbers. The frames end where the packet ends: nothing may be written
    /// behind them. Of a packet in which messages left that are reliable or ask for a receipt, [`Channels::on_acked`] or
    /// [`Channels::on_lost`] must tell later.
    pub fn write(&mut self, packet: Sequence, now: Instant, room: &mut [u8]) -> usize {
        self.write_within(packet, now, room, Means::AMPLE)
    }

    /// As [`Channels::write`], where the path would carry so much now: no class spends what one above it waits for.
    pub fn write_within(&mut self, packet: Sequence, now: Instant, room: &mut [u8], means: Means) -> usize {
        self.count(packet);
        for lane in &mut self.blocks {
            lane.note_wish(now);
        }
        let mut left = self.ready();
        if left == 0 {
            return 0;
        }
        self.begin_packet(left, room.len());
        let mut share = Share::new(left, means, room.len());
        let mut pen = Pen::new(room);
        while let Some(channel) = self.first(left, now) {
            pen.set_limit(self.limit(&share, channel, now));
            let written = self.write_frame(channel, &mut pen, packet, now);
            if !written {
                share.wait(self.waiting_frame_bytes(channel));
            }
            let done = !self.is_ready(channel);
            if done && written {
                self.schedule.sated(channel, now);
            }
            if !written || done {
                left &= !(1 << channel.0);
            }
            if pen.is_closed() {
                break;
            }
        }
        pen.finish()
    }

    /// A packet begins with these channels ready, one bit for each, and so much room.
    fn begin_packet(&mut self, ready: u64, room: usize) {
        self.schedule.begin_packet(&self.layout, ready, room);
        for channel in self.channels().filter(|channel| ready >> channel.0 & 1 != 0) {
            if let Some(candidate) = self.candidate(channel) {
                self.schedule.note_wait(candidate);
            }
        }
    }

    /// Whether so much is under way that no more should leave until something of it has arrived or is lost. What leaves all
    /// the same counts the oldest as lost.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.newest.is_some_and(|newest| self.carried.is_full(newest))
    }

    /// Packets up to this number have left without frames of channels. To be told of at least every 32,767 numbers, so
    /// that newer ones can be told from older ones.
    pub fn skip(&mut self, packet: Sequence) {
        self.count(packet);
    }

    /// A packet arrived at the peer; also after it was called lost.
    pub fn on_acked(&mut self, packet: Sequence) {
        let Self { carried, outgoing, blocks, sending, .. } = self;
        for load in carried.acked(packet) {
            let index = load.channel_index();
            if let Load::Block { part, .. } = load {
                if let Some(lane) = blocks.get_mut(index) {
                    lane.on_acked(part);
                }
            } else if let Some(outgoing) = outgoing.get_mut(index) {
                outgoing.acked(load, sending);
            }
        }
    }

    /// A packet is lost: what it carried of reliable channels leaves anew, in another packet.
    pub fn on_lost(&mut self, packet: Sequence) {
        let Self { carried, outgoing, blocks, sending, .. } = self;
        for load in carried.lost(packet) {
            lose(outgoing, blocks, sending, load);
        }
    }

    /// Nothing has been heard for longer than the path explains: what the oldest packet carried that is neither
    /// acknowledged nor lost may leave anew.
    pub fn on_probe(&mut self) {
        let Self { carried, outgoing, blocks, .. } = self;
        for load in carried.probe() {
            offer(outgoing, blocks, load);
        }
    }

    /// Notes how far packets have come, and forgets what the oldest ones carried.
    fn count(&mut self, packet: Sequence) {
        let passed = self.newest.map_or(0, |newest| packet.distance_from(newest));
        debug_assert!(passed < 1 << 15, "packets are written in the order of their numbers");
        self.newest = Some(packet);
        let Self { carried, outgoing, blocks, sending, .. } = self;
        carried.make_place(packet, |load| lose(outgoing, blocks, sending, load));
    }

    /// One bit for each channel that could write a frame.
    pub(super) fn ready(&self) -> u64 {
        let ready = self.channels().filter(|channel| self.is_ready(*channel));
        ready.fold(0, |mask, channel| mask | 1 << channel.0)
    }

    pub(super) fn first(&self, mask: u64, now: Instant) -> Option<ChannelId> {
        let left = self.channels().filter(|channel| mask >> channel.0 & 1 != 0);
        self.schedule.first(&self.layout, left.filter_map(|channel| self.candidate(channel)), now)
    }

    fn is_ready(&self, channel: ChannelId) -> bool {
        self.waits(channel) && self.schedule.allows(channel)
    }

    fn waits(&self, channel: ChannelId) -> bool {
        let index = usize::from(channel.0);
        let messages = self.outgoing.get(index).is_some_and(Outgoing::is_ready);
        messages || self.blocks.get(index).is_some_and(BlockLane::wants_room)
    }

    /// Whether something waits only because its channel's budget of this tick is used up.
    pub(super) fn waits_for_tick(&self) -> bool {
        self.channels().any(|channel| self.waits(channel) && !self.schedule.allows(channel))
    }

    pub(super) fn candidate(&self, channel: ChannelId) -> Option<Candidate> {
        let index = usize::from(channel.0);
        let messages = self.outgoing.get(index).and_then(Outgoing::waits_since);
        let since = messages.or_else(|| self.blocks.get(index).and_then(BlockLane::waits_since))?;
        self.schedule.allows(channel).then_some(Candidate { channel, since })
    }

    pub(super) fn channels(&self) -> impl Iterator<Item = ChannelId> + use<> {
        (0..self.layout.channels().len()).map(|id| ChannelId(id as u8))
    }

    /// Lets a channel write a frame, and answers whether it did.
    fn write_frame(&mut self, channel: ChannelId, pen: &mut Pen<'_>, packet: Sequence, now: Instant) -> bool {
        let before = pen.at();
        let is_blocks = self.layout.channel(channel).is_some_and(|config| config.kind == Kind::Blocks);
        let written = if is_blocks {
            self.write_block(channel, pen, packet).is_some()
        } else {
            self.write_message(channel, pen, packet, now).unwrap_or(false)
        };
        let bytes = pen.at() - before;
        if let (true, Some(outgoing)) = (written, self.outgoing.get_mut(usize::from(channel.0))) {
            outgoing.counters.frame_bytes += bytes as u64;
            self.schedule.charge(&self.layout, channel, bytes, now);
            self.bursts.note(channel, bytes, now);
        }
        written
    }

    fn write_message(
        &mut self,
        channel: ChannelId,
        pen: &mut Pen<'_>,
        sequence: Sequence,
        now: Instant,
    ) -> Option<bool> {
        let outgoing = self.outgoing.get_mut(usize::from(channel.0))?;
        let kind = self.layout.channel(channel)?.kind;
        let (sending, carried) = (&mut self.sending, &mut self.carried);
        Some(outgoing.write(channel, kind, &mut Packet { pen, sending, carried, sequence, now }))
    }

    fn write_block(&mut self, channel: ChannelId, pen: &mut Pen<'_>, packet: Sequence) -> Option<()> {
        let lane = self.blocks.get_mut(usize::from(channel.0))?;
        let part = pen.block(channel, |room| lane.write(room))?;
        self.carried.note(packet, Load::Block { channel, part });
        Some(())
    }
}

/// Tells that a load is lost: to be sent anew, or to be given up.
fn lose(outgoing: &mut [Outgoing], blocks: &mut [BlockLane], sending: &mut Sending, load: Load) {
    match load {
        Load::Once { share, .. } => sending.receipts.lost(share),
        load => offer(outgoing, blocks, load),
    }
}

fn offer(outgoing: &mut [Outgoing], blocks: &mut [BlockLane], load: Load) {
    let index = load.channel_index();
    if let Load::Block { part, .. } = load {
        if let Some(lane) = blocks.get_mut(index) {
            lane.on_lost(part);
        }
    } else if let Some(outgoing) = outgoing.get_mut(index) {
        outgoing.offer(load);
    }
}
