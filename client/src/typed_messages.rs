//! Typed messages: values that are encoded and decoded by a codec of [`typed`](crate::typed).
//!
//! A malformed message is an error with its channel. The connection continues.

use std::fmt;

use serde::{Deserialize, Serialize};
use slipgate_session::channel::{ChannelId, MAX_MESSAGE_BYTES, SendOptions};
use slipgate_session::connection::SendError;
use slipgate_typed::{Bincode, Codec, TypedErrorKind};

use crate::Client;

/// A message could not be decoded, or a value not encoded.
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

impl std::error::Error for TypedError {}

/// Why a value was not sent. The connection continues, and nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum SendTypedError {
    /// The codec cannot encode the value, or not within its limit: 16 KiB unless it was created with another one.
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

impl std::error::Error for SendTypedError {}

/// Decodes the value of a [`Message`](crate::Event::Message) with the default codec, [`Bincode`]. The value may borrow
/// from the message.
///
/// # Errors
/// The message is malformed, too large, cut off, or has trailing bytes.
///
/// # Examples
/// ```no_run
/// # use slipgate_client::{Client, Event, Inbox};
/// # fn turn(client: &mut Client, inbox: &mut Inbox) {
/// while let Some(event) = inbox.next(client) {
///     if let Event::Message { channel, bytes, .. } = event {
///         match slipgate_client::decode::<(u32, &str)>(channel, bytes) {
///             Ok((number, line)) => println!("{number}: {line}"),
///             // For example: "channel 0: the message ends before its value does"
///             Err(error) => eprintln!("{error}"),
///         }
///     }
/// }
/// # }
/// ```
pub fn decode<'de, T: Deserialize<'de>>(channel: ChannelId, bytes: &'de [u8]) -> Result<T, TypedError> {
    decode_with(&Bincode::default(), channel, bytes)
}

/// Decodes the value of a message with this codec.
///
/// # Errors
/// As [`decode`].
pub fn decode_with<'de, T: Deserialize<'de>>(
    codec: &impl Codec,
    channel: ChannelId,
    bytes: &'de [u8],
) -> Result<T, TypedError> {
    codec.decode(bytes).map_err(|kind| TypedError { channel, kind })
}

impl Client {
    /// Encodes a value with the default codec, [`Bincode`], and queues it on a channel. It requires
    /// [`Traffic::Channels`](crate::Traffic).
    ///
    /// The receiver refuses a value with more than 4,096 boxes, strings, collections and table entries
    /// ([`MAX_ALLOCATIONS`](crate::typed::MAX_ALLOCATIONS)). The sender does not check this, because it depends on the
    /// type that the receiver decodes.
    ///
    /// # Errors
    /// - `Value`: the value cannot be encoded.
    /// - `Send`: as [`send_message`](Self::send_message).
    ///
    /// # Examples
    /// ```no_run
    /// # use slipgate_client::typed::SendTypedError;
    /// # use slipgate_client::{ChannelId, Client};
    /// const CHAT: ChannelId = ChannelId(0);
    ///
    /// # fn greet(client: &mut Client) -> Result<(), SendTypedError> {
    /// client.send_typed(CHAT, &(1_u32, "hello, all"))
    /// # }
    /// ```
    pub fn send_typed<T: Serialize + ?Sized>(&mut self, channel: ChannelId, value: &T) -> Result<(), SendTypedError> {
        self.send_typed_with(&Bincode::default(), channel, value, SendOptions::default())
    }

    /// Encodes a value with this codec and queues it with a deadline, a key by which newer messages replace older ones,
    /// or a receipt.
    ///
    /// # Errors
    /// As [`send_typed`](Self::send_typed).
    ///
    /// # Examples
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// # use slipgate_client::typed::{Bincode, SendTypedError};
    /// # use slipgate_client::{ChannelId, Client, SendOptions};
    /// # const SHOTS: ChannelId = ChannelId(1);
    ///
    /// # fn shoot(client: &mut Client, target: (f32, f32)) -> Result<(), SendTypedError> {
    /// // A shot that is 1 s late is useless.
    /// let options = SendOptions::default().deadline(Duration::from_secs(1));
    /// client.send_typed_with(&Bincode::default(), SHOTS, &target, options)
    /// # }
    /// ```
    pub fn send_typed_with<T: Serialize + ?Sized>(
        &mut self,
        codec: &impl Codec,
        channel: ChannelId,
        value: &T,
        options: SendOptions,
    ) -> Result<(), SendTypedError> {
        let mut buf = std::mem::take(&mut self.typed_buf);
        buf.resize(MAX_MESSAGE_BYTES as usize, 0);
        let sent = match codec.encode(value, &mut buf) {
            Ok(bytes) => {
                let message = buf.get(..bytes).unwrap_or_default();
                self.send_message_with(channel, message, options).map_err(SendTypedError::Send)
            }
            Err(kind) => Err(SendTypedError::Value(TypedError { channel, kind })),
        };
        self.typed_buf = buf;
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_error_names_its_channel() {
        let error = TypedError { channel: ChannelId(3), kind: TypedErrorKind::Expands };
        assert_eq!(error.to_string(), "channel 3: the message's value takes too much memory");
    }
}
