//! bincode 2.0.1 in its standard configuration: little-endian, numbers in 1 to 17 bytes. The default.

use bincode::config::{Configuration, Limit, standard};
use bincode::enc::write::SliceWriter;
use bincode::error::{DecodeError, EncodeError};
use serde::{Deserialize, Serialize};

use super::{Codec, DEFAULT_MAX_BYTES, MAX_BYTES, TypedErrorKind, Watched};

/// The format's own limit. It counts a number in one byte as the 16 bytes that it can have at most, and lengths as 8.
const LIMIT: usize = MAX_BYTES * 16;

const CONFIGURATION: Configuration<bincode::config::LittleEndian, bincode::config::Varint, Limit<LIMIT>> =
    standard().with_limit::<LIMIT>();

/// Values by bincode 2.0.1, always with a limit of size.
///
/// The version is part of the format: a later one may write otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bincode {
    max_bytes: usize,
}

impl Bincode {
    /// The codec for messages of at most so many bytes, itself at most [`MAX_BYTES`].
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

    fn encode<T: Serialize + ?Sized>(&self, value: &T, room: &mut [u8]) -> Result<usize, TypedErrorKind> {
        let most = room.len().min(self.max_bytes);
        let room = room.get_mut(..most).unwrap_or_default();
        let mut writer = SliceWriter::new(room);
        bincode::serde::encode_into_writer(value, &mut writer, CONFIGURATION).map_err(|error| match error {
            EncodeError::UnexpectedEnd => TypedErrorKind::TooLarge,
            _ => TypedErrorKind::Malformed,
        })?;
        Ok(writer.bytes_written())
    }

    fn decode_watched<'de, T: Deserialize<'de>>(
        &self,
        value: Watched<'_, T>,
        bytes: &'de [u8],
    ) -> Result<(T, usize), TypedErrorKind> {
        bincode::serde::seed_decode_from_slice(value, bytes, CONFIGURATION).map_err(|error| match error {
            DecodeError::UnexpectedEnd { .. } => TypedErrorKind::CutOff,
            DecodeError::LimitExceeded => TypedErrorKind::TooLarge,
            _ => TypedErrorKind::Malformed,
        })
    }
}
