//! Commands of operators, which the admin thread queues and a game's thread executes, one in each turn.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use slipgate_server::connection::{ClientActivity, PathStats, QueuedMessages};
use slipgate_server::ids::ClientId;
use slipgate_server::sharded::{MAX_SHARDS, ShardId, ShardedServer};
use slipgate_server::{ClientHandle, ClientRef, Server};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// The maximum number of commands that wait for one game's thread.
pub(crate) const MAX_QUEUED: usize = 16;
/// The maximum number of clients in one list, which bounds the work of the turn that writes it.
pub(crate) const MAX_ROWS: usize = 256;
/// The maximum time until all shards have replied.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// The position of a client in a list: its shard and its slot there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ClientPosition {
    pub(crate) shard: u16,
    pub(crate) slot: u32,
}

impl From<ClientHandle> for ClientPosition {
    fn from(client: ClientHandle) -> Self {
        Self { shard: client.shard().0, slot: client.slot().0 }
    }
}

/// The effect of a command.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Lists the clients behind this position.
    List(Option<ClientPosition>),
    /// Disconnects a client with a text for the player.
    Kick(ClientId, Arc<str>),
}

/// One client of a list.
#[derive(Clone, Debug)]
pub(crate) struct ClientRow {
    pub(crate) position: ClientPosition,
    pub(crate) id: ClientId,
    pub(crate) index: u32,
    pub(crate) address: Option<std::net::SocketAddr>,
    pub(crate) activity: ClientActivity,
    pub(crate) path: Option<PathStats>,
    pub(crate) queued: QueuedMessages,
}

impl ClientRow {
    fn of(client: &ClientRef<'_>) -> Self {
        Self {
            position: client.handle().into(),
            id: client.client_id(),
            index: client.client_index().0,
            address: client.address(),
            activity: client.activity(),
            path: client.path(),
            queued: client.queued(),
        }
    }
}

/// The reply of one shard.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Clients in the order of their slots, and whether there are more.
    Rows { rows: Vec<ClientRow>, has_more: bool },
    /// The client was disconnected. Only channels carry the text.
    Kicked { position: ClientPosition, has_text: bool },
    /// The client is not connected to this shard.
    UnknownClient,
    /// The queue to the shard is full.
    Busy,
}

/// A command on its way to a game's thread.
#[derive(Clone)]
pub(crate) struct AdminCommand {
    work: Work,
    replies: mpsc::Sender<Reply>,
}

impl AdminCommand {
    /// Executes the command on the server's thread. It never waits for the admin thread.
    pub(crate) fn execute(self, server: &mut Server) {
        // The operator has the response that the command failed, so it must not be executed afterwards.
        if self.replies.is_closed() {
            return;
        }
        let reply = match self.work {
            Work::List(after) => list(server, after),
            Work::Kick(client_id, text) => kick(server, client_id, &text),
        };
        let _ = self.replies.try_send(reply);
    }

    /// Passes the command to all shards.
    pub(crate) fn execute_on_shards(self, server: &mut ShardedServer) {
        let shards = server.totals().len();
        for shard in (0..).map(ShardId).take(shards) {
            let command = self.clone();
            if server.on_shard(shard, move |server| command.execute(server)).is_err() {
                let _ = self.replies.try_send(Reply::Busy);
            }
        }
        server.flush();
    }
}

fn list(server: &mut Server, after: Option<ClientPosition>) -> Reply {
    let handles = server.clients().filter(|client| after.is_none_or(|after| ClientPosition::from(*client) > after));
    let mut handles: Vec<_> = handles.take(MAX_ROWS + 1).collect();
    let has_more = handles.len() > MAX_ROWS;
    handles.truncate(MAX_ROWS);
    let rows = handles.into_iter().filter_map(|client| Some(ClientRow::of(&server.client(client)?))).collect();
    Reply::Rows { rows, has_more }
}

fn kick(server: &mut Server, client_id: ClientId, text: &str) -> Reply {
    let Some(client) = server.find(client_id) else { return Reply::UnknownClient };
    let has_text = !text.is_empty() && server.client(client).is_some_and(|client| client.connection().is_some());
    match server.kick(client, text) {
        Ok(()) => Reply::Kicked { position: client.into(), has_text },
        Err(_) => Reply::UnknownClient,
    }
}

/// Why a command was not executed on all shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CommandError {
    /// The server has not started, or has ended.
    NoServer,
    /// Too many commands wait.
    Busy,
    /// A shard has not replied in time.
    NoReply,
}

/// Queues a command for each shard, and returns their replies.
pub(crate) async fn execute_on_all(
    shards: Vec<SyncSender<AdminCommand>>,
    work: Work,
) -> Result<Vec<Reply>, CommandError> {
    let (replies, received) = mpsc::channel(usize::from(MAX_SHARDS));
    let command = AdminCommand { work, replies };
    if shards.is_empty() {
        return Err(CommandError::NoServer);
    }
    for shard in shards {
        shard.try_send(command.clone()).map_err(|error| match error {
            TrySendError::Full(_) => CommandError::Busy,
            TrySendError::Disconnected(_) => CommandError::NoServer,
        })?;
    }
    drop(command);
    let replies = timeout(REPLY_TIMEOUT, collect(received)).await.map_err(|_| CommandError::NoReply)?;
    match replies.iter().any(|reply| matches!(reply, Reply::Busy)) {
        true => Err(CommandError::Busy),
        false if replies.is_empty() => Err(CommandError::NoServer),
        false => Ok(replies),
    }
}

/// Returns all replies. Each shard drops its sender with its reply.
async fn collect(mut received: mpsc::Receiver<Reply>) -> Vec<Reply> {
    let mut replies = Vec::new();
    while let Some(reply) = received.recv().await {
        replies.push(reply);
    }
    replies
}

#[cfg(test)]
mod tests;
