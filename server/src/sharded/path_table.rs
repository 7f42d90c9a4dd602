//! The path statistics of a shard's clients: the shard writes a table once a tick, and the game's thread reads the
//! newest.
//!
//! ```text
//!   shard: its own table ──swap──▶ [ newest ] ◀──swap── game: the table that it reads
//! ```
//!
//! Three tables circulate. Each side holds the lock for one swap, once a tick, and tables that have grown allocate
//! nothing.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use slipgate_session::channel::{ChannelId, Remaining};
use slipgate_session::connection::{Budget, PathStats, Traffic};

use crate::journal::lock;
use crate::{ClientHandle, Server};

/// The path of one client.
#[derive(Clone, Copy)]
pub(super) struct PathRow {
    client: ClientHandle,
    pub(super) path: PathStats,
    pub(super) budget: Budget,
}

/// The paths of a shard's clients, in the order of their slots.
#[derive(Default)]
struct PathTable {
    rows: Vec<PathRow>,
    /// The remaining capacity of each channel of each row, row by row.
    remaining: Vec<Remaining>,
    is_new: bool,
}

type NewestTable = Arc<Mutex<PathTable>>;

/// The shard's end.
pub(super) struct PathWriter {
    table: PathTable,
    newest: NewestTable,
    channels: u8,
    interval: Duration,
    next_write: Instant,
}

/// The game's end.
pub(super) struct PathReader {
    table: PathTable,
    newest: NewestTable,
    channels: usize,
}

/// Creates both ends for clients with this traffic and a table per interval.
pub(super) fn path_table(traffic: &Traffic, interval: Duration) -> (PathWriter, PathReader) {
    let channels = if let Traffic::Channels(layout, _) = traffic { layout.channels().count() } else { 0 };
    let newest = NewestTable::default();
    let writer = PathWriter {
        table: PathTable::default(),
        newest: Arc::clone(&newest),
        channels: channels as u8,
        interval,
        next_write: Instant::now(),
    };
    (writer, PathReader { table: PathTable::default(), newest, channels })
}

impl PathWriter {
    /// Writes a table at a tick, if one is due. Without channels there are no paths to write.
    pub(super) fn write(&mut self, server: &mut Server) {
        let now = Instant::now();
        if self.channels == 0 || now < self.next_write {
            return;
        }
        self.next_write = (self.next_write + self.interval).max(now);
        let channels = self.channels;
        let PathTable { rows, remaining, is_new } = &mut self.table;
        rows.clear();
        remaining.clear();
        server.for_each_client(|client| {
            let (Some(path), Some(budget)) = (client.path(), client.budget()) else { return };
            rows.push(PathRow { client: client.handle(), path, budget });
            remaining.extend((0..channels).map(|channel| client.remaining(ChannelId(channel))));
        });
        *is_new = true;
        // Poisoning is harmless: the critical section only swaps.
        std::mem::swap(&mut self.table, &mut *lock(&self.newest));
    }
}

impl PathReader {
    /// Takes the newest table, if there is a newer one.
    pub(super) fn refresh(&mut self) {
        let mut newest = lock(&self.newest);
        if std::mem::take(&mut newest.is_new) {
            std::mem::swap(&mut self.table, &mut *newest);
        }
    }

    /// Returns the path of a client, `None` if the table does not have it yet.
    pub(super) fn row(&self, client: ClientHandle) -> Option<&PathRow> {
        self.table.rows.get(self.index_of(client)?)
    }

    /// Returns what a client's channel still took.
    pub(super) fn remaining(&self, client: ClientHandle, channel: ChannelId) -> Option<Remaining> {
        let channel = Some(usize::from(channel.0)).filter(|channel| *channel < self.channels)?;
        self.table.remaining.get(self.index_of(client)? * self.channels + channel).copied()
    }

    fn index_of(&self, client: ClientHandle) -> Option<usize> {
        let rows = &self.table.rows;
        let index = rows.binary_search_by_key(&client.slot(), |row| row.client.slot()).ok()?;
        // The slot may have had another client when the table was written.
        rows.get(index).filter(|row| row.client == client).map(|_| index)
    }
}
