//! The header of a packet: its number, and which packets of the other side have arrived (§2.2).

use super::{ACKS_PER_HEADER, FRAGMENT_PREFIX, MAX_HEADER_BYTES, Sequence};
use crate::reject::Reject;
use slipgate_netcode::wire::cursor::{Reader, Writer};

/// Fewer bytes than these cannot even hold prefix and sequence number.
const PREFIX_AND_SEQUENCE_BYTES: usize = 3;
/// Prefix bit 5: `ack` is one byte, its distance from the sequence number.
const SHORT_ACK: u8 = 1 << 5;
/// Prefix bit 1, and the three above it: this byte of the ack bits is present, the lowest first.
const FIRST_ACK_BYTE: u8 = 1 << 1;

/// Which packets of the other side have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Acks {
    /// The newest packet that the writer knows of.
    pub ack: Sequence,
    /// Bit i says whether packet `ack` - i arrived. Bit 0 is `ack` itself, so `ack` alone proves nothing.
    pub bits: u32,
}

impl Acks {
    /// What a header says before anything has arrived.
    pub const NONE: Self = Self { ack: Sequence(u16::MAX), bits: 0 };

    /// The packets that arrived, the newest first.
    pub fn arrived(self) -> impl Iterator<Item = Sequence> {
        (0..ACKS_PER_HEADER).filter(move |back| self.bits >> back & 1 != 0).map(move |back| self.ack.back(back))
    }
}

/// The header of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Header {
    /// The packet's own number.
    pub sequence: Sequence,
    /// What its writer has received.
    pub acks: Acks,
}

impl Header {
    /// Reads the header of a packet, and answers what stands behind it. A longer form than needed is readable (§2.2).
    ///
    /// # Errors
    /// `TooShort`, `NotAPacket`, `AckCut` or `AckBitsCut`.
    pub fn parse(datagram: &[u8]) -> Result<(Self, &[u8]), Reject> {
        if datagram.len() < PREFIX_AND_SEQUENCE_BYTES {
            return Err(Reject::TooShort);
        }
        let mut reader = Reader::new(datagram);
        let prefix = reader.u8().ok_or(Reject::TooShort)?;
        if prefix & FRAGMENT_PREFIX != 0 {
            return Err(Reject::NotAPacket);
        }
        let sequence = Sequence(reader.u16().ok_or(Reject::TooShort)?);
        let ack = if prefix & SHORT_ACK != 0 {
            reader.u8().map(|distance| sequence.back(distance.into()))
        } else {
            reader.u16().map(Sequence)
        };
        let ack = ack.ok_or(Reject::AckCut)?;
        let bits = read_ack_bits(prefix, &mut reader).ok_or(Reject::AckBitsCut)?;
        Ok((Self { sequence, acks: Acks { ack, bits } }, reader.rest()))
    }

    /// Writes the header in its one canonical form, 4 to 9 bytes (§2.2).
    pub fn emit(&self, writer: &mut Writer<'_>) {
        writer.u8(self.prefix());
        writer.u16(self.sequence.0);
        match self.short_ack() {
            Some(distance) => writer.u8(distance),
            None => writer.u16(self.acks.ack.0),
        }
        for byte in self.acks.bits.to_le_bytes() {
            if byte != u8::MAX {
                writer.u8(byte);
            }
        }
    }

    /// How many bytes the canonical form takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let ack = if self.short_ack().is_some() { 1 } else { 2 };
        let present = self.acks.bits.to_le_bytes().iter().filter(|byte| **byte != u8::MAX).count();
        PREFIX_AND_SEQUENCE_BYTES + ack + present
    }

    /// Whether `bytes` are what [`Header::emit`] writes.
    pub(super) fn is_written_as(&self, bytes: &[u8]) -> bool {
        let mut buffer = [0; MAX_HEADER_BYTES];
        let mut writer = Writer::new(&mut buffer);
        self.emit(&mut writer);
        writer.written().and_then(|written| buffer.get(..written)) == Some(bytes)
    }

    fn prefix(&self) -> u8 {
        let short = if self.short_ack().is_some() { SHORT_ACK } else { 0 };
        let bytes = self.acks.bits.to_le_bytes();
        let flags = bytes.iter().zip(0..).map(|(byte, place)| u8::from(*byte != u8::MAX) * (FIRST_ACK_BYTE << place));
        flags.fold(short, |prefix, flag| prefix | flag)
    }

    /// The distance back to `ack`, where it fits into a byte.
    fn short_ack(&self) -> Option<u8> {
        u8::try_from(self.sequence.distance_from(self.acks.ack)).ok()
    }
}

/// The ack bits: an absent byte stands for `ff`, eight packets that all arrived.
fn read_ack_bits(prefix: u8, reader: &mut Reader<'_>) -> Option<u32> {
    let mut bytes = [u8::MAX; 4];
    for (byte, place) in bytes.iter_mut().zip(0..) {
        if prefix & (FIRST_ACK_BYTE << place) != 0 {
            *byte = reader.u8()?;
        }
    }
    Some(u32::from_le_bytes(bytes))
}
