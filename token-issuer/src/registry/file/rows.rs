//! The rows of the file: how a table is read, and how changes are written.

use std::collections::BTreeMap;
use std::time::Duration;

use redb::{Database, ReadableTable, TableDefinition};
use slipgate_netcode::ids::ClientId;
use slipgate_netcode::time::UnixMillis;

use crate::callers::Scopes;
use crate::registry::name::RegistryName;
use crate::registry::reservations::{Reservation, Reservations};
use crate::registry::stored;
use crate::registry::table::RegistryTable;
use crate::registry::types::{FORGOTTEN_AFTER, Heartbeat, RUN_FORGOTTEN_AFTER, Registration};

/// Registrations as JSON, and the time of the last heartbeat in milliseconds since 1970, by server id.
const SERVERS: TableDefinition<'_, &str, (&str, u64)> = TableDefinition::new("servers");
/// Ends, numbers of tokens, and times of the newest one, by server id and client id. Times are in milliseconds since
/// 1970.
const RESERVATIONS: TableDefinition<'_, (&str, u64), (u64, u32, u64)> = TableDefinition::new("timed reservations");
/// The last number of each run of a server, and its time in milliseconds since 1970, by server id and instance.
const RUNS: TableDefinition<'_, (&str, &str), (u64, u64)> = TableDefinition::new("runs");
/// When the file was opened, in milliseconds since 1970.
const OPENED: TableDefinition<'_, (), u64> = TableDefinition::new("opened");

/// A change of the table that the file does not have yet.
pub(super) enum Change {
    Server(Box<Registration>, UnixMillis),
    Removed(RegistryName),
    Reservation(RegistryName, ClientId, Option<Reservation>),
    Run(RegistryName, RegistryName, u64, UnixMillis),
}

/// Reads the table, after a first commit that shows whether the file can be written. Returns the time from which the
/// registry goes on: the wall clock may have been set back since the last commit, and then is behind the times in the
/// file.
pub(super) fn load(database: &Database, wall: UnixMillis) -> Result<(RegistryTable, UnixMillis), redb::Error> {
    let writing = database.begin_write()?;
    let mut now = wall;
    let mut table = RegistryTable::default();
    for row in writing.open_table(SERVERS)?.iter()? {
        let (_, value) = row?;
        let (json, seen) = value.value();
        now = now.max(UnixMillis(seen));
        if let Some(registration) = stored::from_json(json) {
            let heartbeat = Heartbeat { registration, admitted: Vec::new(), running: None, instance: None };
            let _ = table.register(heartbeat, &Scopes::default(), UnixMillis(seen));
        }
    }
    let mut reservations: BTreeMap<RegistryName, Vec<(ClientId, Reservation)>> = BTreeMap::new();
    for row in writing.open_table(RESERVATIONS)?.iter()? {
        let (key, value) = row?;
        let ((id, client_id), (ends, tokens, made)) = (key.value(), value.value());
        now = now.max(UnixMillis(made));
        if let Ok(id) = id.parse() {
            let of_server = reservations.entry(id).or_default();
            of_server.push((client_id.into(), Reservation { ends, made, tokens }));
        }
    }
    for row in writing.open_table(RUNS)?.iter()? {
        let (key, value) = row?;
        let ((id, instance), (sequence, at)) = (key.value(), value.value());
        now = now.max(UnixMillis(at));
        if let (Ok(id), Ok(instance)) = (id.parse(), instance.parse()) {
            table.restore_last(&id, &instance, (sequence, UnixMillis(at)));
        }
    }
    writing.open_table(OPENED)?.insert((), now.0)?;
    writing.commit()?;
    for (id, of_server) in reservations {
        table.restore(id, Reservations::from_iter(of_server), now);
    }
    Ok((table, now))
}

/// Commits changes in their order, and removes what has ended up to the time of a sweep.
pub(super) fn write<'a>(
    database: &Database,
    changes: impl Iterator<Item = &'a Change>,
    sweep: Option<UnixMillis>,
) -> Result<(), redb::Error> {
    // The last change of each row counts.
    let (mut servers, mut reservations, mut runs) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for change in changes {
        match change {
            Change::Server(registration, seen) => {
                servers.insert(registration.id.as_str(), Some((stored::to_json(registration), seen.0)));
            }
            Change::Removed(id) => _ = servers.insert(id.as_str(), None),
            Change::Reservation(id, client_id, reservation) => {
                reservations.insert((id.as_str(), client_id.0), *reservation);
            }
            Change::Run(id, instance, sequence, at) => {
                runs.insert((id.as_str(), instance.as_str()), (*sequence, at.0));
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
        for (key, reservation) in reservations {
            match reservation {
                Some(Reservation { ends, made, tokens }) => _ = table.insert(key, (ends, tokens, made))?,
                None => _ = table.remove(key)?,
            }
        }
        let mut table = writing.open_table(RUNS)?;
        for (key, last) in runs {
            table.insert(key, last)?;
        }
    }
    if let Some(now) = sweep {
        remove_ended(&writing, now)?;
    }
    Ok(writing.commit()?)
}

fn remove_ended(writing: &redb::WriteTransaction, now: UnixMillis) -> Result<(), redb::Error> {
    writing.open_table(RESERVATIONS)?.retain(|_, (ends, ..)| ends > now.0)?;
    let is_recent = |time: u64, age: Duration| u128::from(now.0.saturating_sub(time)) < age.as_millis();
    writing.open_table(SERVERS)?.retain(|_, (_, seen)| is_recent(seen, FORGOTTEN_AFTER))?;
    writing.open_table(RUNS)?.retain(|_, (_, at)| is_recent(at, RUN_FORGOTTEN_AFTER))?;
    Ok(())
}
