//! The game's end of one shard: its queues, its clients, its losses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slipgate_netcode::ids::{ClientId, ClientIndex};
use slipgate_netcode::wire::UserData;
use slipgate_session::connection::SendError;

use super::bridge::{BridgeCounters, Command, ShardEvent};
use super::path_table::PathReader;
use super::spsc::{QueueConsumer, QueueProducer};
use crate::{ClientHandle, Event};

/// A connected client, as the game's thread knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardClient {
    /// Its handle, which names its shard.
    pub client: ClientHandle,
    /// The client id of its token.
    pub client_id: ClientId,
    /// Its index among the clients of all shards, from 0.
    pub index: ClientIndex,
    /// The address of its packets; `None` for a client in the same program.
    pub address: Option<SocketAddr>,
    /// The 256 bytes that the backend wrote into its token.
    pub user_data: UserData,
}

/// The losses of a shard since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShardCounts {
    /// Payloads of clients that found the queue to the game full.
    pub payloads_dropped: u64,
    /// Payloads of the game that the shard could not send, for example because the client had left.
    pub payloads_not_sent: u64,
    /// Messages of broadcasts that the shard could not queue, because the client's queue was full. Each client counts.
    pub broadcasts_not_sent: u64,
    /// How often the shard stopped reading because the queue to the game was full.
    pub pauses: u64,
    /// How often a client had an eighth of the queue to the game, so that its packets were refused for a while.
    pub clients_refused: u64,
    /// Events that the game did not take within 5 s of the shard's end.
    pub events_lost: u64,
    /// Commands that a shard did not execute at its end, because the game did not take its events within 5 s.
    pub commands_lost: u64,
}

/// A client on the game's thread.
pub(super) struct ClientEntry {
    pub(super) info: ShardClient,
    /// The game has disconnected it: the only events that follow are its partial transfers and its end.
    pub(super) is_closing: bool,
}

/// The game's end of one shard.
pub(super) struct ShardLink {
    pub(super) events: QueueConsumer<ShardEvent>,
    pub(super) commands: QueueProducer<Command>,
    pub(super) paths: PathReader,
    pub(super) counters: Arc<BridgeCounters>,
    /// Indexed by the slot on the shard.
    pub(super) clients: Vec<Option<ClientEntry>>,
    /// The maximum bytes of queued broadcasts, which are not in the queue's ring of bytes.
    pub(super) max_broadcast_bytes: usize,
    /// Commands were queued since the shard was woken.
    pub(super) needs_wake: bool,
}

impl ShardLink {
    pub(super) fn entry(&self, client: ClientHandle) -> Option<&ClientEntry> {
        self.clients.get(client.slot().0 as usize)?.as_ref().filter(|entry| entry.info.client == client)
    }

    pub(super) fn entry_mut(&mut self, client: ClientHandle) -> Option<&mut ClientEntry> {
        self.clients.get_mut(client.slot().0 as usize)?.as_mut().filter(|entry| entry.info.client == client)
    }

    pub(super) fn client(&self, client: ClientHandle) -> Option<&ShardClient> {
        self.entry(client).map(|entry| &entry.info)
    }

    /// Returns whether an event was on its way when the game disconnected its client.
    pub(super) fn drops(&self, event: &Event<'_>) -> bool {
        // The shard queued these events before it executed the command.
        !matches!(event, Event::Partial { .. } | Event::Disconnected { .. })
            && self.entry(event.client()).is_some_and(|entry| entry.is_closing)
    }

    pub(super) fn push(&mut self, command: Command, body: &[u8]) -> Result<(), SendError> {
        if !self.commands.push(command, body) {
            return Err(SendError::Backlogged);
        }
        self.needs_wake = true;
        Ok(())
    }

    /// Queues the command that disconnects a client, which is closing from now on.
    pub(super) fn push_close(&mut self, client: ClientHandle, command: Command, body: &[u8]) -> Result<(), SendError> {
        self.push(command, body)?;
        if let Some(entry) = self.entry_mut(client) {
            entry.is_closing = true;
        }
        Ok(())
    }

    /// Queues a broadcast. The limit of bytes keeps the memory bounded when the shard is behind.
    pub(super) fn push_broadcast(&mut self, command: Command, message_bytes: usize) -> Result<(), SendError> {
        let queued = &self.counters.broadcast_bytes;
        // The shard only subtracts meanwhile, so the sum cannot exceed the limit.
        if queued.load(Ordering::Relaxed) + message_bytes > self.max_broadcast_bytes {
            return Err(SendError::Backlogged);
        }
        // The bytes count before the shard can subtract them.
        queued.fetch_add(message_bytes, Ordering::Relaxed);
        let pushed = self.push(command, &[]);
        if pushed.is_err() {
            self.counters.broadcast_bytes.fetch_sub(message_bytes, Ordering::Relaxed);
        }
        pushed
    }
}
