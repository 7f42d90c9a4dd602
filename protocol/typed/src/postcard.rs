//! The codec postcard 1: numbers take as many bytes as they need, signed ones in zig-zag. Some values are smaller than
//! in bincode.

use postcard::ser_flavors::Size;
use postcard::{Deserializer, Error};
use serde::de::DeserializeSeed;
use serde::{Deserialize, Serialize};

use super::{Codec, DEFAULT_MAX_BYTES, MAX_BYTES, Metered, TypedErrorKind};

/// The codec of postcard. Its format is stable since version 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Postcard {
    max_bytes: usize,
}

impl Postcard {
    /// Returns a codec for messages of at most `max_bytes`, which is at most [`MAX_BYTES`].
    #[must_use]
    pub const fn with_limit(max_bytes: usize) -> Self {
        Self { max_bytes: if max_bytes < MAX_BYTES { max_bytes } else { MAX_BYTES } }
    }
}

impl Default for Postcard {
    fn default() -> Self {
        Self::with_limit(DEFAULT_MAX_BYTES)
    }
}

impl Codec for Postcard {
    fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    fn encode<T: Serialize + ?Sized>(&self, value: &T, buf: &mut [u8]) -> Result<usize, TypedErrorKind> {
        let len = buf.len().min(self.max_bytes);
        let buf = buf.get_mut(..len).unwrap_or_default();
        postcard::to_slice(value, buf).map(|written| written.len()).map_err(|error| match error {
            Error::SerializeBufferFull => {
                let bytes = postcard::serialize_with_flavor(value, Size::default()).unwrap_or(usize::MAX);
                TypedErrorKind::TooLarge { bytes, limit: len }
            }
            _ => TypedErrorKind::Malformed,
        })
    }

    fn decode_metered<'de, T: Deserialize<'de>>(
        &self,
        value: Metered<'_, T>,
        bytes: &'de [u8],
    ) -> Result<(T, usize), TypedErrorKind> {
        let mut codec = Deserializer::from_bytes(bytes);
        let decoded = value.deserialize(&mut codec).and_then(|value| Ok((value, codec.finalize()?)));
        let (value, rest) = decoded.map_err(|error| match error {
            Error::DeserializeUnexpectedEnd => TypedErrorKind::CutOff,
            _ => TypedErrorKind::Malformed,
        })?;
        Ok((value, bytes.len() - rest.len()))
    }
}
