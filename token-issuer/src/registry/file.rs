//! The registry of one issuer in a file, which survives a restart: a table in memory, and a thread that writes changes.
//!
//! A reservation is on disk before its token is minted, so a restart forgets none. The thread commits all changes that
//! wait together, so that many requests share the time of one commit.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};
use slipgate_netcode::ids::ClientId;
use slipgate_netcode::time::UnixMillis;
use slipgate_os::clock::wall_clock;
use tokio::sync::oneshot;

use super::memory::Chance;
use super::name::RegistryName;
use super::status::ServerStatus;
use super::store::{Registry, RegistryError, RegistryFuture};
use super::stored;
use super::table::{RegistryTable, Reservation};
use super::types::{FORGOTTEN_AFTER, Heartbeat, Registration, ReservedServer, SlotRequest};

/// Registrations as JSON, and the time of the last heartbeat in milliseconds since 1970, by server id.
const SERVERS: TableDefinition<'_, &str, (&str, u64)> = TableDefinition::new("servers");
/// Ends, numbers of tokens, and times of the newest one, by server id and client id. Times are in milliseconds since
/// 1970.
const RESERVATIONS: TableDefinition<'_, (&str, u64), (u64, u32, u64)> = TableDefinition::new("timed reservations");
/// The maximum number of changes in one commit.
const MAX_BATCH: usize = 4096;
/// The interval in which ended reservations and forgotten servers are removed from the file.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

/// A change of the table that the file does not have yet.
enum Change {
    Server(Box<Registration>, UnixMillis),
    Removed(RegistryName),
    Reservation(RegistryName, ClientId, Option<Reservation>),
}

/// Changes that belong together, and the request that waits for their commit.
struct Batch {
    changes: Vec<Change>,
    written: oneshot::Sender<bool>,
}

/// A registry in a file, for one issuer.
pub struct FileRegistry {
    table: Mutex<RegistryTable>,
    writer: Sender<Batch>,
    is_available: Arc<AtomicBool>,
    chance: Chance,
}

impl FileRegistry {
    /// Opens the file, or creates it with mode 0600, and starts the thread that writes it.
    ///
    /// # Errors
    /// Returns the error of the file: it cannot be created, is no registry, or another issuer has it open.
    pub fn open(path: &Path) -> Result<Self, FileRegistryError> {
        create_private(path).map_err(FileRegistryError::Unusable)?;
        let database = Database::create(path).map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => FileRegistryError::InUse,
            error => FileRegistryError::Unusable(std::io::Error::other(error)),
        })?;
        let table = load(&database).map_err(|error| FileRegistryError::Unusable(std::io::Error::other(error)))?;
        let (writer, batches) = channel();
        let is_available = Arc::new(AtomicBool::new(true));
        let reports = Arc::clone(&is_available);
        std::thread::Builder::new()
            .name("registry-file".to_owned())
            .spawn(move || write_all(&database, &batches, &reports))
            .map_err(FileRegistryError::Unusable)?;
        Ok(Self { table: Mutex::new(table), writer, is_available, chance: Chance::default() })
    }

    /// Changes the table, and returns once the file has the changes.
    fn change<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut RegistryTable, UnixMillis) -> Result<(T, Vec<Change>), RegistryError>,
    ) -> RegistryFuture<'_, T> {
        let queued = {
            // Poisoning is harmless: each operation leaves a consistent table at each point where it may panic.
            let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
            act(&mut table, wall_clock()).map(|(value, changes)| {
                let (written, result) = oneshot::channel();
                // Sent while the table is locked, so that the file gets the changes in their order.
                let _ = self.writer.send(Batch { changes, written });
                (value, result)
            })
        };
        Box::pin(async move {
            let (value, result) = queued?;
            if result.await.unwrap_or(false) { Ok(value) } else { Err(RegistryError::Unavailable) }
        })
    }
}

impl Registry for FileRegistry {
    fn register(&self, heartbeat: Heartbeat) -> RegistryFuture<'_, ()> {
        self.change(move |table, now| {
            let registration = heartbeat.registration.clone();
            table.forget_dead(now);
            let changed = table.register(heartbeat, now)?;
            let id = registration.id.clone();
            let mut changes = vec![Change::Server(Box::new(registration), now)];
            for client_id in changed {
                let left = table.reservation(&id, client_id);
                changes.push(Change::Reservation(id.clone(), client_id, left));
            }
            Ok(((), changes))
        })
    }

    fn remove(&self, id: RegistryName) -> RegistryFuture<'_, bool> {
        self.change(move |table, _| Ok((table.remove(&id), vec![Change::Removed(id)])))
    }

    fn servers(&self) -> RegistryFuture<'_, Vec<ServerStatus>> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let servers = table.servers(wall_clock());
        Box::pin(async move { Ok(servers) })
    }

    fn reserve(&self, request: SlotRequest) -> RegistryFuture<'_, Vec<ReservedServer>> {
        let chance = self.chance.draw();
        self.change(move |table, now| {
            let reserved = table.reserve(&request, now, chance)?;
            let changes = reserved.iter().map(|server| {
                let reservation = table.reservation(&server.id, request.client_id);
                Change::Reservation(server.id.clone(), request.client_id, reservation)
            });
            let changes = changes.collect();
            Ok((reserved, changes))
        })
    }

    fn is_available(&self) -> bool {
        self.is_available.load(Ordering::Relaxed)
    }
}

/// Creates the file for its owner alone, unless it exists.
fn create_private(path: &Path) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

/// Reads the table.
fn load(database: &Database) -> Result<RegistryTable, redb::Error> {
    let writing = database.begin_write()?;
    writing.open_table(SERVERS)?;
    writing.open_table(RESERVATIONS)?;
    writing.commit()?;
    let reading = database.begin_read()?;
    let mut table = RegistryTable::default();
    for row in reading.open_table(SERVERS)?.iter()? {
        let (_, value) = row?;
        let (json, seen) = value.value();
        if let Some(registration) = stored::from_json(json) {
            let heartbeat = Heartbeat { registration, admitted: Vec::new(), running: None };
            let _ = table.register(heartbeat, UnixMillis(seen));
        }
    }
    for row in reading.open_table(RESERVATIONS)?.iter()? {
        let (key, value) = row?;
        let ((id, client_id), (ends, tokens, made)) = (key.value(), value.value());
        if let Ok(id) = id.parse() {
            table.restore(&id, client_id.into(), Reservation { ends, made, tokens });
        }
    }
    Ok(table)
}

/// Commits changes until the registry is dropped.
fn write_all(database: &Database, batches: &Receiver<Batch>, is_available: &AtomicBool) {
    let mut swept = Instant::now();
    while let Ok(first) = batches.recv() {
        let mut waiting = vec![first];
        while waiting.len() < MAX_BATCH {
            let Ok(next) = batches.try_recv() else { break };
            waiting.push(next);
        }
        let sweep = swept.elapsed() >= SWEEP_INTERVAL;
        let written = write(database, &waiting, sweep);
        if sweep {
            swept = Instant::now();
        }
        let was_available = is_available.swap(written.is_ok(), Ordering::Relaxed);
        if let (Err(error), true) = (&written, was_available) {
            tracing::warn!(%error, "the file of the registry cannot be written");
        }
        for batch in waiting {
            // A request that was given up does not wait any longer.
            let _ = batch.written.send(written.is_ok());
        }
    }
}

fn write(database: &Database, waiting: &[Batch], sweep: bool) -> Result<(), redb::Error> {
    // The last change of each row counts.
    let (mut servers, mut reservations, mut removed) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    for change in waiting.iter().flat_map(|batch| &batch.changes) {
        match change {
            Change::Server(registration, seen) => {
                servers.insert(registration.id.as_str(), Some((stored::to_json(registration), seen.0)));
            }
            Change::Removed(id) => {
                servers.insert(id.as_str(), None);
                reservations.retain(|(server, _), _| *server != id.as_str());
                removed.insert(id.as_str());
            }
            Change::Reservation(id, client_id, reservation) => {
                reservations.insert((id.as_str(), client_id.0), *reservation);
            }
        }
    }
    let writing = database.begin_write()?;
    {
        let mut table = writing.open_table(SERVERS)?;
        for (id, row) in servers {
            match row {
                Some((json, seen)) => _ = table.insert(id, (json.as_str(), seen))?,
                None => _ = table.remove(id)?,
            }
        }
        let mut table = writing.open_table(RESERVATIONS)?;
        for id in removed {
            table.retain_in((id, 0)..=(id, u64::MAX), |_, _| false)?;
        }
        for (key, reservation) in reservations {
            match reservation {
                Some(Reservation { ends, made, tokens }) => _ = table.insert(key, (ends, tokens, made))?,
                None => _ = table.remove(key)?,
            }
        }
    }
    if sweep {
        remove_ended(&writing)?;
    }
    Ok(writing.commit()?)
}

fn remove_ended(writing: &redb::WriteTransaction) -> Result<(), redb::Error> {
    let now = wall_clock().0;
    writing.open_table(RESERVATIONS)?.retain(|_, (ends, ..)| ends > now)?;
    let forgotten = u64::try_from(FORGOTTEN_AFTER.as_millis()).unwrap_or(u64::MAX);
    writing.open_table(SERVERS)?.retain(|_, (_, seen)| now.saturating_sub(seen) < forgotten)?;
    Ok(())
}

/// Why the file of a registry cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum FileRegistryError {
    /// Another issuer has the file open.
    InUse,
    /// The file cannot be created or read, or is no registry.
    Unusable(std::io::Error),
}

impl core::fmt::Display for FileRegistryError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::InUse => f.write_str("another issuer has the file of the registry open"),
            Self::Unusable(error) => write!(f, "the file of the registry cannot be used: {error}"),
        }
    }
}

impl core::error::Error for FileRegistryError {}
