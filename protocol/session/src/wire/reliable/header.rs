//! The packet header: the sequence number, and acknowledgements of the other side's packets (§2.2).

use super::{ACKS_PER_HEADER, FRAGMENT_PREFIX, MAX_HEADER_BYTES, Sequence};
use crate::reject::Reject;
use slipgate_netcode::wire::cursor::{Reader, Writer};

/// The minimum bytes that hold prefix and sequence number.
const PREFIX_AND_SEQUENCE_BYTES: usize = 3;
/// Prefix bit 5: `ack` is one byte, its distance from the sequence number.
const SHORT_ACK: u8 = 1 << 5;
/// Prefix bits 1 to 4: the byte of the ack bits with this index is present, the lowest first.
const FIRST_ACK_BYTE: u8 = 1 << 1;

/// The acknowledgements of one header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Acks {
    /// The newest packet that the writer has seen, perhaps only in part.
    pub ack: Sequence,
    /// Bit i says whether packet `ack` - i arrived. Bit 0 is `ack` itself, so `ack` alone acknowledges nothing.
    pub bits: u32,
}

impl Acks {
    /// The acknowledgements before anything has arrived.
    pub const NONE: Self = Self { ack: Sequence(u16::MAX), bits: 0 };

    /// Returns the packets that arrived, newest first.
    pub fn arrived(self) -> impl Iterator<Item = Sequence> {
        (0..ACKS_PER_HEADER).filter(move |back| self.bits >> back & 1 != 0).map(move |back| self.ack - back)
    }
}

/// The header of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct ReliableHeader {
    /// The sequence number of the packet.
    pub sequence: Sequence,
    /// The acknowledgements of its writer.
    pub acks: Acks,
}

impl ReliableHeader {
    /// Parses the header of a packet, and returns it with the bytes behind it. Forms longer than needed are accepted
    /// (§2.2).
    ///
    /// # Errors
    /// `TooShort` under 3 bytes, `NotAPacket` if bit 0 of the prefix announces a fragment, `AckCut` or `AckBitsCut`
    /// if the datagram ends within `ack` or within the ack bits.
    pub fn parse(datagram: &[u8]) -> Result<(Self, &[u8]), Reject> {
        if datagram.len() < PREFIX_AND_SEQUENCE_BYTES {
            return Err(Reject::TooShort);
        }
        let mut reader = Reader::new(datagram);
        let prefix = reader.read::<u8>().ok_or(Reject::TooShort)?;
        // Fragments have bit 0 set: the caller has sorted them out, except for embedded headers.
        if prefix & FRAGMENT_PREFIX != 0 {
            return Err(Reject::NotAPacket);
        }
        let sequence = Sequence(reader.read::<u16>().ok_or(Reject::TooShort)?);
        let ack = if prefix & SHORT_ACK != 0 {
            reader.read::<u8>().map(|distance| sequence - u16::from(distance))
        } else {
            reader.read::<u16>().map(Sequence)
        };
        let ack = ack.ok_or(Reject::AckCut)?;
        let bits = read_ack_bits(prefix, &mut reader).ok_or(Reject::AckBitsCut)?;
        Ok((Self { sequence, acks: Acks { ack, bits } }, reader.rest()))
    }

    /// Writes the header in its canonical form, 4 to 9 bytes (§2.2).
    #[inline]
    pub fn emit(&self, writer: &mut Writer<'_>) {
        writer.write::<u8>(self.prefix());
        writer.write::<u16>(self.sequence.0);
        match self.short_ack() {
            Some(distance) => writer.write::<u8>(distance),
            None => writer.write::<u16>(self.acks.ack.0),
        }
        // The usual case: all bytes are omitted, each for eight arrived packets.
        if self.acks.bits == u32::MAX {
            return;
        }
        for byte in self.acks.bits.to_le_bytes() {
            if byte != u8::MAX {
                writer.write::<u8>(byte);
            }
        }
    }

    /// Returns the bytes of the canonical form.
    #[must_use]
    pub(crate) fn bytes(&self) -> usize {
        let ack = if self.short_ack().is_some() { 1 } else { 2 };
        let present = self.acks.bits.to_le_bytes().iter().filter(|byte| **byte != u8::MAX).count();
        PREFIX_AND_SEQUENCE_BYTES + ack + present
    }

    /// Returns whether `bytes` are what [`ReliableHeader::emit`] writes.
    pub(super) fn is_written_as(&self, bytes: &[u8]) -> bool {
        let mut buffer = [0; MAX_HEADER_BYTES];
        let mut writer = Writer::new(&mut buffer);
        self.emit(&mut writer);
        writer.written().and_then(|written| buffer.get(..written)) == Some(bytes)
    }

    fn prefix(&self) -> u8 {
        let short = if self.short_ack().is_some() { SHORT_ACK } else { 0 };
        if self.acks.bits == u32::MAX {
            return short;
        }
        let bytes = self.acks.bits.to_le_bytes();
        let flags = bytes.iter().zip(0..).map(|(byte, index)| u8::from(*byte != u8::MAX) * (FIRST_ACK_BYTE << index));
        flags.fold(short, |prefix, flag| prefix | flag)
    }

    /// Returns the distance back to `ack` if it fits into a byte.
    fn short_ack(&self) -> Option<u8> {
        u8::try_from(self.sequence - self.acks.ack).ok()
    }
}

/// Reads the ack bits. An absent byte stands for `ff`: eight packets that all arrived.
fn read_ack_bits(prefix: u8, reader: &mut Reader<'_>) -> Option<u32> {
    // Omitted bytes stand for eight arrived packets.
    let mut bytes = [u8::MAX; 4];
    for (byte, index) in bytes.iter_mut().zip(0..) {
        if prefix & (FIRST_ACK_BYTE << index) != 0 {
            *byte = reader.read::<u8>()?;
        }
    }
    Some(u32::from_le_bytes(bytes))
}
