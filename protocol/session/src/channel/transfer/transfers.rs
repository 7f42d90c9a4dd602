//! A channel of transfers: both directions, and the outgoing transfers that take turns or wait.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use super::TransferReason;
use super::frame::TransferFrame;
use super::incoming::IncomingTransfers;
use super::receiver::PartialTransfer;
use super::sender::TransferSender;
use super::store::HashingGrant;
use super::{
    Reception, SentTransferFrame, Transfer, TransferConfig, TransferConfigError, TransferEvent, TransferId,
    TransferProgress, TransferViolation, WINDOW,
};
use crate::reliability::MemoryBudget;
use crate::send_error::SendError;
use slipgate_netcode::slab::MustExist;

/// A channel of transfers.
///
/// # Examples
///
/// ```
/// use slipgate_session::channel::transfer::{Transfer, Transfers, TransferConfig, TransferEvent};
///
/// let channel = || Transfers::new(TransferConfig::default(), None).expect("good settings");
/// let (mut server, mut client) = (channel(), channel());
/// server.begin(Transfer::new(vec![7; 5000]).expect("at most 64 MiB"), 1).expect("nothing waits yet");
/// let mut buf = [0; 1100];
/// let content = loop {
///     while let Some((bytes, sent)) = server.write(&mut buf) {
///         client.on_frame(&buf[..bytes]).expect("an honest peer");
///         server.on_acked(sent);
///     }
///     while let Some((bytes, sent)) = client.write(&mut buf) {
///         server.on_frame(&buf[..bytes]).expect("an honest peer");
///         client.on_acked(sent);
///     }
///     if let Some(TransferEvent::Received { content, .. }) = client.poll_event() {
///         break content;
///     }
/// };
/// assert_eq!(content.into_vec(), [7; 5000]);
/// ```
pub struct Transfers {
    outgoing: OutgoingTransfers,
    incoming: IncomingTransfers,
}

impl Transfers {
    /// Creates a channel with these settings. Received transfers take their memory from `budget`, if there is one.
    ///
    /// # Errors
    /// - `SliceBytes`: `slice_bytes` is not within 128 to 1,152.
    /// - `TransferBytes`: `max_transfer_bytes` exceeds 64 MiB or `max_bytes_at_once`.
    /// - `AtOnce`: `max_at_once` is not within 1 to 64.
    pub fn new(config: TransferConfig, budget: Option<MemoryBudget>) -> Result<Self, TransferConfigError> {
        config.check()?;
        Ok(Self { outgoing: OutgoingTransfers::new(&config), incoming: IncomingTransfers::new(config, budget) })
    }

    /// Limits the hashing of received transfers to the grant.
    pub(crate) fn hash_within(&mut self, grant: HashingGrant) {
        self.incoming.hash_within(grant);
    }

    /// Queues a transfer. `label` describes it to the peer's application.
    ///
    /// # Errors
    /// [`SendError::Backlogged`] if `max_waiting` transfers wait.
    pub fn begin(&mut self, transfer: Transfer, label: u64) -> Result<TransferId, SendError> {
        self.outgoing.begin(transfer, label)
    }

    /// Cancels an outgoing transfer. Returns whether there was one. No event follows. The peer may have received all of
    /// it by then.
    pub fn cancel(&mut self, id: TransferId) -> bool {
        self.outgoing.cancel(id)
    }

    /// Accepts an offered transfer. Returns whether there is such an offer, and it fits into `max_bytes_at_once`.
    pub fn accept(&mut self, id: TransferId) -> bool {
        self.incoming.accept(id)
    }

    /// Refuses an offered transfer, or cancels one that is being received. Returns what has arrived of it. No event
    /// follows.
    pub fn refuse(&mut self, id: TransferId) -> Option<PartialTransfer> {
        self.incoming.cancel(id)
    }

    /// Keeps a partial transfer of an earlier connection: when the peer offers the same content, only the rest is sent.
    ///
    /// # Errors
    /// Returns it if `max_at_once` are kept already.
    pub fn keep(&mut self, partial: PartialTransfer) -> Result<(), PartialTransfer> {
        self.incoming.keep(partial)
    }

    /// Returns the incomplete transfers of the peer when the connection has ended, to [`keep`](Self::keep) them in the
    /// next one.
    pub fn into_partials(self) -> impl Iterator<Item = PartialTransfer> {
        self.incoming.into_partials()
    }

    /// Returns the progress of outgoing transfers, waiting ones included.
    pub fn sending(&self) -> impl Iterator<Item = (TransferId, TransferProgress)> {
        self.outgoing.progress()
    }

    /// Returns the progress of incoming transfers.
    pub fn receiving(&self) -> impl Iterator<Item = (TransferId, TransferProgress)> {
        self.incoming.progress()
    }

    /// Returns whether there is a frame to write.
    pub(crate) fn has_frames(&self) -> bool {
        self.incoming.has_frames() || self.outgoing.has_frames()
    }

    /// Writes one frame: control frames first, then slices, of each transfer in turn. Returns its bytes and a record of
    /// it, or `None` if there is nothing to write or it does not fit. The cost does not depend on the transfer's size.
    pub fn write(&mut self, buf: &mut [u8]) -> Option<(usize, SentTransferFrame)> {
        let had_frames = self.has_frames();
        let control = self.incoming.write(buf).or_else(|| self.outgoing.write_control(buf));
        let written = control.or_else(|| self.outgoing.write_slices(buf));
        debug_assert!(had_frames || written.is_none(), "only frames that are announced are written");
        written
    }

    /// Handles the acknowledgement of a packet with this frame. It may be repeated, and may follow
    /// [`Transfers::on_lost`].
    pub fn on_acked(&mut self, sent: SentTransferFrame) {
        match sent {
            SentTransferFrame::Begin(id)
            | SentTransferFrame::Withdraw(id)
            | SentTransferFrame::Slices { transfer: id, .. } => self.outgoing.on_acked(id, sent),
            SentTransferFrame::Accept { .. } | SentTransferFrame::Close(_) => self.incoming.on_acked(sent),
        }
    }

    /// Handles the loss of a packet with this frame: the frame is written again if it still matters.
    pub fn on_lost(&mut self, sent: SentTransferFrame) {
        match sent {
            SentTransferFrame::Begin(id)
            | SentTransferFrame::Withdraw(id)
            | SentTransferFrame::Slices { transfer: id, .. } => self.outgoing.on_lost(id, sent),
            SentTransferFrame::Accept { .. } | SentTransferFrame::Close(_) => self.incoming.on_lost(sent),
        }
    }

    /// Handles a frame of the peer.
    ///
    /// # Errors
    /// The [`TransferViolation`] of a frame that no conforming peer sends. Nothing has changed, and the connection
    /// should end.
    pub fn on_frame(&mut self, bytes: &[u8]) -> Result<Reception, TransferViolation> {
        // The frame type decides the direction: both have ids of their own.
        let frame = TransferFrame::parse(bytes)?;
        match frame {
            TransferFrame::Begin(begin) => self.incoming.on_begin(begin),
            TransferFrame::Slice { id, index, bytes } => self.incoming.on_slices(id, index, bytes),
            TransferFrame::Withdraw { id, reason } => Ok(self.incoming.on_withdraw(id, reason)),
            TransferFrame::Accept { id, .. } | TransferFrame::Done { id } | TransferFrame::Refuse { id, .. } => {
                self.outgoing.on_frame(id, &frame)
            }
        }
    }

    /// Returns whether [`Transfers::poll_event`] would hash received data. It should be called soon then, even if
    /// nothing arrives.
    pub(crate) fn has_unhashed(&self) -> bool {
        self.incoming.has_unhashed()
    }

    /// Returns the next event. Call it until `None` once a tick: at most a megabyte of all received
    /// transfers of the channel is hashed in turn, which takes one or two milliseconds. A server has one allowance for
    /// all its clients instead.
    pub fn poll_event(&mut self) -> Option<TransferEvent> {
        self.outgoing.poll_event().or_else(|| self.incoming.poll_event())
    }
}

impl fmt::Debug for Transfers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sending, receiving) = (self.sending().count(), self.receiving().count());
        f.debug_struct("Transfers").field("sending", &sending).field("receiving", &receiving).finish()
    }
}

/// All outgoing transfers of a channel.
pub(super) struct OutgoingTransfers {
    next_id: TransferId,
    waiting: VecDeque<WaitingTransfer>,
    active: Vec<TransferSender>,
    max_active: usize,
    max_waiting: usize,
    slice_bytes: u16,
    /// The transfer that writes next. It rotates.
    turn: usize,
}

struct WaitingTransfer {
    id: TransferId,
    label: u64,
    transfer: Transfer,
}

impl OutgoingTransfers {
    pub(super) fn new(config: &TransferConfig) -> Self {
        Self {
            next_id: TransferId(0),
            waiting: VecDeque::new(),
            active: Vec::new(),
            max_active: config.max_at_once.into(),
            max_waiting: config.max_waiting,
            slice_bytes: config.slice_bytes,
            turn: 0,
        }
    }

    pub(super) fn begin(&mut self, transfer: Transfer, label: u64) -> Result<TransferId, SendError> {
        // A slot may have become free since the last call.
        self.start_waiting();
        if self.waiting.len() >= self.max_waiting && !self.can_start(self.next_id) {
            return Err(SendError::Backlogged);
        }
        let id = self.next_id;
        self.next_id = TransferId(id.0.wrapping_add(1));
        self.waiting.push_back(WaitingTransfer { id, label, transfer });
        self.start_waiting();
        Ok(id)
    }

    pub(super) fn cancel(&mut self, id: TransferId) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| waiting.id != id);
        if self.waiting.len() < before {
            return true;
        }
        // It does not wait, but may be in progress.
        let sender = self.find(id);
        let found = sender.is_some();
        if let Some(sender) = sender {
            sender.cancel(TransferReason::Cancelled);
        }
        self.drop_ended();
        found
    }

    pub(super) fn progress(&self) -> impl Iterator<Item = (TransferId, TransferProgress)> {
        let waiting =
            self.waiting.iter().map(|waiting| (waiting.id, TransferProgress { bytes: 0, of: waiting.transfer.length }));
        self.active.iter().map(|sender| (sender.id(), sender.progress())).chain(waiting)
    }

    pub(super) fn has_frames(&self) -> bool {
        self.active.iter().any(TransferSender::has_frames)
    }

    pub(super) fn write_control(&mut self, buf: &mut [u8]) -> Option<(usize, SentTransferFrame)> {
        self.active.iter_mut().find_map(|sender| sender.write_control(buf))
    }

    /// Writes slices of the transfer that is next. The next slices are of another transfer, if there is one.
    pub(super) fn write_slices(&mut self, buf: &mut [u8]) -> Option<(usize, SentTransferFrame)> {
        let count = self.active.len();
        for _ in 0..count {
            // Round robin by frame: small transfers complete early.
            self.turn = (self.turn + 1) % count;
            let written = self.active.get_mut(self.turn).and_then(|sender| sender.write_slices(buf));
            if written.is_some() {
                return written;
            }
        }
        None
    }

    pub(super) fn on_acked(&mut self, id: TransferId, sent: SentTransferFrame) {
        if let Some(sender) = self.find(id) {
            sender.on_acked(sent);
            // Frees the slot for a waiting transfer.
            if sender.is_over() {
                self.drop_ended();
            }
        }
    }

    pub(super) fn on_lost(&mut self, id: TransferId, sent: SentTransferFrame) {
        if let Some(sender) = self.find(id) {
            sender.on_lost(sent);
        }
    }

    pub(super) fn on_frame(
        &mut self,
        id: TransferId,
        frame: &TransferFrame<'_>,
    ) -> Result<Reception, TransferViolation> {
        if let Some(sender) = self.find(id) {
            let reception = sender.on_frame(frame)?;
            if sender.is_over() {
                // Cancelled here before its end was reported: there is no acknowledgement to wait for.
                self.drop_ended();
            }
            return Ok(reception);
        }
        // Ids wrap: half of them count as past.
        let was_started = self.next_id.0.wrapping_sub(id.0).wrapping_sub(1) < 1 << 15;
        let waits = self.waiting.iter().any(|waiting| waiting.id == id);
        // A reply to a transfer that has ended is late. A reply to one that was never started is a violation.
        if was_started && !waits { Ok(Reception::Ignored) } else { Err(TransferViolation::NeverStarted) }
    }

    pub(super) fn poll_event(&mut self) -> Option<TransferEvent> {
        let event = self.active.iter_mut().find_map(TransferSender::poll_event)?;
        self.drop_ended();
        Some(event)
    }

    fn find(&mut self, id: TransferId) -> Option<&mut TransferSender> {
        self.active.iter_mut().find(|sender| sender.id() == id)
    }

    fn drop_ended(&mut self) {
        self.active.retain(|sender| !sender.is_over());
        self.start_waiting();
    }

    fn start_waiting(&mut self) {
        // Transfers start in the order in which they were queued.
        while self.waiting.front().is_some_and(|first| self.can_start(first.id)) {
            let first = self.waiting.pop_front().must_exist("the first waiting transfer");
            let Some(WaitingTransfer { id, label, transfer }) = first else { return };
            self.active.push(TransferSender::begin(transfer, id, label, self.slice_bytes));
        }
    }

    /// Returns whether a transfer can start: fewer than `max_at_once` are in progress, and the id is within the window
    /// of the oldest (§4.1).
    fn can_start(&self, id: TransferId) -> bool {
        self.active.len() < self.max_active
            && self.active.iter().all(|sender| id.0.wrapping_sub(sender.id().0) < WINDOW)
    }
}
