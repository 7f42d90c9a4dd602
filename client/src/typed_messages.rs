//! Values as messages: what the game sends and hears has a type, by a codec of [`typed`](crate::typed).
//!
//! A message that is wrong is an error with the channel in it, and nothing else: the connection lives on.

use std::fmt;

use serde::{Deserialize, Serialize};
use slipgate_session::channel::{ChannelId, MAX_MESSAGE_BYTES, SendOptions};
use slipgate_session::session::SendError;
use slipgate_typed::{Bincode, Codec, TypedError};

use crate::Client;

/// Why a value was not sent. The connection lives on, and nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum SendTypedError {
    /// The codec cannot say the value, or not within its own limit: 16 KiB, unless it was given another of up to 32 KiB.
    Value(TypedError),
    /// The message was not taken. One that is too large for its own channel alone (`max_message_bytes` of its
    /// [`ChannelConfig`](crate::ChannelConfig)) is `TooLarge` here.
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

/// Reads the value of a [`Message`](crate::Event::Message) by the default codec, [`Bincode`]. It may borrow from the
/// message.
///
/// # Errors
/// What is wrong with the message.
///
/// # Examples
/// ```no_run
/// # use slipgate_client::{Client, Event, Inbox};
/// # fn turn(client: &mut Client, inbox: &mut Inbox) {
/// while let Some(event) = inbox.next(client) {
///     if let Event::Message { channel, bytes } = event {
///         match slipgate_client::decode::<(u32, &str)>(channel, bytes) {
///             Ok((number, line)) => println!("{number}: {line}"),
///             // As in: channel 0: the message ends before its value does
///             Err(error) => eprintln!("{error}"),
///         }
///     }
/// }
/// # }
/// ```
pub fn decode<'de, T: Deserialize<'de>>(channel: ChannelId, bytes: &'de [u8]) -> Result<T, TypedError> {
    decode_with(&Bincode::default(), channel, bytes)
}

/// As [`decode`], by a given codec.
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
    /// Puts a value into a channel, by the default codec, [`Bincode`]. Only where [`Traffic`](crate::Traffic) is
    /// `Channels`.
    ///
    /// The receiver refuses a value with more than 4,096 boxes, strings, collections and entries of tables
    /// ([`MAX_ALLOCATIONS`](crate::typed::MAX_ALLOCATIONS)); what it reads them as is not known here.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message), or that the value makes no message.
    ///
    /// # Examples
    /// ```no_run
    /// # use slipgate_client::{ChannelId, Client, SendTypedError};
    /// const CHAT: ChannelId = ChannelId(0);
    ///
    /// # fn greet(client: &mut Client) -> Result<(), SendTypedError> {
    /// client.send_typed(CHAT, &(1_u32, "hello, all"))
    /// # }
    /// ```
    pub fn send_typed<T: Serialize + ?Sized>(&mut self, channel: ChannelId, value: &T) -> Result<(), SendTypedError> {
        self.send_typed_with(&Bincode::default(), channel, value, SendOptions::default())
    }

    /// As [`send_typed`](Self::send_typed), by a given codec, with a deadline, a key by which newer messages replace older
    /// ones, or a receipt.
    ///
    /// # Errors
    /// As [`send_typed`](Self::send_typed).
    ///
    /// # Examples
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use slipgate_client::typed::Postcard;
    /// # use slipgate_client::{ChannelId, Client, SendOptions, SendTypedError};
    /// # const SHOTS: ChannelId = ChannelId(1);
    ///
    /// # fn shoot(client: &mut Client, at: (f32, f32)) -> Result<(), SendTypedError> {
    /// // A shot that would be a second late is none.
    /// let options = SendOptions { deadline: Some(Duration::from_secs(1)), ..SendOptions::default() };
    /// client.send_typed_with(&Postcard::default(), SHOTS, &at, options)
    /// # }
    /// ```
    pub fn send_typed_with<T: Serialize + ?Sized>(
        &mut self,
        codec: &impl Codec,
        channel: ChannelId,
        value: &T,
        options: SendOptions,
    ) -> Result<(), SendTypedError> {
        let mut room = std::mem::take(&mut self.typed_room);
        room.resize(MAX_MESSAGE_BYTES as usize, 0);
        let sent = match codec.encode(value, &mut room) {
            Ok(bytes) => {
                let message = room.get(..bytes).unwrap_or_default();
                self.send_message_with(channel, message, options).map_err(SendTypedError::Send)
            }
            Err(kind) => Err(SendTypedError::Value(TypedError { channel, kind })),
        };
        self.typed_room = room;
        sent
    }
}
