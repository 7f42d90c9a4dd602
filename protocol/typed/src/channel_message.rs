//! Values in the messages of channels: decoding, and errors that name the channel. Servers and clients share them.

use core::fmt;

use serde::Deserialize;
use slipgate_session::channel::ChannelId;
use slipgate_session::connection::SendError;

use crate::{Bincode, Codec, TypedErrorKind};

/// A message could not be decoded, or a value not encoded. The connection continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct TypedError {
    /// The channel.
    pub channel: ChannelId,
    /// The error.
    pub kind: TypedErrorKind,
}

impl fmt::Display for TypedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "channel {}: {}", self.channel.0, self.kind)
    }
}

impl core::error::Error for TypedError {}

/// Why a value was not sent. The connection continues, and nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum SendTypedError {
    /// The codec cannot encode the value, or not within its limit: 16 KiB unless it was created with another one. No
    /// client gets the value of a broadcast.
    Value(TypedError),
    /// The encoded message was refused.
    Send(SendError),
}

impl fmt::Display for SendTypedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(error) => error.fmt(f),
            Self::Send(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for SendTypedError {}

/// Decodes the value of a channel's message with the default codec, [`Bincode`]. The value may borrow from the message.
/// Other codecs have [`Codec::decode`].
///
/// # Errors
/// The message is malformed, too large, cut off, or has trailing bytes.
///
/// # Examples
/// ```
/// use slipgate_session::channel::ChannelId;
/// use slipgate_typed::decode;
///
/// const CHAT: ChannelId = ChannelId(0);
///
/// // The arguments are those of an `Event::Message`.
/// assert_eq!(decode::<(u8, &str)>(CHAT, b"\x07\x05hello"), Ok((7, "hello")));
/// let error = decode::<(u8, &str)>(CHAT, b"\x07\x05hel").unwrap_err();
/// assert_eq!(error.to_string(), "channel 0: the message ends before its value does");
/// ```
pub fn decode<'de, T: Deserialize<'de>>(channel: ChannelId, bytes: &'de [u8]) -> Result<T, TypedError> {
    Bincode::default().decode(bytes).map_err(|kind| TypedError { channel, kind })
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn typed_error_names_its_channel() {
        let error = TypedError { channel: ChannelId(3), kind: TypedErrorKind::Expands };
        assert_eq!(error.to_string(), "channel 3: the message's value takes too much memory");
    }
}
