//! Registrations and reservations in memory. Time and chance are arguments.

use core::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::time::Duration;

use slipgate_netcode::ids::ClientId;
use slipgate_netcode::time::UnixMillis;

use super::name::RegistryName;
use super::placement::{RankedServer, choose};
use super::status::ServerStatus;
use super::store::RegistryError;
use super::types::{
    DEAD_AFTER, FORGOTTEN_AFTER, Heartbeat, MAX_REGISTERED_SERVERS, RESTART_MARGIN, Registration, ReservedServer,
    SlotRequest,
};

/// The servers that one request may pick from.
type GroupKey = (u64, RegistryName);

/// All servers by game and group.
#[derive(Default)]
pub(super) struct RegistryTable {
    groups: BTreeMap<GroupKey, BTreeMap<RegistryName, RegisteredServer>>,
    /// The group of each server.
    group_of: BTreeMap<RegistryName, GroupKey>,
}

/// A server and its reservations.
struct RegisteredServer {
    registration: Registration,
    last_heartbeat: UnixMillis,
    /// When it started, if it refuses tokens from before.
    started: Option<UnixMillis>,
    reservations: Reservations,
    /// A fixed random-looking number, which is mixed with each request's own.
    chance: u64,
}

/// The reservations of one server. A client has one slot on a server at a time, so its tokens share a reservation.
#[derive(Default)]
struct Reservations {
    by_client: HashMap<ClientId, Reservation>,
    /// The ends of all reservations, the earliest first. An end that is not the one of its reservation is void.
    ends: BinaryHeap<Reverse<(u64, ClientId)>>,
}

/// A slot that is reserved for a client.
#[derive(Clone, Copy)]
pub(super) struct Reservation {
    /// When it ends, in milliseconds since 1970.
    pub(super) ends: u64,
    /// When its newest token was requested, in milliseconds since 1970.
    pub(super) made: u64,
    /// The number of tokens that have not admitted the client yet.
    pub(super) tokens: u32,
}

impl Reservations {
    /// Removes what has ended.
    fn expire(&mut self, now: UnixMillis) {
        while let Some(Reverse((ends, client_id))) = self.ends.peek().copied() {
            if ends > now.0 {
                break;
            }
            self.ends.pop();
            if self.by_client.get(&client_id).is_some_and(|reservation| reservation.ends == ends) {
                self.by_client.remove(&client_id);
            }
        }
    }

    fn add(&mut self, client_id: ClientId, made: u64, ends: u64) {
        let reservation = self.by_client.entry(client_id).or_insert(Reservation { ends, made, tokens: 0 });
        reservation.made = reservation.made.max(made);
        reservation.tokens = reservation.tokens.saturating_add(1);
        if reservation.ends <= ends {
            reservation.ends = ends;
            self.ends.push(Reverse((ends, client_id)));
        }
    }

    /// Ends the reservation of a client that got a slot, unless another token of it may still be used.
    fn admit(&mut self, client_id: ClientId) {
        let Some(reservation) = self.by_client.get_mut(&client_id) else { return };
        reservation.tokens = reservation.tokens.saturating_sub(1);
        if reservation.tokens == 0 {
            self.by_client.remove(&client_id);
        }
    }

    /// Ends the reservations that were made up to this time. Returns their clients.
    fn end_made_up_to(&mut self, made: u64) -> Vec<ClientId> {
        self.by_client.extract_if(|_, reservation| reservation.made <= made).map(|(client_id, _)| client_id).collect()
    }

    fn count(&self) -> u32 {
        u32::try_from(self.by_client.len()).unwrap_or(u32::MAX)
    }
}

impl RegisteredServer {
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
        let own = u32::from(self.reservations.by_client.contains_key(&client_id));
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
    /// Records a heartbeat. Returns the clients whose reservations may have ended or changed by it.
    ///
    /// # Errors
    /// [`RegistryError::Full`] if it is a new server beyond the maximum.
    pub(super) fn register(&mut self, heartbeat: Heartbeat, now: UnixMillis) -> Result<Vec<ClientId>, RegistryError> {
        let Heartbeat { registration, admitted, running } = heartbeat;
        let key = (registration.protocol_id, registration.group.clone());
        let id = registration.id.clone();
        let old = match self.group_of.get(&id) {
            // Its reservations stay when it moves to another group.
            Some(old_key) if *old_key != key => self.take(&id),
            Some(_) => None,
            None if self.group_of.len() >= MAX_REGISTERED_SERVERS => return Err(RegistryError::Full),
            None => None,
        };
        self.group_of.insert(id.clone(), key.clone());
        let chance = hash(&id);
        let entry = self.groups.entry(key).or_default().entry(id).or_insert_with(|| {
            let (started, reservations) = old.map(|entry| (entry.started, entry.reservations)).unwrap_or_default();
            RegisteredServer { registration: registration.clone(), last_heartbeat: now, started, reservations, chance }
        });
        entry.registration = registration;
        entry.last_heartbeat = now;
        let mut changed = running.map(|running| entry.on_running(running, now)).unwrap_or_default();
        admitted.iter().for_each(|client_id| entry.reservations.admit(*client_id));
        changed.extend(admitted);
        Ok(changed)
    }

    /// Removes a server. Returns whether it was registered.
    pub(super) fn remove(&mut self, id: &RegistryName) -> bool {
        self.take(id).is_some()
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

    /// Removes the servers that have been dead for long.
    pub(super) fn forget_dead(&mut self, now: UnixMillis) {
        let is_gone = |entry: &RegisteredServer| age(entry.last_heartbeat, now) >= FORGOTTEN_AFTER;
        let all = self.groups.values().flatten();
        let gone: Vec<_> = all.filter(|(_, entry)| is_gone(entry)).map(|(id, _)| id.clone()).collect();
        gone.iter().for_each(|id| _ = self.take(id));
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
    /// [`RegistryError::NoFreeSlots`] if no server of the group has room.
    pub(super) fn reserve(
        &mut self,
        request: &SlotRequest,
        now: UnixMillis,
        chance: u64,
    ) -> Result<Vec<ReservedServer>, RegistryError> {
        let key = (request.protocol_id, request.group.clone());
        let group = self.groups.get_mut(&key).ok_or(RegistryError::NoFreeSlots)?;
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
        group.get(id)?.reservations.by_client.get(&client_id).copied()
    }

    /// Adds a reservation of an earlier run, unless the server is not registered.
    pub(super) fn restore(&mut self, id: &RegistryName, client_id: ClientId, reservation: Reservation) {
        let group = self.group_of.get(id).and_then(|key| self.groups.get_mut(key));
        let Some(server) = group.and_then(|group| group.get_mut(id)) else { return };
        server.reservations.ends.push(Reverse((reservation.ends, client_id)));
        server.reservations.by_client.insert(client_id, reservation);
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
