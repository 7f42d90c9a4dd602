//! How the paths of a shard's clients are: the shard writes it down once a tick, and the game's thread reads the newest.
//!
//! ```text
//!   shard: its own table ──swap──▶ [ the newest ] ◀──swap── game: the one it reads
//! ```
//!
//! Three tables go round. Neither side waits for more than a swap, once a tick, and tables that have grown ask for no
//! memory.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use slipgate_session::channel::{ChannelId, Free};
use slipgate_session::session::{Budget, PathStats, Traffic};

use crate::{ClientHandle, Server};

/// What is known of one client's path.
#[derive(Clone, Copy)]
pub(super) struct Row {
    client: ClientHandle,
    pub(super) path: PathStats,
    pub(super) budget: Budget,
}

/// What is known of a shard's clients, in the order of their slots.
#[derive(Default)]
struct Table {
    rows: Vec<Row>,
    /// Of each row, what each of its channels can take.
    free: Vec<Free>,
    is_new: bool,
}

/// Where the newest table lies.
type Newest = Arc<Mutex<Table>>;

/// The shard's side.
pub(super) struct Writer {
    table: Table,
    newest: Newest,
    channels: u8,
    interval: Duration,
    next: Instant,
}

/// The game's side.
pub(super) struct Reader {
    table: Table,
    newest: Newest,
    channels: usize,
}

/// Both sides, for clients that carry this; a table each interval.
pub(super) fn paths(traffic: &Traffic, interval: Duration) -> (Writer, Reader) {
    let channels = if let Traffic::Channels(layout, _) = traffic { layout.channels().count() } else { 0 };
    let newest = Newest::default();
    let writer = Writer {
        table: Table::default(),
        newest: Arc::clone(&newest),
        channels: channels as u8,
        interval,
        next: Instant::now(),
    };
    (writer, Reader { table: Table::default(), newest, channels })
}

impl Writer {
    /// At a tick: writes down how the paths are, if that is due; payloads as they are have none.
    pub(super) fn write(&mut self, server: &Server) {
        let now = Instant::now();
        if self.channels == 0 || now < self.next {
            return;
        }
        self.next = (self.next + self.interval).max(now);
        let Table { rows, free, is_new } = &mut self.table;
        rows.clear();
        free.clear();
        for client in server.clients() {
            let (Some(path), Some(budget)) = (server.path(client), server.budget(client)) else { continue };
            rows.push(Row { client, path, budget });
            free.extend((0..self.channels).map(|channel| server.free(client, ChannelId(channel))));
        }
        *is_new = true;
        // Whoever panicked here swapped at most, and a table that was swapped is whole.
        std::mem::swap(&mut self.table, &mut *self.newest.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Reader {
    /// Looks whether there is a newer table.
    pub(super) fn refresh(&mut self) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut newest.is_new) {
            std::mem::swap(&mut self.table, &mut *newest);
        }
    }

    /// What is known of a client.
    pub(super) fn of(&self, client: ClientHandle) -> Option<&Row> {
        self.table.rows.get(self.place(client)?)
    }

    /// What a client's channel could take.
    pub(super) fn free(&self, client: ClientHandle, channel: ChannelId) -> Option<Free> {
        let channel = Some(usize::from(channel.0)).filter(|channel| *channel < self.channels)?;
        self.table.free.get(self.place(client)? * self.channels + channel).copied()
    }

    fn place(&self, client: ClientHandle) -> Option<usize> {
        let rows = &self.table.rows;
        let place = rows.binary_search_by_key(&client.slot(), |row| row.client.slot()).ok()?;
        rows.get(place).filter(|row| row.client == client).map(|_| place)
    }
}
