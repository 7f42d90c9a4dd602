//! Typed messages: values that are encoded and decoded by a codec of [`typed`](crate::typed).
//!
//! A malformed message is an error with its client and channel. The connection continues.

use std::fmt;

use serde::{Deserialize, Serialize};
use slipgate_session::channel::{ChannelId, MAX_MESSAGE_BYTES, SendOptions};
use slipgate_session::connection::SendError;
use slipgate_typed::{Bincode, Codec, TypedErrorKind};

use crate::sharded::ShardedServer;
use crate::stats::BroadcastReport;
use crate::{ClientHandle, ClientRef, Server};

/// A message could not be decoded, or a value not encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct TypedError {
    /// The sender of the message, or the receiver of the value.
    pub client: ClientHandle,
    /// The channel.
    pub channel: ChannelId,
    /// The error.
    pub kind: TypedErrorKind,
}

impl fmt::Display for TypedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, channel, kind } = self;
        write!(f, "client in slot {}, channel {}: {kind}", client.slot(), channel.0)
    }
}

impl std::error::Error for TypedError {}

/// Why a value was not sent. The connection continues, and nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum SendTypedError {
    /// The codec cannot encode the value, or not within its limit: 16 KiB unless it was created with another one.
    Value(TypedError),
    /// The codec cannot encode the value of a broadcast, or not within its limit of 16 KiB. No client gets it.
    Broadcast {
        /// The channel of the broadcast.
        channel: ChannelId,
        /// The error.
        kind: TypedErrorKind,
    },
    /// The encoded message was refused.
    Send(SendError),
}

impl fmt::Display for SendTypedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(error) => error.fmt(f),
            Self::Broadcast { channel, kind } => write!(f, "broadcast on channel {}: {kind}", channel.0),
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
/// # use slipgate_server::{Event, Inbox, Server};
/// # fn turn(server: &mut Server, inbox: &mut Inbox) {
/// while let Some(event) = inbox.next(server) {
///     if let Event::Message { client, channel, bytes, .. } = event {
///         match slipgate_server::decode::<(u32, &str)>(client, channel, bytes) {
///             Ok((number, line)) => println!("{number}: {line}"),
///             // For example: "client in slot 3, channel 0: the message ends before its value does"
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

/// Decodes the value of a message with this codec.
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
    /// Encodes a value with the default codec, [`Bincode`], and queues it on a client's channel. It requires
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
    /// # use slipgate_server::typed::SendTypedError;
    /// # use slipgate_server::{ChannelId, ClientHandle, Server};
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
        let mut client = self.client(client).ok_or(SendTypedError::Send(SendError::Gone))?;
        client.send_typed(channel, value)
    }

    /// Encodes a value once with the default codec, [`Bincode`], and queues it on this channel of every client, as
    /// [`broadcast`](Self::broadcast) does.
    ///
    /// # Errors
    /// - `Broadcast`: the value cannot be encoded.
    /// - `Send`: as [`broadcast`](Self::broadcast).
    pub fn broadcast_typed<T: Serialize + ?Sized>(
        &mut self,
        channel: ChannelId,
        value: &T,
    ) -> Result<BroadcastReport, SendTypedError> {
        let mut buf = std::mem::take(&mut self.typed_buf);
        let sent = encode_for_all(&mut buf, channel, value)
            .and_then(|message| self.broadcast(channel, message).map_err(SendTypedError::Send));
        self.typed_buf = buf;
        sent
    }
}

impl ClientRef<'_> {
    /// Encodes a value with the default codec and queues it; see [`Server::send_typed`].
    ///
    /// # Errors
    /// As [`Server::send_typed`].
    pub fn send_typed<T: Serialize + ?Sized>(&mut self, channel: ChannelId, value: &T) -> Result<(), SendTypedError> {
        self.send_typed_with(&Bincode::default(), channel, value, SendOptions::default())
    }

    /// Encodes a value with this codec and queues it with a deadline, a key by which newer messages replace older ones,
    /// or a receipt.
    ///
    /// # Errors
    /// As [`Server::send_typed`].
    pub fn send_typed_with<T: Serialize + ?Sized>(
        &mut self,
        codec: &impl Codec,
        channel: ChannelId,
        value: &T,
        options: SendOptions,
    ) -> Result<(), SendTypedError> {
        let mut buf = std::mem::take(self.typed_buf());
        let handle = self.handle();
        let sent = encode(&mut buf, codec, handle, channel, value)
            .and_then(|message| self.send_message_with(channel, message, options).map_err(SendTypedError::Send));
        *self.typed_buf() = buf;
        sent
    }
}

impl ShardedServer {
    /// Encodes a value with the default codec, [`Bincode`], and passes it to the client's shard as
    /// [`send_message`](Self::send_message) does.
    ///
    /// # Errors
    /// - `Value`: the value cannot be encoded.
    /// - `Send`: as [`send_message`](Self::send_message).
    pub fn send_typed<T: Serialize + ?Sized>(
        &mut self,
        client: ClientHandle,
        channel: ChannelId,
        value: &T,
    ) -> Result<(), SendTypedError> {
        self.send_typed_with(&Bincode::default(), client, channel, value, SendOptions::default())
    }

    /// Encodes a value with this codec and passes it to the client's shard, with a deadline, a key by which newer
    /// messages replace older ones, or a receipt.
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
        let mut buf = std::mem::take(&mut self.typed_buf);
        let sent = encode(&mut buf, codec, client, channel, value).and_then(|message| {
            self.send_message_with(client, channel, message, options).map_err(SendTypedError::Send)
        });
        self.typed_buf = buf;
        sent
    }

    /// Encodes a value once with the default codec, [`Bincode`], and passes it to every shard, as
    /// [`broadcast`](Self::broadcast) does.
    ///
    /// # Errors
    /// - `Broadcast`: the value cannot be encoded.
    /// - `Send`: as [`broadcast`](Self::broadcast).
    pub fn broadcast_typed<T: Serialize + ?Sized>(
        &mut self,
        channel: ChannelId,
        value: &T,
    ) -> Result<BroadcastReport, SendTypedError> {
        let mut buf = std::mem::take(&mut self.typed_buf);
        let sent = encode_for_all(&mut buf, channel, value)
            .and_then(|message| self.broadcast(channel, message).map_err(SendTypedError::Send));
        self.typed_buf = buf;
        sent
    }
}

/// Encodes a value for all clients into `buf`, with the default codec.
fn encode_for_all<'buf, T: Serialize + ?Sized>(
    buf: &'buf mut Vec<u8>,
    channel: ChannelId,
    value: &T,
) -> Result<&'buf [u8], SendTypedError> {
    encode_into(buf, &Bincode::default(), value).map_err(|kind| SendTypedError::Broadcast { channel, kind })
}

/// Encodes a value for a client into `buf`.
fn encode<'buf, T: Serialize + ?Sized>(
    buf: &'buf mut Vec<u8>,
    codec: &impl Codec,
    client: ClientHandle,
    channel: ChannelId,
    value: &T,
) -> Result<&'buf [u8], SendTypedError> {
    let refused = |kind| SendTypedError::Value(TypedError { client, channel, kind });
    encode_into(buf, codec, value).map_err(refused)
}

fn encode_into<'buf, T: Serialize + ?Sized>(
    buf: &'buf mut Vec<u8>,
    codec: &impl Codec,
    value: &T,
) -> Result<&'buf [u8], TypedErrorKind> {
    buf.resize(MAX_MESSAGE_BYTES as usize, 0);
    let bytes = codec.encode(value, buf)?;
    Ok(buf.get(..bytes).unwrap_or_default())
}
