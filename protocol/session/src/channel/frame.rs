//! Message frames: bytes and their meaning (§3.2 to §3.4). What becomes of a message is decided elsewhere.
//!
//! ```text
//!  head                         whole message           slice of a message             withdrawn message
//!  ┌───────────┬───────┬──────┐ ┌──────┬────┬─────────┐ ┌──────┬────┬───────┬───────┬─────────┐ ┌──────┬────┬───┐
//!  │ channel+1 │ slice │ last │ │ head │ id │ len data│ │ head │ id │ bytes │ first │ len data│ │ head │ id │ 0 │
//!  │ 6 bits    │ bit 6 │ bit 7│ │ 1    │0..3│ 0..3    │ │ 1    │1..3│ 1..3  │ 1..2  │ 0..3    │ │ 1    │1..3│ 1 │
//!  └───────────┴───────┴──────┘ └──────┴────┴─────────┘ └──────┴────┴───────┴───────┴─────────┘ └──────┴────┴───┘
//! ```

use core::ops::Range;

use super::ReadAt;
use super::layout::{ChannelId, Kind, Layout, MAX_MESSAGE_BYTES};
use super::message_id::{IdRun, MessageId};
use super::pieces::{PIECE_BYTES, pieces_of};
use super::violation::Violation;
use slipgate_netcode::wire::cursor::Reader;

/// The channel number of control messages in a frame's head (§3.2).
pub(super) const CONTROL: u8 = 0;
/// The bits of a head that hold the channel (§3.2).
pub(super) const CHANNEL_BITS: u8 = 0x3f;
/// The head's bit of slices (§3.4).
pub(super) const SLICE: u8 = 0x40;
/// The head's bit of a frame that ends with the packet, and therefore has no length (§3.2).
pub(super) const LAST: u8 = 0x80;
/// The channel number that is kept for later (§3.2).
const RESERVED_CHANNEL: u8 = 63;
/// The most bytes of a number: 21 bits, seven in each byte (§3.1).
pub(super) const MAX_NUMBER_BYTES: usize = 3;

/// A frame that was read; the ranges are those of its data in the packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Frame {
    pub(super) channel: ChannelId,
    pub(super) body: Body,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Body {
    /// A message. It has an id on every kind of channel but unreliable ones.
    Whole { id: MessageId, data: Range<usize> },
    /// Pieces of a message, from `first` on.
    Slice { id: MessageId, bytes: u32, first: u16, data: Range<usize> },
    /// The message will not come any more.
    Withdrawn { id: MessageId },
    /// A frame of a block channel, which `block` reads.
    Block { data: Range<usize> },
}

impl Body {
    /// Where a whole message lies; nowhere if the frame is none.
    pub(super) fn whole(&self) -> Range<usize> {
        if let Self::Whole { data, .. } = self { data.clone() } else { 0..0 }
    }
}

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Head(u8);

impl Head {
    const fn is_slice(self) -> bool {
        self.0 & SLICE != 0
    }

    const fn is_last(self) -> bool {
        self.0 & LAST != 0
    }

    fn channel(self) -> Result<ChannelId, Violation> {
        match self.0 & CHANNEL_BITS {
            // Control messages come before all others, and have been read by now.
            CONTROL => Err(Violation::Control),
            RESERVED_CHANNEL => Err(Violation::Reserved),
            number => Ok(ChannelId(number - 1)),
        }
    }
}

/// Reads a number (§3.1): seven bits a byte, the lowest first, bit 7 says that more follow. Only the shortest form.
pub(super) fn read_number(reader: &mut Reader<'_>) -> Result<u32, Violation> {
    let mut value = 0;
    for at in 0..MAX_NUMBER_BYTES {
        let byte = reader.u8().ok_or(Violation::Truncated)?;
        value |= u32::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return if byte == 0 && at > 0 { Err(Violation::Number) } else { Ok(value) };
        }
    }
    Err(Violation::Number)
}

/// Bytes of a number.
pub(super) const fn number_bytes(value: u32) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        _ => 3,
    }
}

impl Frame {
    /// Reads the frame at `at`, and goes on to the next one.
    pub(super) fn read(packet: &[u8], at: &mut ReadAt, layout: &Layout) -> Result<Self, Violation> {
        let mut reader = Reader::new(packet.get(at.bytes..).unwrap_or(&[]));
        let head = Head(reader.u8().ok_or(Violation::Truncated)?);
        let channel = head.channel()?;
        let config = layout.channel(channel).ok_or(Violation::NoChannel(channel))?;
        let cursor = Cursor { packet, reader, head, channel, ids: &mut at.ids };
        let (body, end) = match (config.kind, head.is_slice()) {
            (Kind::Blocks, false) => cursor.block()?,
            (Kind::Blocks, true) => return Err(Violation::WrongFrame(channel)),
            (kind, false) => cursor.whole(kind, config.max_message_bytes)?,
            (kind, true) => cursor.slice(kind, config.max_message_bytes)?,
        };
        at.bytes = end;
        Ok(Self { channel, body })
    }
}

/// Where the reading of a frame stands.
struct Cursor<'a> {
    packet: &'a [u8],
    reader: Reader<'a>,
    head: Head,
    channel: ChannelId,
    ids: &'a mut IdRun,
}

impl Cursor<'_> {
    fn block(mut self) -> Result<(Body, usize), Violation> {
        let data = self.data()?;
        let end = data.end;
        Ok((Body::Block { data }, end))
    }

    fn whole(mut self, kind: Kind, max_bytes: u32) -> Result<(Body, usize), Violation> {
        let id = if kind == Kind::Unreliable { MessageId::default() } else { self.id()? };
        let data = self.data()?;
        if data.len() > max_bytes as usize {
            return Err(Violation::TooLarge(self.channel));
        }
        let end = data.end;
        Ok((Body::Whole { id, data }, end))
    }

    fn slice(mut self, kind: Kind, max_bytes: u32) -> Result<(Body, usize), Violation> {
        let id = self.id()?;
        let bytes = read_number(&mut self.reader)?;
        if bytes == 0 {
            let fits = kind.is_reliable() && !self.head.is_last();
            let end = self.at();
            return if fits { Ok((Body::Withdrawn { id }, end)) } else { Err(Violation::WrongFrame(self.channel)) };
        }
        if bytes > max_bytes {
            return Err(Violation::TooLarge(self.channel));
        }
        let first = read_number(&mut self.reader)?;
        let data = self.data()?;
        let end = data.end;
        let first = self.shape(bytes, first, data.len())?;
        Ok((Body::Slice { id, bytes, first, data }, end))
    }

    /// Whether the slice is one of its message: whole pieces, the message's last one excepted, and not all of a piece's
    /// message, which is never cut (§3.4).
    fn shape(&self, bytes: u32, first: u32, data: usize) -> Result<u16, Violation> {
        let wrong = Violation::SliceShape(self.channel);
        debug_assert!(bytes <= MAX_MESSAGE_BYTES, "checked before");
        if bytes as usize <= PIECE_BYTES || first >= u32::from(pieces_of(bytes)) || data == 0 {
            return Err(wrong);
        }
        let end = first as usize * PIECE_BYTES + data;
        let whole = data.is_multiple_of(PIECE_BYTES) && end <= bytes as usize;
        if whole || end == bytes as usize { Ok(first as u16) } else { Err(wrong) }
    }

    fn id(&mut self) -> Result<MessageId, Violation> {
        let id = self.ids.meant(self.channel, read_number(&mut self.reader)?);
        self.ids.note(self.channel, id);
        Ok(id)
    }

    /// The frame's data, with the length before it, or until the packet's end.
    fn data(&mut self) -> Result<Range<usize>, Violation> {
        if self.head.is_last() {
            return Ok(self.at()..self.packet.len());
        }
        let bytes = read_number(&mut self.reader)? as usize;
        let at = self.at();
        let fits = bytes <= self.packet.len() - at;
        if fits { Ok(at..at + bytes) } else { Err(Violation::Truncated) }
    }

    const fn at(&self) -> usize {
        self.packet.len() - self.reader.rest().len()
    }
}

#[cfg(test)]
mod tests;
