//! Typed messages: values that are encoded by a codec of [`typed`](crate::typed).

use serde::Serialize;
use slipgate_session::channel::{ChannelId, MAX_MESSAGE_BYTES, SendOptions};
use slipgate_typed::{Bincode, Codec, SendTypedError, TypedError};

use crate::Client;

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
