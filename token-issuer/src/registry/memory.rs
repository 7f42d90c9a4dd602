//! The registry of one issuer, in memory: servers register again within a second after a restart.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use slipgate_netcode::time::UnixMillis;
use slipgate_os::clock::wall_clock;

use super::clock::RegistryClock;
use super::name::RegistryName;
use super::status::ServerStatus;
use super::store::{Registry, RegistryError, RegistryFuture};
use super::table::RegistryTable;
use super::types::{Heartbeat, ReservedServer, ServerInstance, SlotRequest};
use crate::callers::Scopes;

/// A registry in memory, for one issuer. A restart of the issuer loses the reservations of tokens that are in use.
pub struct MemoryRegistry {
    table: Mutex<RegistryTable>,
    clock: RegistryClock,
    chance: Chance,
}

impl Default for MemoryRegistry {
    fn default() -> Self {
        Self { table: Mutex::default(), clock: RegistryClock::start_at(wall_clock()), chance: Chance::default() }
    }
}

/// Random numbers for choices among equals. They need not be secret.
pub(super) struct Chance {
    key: RandomState,
    next: AtomicU64,
}

impl Default for Chance {
    fn default() -> Self {
        Self { key: RandomState::new(), next: AtomicU64::new(0) }
    }
}

impl Chance {
    pub(super) fn draw(&self) -> u64 {
        self.key.hash_one(self.next.fetch_add(1, Ordering::Relaxed))
    }
}

impl MemoryRegistry {
    fn with_table<T>(&self, act: impl FnOnce(&mut RegistryTable, UnixMillis) -> T) -> T {
        // Poisoning is harmless: each operation leaves a consistent table at each point where it may panic.
        act(&mut self.table.lock().unwrap_or_else(PoisonError::into_inner), self.clock.now())
    }
}

#[cfg(feature = "fuzzing")]
impl MemoryRegistry {
    /// Forgets all servers and reservations.
    pub(crate) fn clear(&self) {
        self.with_table(|table, _| *table = RegistryTable::default());
    }
}

impl Registry for MemoryRegistry {
    fn register<'a>(&'a self, heartbeat: Heartbeat, scopes: &'a Scopes) -> RegistryFuture<'a, ()> {
        let registered = self.with_table(|table, now| {
            table.forget_dead(now);
            table.register(heartbeat, scopes, now).map(drop)
        });
        Box::pin(async move { registered })
    }

    fn remove<'a>(
        &'a self,
        id: RegistryName,
        instance: Option<ServerInstance>,
        scopes: &'a Scopes,
    ) -> RegistryFuture<'a, bool> {
        let removed = self.with_table(|table, now| table.remove(&id, instance.as_ref(), scopes, now));
        Box::pin(async move { removed })
    }

    fn servers(&self) -> RegistryFuture<'_, Vec<ServerStatus>> {
        let servers = self.with_table(|table, now| {
            table.forget_dead(now);
            table.servers(now)
        });
        Box::pin(async move { Ok(servers) })
    }

    fn reserve(&self, request: SlotRequest) -> RegistryFuture<'_, Vec<ReservedServer>> {
        let chance = self.chance.draw();
        let reserved: Result<_, RegistryError> = self.with_table(|table, now| table.reserve(&request, now, chance));
        Box::pin(async move { reserved })
    }

    fn check(&self) -> Result<(), RegistryError> {
        Ok(())
    }
}
