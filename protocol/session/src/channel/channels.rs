//! All channels of one connection: their state, the sending interface, and their events.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::channel::channel_table::ChannelTable;
use crate::channel::chunks::ChunkPool;
use crate::channel::config::{ChannelConfig, ChannelId, Kind};
use crate::channel::events::ChannelEvent;
use crate::channel::layout::Layout;
use crate::channel::options::{Remaining, SendOptions};
use crate::channel::recv::window::max_list_bytes;
use crate::channel::send::context::SendContext;
use crate::channel::send::frames_in_flight::FramesInFlight;
use crate::channel::send::queue::{MessageSource, SendParams};
use crate::channel::send::receipts::ReceiptRequest;
use crate::channel::shared::SharedMessage;
use crate::channel::stats::ChannelStats;
use crate::channel::transfer::{HashingGrant, PartialTransfer, Transfer, TransferId, Transfers};
use crate::channel::transfer_channel::{TransferChannel, TransferRole};
use crate::reliability::MemoryBudget;
use crate::send_error::SendError;
use crate::wire::reliable::Sequence;
use slipgate_netcode::time::Instant;

/// The channels of one connection.
///
/// [`Channels::send`] queues messages, [`Channels::write`] writes them as frames, and [`Channels::next`] returns the
/// messages in the peer's packets. Memory for messages is allocated as needed, at most what the layout allows for each
/// channel, and kept for ten seconds after the last use: nothing is allocated while traffic lasts. The lists of the
/// peer's messages, and the list of frames in flight, belong to that memory beyond 16 KiB each for each connection. The
/// lists of sent messages do not. They grow to at most the channel's `queue_messages` and are kept as long as the
/// connection.
pub struct Channels {
    pub(super) layout: Arc<Layout>,
    pub(super) table: ChannelTable,
    /// One for each channel, unused on channels of messages. Empty before the first transfer, which most connections
    /// never have.
    pub(super) transfers: Vec<TransferChannel>,
    transfer_memory: Option<MemoryBudget>,
    pub(super) hashing: Option<HashingGrant>,
    /// The channel that is polled first for transfers, and hashes first. It rotates.
    first_transfers: usize,
    role: TransferRole,
    pub(super) in_flight: FramesInFlight,
    /// Memory and receipts of messages that leave.
    pub(super) context: SendContext,
    /// Memory of messages that arrive.
    pub(super) receive_pool: ChunkPool,
    /// The newest sequence number.
    pub(super) newest: Option<Sequence>,
    /// An ordered channel of which the next message may have waited for the one that was delivered last.
    pub(super) draining: Option<ChannelId>,
    /// The bytes that the lists of all windows take at most.
    pub(super) max_list_bytes: usize,
    /// Frames that were read and not charged yet.
    pub(super) frames_read: u32,
}

impl Channels {
    /// Creates the channels of a new connection. Received data that must wait is stored in `memory`, a budget that many
    /// connections share, if it is given. Call [`Channels::can_take`] then before a packet is accepted.
    #[must_use]
    pub fn new(layout: Arc<Layout>, memory: Option<MemoryBudget>) -> Self {
        let reliable = layout.channels().filter(|config| config.kind.is_reliable() && config.kind != Kind::Transfers);
        let max_list_bytes = reliable.map(|config| max_list_bytes(config.queue_messages.into())).sum();
        Self {
            table: ChannelTable::new(&layout),
            transfers: Vec::new(),
            transfer_memory: None,
            hashing: None,
            first_transfers: 0,
            role: TransferRole::Other,
            in_flight: FramesInFlight::new(),
            context: SendContext::new(ChunkPool::new(None)),
            receive_pool: ChunkPool::new(memory),
            newest: None,
            draining: None,
            max_list_bytes,
            frames_read: 0,
            layout,
        }
    }

    /// Counts messages from this id on, in both directions of each channel.
    #[cfg(test)]
    pub(crate) fn begin_ids_at(&mut self, number: u32) {
        let id = super::wire::message_id::MessageId::new(number);
        for state in self.table.iter_mut() {
            state.sender.begin_ids_at(id);
            state.receiver.begin_ids_at(id);
        }
    }

    /// Lets transfers take their memory from `memory`, a budget that many connections share. It should be another one
    /// than that of messages, which must not wait until a transfer is complete.
    pub(crate) fn with_transfer_memory(self, memory: MemoryBudget) -> Self {
        Self { transfer_memory: Some(memory), ..self }
    }

    /// Limits the hashing of received transfers to what `grant` allows: many connections share one allowance. Call it
    /// before there are transfers. The owner of the grant polls the connection while
    /// [`Channels::has_transfers_to_hash`]; deadlines do not cover that work.
    pub(crate) fn hash_within(&mut self, grant: HashingGrant) {
        self.hashing = Some(grant);
    }

    /// Marks the server's end of a connection, which refuses transfers of clients by default: see
    /// [`TransferAdmission`](super::transfer::TransferAdmission).
    pub(crate) fn of_server(self) -> Self {
        Self { role: TransferRole::Server, ..self }
    }

    /// Returns the layout.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Queues a message on a channel. Its bytes are copied once.
    ///
    /// # Errors
    /// - [`SendError::NoChannel`] when the layout has no such channel, [`SendError::WrongKind`] when it is one of
    ///   transfers.
    /// - [`SendError::TooLarge`] when the message exceeds the channel's `max_message_bytes`.
    /// - [`SendError::Backlogged`] when the queue is full, which [`Channels::remaining`] shows before, or too many
    ///   receipts are open or not polled.
    pub fn send(
        &mut self,
        channel: ChannelId,
        message: &[u8],
        options: SendOptions,
        now: Instant,
    ) -> Result<(), SendError> {
        self.push(channel, MessageSource::Copied(message), options, now)
    }

    /// Queues a message on a channel by reference: its bytes are not copied before they are written into a packet. They
    /// count against the queue's limit like those of any message.
    ///
    /// # Errors
    /// As [`Channels::send`].
    pub(crate) fn send_shared(
        &mut self,
        channel: ChannelId,
        message: &SharedMessage,
        options: SendOptions,
        now: Instant,
    ) -> Result<(), SendError> {
        self.push(channel, MessageSource::Shared(message), options, now)
    }

    fn push(
        &mut self,
        channel: ChannelId,
        message: MessageSource<'_>,
        options: SendOptions,
        now: Instant,
    ) -> Result<(), SendError> {
        // The checks need no state and come first.
        let missing = SendError::NoChannel { channel, channels: self.table.len() };
        let config = self.layout.channel(channel).ok_or(missing)?;
        if config.kind == Kind::Transfers {
            return Err(SendError::WrongKind);
        }
        let (bytes, limit) = (message.len(), config.max_message_bytes as usize);
        if bytes > limit {
            return Err(SendError::TooLarge { channel: Some(channel), bytes, limit });
        }
        // The deadline becomes absolute here: time in the queue counts.
        let deadline = options.deadline.or(config.deadline).map_or(Instant::NEVER, |after| now.after(after));
        let receipt = options.receipt.map(|tag| ReceiptRequest { channel, tag });
        let params = SendParams { deadline, key: options.key, receipt, now };
        // Checked before the message is queued, so that a refused message changes nothing.
        self.table.set_pending(channel);
        let state = self.table.get_mut(channel).ok_or(missing)?;
        let queued = if receipt.is_some() && self.context.receipts.remaining() == 0 {
            None
        } else {
            state.sender.push(config, message, params, &mut self.context)
        };
        let Some(superseded) = queued else {
            state.stats.backlogged += 1;
            return Err(SendError::Backlogged);
        };
        state.stats.sent += 1;
        state.stats.superseded += superseded;
        Ok(())
    }

    /// Queues a transfer. `label` describes it to the peer's application. [`Channels::poll_event`] reports its outcome.
    ///
    /// # Errors
    /// - [`SendError::NoChannel`] when the layout has no such channel, [`SendError::WrongKind`] when it is one of
    ///   messages.
    /// - [`SendError::Backlogged`] when `max_waiting` transfers wait.
    pub fn send_transfer(
        &mut self,
        channel: ChannelId,
        transfer: Transfer,
        label: u64,
    ) -> Result<TransferId, SendError> {
        let channels = self.layout.channels().len();
        self.layout.channel(channel).ok_or(SendError::NoChannel { channel, channels })?;
        let transfers = self.transfers_mut(channel).ok_or(SendError::WrongKind)?;
        transfers.begin(transfer, label)
    }

    /// Returns the transfers of a channel, for their progress. `None` if there were none yet.
    #[must_use]
    pub fn transfers(&self, channel: ChannelId) -> Option<&Transfers> {
        self.transfers.get(usize::from(channel.0))?.get()
    }

    /// Returns the transfers of a channel, to accept, refuse, cancel and resume them. The channel writes and reads
    /// their frames itself. `None` if it is not a channel of transfers.
    pub fn transfers_mut(&mut self, channel: ChannelId) -> Option<&mut Transfers> {
        let config = self.layout.channel(channel).filter(|config| config.kind == Kind::Transfers)?;
        self.table.set_pending(channel);
        if self.transfers.is_empty() {
            self.transfers.resize_with(self.table.len(), TransferChannel::default);
        }
        let transfers = self.transfers.get_mut(usize::from(channel.0))?;
        transfers.get_or_create(config, self.transfer_memory.as_ref(), self.hashing.as_ref(), self.role)
    }

    /// Returns the incomplete transfers of the peer when the connection has ended, to resume them on the next
    /// connection. Ends all transfers.
    pub(crate) fn take_partials(&mut self) -> impl Iterator<Item = (ChannelId, PartialTransfer)> + use<> {
        // Packets with frames of these channels may still be in flight.
        let empty = self.transfers.iter().map(|_| TransferChannel::default()).collect();
        let channels = (0..).map(ChannelId).zip(core::mem::replace(&mut self.transfers, empty));
        channels.flat_map(|(id, transfers)| transfers.into_partials().map(move |partial| (id, partial)))
    }

    /// Returns the next event. Call it until `None` once a tick, because it also hashes a part of the transfers that
    /// have arrived.
    pub fn poll_event(&mut self) -> Option<ChannelEvent> {
        // Receipts first: they cost nothing.
        if let Some(receipt) = self.context.receipts.poll() {
            return Some(receipt);
        }
        if self.transfers.is_empty() {
            return None;
        }
        let (first, count) = (self.first_transfers, self.transfers.len());
        for index in (0..count).map(|index| (first + index) % count) {
            if let Some(event) = self.transfers.get_mut(index).and_then(TransferChannel::poll_event) {
                return Some(ChannelEvent::Transfer { channel: ChannelId(index as u8), event });
            }
        }
        // Rotates only when all channels are drained, so that each gets its share of the hashing budget.
        self.first_transfers = (first + 1) % count;
        None
    }

    /// Returns whether received transfers wait to be hashed.
    pub(crate) fn has_transfers_to_hash(&self) -> bool {
        self.transfers.iter().any(TransferChannel::has_unhashed)
    }

    /// Returns what the channel's queue can still take. Zeros for a channel that does not exist.
    #[must_use]
    pub fn remaining(&self, channel: ChannelId) -> Remaining {
        // A channel of transfers has a limit of transfers, not of bytes.
        let config = self.layout.channel(channel).filter(|config| config.kind != Kind::Transfers);
        let state = self.table.get(channel).zip(config);
        state.map_or(Remaining::default(), |(state, config)| state.sender.remaining(config, &self.context))
    }

    /// Returns the channel's counters. `None` for a channel that does not exist.
    #[must_use]
    pub fn stats(&self, channel: ChannelId) -> Option<ChannelStats> {
        self.table.get(channel).map(|state| state.stats)
    }

    /// Returns the bytes of memory that messages take now, in both directions, without the lists of messages and
    /// without shared messages.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.context.pool.bytes() + self.receive_pool.bytes()
    }

    /// Begins a tick: refills the channels' bytes per tick, and discards expired messages.
    pub fn begin_tick(&mut self, now: Instant) {
        self.table.begin_tick();
        let mut expired_on = 0;
        // Expired messages free their chunks before the pools are asked for unused memory below.
        for (channel, state) in (0..).zip(self.table.iter_mut()) {
            let expired = state.sender.begin_tick(now, &mut self.context);
            state.stats.expired += expired;
            // A message that expires may make room for the one behind it.
            expired_on |= u64::from(expired > 0) << channel;
        }
        self.table.pending |= expired_on;
        self.context.pool.tick(now);
        // What a receiver discards or frees after a time is in the pool.
        if self.receive_pool.is_in_use() {
            for state in self.table.iter_mut() {
                state.stats.dropped += state.receiver.tick(now, &mut self.receive_pool);
            }
            self.in_flight.tick(now, &mut self.receive_pool);
            self.receive_pool.tick(now);
        }
    }

    /// Returns all channels, in the order of their ids.
    pub(crate) fn channel_ids(&self) -> impl Iterator<Item = ChannelId> + use<> {
        (0..self.layout.channels().len()).map(|id| ChannelId(id as u8))
    }

    /// Returns the settings of a channel of transfers.
    pub(crate) fn transfer_config(&self, channel: ChannelId) -> Option<&ChannelConfig> {
        self.layout.channel(channel).filter(|config| config.kind == Kind::Transfers)
    }
}
