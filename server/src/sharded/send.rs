//! What the game sends to its clients, and how it disconnects them: each call is a command for the client's shard.

use slipgate_netcode::server::ShardId;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_session::channel::transfer::Transfer;
use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout, SendOptions, SharedMessage};
use slipgate_session::connection::{CloseCode, SendError, Traffic};

use super::ShardedServer;
use super::bridge::Command;
use super::link::ShardLink;
use crate::ClientHandle;
use crate::connection::BroadcastReport;

/// The maximum bytes of the text for a kicked player.
const MAX_TEXT_BYTES: usize = 256;

impl ShardedServer {
    /// Passes a payload of 1 to 1200 bytes to its client's shard, which sends it after [`flush`](Self::flush). It
    /// requires [`Traffic::Payloads`].
    ///
    /// # Errors
    /// - `Gone`: the game has disconnected the client, or its `Disconnected` event was taken.
    /// - `Empty`, `TooLarge`: the payload has no byte, or more than 1200.
    /// - `Backlogged`: the queue to the shard is full.
    /// - `WrongTraffic`: the shards carry channels.
    pub fn send(&mut self, client: ClientHandle, payload: &[u8]) -> Result<(), SendError> {
        let Traffic::Payloads = self.traffic else { return Err(SendError::WrongTraffic) };
        match payload.len() {
            0 => Err(SendError::Empty),
            byte_count @ 1..=MAX_PAYLOAD_BYTES => self.push(client, Command::Payload { client, byte_count }, payload),
            bytes => Err(SendError::TooLarge { channel: None, bytes, limit: MAX_PAYLOAD_BYTES }),
        }
    }

    /// Passes a message to its client's shard, which queues it on a channel. It requires [`Traffic::Channels`]. If the
    /// channel's queue is full there, or the client has left, [`Event::NotSent`](crate::Event::NotSent) reports it.
    ///
    /// # Errors
    /// - `Gone`: the game has disconnected the client, or its `Disconnected` event was taken.
    /// - `TooLarge`: the message is larger than the channel's `max_message_bytes`.
    /// - `Backlogged`: the queue to the shard is full.
    /// - `NoChannel`, `WrongKind`: the layout has no such channel, or it is a channel of transfers.
    /// - `WrongTraffic`: the shards carry payloads.
    pub fn send_message(&mut self, client: ClientHandle, channel: ChannelId, message: &[u8]) -> Result<(), SendError> {
        self.send_message_with(client, channel, message, SendOptions::default())
    }

    /// Passes a message with a deadline, a key by which newer messages replace older ones, or a receipt. A receipt
    /// reports nothing if [`Event::NotSent`](crate::Event::NotSent) does.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub fn send_message_with(
        &mut self,
        client: ClientHandle,
        channel: ChannelId,
        message: &[u8],
        options: SendOptions,
    ) -> Result<(), SendError> {
        self.check_message(channel, message)?;
        self.push(client, Command::Message { client, channel, options, byte_count: message.len() }, message)
    }

    fn check_message(&self, channel: ChannelId, message: &[u8]) -> Result<(), SendError> {
        let Traffic::Channels(layout, _) = &self.traffic else { return Err(SendError::WrongTraffic) };
        let settings = find(layout, channel)?;
        if settings.kind == Kind::Transfers {
            return Err(SendError::WrongKind);
        }
        let (bytes, limit) = (message.len(), settings.max_message_bytes as usize);
        if bytes > limit { Err(SendError::TooLarge { channel: Some(channel), bytes, limit }) } else { Ok(()) }
    }

    /// Passes a message to every shard, which queues it for all its clients. The bytes are stored once for all of them.
    /// Clients with a `Connected` event that the game has not taken yet receive it too.
    ///
    /// The report counts the clients that the game knows, at the time of the call: `queued` on shards that accepted the
    /// command, `refused` on shards with a full queue of commands. If a client's own queue is full when its shard
    /// executes the command, [`broadcasts_not_sent`](super::ShardCounts::broadcasts_not_sent) counts it, not the
    /// report. A game that must know which client it was uses [`send_message`](Self::send_message) for each.
    ///
    /// # Errors
    /// `TooLarge`, `NoChannel`, `WrongKind` or `WrongTraffic`, as [`send_message`](Self::send_message).
    pub fn broadcast(&mut self, channel: ChannelId, message: &[u8]) -> Result<BroadcastReport, SendError> {
        self.broadcast_to(None, channel, message)
    }

    /// Does the same as [`broadcast`](Self::broadcast) for every client but one.
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast).
    pub fn broadcast_except(
        &mut self,
        channel: ChannelId,
        except: ClientHandle,
        message: &[u8],
    ) -> Result<BroadcastReport, SendError> {
        self.broadcast_to(Some(except), channel, message)
    }

    fn broadcast_to(
        &mut self,
        except: Option<ClientHandle>,
        channel: ChannelId,
        message: &[u8],
    ) -> Result<BroadcastReport, SendError> {
        self.check_message(channel, message)?;
        let (message_bytes, message) = (message.len(), SharedMessage::from(message));
        let mut report = BroadcastReport::default();
        for link in &mut self.links {
            let open = link.clients.iter().flatten().filter(|entry| !entry.is_closing);
            let count = open.filter(|entry| Some(entry.info.client) != except).count() as u32;
            let command = Command::Broadcast { channel, message: message.clone(), message_bytes, except };
            match link.push_broadcast(command, message_bytes) {
                Ok(()) => report.queued += count,
                Err(_) => report.refused += count,
            }
        }
        Ok(report)
    }

    /// Passes a transfer to its client's shard, which starts it on a channel of transfers. The client receives `label`
    /// with it. The content is shared, not copied, so that one transfer may go to every client.
    /// [`Event::Started`](crate::Event::Started) reports the id, or [`Event::NotSent`](crate::Event::NotSent) the label
    /// if too many transfers wait or the client has left.
    ///
    /// # Errors
    /// - `Gone`: the game has disconnected the client, or its `Disconnected` event was taken.
    /// - `Backlogged`: the queue to the shard is full.
    /// - `NoChannel`, `WrongKind`: the layout has no such channel, or it is a channel of messages.
    /// - `WrongTraffic`: the shards carry payloads.
    pub fn send_transfer(
        &mut self,
        client: ClientHandle,
        channel: ChannelId,
        transfer: Transfer,
        label: u64,
    ) -> Result<(), SendError> {
        let Traffic::Channels(layout, _) = &self.traffic else { return Err(SendError::WrongTraffic) };
        if find(layout, channel)?.kind != Kind::Transfers {
            return Err(SendError::WrongKind);
        }
        self.push(client, Command::Transfer { client, channel, transfer, label }, &[])
    }

    /// Disconnects a client at once, without a text. The only events that follow are its partial transfers and its
    /// `Disconnected`. It also frees the slot of a client that was kicked before.
    ///
    /// # Errors
    /// - `Gone`: the client's `Disconnected` event was taken.
    /// - `Backlogged`: the queue to the shard is full.
    pub fn disconnect(&mut self, client: ClientHandle) -> Result<(), SendError> {
        let link = self.links.get_mut(usize::from(client.shard().0)).ok_or(SendError::Gone)?;
        link.entry_mut(client).ok_or(SendError::Gone)?;
        link.push_close(client, Command::Disconnect { client }, &[])
    }

    /// Disconnects a client with a text for the player, of which the first 256 bytes are sent; see
    /// [`Server::kick`](crate::Server::kick).
    /// The only events that follow are its partial transfers and its `Disconnected`.
    ///
    /// # Errors
    /// - `Gone`: the game has disconnected the client, or its `Disconnected` event was taken.
    /// - `Backlogged`: the queue to the shard is full.
    pub fn kick(&mut self, client: ClientHandle, text: &str) -> Result<(), SendError> {
        self.kick_with(client, CloseCode::KICKED, text)
    }

    /// Disconnects a client with a code for its program and a text; see
    /// [`ClientRef::kick_with`](crate::ClientRef::kick_with).
    ///
    /// # Errors
    /// As [`kick`](Self::kick).
    pub fn kick_with(&mut self, client: ClientHandle, code: CloseCode, text: &str) -> Result<(), SendError> {
        // The shard cuts it to this length as well. An entry of the queue stays small.
        let text = text.get(..text.floor_char_boundary(MAX_TEXT_BYTES)).unwrap_or_default();
        let link = self.open_link(client)?;
        link.push_close(client, Command::Kick { client, code, byte_count: text.len() }, text.as_bytes())
    }

    /// Sends a client to another server, with a token of the issuer for the same client id and a text for the player;
    /// see [`ClientRef::redirect`](crate::ClientRef::redirect). The only events that follow are its partial transfers
    /// and its `Disconnected`.
    ///
    /// # Errors
    /// As [`kick`](Self::kick).
    pub fn redirect(&mut self, client: ClientHandle, token: ConnectToken, text: &str) -> Result<(), SendError> {
        let text = text.get(..text.floor_char_boundary(MAX_TEXT_BYTES)).unwrap_or_default();
        let link = self.open_link(client)?;
        let command = Command::Redirect { client, token: Box::new(token), byte_count: text.len() };
        link.push_close(client, command, text.as_bytes())
    }

    fn push(&mut self, client: ClientHandle, command: Command, body: &[u8]) -> Result<(), SendError> {
        self.open_link(client)?.push(command, body)
    }

    /// Returns the shard of a client that the game has not disconnected.
    fn open_link(&mut self, client: ClientHandle) -> Result<&mut ShardLink, SendError> {
        let link = self.links.get_mut(usize::from(client.shard().0)).ok_or(SendError::Gone)?;
        let entry = link.entry_mut(client).ok_or(SendError::Gone)?;
        if entry.is_closing { Err(SendError::Gone) } else { Ok(link) }
    }

    /// Wakes the shards with queued commands, once a tick, because it is a system call for each of them. Otherwise a
    /// shard executes them at its next tick.
    pub fn flush(&mut self) {
        for (shard, link) in (0..).zip(&mut self.links) {
            if std::mem::take(&mut link.needs_wake) {
                self.threads.wake(ShardId(shard));
            }
        }
    }
}

/// Returns the settings of a channel.
fn find(layout: &Layout, channel: ChannelId) -> Result<&ChannelConfig, SendError> {
    layout.channel(channel).ok_or(SendError::NoChannel { channel, channels: layout.channels().len() })
}
