//! All channels of one connection: messages in, frames out; frames in, messages out.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

mod pack;
mod receive;
mod share;

use super::block::{Block, BlockId, Blocks, HashingGrant, PartialBlock};
use super::block_lane::{BlockLane, End};
use super::carried::Carried;
use super::incoming::Incoming;
use super::layout::{ChannelId, Kind, Layout};
use super::outgoing::Outgoing;
use super::pieces::{RETENTION, Store};
use super::precedence::Bursts;
use super::queue::Terms;
use super::receipts::Asked;
use super::schedule::Schedule;
use super::sending::Sending;
use super::stats::ChannelStats;
use super::{ChannelEvent, Free, SendError, SendOptions};
use crate::reliability::MemoryBudget;
use crate::wire::reliable::Sequence;
use slipgate_netcode::time::Instant;

/// The channels of one connection.
///
/// Messages go in by [`Channels::send`] and leave as frames by [`Channels::write`]; what the peer's packets carry comes
/// out by [`Channels::next`]. It takes memory for messages as they need it, at most what the layout allows for each channel,
/// and keeps it for ten seconds after the last use; while traffic lasts nothing is allocated. The lists that say which
/// message is where are none of it: they grow as far as messages are ahead of each other, at most to the channel's
/// `queue_messages` (what a peer sends takes 16 bytes for each), and stay as long as the connection, so that what comes now
/// and then asks for nothing.
pub struct Channels {
    layout: Arc<Layout>,
    outgoing: Vec<Outgoing>,
    incoming: Vec<Incoming>,
    /// In the places of channels of blocks.
    blocks: Vec<BlockLane>,
    block_memory: Option<MemoryBudget>,
    hashing: Option<HashingGrant>,
    /// The channel that is asked for news of blocks first, and hashes first: each has its turn.
    first_blocks: usize,
    end: End,
    schedule: Schedule,
    bursts: Bursts,
    carried: Carried,
    /// Of messages that leave.
    sending: Sending,
    /// Of messages that arrive.
    receiving: Store,
    /// The newest packet.
    newest: Option<Sequence>,
    /// A channel whose next message in order may have waited for the one that was delivered last.
    draining: Option<ChannelId>,
}

impl Channels {
    /// The channels of a new connection. What arrives and must wait is stored in memory of `memory`, if it is given:
    /// a budget that many connections share. Ask [`Channels::can_take`] then before a packet is accepted.
    #[must_use]
    pub fn new(layout: Arc<Layout>, memory: Option<MemoryBudget>) -> Self {
        Self {
            outgoing: layout.channels().map(Outgoing::new).collect(),
            incoming: layout.channels().map(|config| Incoming::new(config.kind)).collect(),
            blocks: layout.channels().map(|_| BlockLane::default()).collect(),
            block_memory: None,
            hashing: None,
            first_blocks: 0,
            end: End::Other,
            schedule: Schedule::new(&layout),
            bursts: Bursts::new(layout.channels().count()),
            carried: Carried::default(),
            sending: Sending::new(),
            receiving: Store::new(memory),
            newest: None,
            draining: None,
            layout,
        }
    }

    /// Both halves of each channel count messages from this id on.
    #[cfg(test)]
    pub(super) fn begin_ids_at(&mut self, number: u32) {
        let id = super::message_id::MessageId::new(number);
        self.outgoing.iter_mut().for_each(|outgoing| outgoing.begin_ids_at(id));
        self.incoming.iter_mut().for_each(|incoming| incoming.begin_ids_at(id));
    }

    /// The same with blocks that take their memory from `memory`, a budget that many connections share. It should be
    /// another one than that of messages, which must not wait until a block is whole.
    #[must_use]
    pub fn with_block_memory(self, memory: MemoryBudget) -> Self {
        Self { block_memory: Some(memory), ..self }
    }

    /// From now on, before there are blocks, no more of those that arrive is hashed than `grant` allows when events are
    /// asked for: one allowance is handed round among many connections. Who grants goes on as long as there
    /// [is work](Channels::has_blocks_to_hash); deadlines do not tell of it.
    pub(crate) fn hash_within(&mut self, grant: HashingGrant) {
        self.hashing = Some(grant);
    }

    /// The same as the server's end of a connection, which takes no blocks of clients unless the channel says so: see
    /// [`Admission`](super::block::Admission).
    #[must_use]
    pub fn of_server(self) -> Self {
        Self { end: End::Server, ..self }
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
    /// the layout does not allow; `Backlogged` when the queue is full, which [`Channels::free`] tells before, or too many
    /// receipts are awaited or were not taken.
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
        let receipt = options.receipt.map(|tag| Asked { channel, tag });
        let terms = Terms { deadline, key: options.key, receipt, now };
        let sent = if receipt.is_some() && self.sending.receipts.free() == 0 {
            Err(SendError::Backlogged)
        } else {
            outgoing.push(config, message, terms, &mut self.sending)
        };
        match sent {
            Ok(()) => outgoing.counters.sent += 1,
            Err(_) => outgoing.counters.backlogged += 1,
        }
        sent
    }

    /// Takes a block to be sent; `label` tells the peer's application what it is. What becomes of it comes by
    /// [`Channels::poll_event`].
    ///
    /// # Errors
    /// `NoChannel` and `WrongKind` for a channel that does not exist or is one of messages; `Backlogged` when as many
    /// blocks wait as its settings allow.
    pub fn send_block(&mut self, channel: ChannelId, block: Block, label: u64) -> Result<BlockId, SendError> {
        self.layout.channel(channel).ok_or(SendError::NoChannel)?;
        let blocks = self.blocks_mut(channel).ok_or(SendError::WrongKind)?;
        blocks.begin(block, label).map_err(|_| SendError::Backlogged)
    }

    /// The blocks of a channel: how far they are. `None` if there were none yet.
    #[must_use]
    pub fn blocks(&self, channel: ChannelId) -> Option<&Blocks> {
        self.blocks.get(usize::from(channel.0))?.get()
    }

    /// The blocks of a channel: to accept, refuse, cancel and keep them. Their frames are this type's own affair. `None`
    /// if it is no channel of blocks.
    pub fn blocks_mut(&mut self, channel: ChannelId) -> Option<&mut Blocks> {
        let config = self.layout.channel(channel).filter(|config| config.kind == Kind::Blocks)?;
        let lane = self.blocks.get_mut(usize::from(channel.0))?;
        lane.machine(config, self.block_memory.as_ref(), self.hashing.as_ref(), self.end)
    }

    /// What is left of the peer's blocks when the connection has ended, to be kept by the next one. No more blocks come or
    /// go afterwards.
    pub fn take_partials(&mut self) -> impl Iterator<Item = (ChannelId, PartialBlock)> + use<> {
        let lanes = (0..).map(ChannelId).zip(core::mem::take(&mut self.blocks));
        lanes.flat_map(|(channel, lane)| lane.into_partials().map(move |partial| (channel, partial)))
    }

    /// What the application has to hear next beside messages. To be called until `None` once a tick: each call also
    /// hashes some of the blocks that have arrived.
    pub fn poll_event(&mut self) -> Option<ChannelEvent> {
        if let Some(receipt) = self.sending.receipts.poll() {
            return Some(receipt);
        }
        let (first, count) = (self.first_blocks, self.blocks.len());
        for at in (0..count).map(|at| (first + at) % count) {
            if let Some(event) = self.blocks.get_mut(at).and_then(BlockLane::poll_event) {
                return Some(ChannelEvent::Block { channel: ChannelId(at as u8), event });
            }
        }
        self.first_blocks = (first + 1) % count.max(1);
        None
    }

    /// Whether blocks that have arrived are to be hashed.
    pub(crate) fn has_blocks_to_hash(&self) -> bool {
        self.blocks.iter().any(BlockLane::has_work)
    }

    /// What the channel's queue could still take; nothing for a channel that does not exist.
    #[must_use]
    pub fn free(&self, channel: ChannelId) -> Free {
        let outgoing = self.outgoing.get(usize::from(channel.0));
        let config = self.layout.channel(channel).filter(|config| config.kind != Kind::Blocks);
        outgoing.zip(config).map_or(Free::default(), |(outgoing, config)| outgoing.free(config, &self.sending))
    }

    /// What the channel has counted; `None` for a channel that does not exist.
    #[must_use]
    pub fn stats(&self, channel: ChannelId) -> Option<ChannelStats> {
        self.outgoing.get(usize::from(channel.0)).map(|outgoing| outgoing.counters)
    }

    /// Bytes of memory that messages take now, those that leave and those that arrive, without the lists of them.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.sending.store.bytes() + self.receiving.bytes()
    }

    /// When there is something to do that nothing from outside brings about: blocks that have arrived are to be hashed,
    /// receipts are to be taken, a budget lets no more leave in this tick, or memory is to be given back.
    #[must_use]
    pub fn next_deadline(&self, now: Instant) -> Option<Instant> {
        self.next_deadline_by_ticks(now, Duration::ZERO)
    }

    /// As [`next_deadline`](Self::next_deadline), where the next tick begins so much later.
    pub(crate) fn next_deadline_by_ticks(&self, now: Instant, tick: Duration) -> Option<Instant> {
        let hashes = self.hashing.is_none() && self.has_blocks_to_hash();
        if hashes || self.sending.receipts.has_news() {
            return Some(now);
        }
        if self.waits_for_tick() {
            return Some(now.after(tick));
        }
        (self.memory_bytes() > 0).then(|| now.after(RETENTION))
    }

    /// A tick begins: budgets are filled up, and what is past its deadline is dropped.
    pub fn begin_tick(&mut self, now: Instant) {
        self.schedule.begin_tick(&self.layout);
        self.bursts.begin_tick();
        for (outgoing, incoming) in self.outgoing.iter_mut().zip(&mut self.incoming) {
            outgoing.begin_tick(now, &mut self.sending);
            outgoing.counters.dropped += incoming.tick(now, &mut self.receiving);
        }
        self.sending.store.tick(now);
        self.receiving.tick(now);
    }
}
