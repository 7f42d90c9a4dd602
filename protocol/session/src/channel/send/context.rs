//! The shared context of all senders: memory, receipts, and the frame that is being written.

use crate::channel::chunks::{ChunkList, ChunkPool};
use crate::channel::config::ChannelId;
use crate::channel::events::DeliveryStatus;
use crate::channel::send::frames_in_flight::{FramesInFlight, SentFrame};
use crate::channel::send::receipts::{ReceiptId, Receipts};
use crate::channel::stats::ChannelStats;
use crate::channel::wire::frame_writer::FrameWriter;
use crate::wire::reliable::Sequence;
use slipgate_netcode::time::Instant;

/// Memory and receipts of all messages that leave.
pub(crate) struct SendContext {
    pub(crate) pool: ChunkPool,
    pub(crate) receipts: Receipts,
    /// The channel that begins the next packet, because its slice may not share one.
    pub(crate) waits_for_packet: Option<ChannelId>,
}

impl SendContext {
    pub(crate) const fn new(pool: ChunkPool) -> Self {
        Self { pool, receipts: Receipts::new(), waits_for_packet: None }
    }

    /// Frees a message's memory and reports its delivery status.
    pub(crate) fn close(&mut self, chunks: ChunkList, receipt: Option<ReceiptId>, status: DeliveryStatus) {
        self.pool.release(chunks);
        self.receipts.finish(receipt, status);
    }
}

/// The context in which a channel writes a frame.
pub(crate) struct FrameContext<'a, 'buf> {
    pub(crate) channel: ChannelId,
    pub(crate) writer: &'a mut FrameWriter<'buf>,
    pub(crate) shared: &'a mut SendContext,
    pub(crate) in_flight: &'a mut FramesInFlight,
    pub(crate) stats: &'a mut ChannelStats,
    pub(crate) sequence: Sequence,
    pub(crate) now: Instant,
}

impl FrameContext<'_, '_> {
    /// Notes a frame of which the acknowledgement or loss matters.
    pub(crate) fn push(&mut self, frame: SentFrame) {
        self.in_flight.push(self.sequence, frame);
    }

    /// Notes that the packet carries a part of a message that is sent once, if the message has a receipt.
    pub(crate) fn add_receipt_part(&mut self, receipt: Option<ReceiptId>) {
        if let Some(part) = receipt.and_then(|id| self.shared.receipts.add_part(id)) {
            self.push(SentFrame::Once { channel: self.channel, part });
        }
    }
}
