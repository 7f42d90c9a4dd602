//! The codec bincode 2.0.1 in its standard configuration: little-endian, numbers in 1 to 17 bytes. It is the default.

use bincode::config::{Configuration, Limit, standard};
use bincode::enc::write::{SizeWriter, SliceWriter};
use bincode::error::{DecodeError, EncodeError};
use serde::{Deserialize, Serialize};

use super::{Codec, DEFAULT_MAX_BYTES, MAX_BYTES, Metered, TypedErrorKind};

/// The limit that bincode checks itself. It counts each number as the 16 bytes that it may take, and each length as 8.
const LIMIT: usize = MAX_BYTES * 16;

const CONFIGURATION: Configuration<bincode::config::LittleEndian, bincode::config::Varint, Limit<LIMIT>> =
    standard().with_limit::<LIMIT>();

/// The codec of bincode 2.0.1, always with a size limit.
///
/// The version is part of the format: other versions may encode otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bincode {
    max_bytes: usize,
}

impl Bincode {
    /// Returns a codec for messages of at most `max_bytes`, which is at most [`MAX_BYTES`].
    #[must_use]
    pub const fn with_limit(max_bytes: usize) -> Self {
        Self { max_bytes: if max_bytes < MAX_BYTES { max_bytes } else { MAX_BYTES } }
    }
}

impl Default for Bincode {
    fn default() -> Self {
        Self::with_limit(DEFAULT_MAX_BYTES)
    }
}

impl Codec for Bincode {
    fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    fn encode<T: Serialize + ?Sized>(&self, value: &T, buf: &mut [u8]) -> Result<usize, TypedErrorKind> {
        let len = buf.len().min(self.max_bytes);
        let buf = buf.get_mut(..len).unwrap_or_default();
        let mut writer = SliceWriter::new(buf);
        bincode::serde::encode_into_writer(value, &mut writer, CONFIGURATION).map_err(|error| match error {
            EncodeError::UnexpectedEnd => TypedErrorKind::TooLarge { bytes: size_of_message(value), limit: len },
            _ => TypedErrorKind::Malformed,
        })?;
        Ok(writer.bytes_written())
    }

    fn decode_metered<'de, T: Deserialize<'de>>(
        &self,
        value: Metered<'_, T>,
        bytes: &'de [u8],
    ) -> Result<(T, usize), TypedErrorKind> {
        bincode::serde::seed_decode_from_slice(value, bytes, CONFIGURATION).map_err(|error| match error {
            DecodeError::UnexpectedEnd { .. } => TypedErrorKind::CutOff,
            // It announces more elements than any message has bytes.
            DecodeError::LimitExceeded => TypedErrorKind::Expands,
            _ => TypedErrorKind::Malformed,
        })
    }
}

/// Returns the size of a value's message, which no buffer holds.
fn size_of_message<T: Serialize + ?Sized>(value: &T) -> usize {
    let mut writer = SizeWriter::default();
    let _ = bincode::serde::encode_into_writer(value, &mut writer, CONFIGURATION);
    writer.bytes_written
}
