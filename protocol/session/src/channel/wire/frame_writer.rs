//! Writing frames into the rest of a packet (§3.2 to §3.4).

use crate::channel::config::ChannelId;
use crate::channel::wire::frame::{LAST, SLICE, number_bytes};
use crate::channel::wire::message_id::{IdRun, MessageId};
use crate::channel::wire::pieces::PIECE_BYTES;

/// The frames of a packet that is being written.
///
/// Each frame has a length until [`FrameWriter::finish`] removes it from the last one.
pub(crate) struct FrameWriter<'a> {
    buf: &'a mut [u8],
    pos: usize,
    /// The positions of the last frame's head and of its length, if it has one.
    last: Option<(usize, Option<(usize, usize)>)>,
    closed: bool,
    /// Nothing waits behind the next whole message, so that its frame is the last one.
    pub(crate) is_last: bool,
    ids: IdRun,
    /// Frames end here, even if the buffer is longer.
    limit: usize,
}

/// The header of a frame: everything before its length and data.
#[derive(Clone, Copy)]
pub(crate) enum FrameHeader {
    /// A whole message, with its id if it has one.
    Whole(Option<MessageId>),
    /// A slice of a message of this many bytes, from piece `first` on.
    Slice { id: MessageId, bytes: u32, first: u16 },
}

impl FrameHeader {
    /// Returns the bytes of the header on this channel, after frames with these ids.
    fn bytes(self, channel: ChannelId, ids: IdRun) -> usize {
        let id_bytes = |id| number_bytes(ids.delta(channel, id));
        match self {
            Self::Whole(None) => 1,
            Self::Whole(Some(id)) => 1 + id_bytes(id),
            Self::Slice { id, bytes, first } => 1 + id_bytes(id) + number_bytes(bytes) + number_bytes(first.into()),
        }
    }
}

impl<'a> FrameWriter<'a> {
    pub(crate) fn new(buf: &'a mut [u8]) -> Self {
        let limit = buf.len();
        Self { buf, pos: 0, last: None, closed: false, is_last: false, ids: IdRun::default(), limit }
    }

    /// Limits the next frames to end at `limit` at the latest.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit.min(self.buf.len());
    }

    /// Returns whether only the packet's size limits the next frames.
    pub(crate) const fn is_unlimited(&self) -> bool {
        self.limit == self.buf.len()
    }

    /// Returns how many bytes were written.
    pub(crate) const fn pos(&self) -> usize {
        self.pos
    }

    /// Ends the packet with the frame that was written last.
    pub(crate) const fn close(&mut self) {
        self.closed = true;
    }

    /// Returns whether no frame can be written any more.
    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns whether a frame with this header and this many bytes of data fits into the rest of the packet.
    pub(crate) fn fits(&self, channel: ChannelId, header: FrameHeader, data: usize) -> bool {
        !self.closed && header.bytes(channel, self.ids) + data <= self.remaining()
    }

    /// Returns whether the frame would fit into the packet if that were empty.
    pub(crate) fn would_fit_alone(&self, channel: ChannelId, header: FrameHeader, data: usize) -> bool {
        header.bytes(channel, IdRun::default()) + data <= self.buf.len()
    }

    /// Returns how many of the `available` bytes of a message fit as whole pieces, or to the message's end.
    pub(crate) fn pieces_that_fit(&self, channel: ChannelId, header: FrameHeader, available: usize) -> usize {
        let remaining = if self.closed { 0 } else { self.remaining().saturating_sub(header.bytes(channel, self.ids)) };
        if available <= remaining { available } else { remaining - remaining % PIECE_BYTES }
    }

    /// Writes a frame up to its data. Returns the buffer for the data. The caller has checked that the frame fits.
    pub(crate) fn begin(&mut self, channel: ChannelId, header: FrameHeader, data: usize) -> &mut [u8] {
        let head = self.pos;
        let slice = if matches!(header, FrameHeader::Slice { .. }) { SLICE } else { 0 };
        let has_room_for_length =
            || header.bytes(channel, self.ids) + number_bytes(data as u32) + data <= self.remaining();
        // A frame without its length ends with the packet, and no other can follow.
        self.closed = self.is_last && slice == 0 || !has_room_for_length();
        self.byte((channel.0 + 1) | slice | if self.closed { LAST } else { 0 });
        self.header(channel, header);
        let length_start = self.pos;
        if !self.closed {
            self.number(data as u32);
        }
        self.last = Some((head, (!self.closed).then_some((length_start, self.pos))));
        let start = self.pos;
        self.pos += data;
        self.buf.get_mut(start..start + data).unwrap_or_default()
    }

    /// Writes a withdrawal, if it fits. Returns whether it does.
    pub(crate) fn withdraw(&mut self, channel: ChannelId, id: MessageId) -> bool {
        // Head, id, and the message size of 0.
        if self.closed || self.remaining() < 2 + number_bytes(self.ids.delta(channel, id)) {
            return false;
        }
        // A withdrawal has no length that could be removed (§3.4).
        self.last = Some((self.pos, None));
        self.byte((channel.0 + 1) | SLICE);
        self.id(channel, id);
        self.byte(0);
        true
    }

    /// Writes a frame with data that `write` puts into the buffer that it is given. `write` returns the data's bytes
    /// and a record of what it wrote.
    pub(crate) fn transfer<T>(
        &mut self,
        channel: ChannelId,
        write: impl FnOnce(&mut [u8]) -> Option<(usize, T)>,
    ) -> Option<T> {
        // Reserves the longest length that can stand there. The data moves up if the length is shorter.
        let reserved = number_bytes(self.remaining() as u32);
        // The data is written behind the reserved length, which is known only afterwards.
        let (head, start) = (self.pos, self.pos + 1 + reserved);
        let (bytes, sent) = self.buf.get_mut(start..self.limit).filter(|_| !self.closed).and_then(write)?;
        self.byte(channel.0 + 1);
        self.number(bytes as u32);
        self.last = Some((head, Some((head + 1, self.pos))));
        self.buf.copy_within(start..start + bytes, self.pos);
        self.pos += bytes;
        Some(sent)
    }

    /// Removes the length of the last frame. Returns how many bytes the packet has.
    pub(crate) fn finish(mut self) -> usize {
        // The last frame needs no length: it ends with the packet (§3.2).
        let Some((head, Some((from, to)))) = self.last else { return self.pos };
        self.buf.copy_within(to..self.pos, from);
        self.pos -= to - from;
        if let Some(head) = self.buf.get_mut(head) {
            *head |= LAST;
        }
        self.pos
    }

    fn remaining(&self) -> usize {
        self.limit.saturating_sub(self.pos)
    }

    fn header(&mut self, channel: ChannelId, header: FrameHeader) {
        match header {
            FrameHeader::Whole(None) => {}
            FrameHeader::Whole(Some(id)) => self.id(channel, id),
            FrameHeader::Slice { id, bytes, first } => {
                self.id(channel, id);
                self.number(bytes);
                self.number(first.into());
            }
        }
    }

    fn id(&mut self, channel: ChannelId, id: MessageId) {
        // Consecutive ids of a channel cost one byte each (§3.3).
        self.number(self.ids.delta(channel, id));
        self.ids.set_last(channel, id);
    }

    fn number(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    fn byte(&mut self, byte: u8) {
        if let Some(slot) = self.buf.get_mut(self.pos) {
            *slot = byte;
            self.pos += 1;
        }
    }
}
