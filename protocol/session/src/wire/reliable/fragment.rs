//! A part of a packet that is too large for one datagram (§2.3).

use super::{FRAGMENT_HEADER_BYTES, FRAGMENT_PREFIX, ReliableHeader, Sequence};
use crate::reject::Reject;
use slipgate_netcode::wire::cursor::Writer;

/// Limits that both sides must share, because they are not transmitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FragmentLimits {
    /// The maximum fragments of one packet, 1 to 256.
    pub max_fragments: u16,
    /// Bytes of data in each fragment but the last.
    pub fragment_bytes: usize,
}

/// A fragment; its data borrows from the datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment<'d> {
    /// The sequence number of the packet, the same in all of its fragments.
    pub sequence: Sequence,
    /// The index of this fragment, from 0.
    pub id: u8,
    /// The number of fragments, 1 to 256.
    pub count: u16,
    /// The header of the packet, in the first fragment only.
    pub header: Option<ReliableHeader>,
    /// The fragment's part of the packet's data.
    pub data: &'d [u8],
}

impl<'d> Fragment<'d> {
    /// Parses a fragment, with the checks in the order of §2.3.
    ///
    /// # Errors
    /// Checked in this order: `FragmentTooShort` under 5 bytes, `FragmentPrefix` if the first byte is not 1,
    /// `FragmentCount` above the limit, `FragmentId` if the index is not below the count, `EmbeddedHeader`,
    /// `EmbeddedSequence` or `EmbeddedForm` for a bad header in the first fragment, `FragmentTooLong` or
    /// `FragmentCut` for the wrong amount of data.
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
        // The last fragment may be empty: no writer sends that, but the reference accepts it.
        // All but the last fragment are full, so a position follows from the index alone.
        if id != last && data.len() < limits.fragment_bytes {
            return Err(Reject::FragmentCut);
        }
        Ok(Self { sequence, id, count, header, data })
    }

    /// Writes the fragment: 5 bytes, the packet header in the first one, the data.
    pub fn emit(&self, writer: &mut Writer<'_>) {
        writer.write::<u8>(FRAGMENT_PREFIX);
        writer.write::<u16>(self.sequence.0);
        writer.write::<u8>(self.id);
        // The wire carries the index of the last fragment: a count of 256 would not fit into a byte.
        writer.write::<u8>(self.count.wrapping_sub(1).to_le_bytes()[0]);
        if let Some(header) = &self.header {
            header.emit(writer);
        }
        writer.bytes(self.data);
    }
}

/// Parses the packet header in a first fragment. Unlike the header of a packet it must be canonical (§2.3).
fn embedded(sequence: Sequence, bytes: &[u8]) -> Result<(Option<ReliableHeader>, &[u8]), Reject> {
    let (header, data) = ReliableHeader::parse(bytes).map_err(|_| Reject::EmbeddedHeader)?;
    // Both carry the number: a mismatch would acknowledge a packet that never came.
    if header.sequence != sequence {
        return Err(Reject::EmbeddedSequence);
    }
    let form = bytes.get(..bytes.len() - data.len());
    if !form.is_some_and(|form| header.is_written_as(form)) {
        return Err(Reject::EmbeddedForm);
    }
    Ok((Some(header), data))
}
