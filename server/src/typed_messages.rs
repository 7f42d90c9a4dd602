//! Typed messages: values that are encoded by a codec of [`typed`](crate::typed).

use serde::Serialize;
use slipgate_session::channel::{ChannelId, MAX_MESSAGE_BYTES, SendOptions};
use slipgate_session::connection::SendError;
use slipgate_typed::{Bincode, Codec, SendTypedError, TypedError};

use crate::connection::BroadcastReport;
use crate::sharded::ShardedServer;
use crate::{ClientHandle, ClientRef, Server};

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
    /// - `Value`: the value cannot be encoded.
    /// - `Send`: as [`broadcast`](Self::broadcast).
    pub fn broadcast_typed<T: Serialize + ?Sized>(
        &mut self,
        channel: ChannelId,
        value: &T,
    ) -> Result<BroadcastReport, SendTypedError> {
        let mut buf = std::mem::take(&mut self.typed_buf);
        let sent = encode(&mut buf, &Bincode::default(), channel, value)
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
        let sent = encode(&mut buf, codec, channel, value)
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
        let sent = encode(&mut buf, codec, channel, value).and_then(|message| {
            self.send_message_with(client, channel, message, options).map_err(SendTypedError::Send)
        });
        self.typed_buf = buf;
        sent
    }

    /// Encodes a value once with the default codec, [`Bincode`], and passes it to every shard, as
    /// [`broadcast`](Self::broadcast) does.
    ///
    /// # Errors
    /// - `Value`: the value cannot be encoded.
    /// - `Send`: as [`broadcast`](Self::broadcast).
    pub fn broadcast_typed<T: Serialize + ?Sized>(
        &mut self,
        channel: ChannelId,
        value: &T,
    ) -> Result<BroadcastReport, SendTypedError> {
        let mut buf = std::mem::take(&mut self.typed_buf);
        let sent = encode(&mut buf, &Bincode::default(), channel, value)
            .and_then(|message| self.broadcast(channel, message).map_err(SendTypedError::Send));
        self.typed_buf = buf;
        sent
    }
}

/// Encodes a value for this channel into `buf`.
fn encode<'buf, T: Serialize + ?Sized>(
    buf: &'buf mut Vec<u8>,
    codec: &impl Codec,
    channel: ChannelId,
    value: &T,
) -> Result<&'buf [u8], SendTypedError> {
    buf.resize(MAX_MESSAGE_BYTES as usize, 0);
    let refused = |kind| SendTypedError::Value(TypedError { channel, kind });
    let bytes = codec.encode(value, buf).map_err(refused)?;
    Ok(buf.get(..bytes).unwrap_or_default())
}
