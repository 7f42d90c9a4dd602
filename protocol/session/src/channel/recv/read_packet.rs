//! Packets in: frames are parsed and become messages.

use alloc::vec::Vec;

use crate::channel::channels::Channels;
use crate::channel::config::{ChannelId, Kind};
use crate::channel::events::ReceivedMessage;
use crate::channel::layout::MAX_CHANNELS;
use crate::channel::recv::receiver::ReceiveContext;
use crate::channel::recv::window::{FrameOutcome, WindowPreview};
use crate::channel::transfer::Reception;
use crate::channel::violation::ChannelViolation;
use crate::channel::wire::frame::{FrameBody, FrameCursor, MessageFrame};
use crate::wire::PayloadSpan;
use slipgate_netcode::slab::MustExist;
use slipgate_netcode::time::Instant;

/// The minimum bytes of a frame with a piece of a message: head, id, and at least one byte of data.
const MIN_PIECE_FRAME_BYTES: usize = 3;

impl Channels {
    /// Returns whether there is memory for what the frames of a packet may have to store. If not, the packet should be
    /// refused, so that its sender retransmits it as lost. Without a shared budget there always is.
    ///
    /// Whole messages in order need no memory, and slices of the oldest missing message have an overdraft: a sender
    /// that writes its oldest messages first makes progress even while others hold all of the budget. Messages that
    /// arrive behind a gap have [`RESERVE_BYTES`](crate::channel::RESERVE_BYTES) of their own.
    #[must_use]
    pub fn can_take(&self, frames: &[u8]) -> bool {
        self.fits_any(frames.len()) || self.preview(frames).0
    }

    /// Returns whether there is memory for all frames of this many bytes. Parsing a packet is needed only when memory
    /// is scarce.
    #[inline]
    pub(crate) fn fits_any(&self, bytes: usize) -> bool {
        self.receive_pool.fits(bytes / MIN_PIECE_FRAME_BYTES, self.max_list_bytes)
    }

    /// Returns whether there is memory for these frames, and how many frames were parsed for it.
    pub(crate) fn preview(&self, frames: &[u8]) -> (bool, u32) {
        let (chunks, list_bytes, parsed) = self.memory_needed(frames);
        (self.receive_pool.fits(chunks, list_bytes), parsed)
    }

    /// Returns upper bounds of the chunks and of the bytes of lists that a packet needs, and its number of frames.
    fn memory_needed(&self, frames: &[u8]) -> (usize, usize, u32) {
        let (mut cursor, mut chunks, mut parsed) = (FrameCursor::default(), 0, 0);
        let mut previews = [WindowPreview::default(); MAX_CHANNELS];
        let mut overdraft = self.receive_pool.overdraft_left();
        // An invalid frame ends the count: `next` will report it.
        while let Ok((MessageFrame { channel, body }, config)) = MessageFrame::read(frames, &mut cursor, &self.layout) {
            parsed += 1;
            let preview = previews.get_mut(usize::from(channel.0));
            if let Some((state, preview)) = self.table.get(channel).zip(preview) {
                chunks += state.receiver.chunks_needed(config.kind, &body, preview, &mut overdraft);
            }
        }
        let channels = self.table.iter().zip(self.layout.channels()).zip(&previews);
        let list_bytes =
            channels.map(|(((_, state), config), preview)| state.receiver.list_bytes_needed(config, preview));
        (chunks, list_bytes.sum(), parsed)
    }

    /// Parses the frames of a packet from `cursor` on, up to the next message. `scratch` receives messages that do not
    /// lie in the packet in one piece. Call it until `None`, before the next packet.
    ///
    /// # Errors
    /// A [`ChannelViolation`] when the frames cannot be those of a conforming peer with the same layout. The connection
    /// must end then.
    #[inline]
    pub fn next(
        &mut self,
        frames: &[u8],
        cursor: &mut FrameCursor,
        scratch: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<ReceivedMessage>, ChannelViolation> {
        // Every packet ends with this call, which returns nothing.
        while self.draining.is_some() || !cursor.is_at_end(frames) {
            if let Some(message) = self.next_in_order(frames, cursor, scratch, now)? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// Returns a message behind a closed gap, or else handles the frame at the cursor: this keeps the order.
    fn next_in_order(
        &mut self,
        frames: &[u8],
        cursor: &mut FrameCursor,
        scratch: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<ReceivedMessage>, ChannelViolation> {
        if self.draining.is_some() {
            return Ok(self.drain(scratch));
        }
        self.frames_read += 1;
        self.take(frames, cursor, scratch, now)
    }

    /// Returns how many frames were read since the last call.
    #[inline]
    pub(crate) const fn take_frames_read(&mut self) -> u32 {
        core::mem::replace(&mut self.frames_read, 0)
    }

    /// Handles the frame at the cursor. Returns its message if that is to be delivered at once.
    fn take(
        &mut self,
        packet: &[u8],
        cursor: &mut FrameCursor,
        scratch: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<ReceivedMessage>, ChannelViolation> {
        let (MessageFrame { channel, body }, config) = MessageFrame::read(packet, cursor, &self.layout)?;
        if let FrameBody::Transfer { data } = body {
            return self.take_transfer_frame(channel, packet.get(data).unwrap_or(&[])).map(|()| None);
        }
        let state = self.table.get_mut(channel).must_exist("a channel of the layout");
        let state = state.ok_or(ChannelViolation::NoChannel(channel))?;
        let whole = body.whole();
        let (pool, stats) = (&mut self.receive_pool, &mut state.stats);
        let context = &mut ReceiveContext { channel, config, packet, pool, scratch, stats, now };
        let outcome = state.receiver.take(body, context)?;
        if config.kind == Kind::ReliableOrdered {
            // The frame may have closed a gap: deliver what waited behind it first.
            self.draining = Some(channel);
        }
        let span = match outcome {
            FrameOutcome::Deliver => PayloadSpan::Datagram(whole),
            FrameOutcome::Assembled => PayloadSpan::Scratch,
            FrameOutcome::Kept | FrameOutcome::Dropped => return Ok(None),
        };
        Ok(Some(ReceivedMessage { channel, span }))
    }

    fn take_transfer_frame(&mut self, channel: ChannelId, frame: &[u8]) -> Result<(), ChannelViolation> {
        let transfers = self.transfers_mut(channel).ok_or(ChannelViolation::NoChannel(channel))?;
        let reception =
            transfers.on_frame(frame).map_err(|violation| ChannelViolation::Transfer(channel, violation))?;
        // Duplicates are normal after a retransmission, and only counted.
        if let (Reception::Ignored, Some(state)) = (reception, self.table.get_mut(channel)) {
            state.stats.dropped += 1;
        }
        Ok(())
    }

    /// Returns a message that waited for the one that was delivered last.
    fn drain(&mut self, scratch: &mut Vec<u8>) -> Option<ReceivedMessage> {
        let channel = self.draining?;
        let state = self.table.get_mut(channel);
        if state.is_some_and(|state| state.receiver.pop(&mut self.receive_pool, scratch, &mut state.stats)) {
            return Some(ReceivedMessage { channel, span: PayloadSpan::Scratch });
        }
        self.draining = None;
        None
    }
}
