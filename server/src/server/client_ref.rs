//! One client of a server: everything that concerns it, without its handle in each call.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use slipgate_netcode::ids::{ClientId, ClientIndex};
use slipgate_netcode::server::ClientHandle;
use slipgate_netcode::time::Instant;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::wire::{MAX_PAYLOAD_BYTES, UserData};
use slipgate_session::channel::transfer::{Transfer, TransferId};
use slipgate_session::channel::{ChannelId, Kind, Remaining, SendOptions};
use slipgate_session::connection::{Budget, CloseCode, Connection, PathStats, SendError, Traffic};
use slipgate_session::server::scheduling::Weight;
use slipgate_session::wire::reliable::Sequence;

use super::Server;

/// For how long a client is connected, and what its connection has carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClientActivity {
    /// The time since its `Connected` event; `None` before it, and after the end.
    pub connected: Option<Duration>,
    /// The time since its last authentic packet; for a client in the same program, since it connected.
    pub silent: Option<Duration>,
    /// The bytes of payloads and packets that were sent, with the headers of IPv4, UDP and netcode.
    pub bytes_sent: u64,
    /// The same for received ones.
    pub bytes_received: u64,
    /// The payloads and packets that were sent, without keep-alives; each fragment counts.
    pub packets_sent: u64,
    /// The same for received ones.
    pub packets_received: u64,
}

/// The queues of a client's channels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QueuedMessages {
    /// Messages.
    pub messages: u32,
    /// Their bytes.
    pub bytes: u64,
}

/// A client, borrowed from its [`Server`] by [`Server::client`] or [`Server::for_each_client`].
///
/// Sends return `Gone` after either side has closed the connection. When only the last payloads of a client in the same
/// program are left, its id, index and user data are zeros.
///
/// # Examples
/// ```no_run
/// # use slipgate_server::{ChannelId, ClientHandle, SendError, Server};
/// # fn greet(server: &mut Server, handle: ClientHandle, chat: ChannelId) -> Result<(), SendError> {
/// let Some(mut client) = server.client(handle) else { return Ok(()) };
/// client.send_message(chat, b"welcome")?;
/// println!("the path of slot {}: {:?}", handle.slot(), client.path());
/// # Ok(())
/// # }
/// ```
pub struct ClientRef<'s> {
    server: &'s mut Server,
    handle: ClientHandle,
}

impl<'s> ClientRef<'s> {
    /// Refers to a client of `server` that has a slot, or payloads that wait for it.
    pub(super) const fn new(server: &'s mut Server, handle: ClientHandle) -> Self {
        Self { server, handle }
    }

    /// Returns its handle, which names it in events.
    #[must_use]
    pub const fn handle(&self) -> ClientHandle {
        self.handle
    }

    /// Returns the client id of its token.
    #[must_use]
    pub fn client_id(&self) -> ClientId {
        self.server.core.netcode.client(self.handle).map_or_else(ClientId::default, |client| client.client_id)
    }

    /// Returns its index among the clients of all shards, from 0; the client knows it by the same number.
    #[must_use]
    pub fn client_index(&self) -> ClientIndex {
        self.server.core.netcode.client(self.handle).map_or_else(ClientIndex::default, |client| client.index)
    }

    /// Returns the address of its packets, `None` for a client in the same program.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.server.core.netcode.client(self.handle)?.address.map(SocketAddr::from)
    }

    /// Returns the 256 bytes that the backend wrote into its token.
    #[must_use]
    pub fn user_data(&self) -> UserData {
        const NONE: UserData = [0; size_of::<UserData>()];
        self.server.core.netcode.client(self.handle).map_or(NONE, |client| *client.user_data)
    }

    /// Encrypts a payload; see [`Server::send`].
    ///
    /// # Errors
    /// As [`Server::send`].
    pub fn send(&mut self, payload: &[u8]) -> Result<(), SendError> {
        self.server.send(self.handle, payload)
    }

    /// Sends an acknowledged packet of 1 byte to 16 KiB, in fragments if it is large, and returns its sequence number.
    /// It leaves when the batch is full, or at the end of the turn. An event reports whether it was acknowledged or
    /// lost. It requires [`Traffic::Packets`](crate::Traffic).
    ///
    /// # Errors
    /// - `Gone`: the client is not connected.
    /// - `Empty`, `TooLarge`: the packet has no byte, or more than the settings allow.
    /// - `Backlogged`: congestion control allows no more now.
    /// - `WrongTraffic`: the server carries payloads or channels.
    pub fn send_packet(&mut self, packet: &[u8]) -> Result<Sequence, SendError> {
        let Server { core, sockets, outbox, now, .. } = &mut *self.server;
        match core.send_packet(self.handle, packet, *now, outbox) {
            // The batch may lack room for all fragments. Send it and try once more.
            Err(SendError::Backlogged) if !outbox.is_empty() => {
                sockets.send(outbox);
                core.send_packet(self.handle, packet, *now, outbox)
            }
            result => result,
        }
    }

    /// Queues a message on a channel; see [`Server::send_message`].
    ///
    /// # Errors
    /// As [`Server::send_message`].
    pub fn send_message(&mut self, channel: ChannelId, message: &[u8]) -> Result<(), SendError> {
        self.send_message_with(channel, message, SendOptions::default())
    }

    /// Queues a message with a deadline, a key by which newer messages replace older ones, or a receipt.
    ///
    /// # Errors
    /// As [`Server::send_message`].
    pub fn send_message_with(
        &mut self,
        channel: ChannelId,
        message: &[u8],
        options: SendOptions,
    ) -> Result<(), SendError> {
        let now = self.server.now.monotonic;
        self.server.core.connection_mut(self.handle)?.send(channel, message, options, now)
    }

    /// Starts a transfer on a channel of transfers. The client receives `label` with it. Events report its progress.
    /// On a server without an [uplink limit](Server::set_uplink) a warning is logged, at most once in 5 minutes.
    ///
    /// # Errors
    /// - `Gone`: the client is not connected.
    /// - `Backlogged`: as many transfers wait as the channel allows.
    /// - `NoChannel`, `WrongKind`: the layout has no such channel, or it is a channel of messages.
    /// - `WrongTraffic`: the server carries no channels.
    pub fn send_transfer(
        &mut self,
        channel: ChannelId,
        transfer: Transfer,
        label: u64,
    ) -> Result<TransferId, SendError> {
        let id = self.server.core.connection_mut(self.handle)?.channels.send_transfer(channel, transfer, label)?;
        if !self.server.has_uplink_limit.load(Ordering::Relaxed) {
            self.server.reporter.on_unlimited_transfer(self.server.now.monotonic);
        }
        Ok(id)
    }

    /// Returns what a channel still takes, in messages and bytes; nothing where there is no such channel.
    #[must_use]
    pub fn remaining(&self, channel: ChannelId) -> Remaining {
        self.connection().map_or_else(Remaining::default, |connection| connection.channels.remaining(channel))
    }

    /// Returns how much may leave now, and the size and number of messages that suit the path. Ask before composing a
    /// tick. `None` with [`Traffic::Payloads`](crate::Traffic).
    #[must_use]
    pub fn budget(&self) -> Option<Budget> {
        self.server.core.budget(self.handle, self.server.now)
    }

    /// Returns the state of the path: round-trip time, jitter, loss and bandwidth. `None` with
    /// [`Traffic::Payloads`](crate::Traffic).
    ///
    /// A loop that sleeps without [`Server::wait`] reads datagrams late. That adds up to one turn to the measured
    /// round-trip time of both sides.
    #[must_use]
    pub fn path(&self) -> Option<PathStats> {
        self.server.core.connection_stats(self.handle, self.server.now)?.path
    }

    /// Returns for how long it is connected and silent, and what its connection has carried.
    #[must_use]
    pub fn activity(&self) -> ClientActivity {
        let Server { core, reporter, now, .. } = &*self.server;
        let totals = core.connection_stats(self.handle, *now).map_or_else(Default::default, |stats| stats.totals);
        let for_how_long = |since: Option<Instant>| since.map(|since| now.monotonic.since(since));
        ClientActivity {
            connected: for_how_long(reporter.connected_since(self.handle)),
            silent: for_how_long(core.netcode.last_received_at(self.handle)),
            bytes_sent: totals.bytes_sent,
            bytes_received: totals.bytes_received,
            packets_sent: totals.packets_sent,
            packets_received: totals.packets_received,
        }
    }

    /// Returns the messages and bytes on all its channels that wait or are not acknowledged yet; nothing without
    /// [channels](crate::Traffic::Channels). A newer message may replace some of them: those do not count.
    #[must_use]
    pub fn queued(&self) -> QueuedMessages {
        let mut queued = QueuedMessages::default();
        let (Traffic::Channels(layout, _), Some(connection)) = (self.server.core.traffic(), self.connection()) else {
            return queued;
        };
        for (id, config) in
            (0..).map(ChannelId).zip(layout.channels()).filter(|(_, config)| config.kind != Kind::Transfers)
        {
            let remaining = connection.channels.remaining(id);
            queued.messages += u32::from(config.queue_messages.saturating_sub(remaining.messages));
            queued.bytes += u64::from(config.queue_bytes.saturating_sub(remaining.bytes));
        }
        queued
    }

    /// Returns the connection with its channels and transfers. `None` unless the server carries
    /// [channels](crate::Traffic::Channels).
    #[must_use]
    pub fn connection(&self) -> Option<&Connection> {
        self.server.core.connection(self.handle)
    }

    /// Returns the connection to accept, refuse, cancel and resume transfers. `None` as for
    /// [`connection`](Self::connection), and after the game has closed it.
    pub fn connection_mut(&mut self) -> Option<&mut Connection> {
        self.server.core.connection_mut(self.handle).ok()
    }

    /// Sets its share of the [uplink](Server::set_uplink) relative to other clients, 1 at first. It lasts as long as
    /// the client is connected.
    pub fn set_weight(&mut self, weight: Weight) {
        // A client without a slot has no share to set.
        let _ = self.server.core.set_weight(self.handle, weight);
    }

    /// Disconnects it with a text for the player; see [`Server::kick`].
    ///
    /// # Errors
    /// As [`Server::kick`].
    pub fn kick(self, text: &str) -> Result<(), SendError> {
        self.kick_with(CloseCode::KICKED, text)
    }

    /// Disconnects it with a code for the client's program and a text for the player. Codes of the application start at
    /// [`CloseCode::FIRST_OF_APPLICATION`]. Smaller ones are sent as 0, except [`CloseCode::SHUTDOWN`].
    ///
    /// # Errors
    /// As [`Server::kick`].
    pub fn kick_with(self, code: CloseCode, text: &str) -> Result<(), SendError> {
        self.server.core.kick(self.handle, code, text)
    }

    /// Sends it to another server, with a token of the issuer for the same client id and a text for the player. Our
    /// clients follow by themselves; see `specs/session-1.md`, §5.12. A client that cannot follow sees the end of a
    /// server that stops. Without channels the token is not sent.
    ///
    /// # Errors
    /// As [`Server::kick`].
    pub fn redirect(self, token: ConnectToken, text: &str) -> Result<(), SendError> {
        self.server.core.redirect(self.handle, token, text)
    }

    /// Disconnects it at once, without a text. The disconnect packets leave with this turn. It also frees the slot of a
    /// client that was kicked before.
    ///
    /// # Errors
    /// `Gone` when the client has no slot.
    pub fn disconnect(self) -> Result<(), SendError> {
        self.server.core.disconnect(self.handle)
    }

    /// Sends a payload to the game, as the client in the same program; see [`Server::connect_loopback`].
    ///
    /// # Errors
    /// - `Gone`: it is not a client in the same program.
    /// - `Empty`, `TooLarge`: the payload has no byte, or more than 1200.
    /// - `Backlogged`: 256 payloads wait.
    pub fn loopback_send(&mut self, payload: &[u8]) -> Result<(), SendError> {
        Ok(self.server.core.netcode.loopback_send(self.handle, payload)?)
    }

    /// Takes the next payload of the game, as the client in the same program, and returns its length. Payloads from
    /// before the end of the connection can be taken after it, until the next client in the slot disconnects.
    pub fn loopback_receive(&mut self, buf: &mut [u8; MAX_PAYLOAD_BYTES]) -> Option<usize> {
        self.server.core.netcode.loopback_receive(self.handle, buf)
    }

    #[cfg(feature = "typed")]
    pub(crate) const fn typed_buf(&mut self) -> &mut Vec<u8> {
        &mut self.server.typed_buf
    }
}
