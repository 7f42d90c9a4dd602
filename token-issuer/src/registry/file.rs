//! The registry of one issuer in a file, which survives a restart: a table in memory, and a thread that writes changes.
//!
//! A reservation is on disk before its token is minted, so a restart forgets none. The thread commits all changes that
//! wait together, so that many requests share the time of one commit.

mod rows;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use redb::{Database, DatabaseError};
use slipgate_netcode::time::UnixMillis;
use slipgate_os::clock::wall_clock;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use self::rows::{Change, load};
use self::writer::{Batch, FileWriter, MAX_BATCHES, STALLED_AFTER, SharedTable};
use super::clock::RegistryClock;
use super::memory::Chance;
use super::name::RegistryName;
use super::status::ServerStatus;
use super::store::{Registry, RegistryError, RegistryFuture};
use super::table::RegistryTable;
use super::types::{Heartbeat, ReservedServer, ServerInstance, SlotRequest};
use crate::callers::Scopes;

/// A registry in a file, for one issuer.
pub struct FileRegistry {
    shared: Arc<SharedTable>,
    writer: Sender<Batch>,
    /// The free places of the writer's queue.
    places: Arc<Semaphore>,
    clock: RegistryClock,
    chance: Chance,
}

impl FileRegistry {
    /// Opens the file, or creates it with mode 0600, and starts the thread that writes it. After an error of the file,
    /// such as a full disk, the registry is unavailable until the thread has opened the file again. It is also
    /// unavailable while the disk does not finish a write. Its futures need a tokio runtime with time.
    ///
    /// # Errors
    /// Returns the error of the file: it cannot be created, is no registry, or another issuer has it open.
    pub fn open(path: &Path) -> Result<Self, FileRegistryError> {
        create_private(path).map_err(FileRegistryError::Unusable)?;
        let database = Database::create(path).map_err(redb::Error::from)?;
        let path = path.to_owned();
        // A file that was removed meanwhile is not created again: its reservations would be lost.
        Self::start(database, wall_clock(), move || Database::open(&path))
    }

    fn start(
        database: Database,
        now: UnixMillis,
        reopen: impl Fn() -> Result<Database, DatabaseError> + Send + 'static,
    ) -> Result<Self, FileRegistryError> {
        let (table, now) = load(&database, now)?;
        let (shared, clock) = (Arc::new(SharedTable::new(table)), RegistryClock::start_at(now));
        let (writer, batches) = channel();
        let thread = FileWriter { shared: Arc::clone(&shared), batches, clock, reopen };
        std::thread::Builder::new()
            .name("registry-file".to_owned())
            .spawn(move || thread.run(database))
            .map_err(FileRegistryError::Unusable)?;
        let places = Arc::new(Semaphore::new(MAX_BATCHES));
        Ok(Self { shared, writer, places, clock, chance: Chance::default() })
    }

    /// Changes the table, and returns once the file has the changes.
    fn change<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut RegistryTable, UnixMillis) -> Result<(T, Vec<Change>), RegistryError>,
    ) -> RegistryFuture<'_, T> {
        let queued = {
            let mut table = self.shared.lock();
            // Changes of a table that will be replaced would be lost.
            let place = self
                .check()
                .and_then(|()| Arc::clone(&self.places).try_acquire_owned().map_err(|_| RegistryError::Unavailable));
            place.and_then(|place| {
                let (value, changes) = act(&mut table, self.clock.now())?;
                let (written, result) = oneshot::channel();
                // Sent while the table is locked, so that the file gets the changes in their order.
                let _ = self.writer.send(Batch { changes, written, _place: place });
                Ok((value, result))
            })
        };
        Box::pin(async move {
            let (value, mut result) = queued?;
            let ended = loop {
                match timeout(STALLED_AFTER, &mut result).await {
                    Ok(ended) => break ended,
                    Err(_) if self.shared.is_stalled() => return Err(RegistryError::Unconfirmed),
                    // The write with these changes began later than the wait.
                    Err(_) => {}
                }
            };
            if let Ok(is_written) = ended {
                return is_written.then_some(value).ok_or(RegistryError::Unconfirmed);
            }
            // The thread has ended, which only a panic of the database does.
            self.shared.set_unavailable();
            Err(RegistryError::Unconfirmed)
        })
    }
}

impl Registry for FileRegistry {
    fn register<'a>(&'a self, heartbeat: Heartbeat, scopes: &'a Scopes) -> RegistryFuture<'a, ()> {
        self.change(move |table, now| {
            let registration = heartbeat.registration.clone();
            table.forget_dead(now);
            let instance = heartbeat.instance.clone();
            let Some(changed) = table.register(heartbeat, scopes, now)? else { return Ok(((), Vec::new())) };
            let id = registration.id.clone();
            let mut changes = vec![Change::Server(Box::new(registration), now)];
            changes.extend(last_of_run(table, &id, instance));
            for client_id in changed {
                let left = table.reservation(&id, client_id);
                changes.push(Change::Reservation(id.clone(), client_id, left));
            }
            Ok(((), changes))
        })
    }

    fn remove<'a>(
        &'a self,
        id: RegistryName,
        instance: Option<ServerInstance>,
        scopes: &'a Scopes,
    ) -> RegistryFuture<'a, bool> {
        self.change(move |table, now| {
            let is_removed = table.remove(&id, instance.as_ref(), scopes, now)?;
            let mut changes = Vec::from_iter(last_of_run(table, &id, instance));
            if is_removed {
                changes.push(Change::Removed(id));
            }
            Ok((is_removed, changes))
        })
    }

    fn servers(&self) -> RegistryFuture<'_, Vec<ServerStatus>> {
        let mut table = self.shared.lock();
        let servers = self.check().map(|()| {
            let now = self.clock.now();
            table.forget_dead(now);
            table.servers(now)
        });
        Box::pin(async move { servers })
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

    fn check(&self) -> Result<(), RegistryError> {
        if self.shared.is_available() { Ok(()) } else { Err(RegistryError::Unavailable) }
    }
}

/// Returns the row with the last number of a run, if it has one.
fn last_of_run(table: &RegistryTable, id: &RegistryName, instance: Option<ServerInstance>) -> Option<Change> {
    let name = instance?.name;
    let (sequence, at) = table.last_of(id, &name)?;
    Some(Change::Run(id.clone(), name, sequence, at))
}

/// Creates the file for its owner alone, unless it exists.
fn create_private(path: &Path) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

/// Why the file of a registry cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum FileRegistryError {
    /// Another issuer has the file open.
    InUse,
    /// The file is that of another program, was made by an earlier version, or is damaged.
    NotARegistry(std::io::Error),
    /// The file cannot be created or read.
    Unusable(std::io::Error),
}

impl From<redb::Error> for FileRegistryError {
    fn from(error: redb::Error) -> Self {
        use redb::Error as Cause;
        match error {
            Cause::DatabaseAlreadyOpen => Self::InUse,
            Cause::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => Self::NotARegistry(error),
            Cause::Io(error) => Self::Unusable(error),
            Cause::Corrupted(_)
            | Cause::UpgradeRequired(_)
            | Cause::TableTypeMismatch { .. }
            | Cause::TableIsMultimap(_)
            | Cause::TypeDefinitionChanged { .. } => Self::NotARegistry(std::io::Error::other(error)),
            error => Self::Unusable(std::io::Error::other(error)),
        }
    }
}

impl core::fmt::Display for FileRegistryError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::InUse => f.write_str("another issuer has the file of the registry open"),
            Self::NotARegistry(error) => {
                write!(f, "the file is not a registry of this version, or is damaged: {error}")
            }
            Self::Unusable(error) => write!(f, "the file of the registry cannot be used: {error}"),
        }
    }
}

impl core::error::Error for FileRegistryError {}

#[cfg(test)]
mod tests;
