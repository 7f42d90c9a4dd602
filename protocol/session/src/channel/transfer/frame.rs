//! The frames of transfers, byte for byte (§4.2), and the ranges of slices in them (§4.6). A frame fills the bytes that
//! it is given: the message frame around it has the length.

use super::{ContentDigest, TransferId, TransferReason, TransferViolation};
use slipgate_netcode::wire::cursor::{Reader, Writer};

/// Bytes of the header of slices (§4.4).
pub const SLICE_HEADER_BYTES: usize = 7;
/// Bytes of an `Accept` before its ranges (§4.6).
pub const ACCEPT_HEADER_BYTES: usize = 11;

const BEGIN: u8 = 1;
const SLICE: u8 = 2;
const WITHDRAW: u8 = 3;
const ACCEPT: u8 = 4;
const DONE: u8 = 5;
const REFUSE: u8 = 6;

/// A frame of either direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransferFrame<'a> {
    /// The sender offers a transfer (§4.3).
    Begin(TransferBegin),
    /// Consecutive slices of an accepted transfer (§4.4).
    Slice {
        /// The transfer.
        id: TransferId,
        /// The number of the first slice.
        index: u32,
        /// The bytes of all slices.
        bytes: &'a [u8],
    },
    /// The sender aborts the transfer (§4.5).
    Withdraw {
        /// The transfer.
        id: TransferId,
        /// The reason.
        reason: TransferReason,
    },
    /// The receiver requests the slices from `first` to the one before `end`, except those that it has (§4.6).
    Accept {
        /// The transfer.
        id: TransferId,
        /// The first slice of the span.
        first: u32,
        /// One past the last slice, larger than `first`.
        end: u32,
        /// The slices of the span that the receiver has.
        have: SliceRanges<'a>,
    },
    /// The receiver has the complete transfer (§4.7).
    Done {
        /// The transfer.
        id: TransferId,
    },
    /// The receiver refuses or aborts the transfer (§4.8).
    Refuse {
        /// The transfer.
        id: TransferId,
        /// The reason.
        reason: TransferReason,
    },
}

/// The announcement of a transfer (§4.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferBegin {
    /// The transfer's number.
    pub id: TransferId,
    /// Bytes of each slice but the last.
    pub slice_bytes: u16,
    /// Bytes of the content.
    pub length: u32,
    /// The application's label.
    pub label: u64,
    /// The digest of the content.
    pub digest: ContentDigest,
}

impl<'a> TransferFrame<'a> {
    /// Parses a frame. It is not checked against the state of its transfer.
    ///
    /// # Errors
    /// [`TransferViolation::Malformed`] if no writer writes these bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, TransferViolation> {
        Self::read(&mut Reader::new(bytes)).ok_or(TransferViolation::Malformed)
    }

    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let (kind, id) = (reader.read::<u8>()?, TransferId(reader.read::<u16>()?));
        match kind {
            // Variable-length frames first: they end with the bytes that they were given.
            SLICE => {
                let index = reader.read::<u32>()?;
                return (!reader.rest().is_empty()).then(|| Self::Slice { id, index, bytes: reader.rest() });
            }
            ACCEPT => {
                let (first, end) = (reader.read::<u32>()?, reader.read::<u32>()?);
                // Checked once here, so that iterating cannot fail.
                let have = SliceRanges::check(reader.rest(), end.checked_sub(first).filter(|span| *span > 0)?)?;
                return Some(Self::Accept { id, first, end, have });
            }
            _ => {}
        }
        let frame = match kind {
            BEGIN => Self::Begin(TransferBegin::read(id, reader)?),
            WITHDRAW => Self::Withdraw { id, reason: TransferReason::of(reader.read::<u8>()?) },
            DONE => Self::Done { id },
            REFUSE => Self::Refuse { id, reason: TransferReason::of(reader.read::<u8>()?) },
            _ => return None,
        };
        // Trailing bytes would allow a second encoding of the same frame.
        reader.rest().is_empty().then_some(frame)
    }

    /// Writes the frame. Returns its bytes, or `None` if the buffer is too small.
    #[must_use]
    pub fn write(&self, buf: &mut [u8]) -> Option<usize> {
        let mut writer = Writer::new(buf);
        match *self {
            Self::Begin(begin) => begin.write(&mut writer),
            Self::Slice { id, index, bytes } => {
                header(&mut writer, SLICE, id);
                writer.write::<u32>(index);
                writer.bytes(bytes);
            }
            Self::Withdraw { id, reason } => {
                header(&mut writer, WITHDRAW, id);
                writer.write::<u8>(reason.code());
            }
            Self::Accept { id, first, end, have } => {
                accept_header(&mut writer, id, first, end);
                writer.bytes(have.bytes());
            }
            Self::Done { id } => header(&mut writer, DONE, id),
            Self::Refuse { id, reason } => {
                header(&mut writer, REFUSE, id);
                writer.write::<u8>(reason.code());
            }
        }
        writer.written()
    }
}

impl TransferBegin {
    fn read(id: TransferId, reader: &mut Reader<'_>) -> Option<Self> {
        // Bounds are checked by the receiver, which knows its limits.
        let (slice_bytes, length, label) = (reader.read::<u16>()?, reader.read::<u32>()?, reader.read::<u64>()?);
        Some(Self { id, slice_bytes, length, label, digest: ContentDigest(*reader.array()?) })
    }

    fn write(&self, writer: &mut Writer<'_>) {
        header(writer, BEGIN, self.id);
        writer.write::<u16>(self.slice_bytes);
        writer.write::<u32>(self.length);
        writer.write::<u64>(self.label);
        writer.bytes(&self.digest.0);
    }
}

fn header(writer: &mut Writer<'_>, kind: u8, id: TransferId) {
    writer.write::<u8>(kind);
    writer.write::<u16>(id.0);
}

/// Writes the part of an `Accept` before its ranges.
pub(super) fn accept_header(writer: &mut Writer<'_>, id: TransferId, first: u32, end: u32) {
    header(writer, ACCEPT, id);
    writer.write::<u32>(first);
    writer.write::<u32>(end);
}

/// The maximum bytes of a number: 32 bits, 7 in each byte.
const MAX_NUMBER_BYTES: usize = 5;

/// Ranges of slices as encoded, checked when they were parsed: pairs of a gap and a length (§4.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SliceRanges<'a>(&'a [u8]);

impl<'a> SliceRanges<'a> {
    /// Checks that the ranges are in canonical form and none extends beyond `span` slices.
    pub(super) fn check(bytes: &'a [u8], span: u32) -> Option<Self> {
        let (mut rest, mut pos) = (bytes, 0u32);
        while !rest.is_empty() {
            let (missing, there) = pair(&mut rest)?;
            // Two ranges that touch must be written as one: there is one encoding for each set.
            let touches = missing == 0 && pos > 0;
            if touches || there == 0 {
                return None;
            }
            pos = pos.checked_add(missing)?.checked_add(there)?;
        }
        (pos <= span).then_some(Self(bytes))
    }

    /// Returns the encoded bytes.
    pub(super) const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Writes ranges in ascending order, counted from the first slice of the span. Returns their bytes, or `None` if
    /// they do not fit.
    pub fn write(ranges: impl IntoIterator<Item = core::ops::Range<u32>>, buf: &mut [u8]) -> Option<usize> {
        let mut writer = SliceRangesWriter::new(buf);
        ranges.into_iter().all(|range| writer.push(range)).then(|| writer.bytes())
    }

    /// Returns each range, counted from the first slice of the span.
    pub fn iter(self) -> impl Iterator<Item = core::ops::Range<u32>> {
        let (mut rest, mut pos) = (self.0, 0u32);
        core::iter::from_fn(move || {
            let (missing, there) = pair(&mut rest)?;
            let from = pos.checked_add(missing)?;
            pos = from.checked_add(there)?;
            Some(from..pos)
        })
    }
}

fn pair(rest: &mut &[u8]) -> Option<(u32, u32)> {
    Some((number(rest)?, number(rest)?))
}

/// Parses a number in its shortest form: 7 bits in each byte, lowest first; bit 7 is set if another byte follows.
fn number(rest: &mut &[u8]) -> Option<u32> {
    let mut value = 0u32;
    for index in 0..MAX_NUMBER_BYTES {
        let (byte, tail) = rest.split_first()?;
        *rest = tail;
        let bits = u32::from(byte & 0x7f);
        let shifted = bits << (7 * index);
        // Bits beyond 32 are lost by the shift.
        if shifted >> (7 * index) != bits {
            return None;
        }
        value |= shifted;
        if byte & 0x80 == 0 {
            // A longer form would be a second encoding of the same number.
            let is_shortest = *byte != 0 || index == 0;
            return is_shortest.then_some(value);
        }
    }
    None
}

/// Writes ranges into a buffer, as many as fit.
pub(super) struct SliceRangesWriter<'a> {
    buf: &'a mut [u8],
    pos: usize,
    /// The end of the last range.
    written_to: u32,
}

impl<'a> SliceRangesWriter<'a> {
    /// Creates a writer at the start of `buf`.
    pub(super) const fn new(buf: &'a mut [u8]) -> Self {
        Self { buf, pos: 0, written_to: 0 }
    }

    /// Writes a range after the others, counted from the first slice of the span. Returns false, and writes nothing, if
    /// it does not fit.
    pub(super) fn push(&mut self, range: core::ops::Range<u32>) -> bool {
        let mut bytes = [0; 2 * MAX_NUMBER_BYTES];
        let missing = put(&mut bytes, range.start - self.written_to);
        let there = put(bytes.get_mut(missing..).unwrap_or_default(), range.end - range.start);
        let (Some(bytes), Some(buf)) =
            // A pair is written whole or not at all.
            (bytes.get(..missing + there), self.buf.get_mut(self.pos..self.pos + missing + there))
        else {
            return false;
        };
        buf.copy_from_slice(bytes);
        self.pos += bytes.len();
        // The next gap is counted from here.
        self.written_to = range.end;
        true
    }

    /// Returns how many bytes were written.
    pub(super) const fn bytes(&self) -> usize {
        self.pos
    }
}

fn put(buf: &mut [u8], mut value: u32) -> usize {
    for (index, byte) in buf.iter_mut().enumerate() {
        *byte = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            return index + 1;
        }
        *byte |= 0x80;
    }
    debug_assert!(false, "a number has at most five bytes");
    0
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn written_ranges_are_parsed_back(pairs in prop::collection::vec((1u32..1 << 24, 1u32..1 << 24), 0..20)) {
            let mut pos = 0;
            let ranges: Vec<_> = pairs.iter().map(|(gap, length)| { pos += gap + length; pos - length..pos }).collect();
            let mut buf = [0; 200];
            let mut writer = SliceRangesWriter::new(&mut buf);
            prop_assert!(ranges.iter().all(|range| writer.push(range.clone())));
            let bytes = writer.bytes();
            prop_assert_eq!(SliceRanges::check(&buf[..bytes], pos).unwrap().iter().collect::<Vec<_>>(), ranges);
            if pos > 0 {
                prop_assert!(SliceRanges::check(&buf[..bytes], pos - 1).is_none());
            }
        }
    }

    #[test]
    fn range_that_does_not_fit_leaves_the_others() {
        let mut buf = [9; 5];
        let mut writer = SliceRangesWriter::new(&mut buf);
        assert!(writer.push(0..2) && writer.push(300..301));
        assert!(!writer.push(400..500));
        assert_eq!(writer.bytes(), 5);
        assert_eq!(buf, [0, 2, 0xaa, 0x02, 1]);
    }

    #[test]
    fn noncanonical_ranges_are_refused() {
        let none: [&[u8]; 8] = [
            &[0],                                  // half a pair
            &[1, 0],                               // nothing there
            &[0, 1, 0, 1],                         // two that touch
            &[0x81, 0, 1],                         // not the shortest form
            &[0x80],                               // cut off
            &[0xff, 0xff, 0xff, 0xff, 0x1f, 1],    // 33 bits
            &[0xff, 0xff, 0xff, 0xff, 0x8f, 0, 1], // six bytes
            &[0xff, 0xff, 0xff, 0xff, 0x0f, 1],    // beyond all numbers
        ];
        for bytes in none {
            assert!(SliceRanges::check(bytes, u32::MAX).is_none(), "{bytes:?}");
        }
        assert!(SliceRanges::check(&[0, 3], 2).is_none(), "beyond what is spoken of");
    }
}
