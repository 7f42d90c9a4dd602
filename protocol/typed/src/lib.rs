//! Typed messages: serde values to bytes, and back within bounds that the sender of the bytes cannot stretch.
//!
//! ```text
//!  value ──▶ codec ──▶ bytes ┄┄┄ the peer ┄┄┄▶ bytes ──▶ codec ──▶ meter ──▶ value
//!                                                                   │
//!                                           each part of the value is charged before it is made
//! ```
//!
//! Formats such as bincode trust the lengths that they read. Ten bytes can announce a list of 2⁶⁰ elements that take no
//! bytes, and a kilobyte can become a megabyte of empty options. Every codec of this crate therefore runs under a
//! meter. The meter hides announced lengths from collections, so that they grow with what really arrives, and it
//! charges each element and string before it is made:
//!
//! | bound | for a message of n bytes |
//! | --- | --- |
//! | memory | [`MEMORY_PER_BYTE`] · n + [`MEMORY_BASE`] bytes |
//! | values that have bytes of their own | n |
//! | values that have none | [`VALUES_PER_BYTE`] · n + [`VALUES_BASE`] |
//! | allocations | [`MAX_ALLOCATIONS`], whatever n is |
//! | nesting | [`MAX_DEPTH`] |
//! | n itself | the codec's limit, at most [`MAX_BYTES`] |
//!
//! Allocations take the longest time: boxes, strings, collections, and elements of lists, trees and hash tables.
//! Vectors of numbers are not limited in that way. Within these bounds every message decodes and drops within a
//! millisecond on a quiet core. `cargo bench -p slipgate-tests --bench typed` prints the times of honest values and of
//! the worst shapes.
//!
//! Encoding does not check these bounds, because the sender does not know the type by which the receiver decodes: it
//! may borrow text there. An application with more than 4,000 strings, boxes or map entries sends several messages, or
//! a transfer.
//!
//! The bounds hold for every type that derives serde's `Deserialize`, and for the strings, boxes and collections of the
//! standard library. Memory that a hand-written `Deserialize` allocates by itself is not metered.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[cfg(all(doctest, feature = "postcard"))]
#[doc = include_str!("../README.md")]
struct TypedReadme;

#[cfg(feature = "bincode")]
mod bincode;
#[cfg(feature = "channels")]
mod channel_message;
mod decode_budget;
mod error;
mod meter;
#[cfg(feature = "postcard")]
mod postcard;
#[cfg(all(test, feature = "bincode", feature = "postcard"))]
mod tests;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

#[cfg(feature = "bincode")]
pub use self::bincode::Bincode;
#[cfg(feature = "channels")]
pub use self::channel_message::{SendTypedError, TypedError, decode};
use self::decode_budget::DecodeBudget;
pub use self::decode_budget::{MAX_ALLOCATIONS, MAX_DEPTH, MEMORY_BASE, MEMORY_PER_BYTE, VALUES_BASE, VALUES_PER_BYTE};
pub use self::error::TypedErrorKind;
pub use self::meter::Metered;
#[cfg(feature = "postcard")]
pub use self::postcard::Postcard;
/// The default limit of a message's size for both codecs: 16 KiB, the default limit of a channel's messages. Send
/// larger values as transfers.
pub const DEFAULT_MAX_BYTES: usize = 16 * 1024;
/// The largest limit of a message's size: 32 KiB. bincode takes up to 26 ns for each part of a value, a message has up
/// to one part per byte, and maps compare long keys: a larger message could take longer than a millisecond (measured by
/// `cargo bench -p slipgate-tests --bench typed`).
pub const MAX_BYTES: usize = 32 * 1024;

/// A format for values. Both peers must use the same one.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "bincode")] {
/// use slipgate_typed::{Bincode, Codec, TypedErrorKind};
///
/// let (codec, mut buf) = (Bincode::default(), [0; 64]);
/// let bytes = codec.encode(&("north", 7_u64), &mut buf).expect("it fits");
/// assert_eq!(codec.decode::<(&str, u64)>(&buf[..bytes]), Ok(("north", 7)));
/// assert_eq!(codec.decode::<(&str, u64)>(&buf[..bytes - 1]), Err(TypedErrorKind::CutOff));
/// # }
/// ```
pub trait Codec {
    /// Returns the largest size of a message in bytes, in either direction.
    fn max_bytes(&self) -> usize;

    /// Writes a value at the start of `buf` and returns its size in bytes. The codecs of this crate allocate nothing.
    ///
    /// # Errors
    ///
    /// - [`TypedErrorKind::TooLarge`] when the value takes more bytes than `buf` or [`Codec::max_bytes`].
    /// - [`TypedErrorKind::Malformed`] when the format cannot express the value.
    fn encode<T: Serialize + ?Sized>(&self, value: &T, buf: &mut [u8]) -> Result<usize, TypedErrorKind>;

    /// Reads a metered value from the start of `bytes`, and returns it with the number of bytes it took. Codecs
    /// implement this method; applications call [`Codec::decode`].
    ///
    /// # Errors
    ///
    /// - [`TypedErrorKind::CutOff`] when the bytes end before the value does.
    /// - [`TypedErrorKind::Malformed`] when they do not encode such a value.
    fn decode_metered<'de, T: Deserialize<'de>>(
        &self,
        value: Metered<'_, T>,
        bytes: &'de [u8],
    ) -> Result<(T, usize), TypedErrorKind>;

    /// Returns the value of a message. It may borrow from the message.
    ///
    /// # Errors
    ///
    /// - [`TypedErrorKind::TooLarge`] when the message is larger than [`Codec::max_bytes`].
    /// - [`TypedErrorKind::Expands`], `TooManyValues`, `TooManyAllocations` or `TooDeep` when the value exceeds that
    ///   bound.
    /// - [`TypedErrorKind::CutOff`], `Malformed` or `Trailing` when the bytes are not exactly one such value.
    fn decode<'de, T: Deserialize<'de>>(&self, bytes: &'de [u8]) -> Result<T, TypedErrorKind> {
        if bytes.len() > self.max_bytes() {
            return Err(TypedErrorKind::TooLarge { bytes: bytes.len(), limit: self.max_bytes() });
        }
        let budget = DecodeBudget::of_message(bytes.len());
        let decoded = self.decode_metered(Metered::new(&budget), bytes);
        let (value, read) = decoded.map_err(|kind| budget.broken().unwrap_or(kind))?;
        // A longer message could carry hidden bytes, which a later version would read otherwise.
        if read == bytes.len() { Ok(value) } else { Err(TypedErrorKind::Trailing) }
    }

    /// Returns the value of a message as an application keeps it: it borrows nothing.
    ///
    /// # Errors
    ///
    /// Those of [`Codec::decode`].
    fn decode_owned<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, TypedErrorKind> {
        self.decode(bytes)
    }
}
