//! The registry of several issuers in Redis or Valkey: scripts that reserve atomically, leases, and recovery.
//!
//! ```text
//!  {prefix}:servers   hash: id -> registration as JSON      {prefix}:seen   sorted set: id by its last heartbeat
//!  {prefix}:groups    hash: id -> protocol id and group     {prefix}:free   hash: id -> free slots
//!  {prefix}:r:{id}    sorted set: client id by the end of its reservation, in milliseconds
//!  {prefix}:t:{id}    hash: client id -> tokens that may still admit it
//!  {prefix}:m:{id}    sorted set: client id by the time of its newest reservation, in milliseconds
//!  {prefix}:instances hash: id -> the run of the server that has the id
//!  {prefix}:i:{id}    sorted set: runs that were replaced by the time of that
//!  {prefix}:runs      hash: id and run -> the number of its last heartbeat or removal, in 20 digits
//!  {prefix}:run-times sorted set: id and run by the time of that, in milliseconds
//!  {prefix}:ends      sorted set: id by the end of the last reservation of each server, in milliseconds
//!  {prefix}:started   hash: id -> when the server started, in milliseconds, if it refuses tokens from before
//!  {prefix}:clock     hash: the registry's time, and the epoch of its data
//! ```
//!
//! All times are the registry's own, which follows the store's clock but none of its steps. A store that was restarted
//! or emptied may have lost reservations. Its first use after that begins an epoch, with a pause of [`RECOVERY`] in
//! which no slot is given out: each issuer writes the reservations again that it made itself, and the heartbeats
//! register the servers again. A script of an issuer that has not done so yet does nothing but name the epoch.

mod held;
mod link;
mod view;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::redis::{RedisError, Script, ScriptInvocation};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, interval};

use self::held::{HeldReservation, HeldReservations};
use self::link::{StoreConnection, StoreLink};
use self::view::{ListedServer, RegistryView};
use super::instances::MAX_REPLACED;
use super::memory::Chance;
use super::name::RegistryName;
use super::status::ServerStatus;
use super::store::{Registry, RegistryError, RegistryFuture};
use super::stored;
use super::types::{
    DEAD_AFTER, FORGOTTEN_AFTER, Heartbeat, MAX_REGISTERED_SERVERS, MAX_REMEMBERED_RUNS, RESTART_MARGIN,
    RUN_FORGOTTEN_AFTER, ReservedServer, ServerInstance, SlotRequest,
};
use crate::callers::Scopes;

/// The pause after a loss of the store's data, in which issuers write their reservations again: their checks of the
/// store are at most 0.5 s apart, and a new connection takes at most 1 s.
const RECOVERY: Duration = Duration::from_secs(3);
/// The interval of the background task that checks the store and reads the servers.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The maximum age of the list of servers from which candidates are taken, and by which a group is full.
const MAX_VIEW_AGE: Duration = Duration::from_millis(250);
/// The maximum number of reservations of one script.
const BATCH: usize = 500;
/// The maximum number of candidates of one script.
const MAX_CANDIDATES: usize = 16;
/// The maximum number of scripts for one request. Each one without a result removes its candidates from the list.
const MAX_ATTEMPTS: usize = 700;
/// The maximum number of scripts for a change of a server that moves to other groups at the same time.
const MAX_MOVES: usize = 4;
/// The maximum number of epochs that may begin during one script.
const MAX_EPOCHS: usize = 4;
/// The code of the error with which a script names the epoch.
const NEW_EPOCH: &str = "NEWEPOCH";

/// A registry in Redis or Valkey, which several issuers share.
pub struct RedisRegistry {
    link: StoreLink,
    scripts: Scripts,
    view: Mutex<RegistryView>,
    /// Held while a request reads the view, which others wait for; when that failed last.
    reading: AsyncMutex<Option<Instant>>,
    held: Mutex<HeldReservations>,
    /// The epoch of the store's data that has the held reservations; empty while they are written.
    epoch: Mutex<Arc<str>>,
    /// Held while they are written.
    restoring: AsyncMutex<()>,
    is_available: AtomicBool,
    /// Whether the log has the present outage.
    is_outage_logged: AtomicBool,
    /// The end of the pause after a loss of the store's data.
    recovered: Mutex<Instant>,
    chance: Chance,
    prefix: String,
}

struct Scripts {
    register: Script,
    remove: Script,
    list: Script,
    reserve: Script,
    restore: Script,
    ended: Script,
}

impl RedisRegistry {
    /// Creates the registry of this name on the server at `url`, such as `redis://127.0.0.1:6379/0`. It connects later.
    ///
    /// # Errors
    /// Returns [`RegistryUrlError`] if the URL is wrong. It never shows the URL, which may hold a password.
    pub fn new(url: &str, password: Option<&str>, name: &RegistryName) -> Result<Arc<Self>, RegistryUrlError> {
        // The braces keep all keys of a registry on one node of a cluster.
        let prefix = format!("slipgate:{{{name}}}");
        Ok(Arc::new(Self {
            link: StoreLink::new(url, password).map_err(|_| RegistryUrlError)?,
            scripts: Scripts::new(),
            view: Mutex::default(),
            reading: AsyncMutex::default(),
            held: Mutex::default(),
            epoch: Mutex::new("".into()),
            restoring: AsyncMutex::default(),
            is_available: AtomicBool::new(false),
            is_outage_logged: AtomicBool::new(false),
            recovered: Mutex::new(Instant::now()),
            chance: Chance::default(),
            prefix,
        }))
    }

    /// Checks the store every 0.5 s, which also reads the servers, forgets reservations that have ended, and writes the
    /// others again after a loss of the store's data. Runs until the future is dropped.
    pub async fn keep_checking(self: Arc<Self>) {
        let mut interval = interval(CHECK_INTERVAL);
        loop {
            interval.tick().await;
            let _ = self.read_servers().await;
            let _ = self.forget_ended().await;
        }
    }

    /// Forgets the reservations that are not in the store any more: a heartbeat to this or another issuer ended them.
    async fn forget_ended(&self) -> Result<(), RegistryError> {
        let held = self.held().live(Instant::now());
        for batch in held.chunks(BATCH) {
            let ended: Vec<usize> = self
                .run(&self.scripts.ended, |invocation| {
                    for reservation in batch {
                        invocation.arg(reservation.server.as_str()).arg(reservation.client_id.0);
                    }
                })
                .await?;
            ended.iter().filter_map(|position| batch.get(*position)).for_each(|one| self.held().forget(one));
        }
        Ok(())
    }

    /// Runs a script, and drops the connection if that fails.
    async fn run<T: ::redis::FromRedisValue>(
        &self,
        script: &Script,
        arguments: impl Fn(&mut ScriptInvocation<'_>),
    ) -> Result<T, RegistryError> {
        self.run_with_epoch(script, arguments).await.map(|(value, _)| value)
    }

    /// Does the same, and also returns the epoch in which the script ran.
    async fn run_with_epoch<T: ::redis::FromRedisValue>(
        &self,
        script: &Script,
        arguments: impl Fn(&mut ScriptInvocation<'_>),
    ) -> Result<(T, Arc<str>), RegistryError> {
        let result = self.run_in_epoch(script, arguments).await;
        let was_available = self.is_available.swap(result.is_ok(), Ordering::Relaxed);
        // A store that never responded is an outage, too.
        let was_logged = self.is_outage_logged.swap(result.is_err(), Ordering::Relaxed);
        match &result {
            Err(error) if !was_logged => tracing::warn!(%error, "the store of the registry does not respond"),
            Ok(_) if !was_available => tracing::info!("the store of the registry responds"),
            _ => {}
        }
        result.map_err(|_| RegistryError::Unavailable)
    }

    /// Runs a script. In a new epoch, it writes this issuer's reservations first.
    async fn run_in_epoch<T: ::redis::FromRedisValue>(
        &self,
        script: &Script,
        arguments: impl Fn(&mut ScriptInvocation<'_>),
    ) -> Result<(T, Arc<str>), RedisError> {
        let mut attempts = 0;
        loop {
            let (link, known) = (self.link.get().await?, self.epoch());
            let result = self.run_on(&link, &known, script, &arguments).await;
            attempts += 1;
            match result {
                Err(error) if error.code() == Some(NEW_EPOCH) && attempts < MAX_EPOCHS => {
                    self.restore(&link, &known, error.detail().unwrap_or_default()).await?;
                }
                result => return result.map(|value| (value, known)),
            }
        }
    }

    async fn run_on<T: ::redis::FromRedisValue>(
        &self,
        link: &StoreConnection,
        epoch: &str,
        script: &Script,
        arguments: impl FnOnce(&mut ScriptInvocation<'_>),
    ) -> Result<T, RedisError> {
        let mut invocation = script.prepare_invoke();
        invocation.key(&self.prefix).arg(&link.run_id).arg(millis(RECOVERY)).arg(epoch);
        arguments(&mut invocation);
        let mut connection = link.connection.clone();
        let result = invocation.invoke_async(&mut connection).await;
        if result.as_ref().is_err_and(|error: &RedisError| error.code() != Some(NEW_EPOCH)) {
            self.link.drop_link(link).await;
        }
        result
    }

    /// Writes this issuer's reservations into the data of a new epoch, unless another task has done it.
    async fn restore(&self, link: &StoreConnection, known: &str, new: &str) -> Result<(), RedisError> {
        let _alone = self.restoring.lock().await;
        if *self.epoch() != *known {
            return Ok(());
        }
        // A reservation whose response arrives from now on is in no list: `try_candidates` drops it.
        self.set_epoch("");
        let now = Instant::now();
        let held = self.held().live(now);
        if known.is_empty() {
            tracing::info!("connected to the store of the registry");
        } else {
            let reservations = held.len();
            tracing::warn!(reservations, "the store of the registry was restarted, or has lost its data");
        }
        for batch in held.chunks(BATCH) {
            let restored: Result<(), _> = self
                .run_on(link, new, &self.scripts.restore, |invocation| {
                    invocation.arg(millis(RESTART_MARGIN));
                    for reservation in batch {
                        let left = millis(reservation.ends.saturating_duration_since(now));
                        let age = millis(now.saturating_duration_since(reservation.made));
                        invocation.arg(reservation.server.as_str()).arg(reservation.client_id.0).arg(left).arg(age);
                    }
                })
                .await;
            restored?;
        }
        self.set_epoch(new);
        Ok(())
    }

    fn epoch(&self) -> Arc<str> {
        // Poisoning is harmless: the critical sections only copy.
        Arc::clone(&self.epoch.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set_epoch(&self, epoch: &str) {
        *self.epoch.lock().unwrap_or_else(PoisonError::into_inner) = epoch.into();
    }

    /// Records how much is left of the pause after a loss of the store's data.
    fn set_pause(&self, left: Duration) {
        *self.recovered.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now() + left;
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HeldReservations> {
        // Poisoning is harmless: each operation leaves a complete list.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn view(&self) -> std::sync::MutexGuard<'_, RegistryView> {
        // Poisoning is harmless: the next list replaces it.
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads all servers into the view.
    async fn read_servers(&self) -> Result<Vec<ServerStatus>, RegistryError> {
        let begin = Instant::now();
        let (now, pause, rows): (u64, u64, Vec<(String, u64, u32)>) = self
            .run(&self.scripts.list, |invocation| {
                invocation.arg(millis(FORGOTTEN_AFTER)).arg(millis(RUN_FORGOTTEN_AFTER));
            })
            .await?;
        let mut servers: Vec<ServerStatus> = rows
            .into_iter()
            .filter_map(|(json, seen, reserved_slots)| {
                let registration = stored::from_json(&json)?;
                let heartbeat_age = Duration::from_millis(now.saturating_sub(seen));
                Some(ServerStatus::new(registration, reserved_slots, heartbeat_age))
            })
            .collect();
        servers.sort_unstable_by(|one, other| one.registration.id.cmp(&other.registration.id));
        self.view().replace(&servers, begin);
        self.set_pause(Duration::from_millis(pause));
        Ok(servers)
    }

    /// Reads all servers into the view, unless that has those of this time or later. Requests that need them at the
    /// same time share one list, or its error.
    async fn read_servers_of(&self, oldest: Instant) -> Result<(), RegistryError> {
        if self.view().was_read_since(oldest) {
            return Ok(());
        }
        let begin = Instant::now();
        let mut failed = self.reading.lock().await;
        if self.view().was_read_since(oldest) {
            return Ok(());
        }
        if failed.is_some_and(|failed| failed >= begin) {
            return Err(RegistryError::Unavailable);
        }
        let read = self.read_servers().await;
        *failed = read.is_err().then(Instant::now);
        read.map(drop)
    }

    /// Reserves on the first candidates with room, from lists that get newer and shorter.
    async fn reserve_slots(&self, request: &SlotRequest) -> Result<Vec<ReservedServer>, RegistryError> {
        let begin = Instant::now();
        // The tokens of one client share a slot, also in a group that is full for others. The reservations of other
        // issuers are not known here.
        let mut held = self.held().servers_of(request.client_id);
        for _ in 0..MAX_ATTEMPTS {
            let now = Instant::now();
            self.read_servers_of(now.checked_sub(MAX_VIEW_AGE).unwrap_or(now)).await?;
            let (candidates, is_used_up) = {
                let view = self.view();
                let candidates = view.candidates(request, &held, self.chance.draw(), MAX_CANDIDATES);
                // Servers that had room when the list was read may have it again. In a list without one the group was
                // full: a flood of requests for it must not read a list each.
                (candidates, view.had_room(request) && !view.was_read_since(begin))
            };
            if candidates.is_empty() && is_used_up {
                self.read_servers_of(begin).await?;
                continue;
            }
            if candidates.is_empty() {
                // Servers that have not registered again yet may have room.
                return self.check().and(Err(self.view().refusal(request)));
            }
            let reserved = self.try_candidates(request, &candidates).await?;
            if !reserved.is_empty() {
                return Ok(reserved);
            }
            held.retain(|id| candidates.iter().all(|candidate| candidate.id != *id));
        }
        Err(RegistryError::NoFreeSlots)
    }

    async fn try_candidates(
        &self,
        request: &SlotRequest,
        candidates: &[ListedServer],
    ) -> Result<Vec<ReservedServer>, RegistryError> {
        let lifetime = request.lifetime;
        let begin = Instant::now();
        let ((pause, reserved), epoch): ((u64, Vec<String>), _) = self
            .run_with_epoch(&self.scripts.reserve, |invocation| {
                invocation.arg(request.client_id.0).arg(millis(lifetime)).arg(request.server_count);
                invocation.arg(millis(DEAD_AFTER));
                candidates.iter().for_each(|server| _ = invocation.arg(server.id.as_str()));
            })
            .await
            .map_err(|_| RegistryError::Unconfirmed)?;
        if pause > 0 {
            self.set_pause(Duration::from_millis(pause));
            return Err(RegistryError::Recovering(Duration::from_millis(pause)));
        }
        let is_reserved = |server: &&ListedServer| reserved.iter().any(|id| id == server.id.as_str());
        let (chosen, refused): (Vec<_>, Vec<_>) = candidates.iter().partition(is_reserved);
        // The script has reserved later than `begin` and earlier than now.
        let ends = Instant::now() + lifetime;
        for server in &chosen {
            let (server, client_id) = (server.id.clone(), request.client_id);
            self.held().add(HeldReservation { server, client_id, made: begin, ends });
        }
        if *self.epoch() != *epoch {
            // The data was lost after the script, and these reservations may have been too late to be written again.
            return Err(RegistryError::Unconfirmed);
        }
        // Candidates that were not needed are not full.
        let refused = if chosen.is_empty() { refused } else { Vec::new() };
        self.view().record(request, &chosen, &refused);
        Ok(chosen.into_iter().map(ListedServer::to_reserved).collect())
    }
}

impl RedisRegistry {
    /// Runs a script that changes a server, if the scopes include the group in which it is registered. The script
    /// changes it in the expected group only, or returns the other one. Returns the state, and what belongs to it.
    async fn run_in_scope(
        &self,
        script: &Script,
        scopes: &Scopes,
        mut expected: String,
        arguments: impl Fn(&mut ScriptInvocation<'_>, &str),
    ) -> Result<(String, String), RegistryError> {
        for _ in 0..MAX_MOVES {
            let (state, other): (String, String) =
                self.run(script, |invocation| arguments(invocation, &expected)).await?;
            match state.as_str() {
                "other group" if !is_included(scopes, &other) => return Err(RegistryError::OutOfScope),
                "other group" => expected = other,
                _ => return Ok((state, other)),
            }
        }
        Err(RegistryError::Unavailable)
    }
}

/// Returns the name of an instance, empty without one.
fn name_of(instance: Option<&ServerInstance>) -> &str {
    instance.map_or("", |instance| instance.name.as_str())
}

/// Returns a number as scripts compare it: they have numbers of 53 bits, and texts of any length.
fn digits(sequence: u64) -> String {
    format!("{sequence:020}")
}

/// Returns whether the scopes include a protocol id and group, as scripts write them.
fn is_included(scopes: &Scopes, key: &str) -> bool {
    let parsed = key.split_once('/').and_then(|(id, group)| Some((id.parse().ok()?, group.parse().ok()?)));
    parsed.is_some_and(|(protocol_id, group)| scopes.include(protocol_id, &group))
}

impl Registry for RedisRegistry {
    fn register<'a>(&'a self, heartbeat: Heartbeat, scopes: &'a Scopes) -> RegistryFuture<'a, ()> {
        Box::pin(async move {
            let Heartbeat { registration, admitted, running, instance } = heartbeat;
            let free = if registration.is_draining { 0 } else { registration.free_slots };
            let (json, group) =
                (stored::to_json(&registration), format!("{}/{}", registration.protocol_id, registration.group));
            let running = running.map_or_else(String::new, |running| millis(running).to_string());
            let arguments = |invocation: &mut ScriptInvocation<'_>, expected: &str| {
                invocation.arg(registration.id.as_str()).arg(expected).arg(&group).arg(&json).arg(free);
                invocation.arg(MAX_REGISTERED_SERVERS).arg(millis(RESTART_MARGIN)).arg(&running);
                invocation.arg(name_of(instance.as_ref())).arg(millis(DEAD_AFTER)).arg(MAX_REPLACED);
                let sequence = instance.as_ref().and_then(|instance| instance.sequence);
                invocation.arg(sequence.map(digits).unwrap_or_default()).arg(MAX_REMEMBERED_RUNS);
                admitted.iter().for_each(|client_id| _ = invocation.arg(client_id.0));
            };
            let (state, other) = self.run_in_scope(&self.scripts.register, scopes, group.clone(), arguments).await?;
            match state.as_str() {
                "full" => Err(RegistryError::Full),
                "late" => Err(RegistryError::Late),
                "replaced" => {
                    let other = stored::from_json(&other).map(|other| other.addresses);
                    Err(RegistryError::Replaced(other.unwrap_or_default()))
                }
                // The reservations that it ended are forgotten with the next check.
                _ => Ok(()),
            }
        })
    }

    fn remove<'a>(
        &'a self,
        id: RegistryName,
        instance: Option<ServerInstance>,
        scopes: &'a Scopes,
    ) -> RegistryFuture<'a, bool> {
        Box::pin(async move {
            let arguments = |invocation: &mut ScriptInvocation<'_>, expected: &str| {
                let sequence = instance.as_ref().and_then(|instance| instance.sequence).unwrap_or(u64::MAX);
                invocation.arg(id.as_str()).arg(expected).arg(name_of(instance.as_ref()));
                invocation.arg(digits(sequence)).arg(MAX_REMEMBERED_RUNS);
            };
            let (state, _) = self.run_in_scope(&self.scripts.remove, scopes, String::new(), arguments).await?;
            Ok(state == "removed")
        })
    }

    fn servers(&self) -> RegistryFuture<'_, Vec<ServerStatus>> {
        Box::pin(self.read_servers())
    }

    fn reserve(&self, request: SlotRequest) -> RegistryFuture<'_, Vec<ReservedServer>> {
        Box::pin(async move { self.reserve_slots(&request).await })
    }

    fn check(&self) -> Result<(), RegistryError> {
        let recovered = *self.recovered.lock().unwrap_or_else(PoisonError::into_inner);
        let left = recovered.saturating_duration_since(Instant::now());
        match self.is_available.load(Ordering::Relaxed) {
            false => Err(RegistryError::Unavailable),
            true if left.is_zero() => Ok(()),
            true => Err(RegistryError::Recovering(left)),
        }
    }
}

impl Scripts {
    fn new() -> Self {
        let script = |code: &str| Script::new(&format!("{}\n{code}", include_str!("redis/common.lua")));
        Self {
            register: script(include_str!("redis/register.lua")),
            remove: script(include_str!("redis/remove.lua")),
            list: script(include_str!("redis/list.lua")),
            reserve: script(include_str!("redis/reserve.lua")),
            restore: script(include_str!("redis/restore.lua")),
            ended: script(include_str!("redis/ended.lua")),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The URL of the store is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegistryUrlError;

impl core::fmt::Display for RegistryUrlError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the URL of the registry has the form redis://HOST:PORT/DATABASE")
    }
}

impl core::error::Error for RegistryUrlError {}
