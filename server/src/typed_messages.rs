//! Values as messages: what the game sends and hears has a type, by a codec of [`typed`](crate::typed).
//!
//! A message that is wrong is an error with the client and the channel in it, and nothing else: the connection lives on.

use std::fmt;

use serde::{Deserialize, Serialize};
use slipgate_session::channel::{ChannelId, MAX_MESSAGE_BYTES, SendOptions};
use slipgate_session::session::SendError;
use slipgate_typed::{Bincode, Codec, TypedErrorKind};

use crate::{ClientHandle, Hub, Server};

/// A typed message that is wrong: whose, on which channel, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct TypedError {
    /// The client that it came from or was meant for.
    pub client: ClientHandle,
    /// Its channel.
    pub channel: ChannelId,
    /// What is wrong.
    pub kind: TypedErrorKind,
}

impl fmt::Display for TypedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, channel, kind } = self;
        write!(f, "client in slot {}, channel {}: {kind}", client.slot(), channel.0)
    }
}

impl std::error::Error for TypedError {}

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
/// What is wrong with the message, and whose it was.
///
/// # Examples
/// ```no_run
/// # use slipgate_server::{Event, Inbox, Server};
/// # fn turn(server: &mut Server, inbox: &mut Inbox) {
/// while let Some(event) = inbox.next(server) {
///     if let Event::Message { client, channel, bytes } = event {
///         match slipgate_server::decode::<(u32, &str)>(client, channel, bytes) {
///             Ok((number, line)) => println!("{number}: {line}"),
///             // As in: client in slot 3, channel 0: the message ends before its value does
///             Err(error) => eprintln!("{error}"),
///         }
///     }
/// }
/// # }
/// ```
pub fn decode<'de, T: Deserialize<'de>>(
    client: ClientHandle,
    channel: ChannelId,
    bytes: &'de [u8],
) -> Result<T, TypedError> {
    decode_with(&Bincode::default(), client, channel, bytes)
}

/// As [`decode`], by a given codec.
///
/// # Errors
/// As [`decode`].
pub fn decode_with<'de, T: Deserialize<'de>>(
    codec: &impl Codec,
    client: ClientHandle,
    channel: ChannelId,
    bytes: &'de [u8],
) -> Result<T, TypedError> {
    codec.decode(bytes).map_err(|kind| TypedError { client, channel, kind })
}

impl Server {
    /// Puts a value into a client's channel, by the default codec, [`Bincode`]. Only where [`Traffic`](crate::Traffic) is
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
    /// # use slipgate_server::{ChannelId, ClientHandle, SendTypedError, Server};
    /// const CHAT: ChannelId = ChannelId(0);
    ///
    /// # fn welcome(server: &mut Server, client: ClientHandle) -> Result<(), SendTypedError> {
    /// server.send_typed(client, CHAT, &(1_u32, "welcome"))
    /// # }
    /// ```
    pub fn send_typed<T: Serialize + ?Sized>(
        &mut self,
        client: ClientHandle,
        channel: ChannelId,
        value: &T,
    ) -> Result<(), SendTypedError> {
        self.send_typed_with(&Bincode::default(), client, channel, value, SendOptions::default())
    }

    /// As [`send_typed`](Self::send_typed), by a given codec, with a deadline, a key by which newer messages replace older
    /// ones, or a receipt.
    ///
    /// # Errors
    /// As [`send_typed`](Self::send_typed).
    ///
    /// # Examples
    /// ```no_run
    /// use slipgate_server::typed::Postcard;
    /// # use slipgate_server::{ChannelId, ClientHandle, SendOptions, SendTypedError, Server};
    /// # const DOORS: ChannelId = ChannelId(1);
    ///
    /// # fn open(server: &mut Server, client: ClientHandle, door: u16) -> Result<(), SendTypedError> {
    /// // Only the newest state of a door matters.
    /// let options = SendOptions { key: Some(door.into()), ..SendOptions::default() };
    /// server.send_typed_with(&Postcard::default(), client, DOORS, &(door, true), options)
    /// # }
    /// ```
    pub fn send_typed_with<T: Serialize + ?Sized>(
        &mut self,
        codec: &impl Codec,
        client: ClientHandle,
        channel: ChannelId,
        value: &T,
        options: SendOptions,
    ) -> Result<(), SendTypedError> {
        let mut room = std::mem::take(&mut self.typed_room);
        let sent = encode(&mut room, codec, client, channel, value).and_then(|message| {
            self.send_message_with(client, channel, message, options).map_err(SendTypedError::Send)
        });
        self.typed_room = room;
        sent
    }
}

impl Hub {
    /// Puts a value into a message for a client's channel, by the default codec, [`Bincode`], as
    /// [`Server::send_typed`] does; then it goes the way of [`send_message`](Self::send_message).
    ///
    /// The receiver refuses a value with more than 4,096 boxes, strings, collections and entries of tables
    /// ([`MAX_ALLOCATIONS`](crate::typed::MAX_ALLOCATIONS)); what it reads them as is not known here.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message), or that the value makes no message.
    pub fn send_typed<T: Serialize + ?Sized>(
        &mut self,
        client: ClientHandle,
        channel: ChannelId,
        value: &T,
    ) -> Result<(), SendTypedError> {
        self.send_typed_with(&Bincode::default(), client, channel, value, SendOptions::default())
    }

    /// As [`send_typed`](Self::send_typed), by a given codec, with a deadline, a key by which newer messages replace older
    /// ones, or a receipt.
    ///
    /// # Errors
    /// As [`send_typed`](Self::send_typed).
    pub fn send_typed_with<T: Serialize + ?Sized>(
        &mut self,
        codec: &impl Codec,
        client: ClientHandle,
        channel: ChannelId,
        value: &T,
        options: SendOptions,
    ) -> Result<(), SendTypedError> {
        let mut room = std::mem::take(&mut self.typed_room);
        let sent = encode(&mut room, codec, client, channel, value).and_then(|message| {
            self.send_message_with(client, channel, message, options).map_err(SendTypedError::Send)
        });
        self.typed_room = room;
        sent
    }
}

/// Makes a message of a value.
fn encode<'room, T: Serialize + ?Sized>(
    room: &'room mut Vec<u8>,
    codec: &impl Codec,
    client: ClientHandle,
    channel: ChannelId,
    value: &T,
) -> Result<&'room [u8], SendTypedError> {
    room.resize(MAX_MESSAGE_BYTES as usize, 0);
    let refused = |kind| SendTypedError::Value(TypedError { client, channel, kind });
    let bytes = codec.encode(value, room).map_err(refused)?;
    Ok(room.get(..bytes).unwrap_or_default())
}
