//! Writing frames into the rest of a packet (§3.2 to §3.4).

use super::frame::{LAST, SLICE, number_bytes};
use super::layout::ChannelId;
use super::message_id::{IdRun, MessageId};
use super::pieces::PIECE_BYTES;

/// The frames of a packet that is being written.
///
/// Each has a length, until the last one loses it: then the packet is done.
pub(super) struct Pen<'a> {
    room: &'a mut [u8],
    at: usize,
    /// The last frame: where its head and its length are, if it has one.
    last: Option<(usize, Option<(usize, usize)>)>,
    closed: bool,
    ids: IdRun,
    /// Frames end here, whatever room there is behind.
    limit: usize,
}

/// What stands before the data of a frame.
#[derive(Clone, Copy)]
pub(super) enum Prefix {
    /// A whole message, with its id if it has one.
    Whole(Option<MessageId>),
    /// A slice of a message of so many bytes, beginning with piece `first`.
    Slice { id: MessageId, bytes: u32, first: u16 },
}

impl Prefix {
    /// The bytes of a frame of this channel before its length, behind these ids.
    fn bytes(self, channel: ChannelId, ids: IdRun) -> usize {
        let id_bytes = |id| number_bytes(ids.told(channel, id));
        match self {
            Self::Whole(None) => 1,
            Self::Whole(Some(id)) => 1 + id_bytes(id),
            Self::Slice { id, bytes, first } => 1 + id_bytes(id) + number_bytes(bytes) + number_bytes(first.into()),
        }
    }
}

impl<'a> Pen<'a> {
    pub(super) fn new(room: &'a mut [u8]) -> Self {
        let limit = room.len();
        Self { room, at: 0, last: None, closed: false, ids: IdRun::default(), limit }
    }

    /// Lets the next frames end at `limit` at the latest.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit.min(self.room.len());
    }

    /// Whether nothing limits the next frames but the packet's size.
    pub(super) const fn has_all_room(&self) -> bool {
        self.limit == self.room.len()
    }

    /// Bytes written.
    pub(super) const fn at(&self) -> usize {
        self.at
    }

    /// Whether nothing more can be written.
    pub(super) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether data behind this prefix fits into the rest of the packet.
    pub(super) fn fits(&self, channel: ChannelId, prefix: Prefix, data: usize) -> bool {
        !self.closed && prefix.bytes(channel, self.ids) + data <= self.rest()
    }

    /// Whether it would fit into the packet if that were empty.
    pub(super) fn would_fit_alone(&self, channel: ChannelId, prefix: Prefix, data: usize) -> bool {
        prefix.bytes(channel, IdRun::default()) + data <= self.room.len()
    }

    /// How many of the `available` bytes of a message from a piece on fit as whole pieces, or to its end.
    pub(super) fn pieces_that_fit(&self, channel: ChannelId, prefix: Prefix, available: usize) -> usize {
        let rest = if self.closed { 0 } else { self.rest().saturating_sub(prefix.bytes(channel, self.ids)) };
        if available <= rest { available } else { rest - rest % PIECE_BYTES }
    }

    /// Writes a frame up to its data, and answers the room for it. The caller has asked whether it fits.
    pub(super) fn begin(&mut self, channel: ChannelId, prefix: Prefix, data: usize) -> &mut [u8] {
        let head = self.at;
        let slice = if matches!(prefix, Prefix::Slice { .. }) { SLICE } else { 0 };
        // Behind this frame there is no room for another when its length is what does not fit any more.
        self.closed = prefix.bytes(channel, self.ids) + number_bytes(data as u32) + data > self.rest();
        self.byte((channel.0 + 1) | slice | if self.closed { LAST } else { 0 });
        self.prefix(channel, prefix);
        let length_at = self.at;
        if !self.closed {
            self.number(data as u32);
        }
        self.last = Some((head, (!self.closed).then_some((length_at, self.at))));
        let start = self.at;
        self.at += data;
        self.room.get_mut(start..start + data).unwrap_or_default()
    }

    /// Writes that a message will not come any more, if that fits.
    pub(super) fn withdraw(&mut self, channel: ChannelId, id: MessageId) -> bool {
        if self.closed || self.rest() < 2 + number_bytes(self.ids.told(channel, id)) {
            return false;
        }
        self.last = Some((self.at, None));
        self.byte((channel.0 + 1) | SLICE);
        self.id(channel, id);
        self.byte(0);
        true
    }

    /// Writes a frame whose data `write` puts into the room that it is given, with the bytes of it and what it was.
    pub(super) fn block<T>(
        &mut self,
        channel: ChannelId,
        write: impl FnOnce(&mut [u8]) -> Option<(usize, T)>,
    ) -> Option<T> {
        // The longest length that can stand there; a shorter one lets the data move up.
        let reserved = number_bytes(self.rest() as u32);
        let (head, start) = (self.at, self.at + 1 + reserved);
        let (bytes, what) = self.room.get_mut(start..self.limit).filter(|_| !self.closed).and_then(write)?;
        self.byte(channel.0 + 1);
        self.number(bytes as u32);
        self.last = Some((head, Some((head + 1, self.at))));
        self.room.copy_within(start..start + bytes, self.at);
        self.at += bytes;
        Some(what)
    }

    /// Takes the length from the last frame, and answers how many bytes the packet has.
    pub(super) fn finish(mut self) -> usize {
        let Some((head, Some((from, to)))) = self.last else { return self.at };
        self.room.copy_within(to..self.at, from);
        self.at -= to - from;
        if let Some(head) = self.room.get_mut(head) {
            *head |= LAST;
        }
        self.at
    }

    fn rest(&self) -> usize {
        self.limit.saturating_sub(self.at)
    }

    fn prefix(&mut self, channel: ChannelId, prefix: Prefix) {
        match prefix {
            Prefix::Whole(None) => {}
            Prefix::Whole(Some(id)) => self.id(channel, id),
            Prefix::Slice { id, bytes, first } => {
                self.id(channel, id);
                self.number(bytes);
                self.number(first.into());
            }
        }
    }

    fn id(&mut self, channel: ChannelId, id: MessageId) {
        self.number(self.ids.told(channel, id));
        self.ids.note(channel, id);
    }

    fn number(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    fn byte(&mut self, byte: u8) {
        if let Some(place) = self.room.get_mut(self.at) {
            *place = byte;
            self.at += 1;
        }
    }
}
