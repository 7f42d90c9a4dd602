//! Message frames: parsing (§3.2 to §3.4). `recv` decides what becomes of a message.
//!
//! ```text
//!  head                         whole message           slice of a message             withdrawn message
//!  ┌───────────┬───────┬──────┐ ┌──────┬────┬─────────┐ ┌──────┬────┬───────┬───────┬─────────┐ ┌──────┬────┬───┐
//!  │ channel+1 │ slice │ last │ │ head │ id │ len data│ │ head │ id │ bytes │ first │ len data│ │ head │ id │ 0 │
//!  │ 6 bits    │ bit 6 │ bit 7│ │ 1    │0..3│ 0..3    │ │ 1    │1..3│ 1..3  │ 1..2  │ 0..3    │ │ 1    │1..3│ 1 │
//!  └───────────┴───────┴──────┘ └──────┴────┴─────────┘ └──────┴────┴───────┴───────┴─────────┘ └──────┴────┴───┘
//! ```

use core::ops::Range;

use crate::channel::config::{ChannelConfig, ChannelId, Kind, MAX_MESSAGE_BYTES};
use crate::channel::layout::Layout;
use crate::channel::violation::ChannelViolation;
use crate::channel::wire::message_id::{IdRun, MessageId};
use crate::channel::wire::pieces::{PIECE_BYTES, pieces_of};
use slipgate_netcode::wire::cursor::Reader;

/// The channel number of control messages in a frame's head (§3.2).
pub(crate) const CONTROL: u8 = 0;
/// The bits of a head that hold the channel (§3.2).
pub(crate) const CHANNEL_BITS: u8 = 0x3f;
/// The head's bit of slices (§3.4).
pub(crate) const SLICE: u8 = 0x40;
/// The head's bit of a frame that ends with the packet, and therefore has no length (§3.2).
pub(crate) const LAST: u8 = 0x80;
/// The reserved channel number (§3.2).
const RESERVED_CHANNEL: u8 = 63;
/// The maximum bytes of a number: 21 bits, seven in each byte (§3.1).
pub(crate) const MAX_NUMBER_BYTES: usize = 3;

/// How far the frames of a packet have been read; the default is the beginning.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrameCursor {
    bytes: usize,
    ids: IdRun,
}

impl FrameCursor {
    /// Returns whether all of the frames have been read.
    pub(crate) const fn is_at_end(&self, frames: &[u8]) -> bool {
        self.bytes >= frames.len()
    }
}

/// A parsed frame. The ranges are those of its data in the packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MessageFrame {
    pub(crate) channel: ChannelId,
    pub(crate) body: FrameBody,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum FrameBody {
    /// A whole message. It has an id on every kind of channel except unreliable ones.
    Whole { id: MessageId, data: Range<usize> },
    /// Pieces of a message, from `first` on.
    Slice { id: MessageId, bytes: u32, first: u16, data: Range<usize> },
    /// A withdrawal: the message will not come.
    Withdrawn { id: MessageId },
    /// A frame of a channel of transfers, which `transfer` parses.
    Transfer { data: Range<usize> },
}

impl FrameBody {
    /// Returns the range of a whole message, or an empty range for any other frame.
    pub(crate) fn whole(&self) -> Range<usize> {
        if let Self::Whole { data, .. } = self { data.clone() } else { 0..0 }
    }
}

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FrameHead(u8);

impl FrameHead {
    const fn is_slice(self) -> bool {
        self.0 & SLICE != 0
    }

    const fn is_last(self) -> bool {
        self.0 & LAST != 0
    }

    fn channel(self) -> Result<ChannelId, ChannelViolation> {
        match self.0 & CHANNEL_BITS {
            // Control messages stand before all other frames and were parsed before.
            CONTROL => Err(ChannelViolation::Control),
            RESERVED_CHANNEL => Err(ChannelViolation::Reserved),
            number => Ok(ChannelId(number - 1)),
        }
    }
}

/// Parses a number (§3.1): seven bits in each byte, lowest first; bit 7 is set if another byte follows. Refuses any
/// form but the shortest.
pub(crate) fn read_number(reader: &mut Reader<'_>) -> Result<u32, ChannelViolation> {
    let mut value = 0;
    for index in 0..MAX_NUMBER_BYTES {
        let byte = reader.read::<u8>().ok_or(ChannelViolation::Truncated)?;
        // Three bytes give at most 21 bits, which cannot overflow.
        value |= u32::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return if byte == 0 && index > 0 { Err(ChannelViolation::Number) } else { Ok(value) };
        }
    }
    Err(ChannelViolation::Number)
}

/// Returns the bytes of a number.
pub(crate) const fn number_bytes(value: u32) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        _ => 3,
    }
}

impl MessageFrame {
    /// Parses the frame at `cursor`, and advances the cursor to the next one. Returns the settings of its channel, too.
    ///
    /// # Errors
    /// The [`ChannelViolation`] of bytes that no conforming peer with this layout sends.
    #[inline]
    pub(crate) fn read<'l>(
        packet: &[u8],
        cursor: &mut FrameCursor,
        layout: &'l Layout,
    ) -> Result<(Self, &'l ChannelConfig), ChannelViolation> {
        let mut reader = Reader::new(packet.get(cursor.bytes..).unwrap_or(&[]));
        let head = FrameHead(reader.read::<u8>().ok_or(ChannelViolation::Truncated)?);
        // The channel's kind decides the fields that follow, so it must be known before them.
        let channel = head.channel()?;
        let config = layout.channel(channel).ok_or(ChannelViolation::NoChannel(channel))?;
        let frame = FrameReader { packet, reader, head, channel, ids: &mut cursor.ids };
        let (body, end) = match (config.kind, head.is_slice()) {
            (Kind::Transfers, false) => frame.transfer()?,
            (Kind::Transfers, true) => return Err(ChannelViolation::WrongFrame(channel)),
            (kind, false) => frame.whole(kind, config.max_message_bytes)?,
            (kind, true) => frame.slice(kind, config.max_message_bytes)?,
        };
        cursor.bytes = end;
        Ok((Self { channel, body }, config))
    }
}

/// A frame that is being parsed.
struct FrameReader<'a> {
    packet: &'a [u8],
    reader: Reader<'a>,
    head: FrameHead,
    channel: ChannelId,
    ids: &'a mut IdRun,
}

impl FrameReader<'_> {
    fn transfer(mut self) -> Result<(FrameBody, usize), ChannelViolation> {
        let data = self.data()?;
        let end = data.end;
        Ok((FrameBody::Transfer { data }, end))
    }

    fn whole(mut self, kind: Kind, max_bytes: u32) -> Result<(FrameBody, usize), ChannelViolation> {
        // Unreliable messages have no id on the wire unless they are sliced (§3.3).
        let id = if kind == Kind::Unreliable { MessageId::default() } else { self.id()? };
        let data = self.data()?;
        // The limit of the layout bounds what the receiver must hold.
        if data.len() > max_bytes as usize {
            return Err(ChannelViolation::TooLarge(self.channel));
        }
        let end = data.end;
        Ok((FrameBody::Whole { id, data }, end))
    }

    fn slice(mut self, kind: Kind, max_bytes: u32) -> Result<(FrameBody, usize), ChannelViolation> {
        let id = self.id()?;
        let bytes = read_number(&mut self.reader)?;
        if bytes == 0 {
            // A message size of 0 withdraws the message. Unreliable channels have no withdrawals (§3.4).
            let fits = kind.is_reliable() && !self.head.is_last();
            let end = self.pos();
            return if fits {
                Ok((FrameBody::Withdrawn { id }, end))
            } else {
                Err(ChannelViolation::WrongFrame(self.channel))
            };
        }
        // Checked before anything is reserved for the message.
        if bytes > max_bytes {
            return Err(ChannelViolation::TooLarge(self.channel));
        }
        let first = read_number(&mut self.reader)?;
        let data = self.data()?;
        let end = data.end;
        let first = self.shape(bytes, first, data.len())?;
        Ok((FrameBody::Slice { id, bytes, first, data }, end))
    }

    /// Checks that a slice has whole pieces, except for the message's last one. A message of one piece is never sliced
    /// (§3.4).
    fn shape(&self, bytes: u32, first: u32, data: usize) -> Result<u16, ChannelViolation> {
        let wrong = ChannelViolation::SliceShape(self.channel);
        debug_assert!(bytes <= MAX_MESSAGE_BYTES, "checked before");
        if bytes as usize <= PIECE_BYTES || first >= u32::from(pieces_of(bytes)) || data == 0 {
            return Err(wrong);
        }
        let end = first as usize * PIECE_BYTES + data;
        let whole = data.is_multiple_of(PIECE_BYTES) && end <= bytes as usize;
        if whole || end == bytes as usize { Ok(first as u16) } else { Err(wrong) }
    }

    fn id(&mut self) -> Result<MessageId, ChannelViolation> {
        let id = self.ids.id_at(self.channel, read_number(&mut self.reader)?);
        self.ids.set_last(self.channel, id);
        Ok(id)
    }

    /// Returns the range of the frame's data, which extends to the packet's end if the frame has no length.
    fn data(&mut self) -> Result<Range<usize>, ChannelViolation> {
        if self.head.is_last() {
            return Ok(self.pos()..self.packet.len());
        }
        let bytes = read_number(&mut self.reader)? as usize;
        let pos = self.pos();
        // The length is a claim of the peer: compared before it is used.
        let fits = bytes <= self.packet.len() - pos;
        if fits { Ok(pos..pos + bytes) } else { Err(ChannelViolation::Truncated) }
    }

    const fn pos(&self) -> usize {
        self.packet.len() - self.reader.rest().len()
    }
}

#[cfg(test)]
mod tests;
