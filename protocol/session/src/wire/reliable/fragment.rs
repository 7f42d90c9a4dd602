//! A part of a packet that is too large for one datagram (§2.3).

use super::{FRAGMENT_HEADER_BYTES, FRAGMENT_PREFIX, Header, Sequence};
use crate::reject::Reject;
use slipgate_netcode::wire::cursor::Writer;

/// What both sides must have agreed on, because it does not travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FragmentLimits {
    /// The most fragments of one packet, 1 to 256.
    pub max_fragments: u16,
    /// Bytes of data in each fragment but the last.
    pub fragment_bytes: usize,
}

/// A fragment; its data lies where the datagram did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment<'d> {
    /// The packet's number, the same in all of its fragments.
    pub sequence: Sequence,
    /// Which fragment this is, from 0.
    pub id: u8,
    /// How many there are, 1 to 256.
    pub count: u16,
    /// The packet's header; the first fragment has it, and no other.
    pub header: Option<Header>,
    /// Its part of the packet's data.
    pub data: &'d [u8],
}

impl<'d> Fragment<'d> {
    /// Reads a fragment, checking in the order of §2.3.
    ///
    /// # Errors
    /// `FragmentTooShort`, `FragmentPrefix`, `FragmentCount`, `FragmentId`, `EmbeddedHeader`, `EmbeddedSequence`,
    /// `EmbeddedForm`, `FragmentTooLong` or `FragmentCut`.
    pub fn parse(datagram: &'d [u8], limits: FragmentLimits) -> Result<Self, Reject> {
        let (front, rest) = datagram.split_first_chunk::<FRAGMENT_HEADER_BYTES>().ok_or(Reject::FragmentTooShort)?;
        let [prefix, sequence_low, sequence_high, id, last] = *front;
        if prefix != FRAGMENT_PREFIX {
            return Err(Reject::FragmentPrefix);
        }
        let (sequence, count) = (Sequence(u16::from_le_bytes([sequence_low, sequence_high])), u16::from(last) + 1);
        if count > limits.max_fragments {
            return Err(Reject::FragmentCount);
        }
        if id > last {
            return Err(Reject::FragmentId);
        }
        let (header, data) = if id == 0 { embedded(sequence, rest)? } else { (None, rest) };
        if data.len() > limits.fragment_bytes {
            return Err(Reject::FragmentTooLong);
        }
        // The last one may have no data at all: no writer makes that, but the reference reads it.
        if id != last && data.len() < limits.fragment_bytes {
            return Err(Reject::FragmentCut);
        }
        Ok(Self { sequence, id, count, header, data })
    }

    /// Writes the fragment: 5 bytes, the packet's header in the first one, the data.
    pub fn emit(&self, writer: &mut Writer<'_>) {
        writer.u8(FRAGMENT_PREFIX);
        writer.u16(self.sequence.0);
        writer.u8(self.id);
        // The wire has the number of the last fragment; a count of 256 would not fit.
        writer.u8(self.count.wrapping_sub(1).to_le_bytes()[0]);
        if let Some(header) = &self.header {
            header.emit(writer);
        }
        writer.bytes(self.data);
    }
}

/// The packet header in front of the first fragment's data. Unlike that of a packet it must be canonical (§2.3).
fn embedded(sequence: Sequence, bytes: &[u8]) -> Result<(Option<Header>, &[u8]), Reject> {
    let (header, data) = Header::parse(bytes).map_err(|_| Reject::EmbeddedHeader)?;
    if header.sequence != sequence {
        return Err(Reject::EmbeddedSequence);
    }
    let form = bytes.get(..bytes.len() - data.len());
    if !form.is_some_and(|form| header.is_written_as(form)) {
        return Err(Reject::EmbeddedForm);
    }
    Ok((Some(header), data))
}
