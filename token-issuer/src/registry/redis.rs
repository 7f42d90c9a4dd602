//! The registry of several issuers in Redis or Valkey: scripts that reserve atomically, leases, and recovery.
//!
//! ```text
//!  {prefix}:servers   hash: id -> registration as JSON      {prefix}:seen   sorted set: id by its last heartbeat
//!  {prefix}:free      hash: id -> free slots                {prefix}:run:…  when this run of the store was first used
//!  {prefix}:r:{id}    sorted set: client id by the end of its reservation, in milliseconds
//!  {prefix}:t:{id}    hash: client id -> tokens that may still admit it
//!  {prefix}:m:{id}    sorted set: client id by the time of its newest reservation, in milliseconds
//!  {prefix}:started   hash: id -> when the server started, in milliseconds, if it refuses tokens from before
//! ```
//!
//! All times are those of the store's clock. A store that was restarted may have lost reservations. Its first use
//! after that starts a pause of [`RECOVERY`], in which no slot is given out: each issuer writes the reservations again
//! that it made itself, and the heartbeats register the servers again.

mod held;
mod link;
mod view;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::redis::{RedisError, Script, ScriptInvocation};
use tokio::time::{Instant, interval};

use self::held::HeldReservations;
use self::link::{StoreConnection, StoreLink};
use self::view::{ListedServer, RegistryView};
use super::memory::Chance;
use super::name::RegistryName;
use super::status::ServerStatus;
use super::store::{Registry, RegistryError, RegistryFuture};
use super::stored;
use super::types::{
    DEAD_AFTER, FORGOTTEN_AFTER, Heartbeat, MAX_REGISTERED_SERVERS, RESTART_MARGIN, ReservedServer, SlotRequest,
};

/// The pause after a restart of the store, in which issuers write their reservations again: their checks of the store
/// are at most 0.5 s apart, and a new connection takes at most 1 s.
const RECOVERY: Duration = Duration::from_secs(3);
/// The interval of the background task that checks the store and reads the servers.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// The maximum age of the list of servers from which candidates are taken.
const MAX_VIEW_AGE: Duration = Duration::from_millis(250);
/// The maximum number of reservations of one script.
const BATCH: usize = 500;
/// The maximum number of candidates of one script.
const MAX_CANDIDATES: usize = 16;
/// The maximum number of scripts for one request. Each one without a result removes its candidates from the list.
const MAX_ATTEMPTS: usize = 700;

/// A registry in Redis or Valkey, which several issuers share.
pub struct RedisRegistry {
    link: StoreLink,
    scripts: Scripts,
    view: Mutex<RegistryView>,
    held: Mutex<HeldReservations>,
    is_available: AtomicBool,
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
            held: Mutex::default(),
            is_available: AtomicBool::new(false),
            chance: Chance::default(),
            prefix,
        }))
    }

    /// Checks the store every 0.5 s, which also reads the servers, forgets reservations that have ended, and writes the
    /// others again after a restart. Runs until the future is dropped.
    pub async fn keep_checking(self: Arc<Self>) {
        let mut interval = interval(CHECK_INTERVAL);
        loop {
            interval.tick().await;
            let _ = self.read_servers().await;
            let _ = self.forget_ended().await;
        }
    }

    /// Forgets the reservations that are not in the store any more: another issuer got the heartbeat that ended them.
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
        arguments: impl FnOnce(&mut ScriptInvocation<'_>),
    ) -> Result<T, RegistryError> {
        let result = match self.link().await {
            Ok(link) => self.run_on(link, script, arguments).await,
            Err(error) => Err(error),
        };
        let was_available = self.is_available.swap(result.is_ok(), Ordering::Relaxed);
        match &result {
            Err(error) if was_available => tracing::warn!(%error, "the store of the registry does not respond"),
            Ok(_) if !was_available => tracing::info!("the store of the registry responds"),
            _ => {}
        }
        result.map_err(|_| RegistryError::Unavailable)
    }

    async fn run_on<T: ::redis::FromRedisValue>(
        &self,
        link: StoreConnection,
        script: &Script,
        arguments: impl FnOnce(&mut ScriptInvocation<'_>),
    ) -> Result<T, RedisError> {
        let mut invocation = script.prepare_invoke();
        invocation.key(&self.prefix).arg(&link.run_id).arg(millis(RECOVERY));
        arguments(&mut invocation);
        let mut connection = link.connection.clone();
        let result = invocation.invoke_async(&mut connection).await;
        if result.is_err() {
            self.link.drop_link(&link).await;
        }
        result
    }

    /// Returns the connection. A new one writes this issuer's reservations first, if it leads to another run.
    async fn link(&self) -> Result<StoreConnection, RedisError> {
        let (link, is_new_run) = self.link.get().await?;
        if !is_new_run {
            return Ok(link);
        }
        let now = Instant::now();
        let held = self.held().live(now);
        tracing::info!(reservations = held.len(), "connected to the store of the registry");
        for batch in held.chunks(BATCH) {
            let restored: Result<(), _> = self
                .run_on(link.clone(), &self.scripts.restore, |invocation| {
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
        self.link.confirm(&link).await;
        Ok(link)
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
        let (now, rows): (u64, Vec<(String, u64, u32)>) =
            self.run(&self.scripts.list, |invocation| _ = invocation.arg(millis(FORGOTTEN_AFTER))).await?;
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
        Ok(servers)
    }

    /// Reserves on the first candidates with room, from lists that get newer and shorter.
    async fn reserve_slots(&self, request: &SlotRequest) -> Result<Vec<ReservedServer>, RegistryError> {
        let begin = Instant::now();
        for _ in 0..MAX_ATTEMPTS {
            if self.view().age(Instant::now()).is_none_or(|age| age > MAX_VIEW_AGE) {
                self.read_servers().await?;
            }
            let candidates = self.view().candidates(request, self.chance.draw(), MAX_CANDIDATES);
            if candidates.is_empty() {
                // A list from before the request may lack a server with room.
                if self.view().was_read_since(begin) {
                    return Err(RegistryError::NoFreeSlots);
                }
                self.read_servers().await?;
                continue;
            }
            let reserved = self.try_candidates(request, &candidates).await?;
            if !reserved.is_empty() {
                return Ok(reserved);
            }
        }
        Err(RegistryError::NoFreeSlots)
    }

    async fn try_candidates(
        &self,
        request: &SlotRequest,
        candidates: &[ListedServer],
    ) -> Result<Vec<ReservedServer>, RegistryError> {
        let (ids, lifetime) = (candidates.iter().map(|server| server.id.as_str()), request.lifetime);
        let begin = Instant::now();
        let (state, reserved): (String, Vec<String>) = self
            .run(&self.scripts.reserve, |invocation| {
                invocation.arg(request.client_id.0).arg(millis(lifetime)).arg(request.server_count);
                invocation.arg(millis(DEAD_AFTER));
                ids.for_each(|id| _ = invocation.arg(id));
            })
            .await?;
        if state != "ok" {
            return Err(RegistryError::Unavailable);
        }
        let is_reserved = |server: &&ListedServer| reserved.iter().any(|id| id == server.id.as_str());
        let (chosen, refused): (Vec<_>, Vec<_>) = candidates.iter().partition(is_reserved);
        // The script has reserved later than `begin` and earlier than now.
        let ends = Instant::now() + lifetime;
        for server in &chosen {
            self.held().add(server.id.clone(), request.client_id, (begin, ends));
        }
        // Candidates that were not needed are not full.
        let refused = if chosen.is_empty() { refused } else { Vec::new() };
        self.view().record(request, &chosen, &refused);
        Ok(chosen.into_iter().map(ListedServer::to_reserved).collect())
    }
}

impl Registry for RedisRegistry {
    fn register(&self, heartbeat: Heartbeat) -> RegistryFuture<'_, ()> {
        Box::pin(async move {
            let Heartbeat { registration, admitted, running } = heartbeat;
            let free = if registration.is_draining { 0 } else { registration.free_slots };
            let state: String = self
                .run(&self.scripts.register, |invocation| {
                    invocation.arg(registration.id.as_str()).arg(stored::to_json(&registration)).arg(free);
                    invocation.arg(MAX_REGISTERED_SERVERS).arg(millis(RESTART_MARGIN));
                    invocation.arg(running.map_or_else(String::new, |running| millis(running).to_string()));
                    admitted.iter().for_each(|client_id| _ = invocation.arg(client_id.0));
                })
                .await?;
            admitted.iter().for_each(|client_id| self.held().remove(&registration.id, *client_id));
            if state == "ok" { Ok(()) } else { Err(RegistryError::Full) }
        })
    }

    fn remove(&self, id: RegistryName) -> RegistryFuture<'_, bool> {
        Box::pin(async move { self.run(&self.scripts.remove, |invocation| _ = invocation.arg(id.as_str())).await })
    }

    fn servers(&self) -> RegistryFuture<'_, Vec<ServerStatus>> {
        Box::pin(self.read_servers())
    }

    fn reserve(&self, request: SlotRequest) -> RegistryFuture<'_, Vec<ReservedServer>> {
        Box::pin(async move { self.reserve_slots(&request).await })
    }

    fn is_available(&self) -> bool {
        self.is_available.load(Ordering::Relaxed)
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
