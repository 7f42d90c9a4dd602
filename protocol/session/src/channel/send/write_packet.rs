//! Packets out: which frames a packet carries, and what its acknowledgement or loss means for their messages.
//! `scheduling::share` limits what each priority class may write.

use crate::channel::channel_table::ChannelTable;
use crate::channel::channels::Channels;
use crate::channel::config::{ChannelId, Kind};
use crate::channel::scheduling::send_budget::SendBudget;
use crate::channel::scheduling::share::PacketShare;
use crate::channel::send::context::{FrameContext, SendContext};
use crate::channel::send::frames_in_flight::{Displaced, SentFrame};
use crate::channel::transfer_channel::TransferChannel;
use crate::channel::wire::frame_writer::FrameWriter;
use crate::wire::reliable::Sequence;
use slipgate_netcode::slab::MustExist;
use slipgate_netcode::time::Instant;

impl Channels {
    /// Returns about how many bytes of messages wait, without frame headers, for connections that share an uplink.
    /// `None` when a transfer is in progress, which always has more to send.
    pub(crate) fn waiting_bytes(&self) -> Option<u64> {
        let has_transfers = self.transfers.iter().any(TransferChannel::has_frames);
        (!has_transfers).then(|| self.table.iter().map(|(_, state)| state.sender.waiting_bytes()).sum())
    }

    /// Writes frames into the rest of a packet. Returns how many bytes they take: 0 if nothing waits or fits.
    ///
    /// Packets are written in the order of their sequence numbers. The frames end where the packet ends: nothing may be
    /// written behind them. The caller reports the packet's acknowledgement or loss later with [`Channels::on_acked`]
    /// or [`Channels::on_lost`].
    pub fn write(&mut self, packet: Sequence, now: Instant, buf: &mut [u8]) -> usize {
        self.write_within(packet, now, buf, SendBudget::UNLIMITED)
    }

    /// Writes frames as [`Channels::write`], within what the path would carry now. No class spends what a higher one
    /// waits for.
    pub(crate) fn write_within(&mut self, packet: Sequence, now: Instant, buf: &mut [u8], budget: SendBudget) -> usize {
        self.advance_to(packet);
        // Transfers become ready without a call of the application: their waiting time starts here.
        for transfers in &mut self.transfers {
            transfers.update_waiting_since(now);
        }
        let mut left = self.begin_packet(buf.len());
        if left == 0 {
            return 0;
        }
        let mut share = PacketShare::new(left, budget, buf.len());
        let mut writer = FrameWriter::new(buf);
        let mut first = self.context.waits_for_packet.take().filter(|channel| left & (1 << channel.0) != 0);
        while let Some(channel) = first.take().or_else(|| self.next_channel(left, now)) {
            // The limit depends on what was written before, so it is set for each frame.
            writer.set_limit(self.frame_limit(&share, channel, now));
            writer.is_last = left.is_power_of_two();
            let written = self.write_frame(channel, &mut writer, packet, now);
            if !written {
                // Lower classes must leave credit for it in the next packet.
                share.defer(self.waiting_frame_bytes(channel));
            }
            if self.finish_frame(channel, written, now) {
                left &= !(1 << channel.0);
            }
            if writer.is_closed() {
                break;
            }
        }
        writer.finish()
    }

    /// Returns whether the window of packets in flight is full: send no more until a packet is acked or lost. A packet
    /// that is sent nevertheless makes the oldest one count as lost.
    pub(crate) fn is_full(&self) -> bool {
        self.newest.is_some_and(|newest| self.in_flight.is_full(newest))
    }

    /// Notes that packets up to this number were sent without frames of channels. Call it at least every 32,767
    /// numbers, so that newer packets can be distinguished from older ones.
    pub(crate) fn skip(&mut self, packet: Sequence) {
        // The newest number may be that of a packet without content, which did not leave.
        if self.newest.is_none_or(|newest| packet - newest < 1 << 15) {
            self.advance_to(packet);
        }
    }

    /// Handles the acknowledgement of a packet, also after it was reported lost.
    pub fn on_acked(&mut self, packet: Sequence) {
        let Self { in_flight, table, transfers, context, .. } = self;
        for frame in in_flight.on_acked(packet) {
            if let SentFrame::Transfer { channel, sent } = frame {
                if let Some(transfers) = transfers.get_mut(usize::from(channel.0)).must_exist("the channel of a frame")
                {
                    transfers.on_acked(sent);
                }
            // The window may have room again for a message that waits.
            } else if let Some(sender) = table.pending_sender(frame.channel()) {
                sender.on_acked(frame, context);
            }
        }
    }

    /// Handles the loss of a packet: reliable content is queued again.
    pub fn on_lost(&mut self, packet: Sequence) {
        let Self { in_flight, table, transfers, context, .. } = self;
        for frame in in_flight.on_lost(packet) {
            on_frame_lost(table, transfers, context, frame);
        }
    }

    /// Returns whether a probe would have content: that of a packet that is neither acked nor lost.
    pub(crate) const fn has_probe(&self) -> bool {
        self.in_flight.has_probe()
    }

    /// Handles a probe timeout (RFC 9002 §6.2): queues the content of the oldest packet again that is neither acked nor
    /// lost.
    pub fn on_pto(&mut self) {
        let Self { in_flight, table, transfers, .. } = self;
        for frame in in_flight.on_pto() {
            queue_again(table, transfers, frame);
        }
    }

    /// Notes the newest sequence number, and forgets the frames of the oldest packets.
    fn advance_to(&mut self, packet: Sequence) {
        let distance = self.newest.map_or(0, |newest| packet - newest);
        debug_assert!(distance < 1 << 15, "packets are written in the order of their numbers");
        self.newest = Some(packet);
        let Self { in_flight, table, transfers, context, receive_pool, .. } = self;
        in_flight.make_room(packet, receive_pool, |displaced| match displaced {
            Displaced::Lost(frame) => on_frame_lost(table, transfers, context, frame),
            Displaced::Forgotten(SentFrame::Once { part, .. }) => context.receipts.on_forgotten(part),
            Displaced::Forgotten(_) => {}
        });
    }

    fn write_frame(
        &mut self,
        channel: ChannelId,
        writer: &mut FrameWriter<'_>,
        sequence: Sequence,
        now: Instant,
    ) -> bool {
        let before = writer.pos();
        let Self { table, context, in_flight, .. } = self;
        let Some(state) = table.get_mut(channel).must_exist("a channel of the layout") else { return false };
        // Transfers have no queue of messages.
        let written = if state.kind == Kind::Transfers {
            self.write_transfer(channel, writer, sequence).is_some()
        } else {
            let stats = &mut state.stats;
            let frame = &mut FrameContext { channel, writer, shared: context, in_flight, stats, sequence, now };
            state.sender.write(state.kind, frame)
        };
        // Charged by bytes of frames, headers included.
        if written {
            self.table.charge(channel, writer.pos() - before, now);
        }
        written
    }

    fn write_transfer(&mut self, channel: ChannelId, writer: &mut FrameWriter<'_>, packet: Sequence) -> Option<()> {
        let transfers = self.transfers.get_mut(usize::from(channel.0)).must_exist("a channel of the layout")?;
        let sent = writer.transfer(channel, |buf| transfers.write(buf))?;
        self.in_flight.push(packet, SentFrame::Transfer { channel, sent });
        Some(())
    }
}

/// Handles the loss of a frame: its content is queued again, or its message is lost.
fn on_frame_lost(
    table: &mut ChannelTable,
    transfers: &mut [TransferChannel],
    context: &mut SendContext,
    frame: SentFrame,
) {
    match frame {
        SentFrame::Once { part, .. } => context.receipts.on_lost(part),
        frame => queue_again(table, transfers, frame),
    }
}

fn queue_again(table: &mut ChannelTable, transfers: &mut [TransferChannel], frame: SentFrame) {
    if let SentFrame::Transfer { channel, sent } = frame {
        if let Some(transfers) = transfers.get_mut(usize::from(channel.0)).must_exist("the channel of a frame") {
            transfers.on_lost(sent);
        }
    } else if let Some(sender) = table.pending_sender(frame.channel()) {
        sender.queue_again(frame);
    }
}
