//! Messages with a type: from values to bytes, and back within bounds that the sender of the bytes cannot stretch.
//!
//! ```text
//!  value ──▶ codec ──▶ room in a packet's message ┄┄┄ the peer ┄┄┄▶ bytes ──▶ codec ──▶ watch ──▶ value
//!                                                                                   │
//!                                                         what each part of the value may take is charged here
//! ```
//!
//! Formats like these trust the lengths that they read. Ten bytes can announce a list of 2⁶⁰ elements that take no bytes
//! at all, and a kilobyte can become a megabyte of empty options. So every codec here runs under a watch: it hides the
//! announced lengths from collections, which then grow with what really comes, and charges each element and string
//! before it is made. A message decodes within [`MEMORY_PER_BYTE`] times its size plus [`MEMORY_BASE`] bytes of memory.
//! It holds as many values as it has bytes, and of those that have no bytes [`VALUES_PER_BYTE`] for each byte plus
//! [`VALUES_BASE`]; or it is an error. So a list of numbers of the largest message decodes, and what a message makes of
//! nothing ends soon (`tests/tests/typed_work.rs` counts the steps).
//!
//! What asks for memory takes longest, so there are at most [`MAX_ALLOCATIONS`] of it in a message of any size: boxes,
//! strings, collections, and elements of lists, trees and hash tables (`tests/tests/typed_allocations.rs` counts them).
//! Vectors of numbers are not limited so. With that every message of up to [`MAX_BYTES`] is decoded and dropped within a
//! millisecond on a quiet core. `cargo bench -p slipgate-tests --bench typed` prints the times of honest values and of the
//! worst shapes, each in the largest message that there is room for.
//!
//! A sender is not told of these limits, for it does not know the type that its message is read as: text may be borrowed
//! there. Who sends more than 4,000 strings, boxes or entries of tables at once should send several messages, or a block.
//!
//! That holds for everything that derives serde's `Deserialize`, and for the standard library's strings, boxes and
//! collections. What a hand-written `Deserialize` asks for by itself, nobody sees.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[cfg(feature = "bincode")]
mod bincode;
mod budget;
#[cfg(feature = "postcard")]
mod postcard;
#[cfg(all(test, feature = "bincode", feature = "postcard"))]
mod tests;
mod watch;

use core::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

#[cfg(feature = "bincode")]
pub use self::bincode::Bincode;
use self::budget::Budget;
pub use self::budget::{MAX_ALLOCATIONS, MAX_DEPTH, MEMORY_BASE, MEMORY_PER_BYTE, VALUES_BASE, VALUES_PER_BYTE};
#[cfg(feature = "postcard")]
pub use self::postcard::Postcard;
pub use self::watch::Watched;
use slipgate_session::channel::{ChannelId, MAX_MESSAGE_BYTES};

/// The default limit of a message's bytes, for both codecs: 16 KiB, as large as messages of a channel are by default. What
/// is larger should be a block.
pub const DEFAULT_MAX_BYTES: usize = 16 * 1024;
/// The most that the limit of a message's bytes can be: 32 KiB, half of what messages of a channel can be. bincode takes up
/// to 26 ns for each part of a value, of which a message has as many as bytes, and tables compare long keys: what is larger
/// could take longer than a millisecond.
pub const MAX_BYTES: usize = MAX_MESSAGE_BYTES as usize / 2;

/// A format for values: both ends must use the same.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "bincode")] {
/// use slipgate_typed::{Bincode, Codec, TypedErrorKind};
///
/// let (codec, mut room) = (Bincode::default(), [0; 64]);
/// let bytes = codec.encode(&("north", 7_u64), &mut room).expect("there is room");
/// assert_eq!(codec.decode::<(&str, u64)>(&room[..bytes]), Ok(("north", 7)));
/// assert_eq!(codec.decode::<(&str, u64)>(&room[..bytes - 1]), Err(TypedErrorKind::CutOff));
/// # }
/// ```
pub trait Codec {
    /// The most bytes of a message, in either direction.
    fn max_bytes(&self) -> usize;

    /// Writes a value at the start of `room`; answers its bytes. Neither codec here asks for memory.
    ///
    /// # Errors
    ///
    /// [`TypedErrorKind::TooLarge`] if it takes more than the room or [`Codec::max_bytes`], and
    /// [`TypedErrorKind::Malformed`] if the format cannot say it.
    fn encode<T: Serialize + ?Sized>(&self, value: &T, room: &mut [u8]) -> Result<usize, TypedErrorKind>;

    /// Reads what is watched from the start of `bytes`; answers it and how many bytes it took. It is what a codec
    /// implements; [`Codec::decode`] is what one calls.
    ///
    /// # Errors
    ///
    /// [`TypedErrorKind::CutOff`] where bytes are missing, otherwise [`TypedErrorKind::Malformed`].
    fn decode_watched<'de, T: Deserialize<'de>>(
        &self,
        value: Watched<'_, T>,
        bytes: &'de [u8],
    ) -> Result<(T, usize), TypedErrorKind>;

    /// Reads a value, which may borrow from the message.
    ///
    /// # Errors
    ///
    /// The bound that the message breaks, or what is wrong with its bytes.
    fn decode<'de, T: Deserialize<'de>>(&self, bytes: &'de [u8]) -> Result<T, TypedErrorKind> {
        if bytes.len() > self.max_bytes() {
            return Err(TypedErrorKind::TooLarge);
        }
        let budget = Budget::of_message(bytes.len());
        let decoded = self.decode_watched(Watched::new(&budget), bytes);
        let (value, read) = decoded.map_err(|kind| budget.broken().unwrap_or(kind))?;
        if read == bytes.len() { Ok(value) } else { Err(TypedErrorKind::Trailing) }
    }

    /// Reads a value that borrows nothing, as an application keeps it.
    ///
    /// # Errors
    ///
    /// As [`Codec::decode`].
    fn decode_owned<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, TypedErrorKind> {
        self.decode(bytes)
    }
}

/// A typed message that is wrong, and the channel that it came from or was meant for. Who has several connections adds
/// whose it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct TypedError {
    /// The channel.
    pub channel: ChannelId,
    /// What is wrong.
    pub kind: TypedErrorKind,
}

impl fmt::Display for TypedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "channel {}: {}", self.channel.0, self.kind)
    }
}

impl core::error::Error for TypedError {}

/// What is wrong with a typed message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum TypedErrorKind {
    /// More bytes than the codec's limit, or than there is room for.
    TooLarge,
    /// It ends before the value does.
    CutOff,
    /// Its bytes are not those of such a value.
    Malformed,
    /// Bytes are left behind the value.
    Trailing,
    /// The value would take more memory than a message of this size may.
    Expands,
    /// The value has more parts than a message of this size may.
    TooManyValues,
    /// The value would ask for memory more often than [`MAX_ALLOCATIONS`].
    TooManyAllocations,
    /// Its parts are nested deeper than [`MAX_DEPTH`].
    TooDeep,
}

impl fmt::Display for TypedErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "the message is larger than the codec's limit or the room for it",
            Self::CutOff => "the message ends before its value does",
            Self::Malformed => "the message is not one of such a value",
            Self::Trailing => "bytes are left behind the message's value",
            Self::Expands => "the message's value takes too much memory",
            Self::TooManyValues => "the message's value has too many parts",
            Self::TooManyAllocations => "the message's value would ask for memory too often",
            Self::TooDeep => "the message's value is nested too deeply",
        })
    }
}

impl core::error::Error for TypedErrorKind {}

impl TypedErrorKind {
    /// With the channel that the message came from or was meant for.
    #[must_use]
    pub const fn on(self, channel: ChannelId) -> TypedError {
        TypedError { channel, kind: self }
    }
}
