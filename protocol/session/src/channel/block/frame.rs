//! The frames of blocks, byte for byte (§4.2). Each fills the bytes that it is given: whoever packs tells its length.

mod ranges;

pub use self::ranges::{Ranges, RangesWriter};

use super::{BlockId, ContentDigest, Violation};
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
pub enum Frame<'a> {
    /// The sender offers a block (§4.3).
    Begin(Begin),
    /// Consecutive slices of an accepted block (§4.4).
    Slice {
        /// The block.
        id: BlockId,
        /// The first slice.
        index: u32,
        /// The bytes of all.
        bytes: &'a [u8],
    },
    /// The sender gives up (§4.5).
    Withdraw {
        /// The block.
        id: BlockId,
        /// Why.
        reason: Reason,
    },
    /// The receiver wants the slices from `first` to the one before `end`, but for those that it has (§4.6).
    Accept {
        /// The block.
        id: BlockId,
        /// The first slice spoken of.
        first: u32,
        /// One behind the last; larger than `first`.
        end: u32,
        /// Those of them that the receiver has.
        have: Ranges<'a>,
    },
    /// The receiver has the whole block (§4.7).
    Done {
        /// The block.
        id: BlockId,
    },
    /// The receiver does not want the block, or not any more (§4.8).
    Refuse {
        /// The block.
        id: BlockId,
        /// Why.
        reason: Reason,
    },
}

/// What a `Begin` says of a block (§4.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Begin {
    /// Its number.
    pub id: BlockId,
    /// Bytes of each slice but the last.
    pub slice_bytes: u16,
    /// Bytes of all of it.
    pub length: u32,
    /// What the application calls it.
    pub label: u64,
    /// The digest of its content.
    pub digest: ContentDigest,
}

/// Why a transfer ended before its end (§4.9).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Reason {
    /// The application on that side cancelled it.
    Cancelled,
    /// The application on that side did not want it.
    Declined,
    /// It is larger than the receiver allows.
    TooLarge,
    /// More blocks at once than the receiver allows.
    Busy,
    /// The receiver has no memory for it.
    NoMemory,
    /// All bytes arrived, and they are not those of the digest.
    WrongDigest,
    /// A reason that this version does not know.
    Other(u8),
}

impl Reason {
    const fn code(self) -> u8 {
        match self {
            Self::Cancelled => 0,
            Self::Declined => 1,
            Self::TooLarge => 2,
            Self::Busy => 3,
            Self::NoMemory => 4,
            Self::WrongDigest => 5,
            Self::Other(code) => code,
        }
    }

    const fn of(code: u8) -> Self {
        match code {
            0 => Self::Cancelled,
            1 => Self::Declined,
            2 => Self::TooLarge,
            3 => Self::Busy,
            4 => Self::NoMemory,
            5 => Self::WrongDigest,
            code => Self::Other(code),
        }
    }
}

impl<'a> Frame<'a> {
    /// Reads a frame.
    ///
    /// # Errors
    ///
    /// [`Violation::Malformed`] if no writer writes these bytes. Whether they make sense is not looked at.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Violation> {
        Self::read(&mut Reader::new(bytes)).ok_or(Violation::Malformed)
    }

    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let (kind, id) = (reader.u8()?, BlockId(reader.u16()?));
        match kind {
            SLICE => {
                let index = reader.u32()?;
                return (!reader.rest().is_empty()).then(|| Self::Slice { id, index, bytes: reader.rest() });
            }
            ACCEPT => {
                let (first, end) = (reader.u32()?, reader.u32()?);
                let have = Ranges::check(reader.rest(), end.checked_sub(first).filter(|span| *span > 0)?)?;
                return Some(Self::Accept { id, first, end, have });
            }
            _ => {}
        }
        let frame = match kind {
            BEGIN => Self::Begin(Begin::read(id, reader)?),
            WITHDRAW => Self::Withdraw { id, reason: Reason::of(reader.u8()?) },
            DONE => Self::Done { id },
            REFUSE => Self::Refuse { id, reason: Reason::of(reader.u8()?) },
            _ => return None,
        };
        reader.rest().is_empty().then_some(frame)
    }

    /// Writes the frame; answers its bytes, or `None` if the room is too small.
    #[must_use]
    pub fn write(&self, room: &mut [u8]) -> Option<usize> {
        let mut writer = Writer::new(room);
        match *self {
            Self::Begin(begin) => begin.write(&mut writer),
            Self::Slice { id, index, bytes } => {
                header(&mut writer, SLICE, id);
                writer.u32(index);
                writer.bytes(bytes);
            }
            Self::Withdraw { id, reason } => {
                header(&mut writer, WITHDRAW, id);
                writer.u8(reason.code());
            }
            Self::Accept { id, first, end, have } => {
                accept_header(&mut writer, id, first, end);
                writer.bytes(have.bytes());
            }
            Self::Done { id } => header(&mut writer, DONE, id),
            Self::Refuse { id, reason } => {
                header(&mut writer, REFUSE, id);
                writer.u8(reason.code());
            }
        }
        writer.written()
    }
}

impl Begin {
    fn read(id: BlockId, reader: &mut Reader<'_>) -> Option<Self> {
        let (slice_bytes, length, label) = (reader.u16()?, reader.u32()?, reader.u64()?);
        Some(Self { id, slice_bytes, length, label, digest: ContentDigest(*reader.array()?) })
    }

    fn write(&self, writer: &mut Writer<'_>) {
        header(writer, BEGIN, self.id);
        writer.u16(self.slice_bytes);
        writer.u32(self.length);
        writer.u64(self.label);
        writer.bytes(&self.digest.0);
    }
}

fn header(writer: &mut Writer<'_>, kind: u8, id: BlockId) {
    writer.u8(kind);
    writer.u16(id.0);
}

/// Writes what comes before the ranges of an `Accept`.
pub(super) fn accept_header(writer: &mut Writer<'_>, id: BlockId, first: u32, end: u32) {
    header(writer, ACCEPT, id);
    writer.u32(first);
    writer.u32(end);
}
