//! Registrations and reservations in memory. Time and chance are arguments.

use core::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

use slipgate_netcode::ids::ClientId;
use slipgate_netcode::time::UnixMillis;

use super::instances::Instances;
use super::name::RegistryName;
use super::order::RunOrder;
use super::placement::{RankedServer, choose};
#[cfg(feature = "registry-file")]
use super::reservations::Reservation;
use super::reservations::{KeptReservations, Reservations};
use super::status::ServerStatus;
use super::store::RegistryError;
use super::types::{
    DEAD_AFTER, FORGOTTEN_AFTER, Heartbeat, MAX_REGISTERED_SERVERS, RESTART_MARGIN, Registration, ReservedServer,
    ServerInstance, SlotRequest,
};
use crate::callers::Scopes;

/// The servers that one request may pick from.
type GroupKey = (u64, RegistryName);

/// All servers by game and group.
#[derive(Default)]
pub(super) struct RegistryTable {
    groups: BTreeMap<GroupKey, BTreeMap<RegistryName, RegisteredServer>>,
    /// The group of each server.
    group_of: BTreeMap<RegistryName, GroupKey>,
    kept: KeptReservations,
    order: RunOrder,
}

/// A server and its reservations.
struct RegisteredServer {
    registration: Registration,
    last_heartbeat: UnixMillis,
    /// When it started, if it refuses tokens from before.
    started: Option<UnixMillis>,
    reservations: Reservations,
    instances: Instances,
    /// A fixed random-looking number, which is mixed with each request's own.
    chance: u64,
}

impl RegisteredServer {
    fn new(
        registration: Registration,
        instance: Option<&RegistryName>,
        reservations: Reservations,
        now: UnixMillis,
    ) -> Self {
        let (chance, mut instances) = (hash(&registration.id), Instances::default());
        instances.accept(instance, false);
        Self { registration, last_heartbeat: now, started: None, reservations, instances, chance }
    }

    fn status(&mut self, now: UnixMillis) -> ServerStatus {
        self.reservations.expire(now);
        ServerStatus::new(self.registration.clone(), self.reservations.count(), age(self.last_heartbeat, now))
    }

    /// Ends the reservations of tokens that a restarted server refuses. Returns their clients.
    fn on_running(&mut self, running: Duration, now: UnixMillis) -> Vec<ClientId> {
        let started = UnixMillis(now.0.saturating_sub(millis(running)));
        let margin = millis(RESTART_MARGIN);
        // Heartbeats take different times, so the start has some jitter.
        if self.started.is_some_and(|earlier| started.0 <= earlier.0.saturating_add(margin)) {
            return Vec::new();
        }
        self.started = Some(started);
        self.reservations.end_made_up_to(started.0.saturating_sub(margin))
    }

    /// Returns the number of slots that a new token of this client may use. Its tokens share a reservation.
    fn available(&self, client_id: ClientId, now: UnixMillis) -> u32 {
        if self.registration.is_draining || age(self.last_heartbeat, now) >= DEAD_AFTER {
            return 0;
        }
        let own = u32::from(self.reservations.get(client_id).is_some());
        self.registration.free_slots.saturating_sub(self.reservations.count() - own)
    }
}

fn age(since: UnixMillis, now: UnixMillis) -> Duration {
    Duration::from_millis(now.0.saturating_sub(since.0))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl RegistryTable {
    /// Records a heartbeat. Returns the clients whose reservations may have ended or changed by it, or `None` if it was
    /// recorded already.
    ///
    /// # Errors
    /// [`RegistryError::OutOfScope`] if the scopes do not include the group and game from which it would move,
    /// [`RegistryError::Late`] if a later heartbeat or removal of the same run was recorded,
    /// [`RegistryError::Replaced`] if another instance has taken the id and is alive, [`RegistryError::Full`] if it is
    /// a new server beyond the maximum.
    pub(super) fn register(
        &mut self,
        heartbeat: Heartbeat,
        scopes: &Scopes,
        now: UnixMillis,
    ) -> Result<Option<Vec<ClientId>>, RegistryError> {
        let Heartbeat { registration, admitted, running, instance } = heartbeat;
        let key = (registration.protocol_id, registration.group.clone());
        let id = registration.id.clone();
        self.check_scopes(&id, scopes)?;
        let sequence = instance.as_ref().and_then(|instance| Some((&instance.name, instance.sequence?)));
        match sequence.map(|(name, sequence)| self.order.compare(&id, name, sequence)) {
            Some(Ordering::Less) => return Err(RegistryError::Late),
            Some(Ordering::Equal) => return Ok(None),
            _ => {}
        }
        let name = instance.as_ref().map(|instance| &instance.name);
        if let Some(entry) = self.find(&id)
            && !entry.instances.accept(name, age(entry.last_heartbeat, now) < DEAD_AFTER)
        {
            return Err(RegistryError::Replaced(entry.registration.addresses.clone()));
        }
        let old = match self.group_of.get(&id) {
            // Its reservations stay when it moves to another group.
            Some(old_key) if *old_key != key => self.take(&id),
            None if self.group_of.len() >= MAX_REGISTERED_SERVERS => return Err(RegistryError::Full),
            _ => None,
        };
        if let Some((name, sequence)) = sequence {
            self.order.record(&id, name, sequence, now);
        }
        self.group_of.insert(id.clone(), key.clone());
        let kept = &mut self.kept;
        let entry = self.groups.entry(key).or_default().entry(id).or_insert_with_key(|id| {
            old.unwrap_or_else(|| RegisteredServer::new(registration.clone(), name, kept.take(id), now))
        });
        entry.registration = registration;
        entry.last_heartbeat = now;
        let mut changed = running.map(|running| entry.on_running(running, now)).unwrap_or_default();
        admitted.iter().for_each(|client_id| entry.reservations.admit(*client_id));
        changed.extend(admitted);
        Ok(Some(changed))
    }

    /// Removes a server, but not its reservations: a restarted one may accept their tokens. Returns whether it was
    /// removed: another instance than the given one may have its id, or the instance has sent a later heartbeat.
    ///
    /// # Errors
    /// [`RegistryError::OutOfScope`] if the scopes do not include its group and game.
    pub(super) fn remove(
        &mut self,
        id: &RegistryName,
        instance: Option<&ServerInstance>,
        scopes: &Scopes,
        now: UnixMillis,
    ) -> Result<bool, RegistryError> {
        self.check_scopes(id, scopes)?;
        if let Some(instance) = instance {
            let sequence = instance.sequence.unwrap_or(u64::MAX);
            if self.order.compare(id, &instance.name, sequence).is_lt() {
                return Ok(false);
            }
            // Removals of other runs leave nothing: their ids and names can be made up at will.
            if self.order.last(id, &instance.name).is_some() {
                self.order.record(id, &instance.name, sequence, now);
            }
        }
        let name = instance.map(|instance| &instance.name);
        let may_remove = self.find(id).is_some_and(|entry| entry.instances.may_remove(name));
        Ok(may_remove && self.keep_reservations(id, now))
    }

    /// Checks the group and game in which a server is registered, if it is.
    fn check_scopes(&self, id: &RegistryName, scopes: &Scopes) -> Result<(), RegistryError> {
        let is_included = |(protocol_id, group): &GroupKey| scopes.include(*protocol_id, group);
        if self.group_of.get(id).is_none_or(is_included) { Ok(()) } else { Err(RegistryError::OutOfScope) }
    }

    /// Removes a server, and keeps its reservations until they end. Returns whether it was registered.
    fn keep_reservations(&mut self, id: &RegistryName, now: UnixMillis) -> bool {
        let Some(entry) = self.take(id) else { return false };
        self.kept.keep(id.clone(), entry.reservations, now);
        true
    }

    fn find(&mut self, id: &RegistryName) -> Option<&mut RegisteredServer> {
        self.groups.get_mut(self.group_of.get(id)?)?.get_mut(id)
    }

    fn take(&mut self, id: &RegistryName) -> Option<RegisteredServer> {
        let key = self.group_of.remove(id)?;
        let group = self.groups.get_mut(&key)?;
        let entry = group.remove(id);
        if group.is_empty() {
            self.groups.remove(&key);
        }
        entry
    }

    /// Removes the servers that have been dead for long, the reservations of removed ones that have ended, and the
    /// last numbers of old runs.
    pub(super) fn forget_dead(&mut self, now: UnixMillis) {
        let is_gone = |entry: &RegisteredServer| age(entry.last_heartbeat, now) >= FORGOTTEN_AFTER;
        let all = self.groups.values().flatten();
        let gone: Vec<_> = all.filter(|(_, entry)| is_gone(entry)).map(|(id, _)| id.clone()).collect();
        gone.iter().for_each(|id| _ = self.keep_reservations(id, now));
        self.kept.expire(now);
        self.order.expire(now);
    }

    /// Returns all servers in the order of their ids.
    pub(super) fn servers(&mut self, now: UnixMillis) -> Vec<ServerStatus> {
        let all = self.groups.values_mut().flat_map(BTreeMap::values_mut);
        let mut servers: Vec<_> = all.map(|entry| entry.status(now)).collect();
        servers.sort_unstable_by(|one, other| one.registration.id.cmp(&other.registration.id));
        servers
    }

    /// Reserves a slot on each of the servers that it returns, the best first.
    ///
    /// # Errors
    /// [`RegistryError::NoFreeSlots`] if no server of the group has room, [`RegistryError::NoServers`] if it has none.
    pub(super) fn reserve(
        &mut self,
        request: &SlotRequest,
        now: UnixMillis,
        chance: u64,
    ) -> Result<Vec<ReservedServer>, RegistryError> {
        let key = (request.protocol_id, request.group.clone());
        let group = self.groups.get_mut(&key).ok_or(RegistryError::NoServers)?;
        group.values_mut().for_each(|entry| entry.reservations.expire(now));
        let candidates = group.values().map(|entry| RankedServer {
            server: &entry.registration,
            available: entry.available(request.client_id, now),
            chance: mix(entry.chance ^ chance),
        });
        let chosen = choose(&candidates, request, request.server_count.max(1));
        let reserved: Vec<_> = chosen.iter().map(|candidate| reserved(candidate.server)).collect();
        if reserved.is_empty() {
            return Err(RegistryError::NoFreeSlots);
        }
        let ends = now.0.saturating_add(millis(request.lifetime));
        for server in &reserved {
            if let Some(entry) = group.get_mut(&server.id) {
                entry.reservations.add(request.client_id, now.0, ends);
            }
        }
        Ok(reserved)
    }
}

#[cfg(feature = "registry-file")]
impl RegistryTable {
    /// Returns the reservation of a client on a server.
    pub(super) fn reservation(&self, id: &RegistryName, client_id: ClientId) -> Option<Reservation> {
        let group = self.groups.get(self.group_of.get(id)?)?;
        group.get(id)?.reservations.get(client_id)
    }

    /// Returns the last number of a run, and when it was recorded.
    pub(super) fn last_of(&self, id: &RegistryName, instance: &RegistryName) -> Option<(u64, UnixMillis)> {
        self.order.last(id, instance)
    }

    /// Adds the last number of a run that was recorded before a restart of the issuer.
    pub(super) fn restore_last(
        &mut self,
        id: &RegistryName,
        instance: &RegistryName,
        (sequence, at): (u64, UnixMillis),
    ) {
        self.order.record(id, instance, sequence, at);
    }

    /// Adds the reservations of an earlier run. Those of a server that is not registered are kept until they end.
    pub(super) fn restore(&mut self, id: RegistryName, reservations: Reservations, now: UnixMillis) {
        match self.find(&id) {
            Some(server) => server.reservations = reservations,
            None => self.kept.keep(id, reservations, now),
        }
    }
}

fn reserved(server: &Registration) -> ReservedServer {
    ReservedServer { id: server.id.clone(), addresses: server.addresses.clone() }
}

/// Returns a number for this id and this request that looks random.
#[cfg(feature = "redis")]
pub(super) fn chance_of(id: &RegistryName, request: u64) -> u64 {
    mix(hash(id) ^ request)
}

/// Hashes an id (FNV-1a).
fn hash(id: &RegistryName) -> u64 {
    id.as_str().bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Mixes the bits of a number (the finalizer of SplitMix64).
fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests;
