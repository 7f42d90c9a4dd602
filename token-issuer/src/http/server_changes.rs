//! What changes among the game servers from one reading of the registry to the next: one registers, is dead, or was
//! removed, or two advertise one address.

use core::net::SocketAddr;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use crate::registry::{DEAD_AFTER, RegistryName, RegistryState, ServerStatus};

/// What has happened to a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ServerChange {
    /// It is new in the registry, or was dead and is alive again.
    Registered(WatchedServer),
    /// It missed three heartbeats.
    Dead(WatchedServer),
    /// It has left the registry while it was alive.
    Removed(WatchedServer),
    /// It advertises the address of another living server: for so long that the other one is no run of it that ended.
    SharesAddress(WatchedServer, RegistryName, SocketAddr),
}

/// A server as the lines show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct WatchedServer {
    pub(super) id: RegistryName,
    pub(super) group: RegistryName,
    pub(super) addresses: Vec<SocketAddr>,
    is_alive: bool,
}

impl From<&ServerStatus> for WatchedServer {
    fn from(server: &ServerStatus) -> Self {
        let registration = &server.registration;
        Self {
            id: registration.id.clone(),
            group: registration.group.clone(),
            addresses: registration.addresses.clone(),
            is_alive: server.state() != RegistryState::Dead,
        }
    }
}

/// The servers of the last reading. Services with one registry share it, so that each event has one line.
#[derive(Default)]
pub(super) struct ServerWatch(Mutex<WatchedServers>);

impl ServerWatch {
    /// Records a reading. Returns what has changed since the one before.
    pub(super) fn update(&self, servers: &[ServerStatus], now: Instant) -> Vec<ServerChange> {
        // Poisoning is harmless: the next reading replaces the servers.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).update(servers, now)
    }
}

/// The servers of the last reading, and those of them that share an address.
#[derive(Default)]
struct WatchedServers {
    /// `None` before the first reading: its servers have registered earlier.
    known: Option<BTreeMap<RegistryName, WatchedServer>>,
    /// When the second server of an address was seen first. `None` once it has its line.
    shared: BTreeMap<(RegistryName, SocketAddr), Option<Instant>>,
}

impl WatchedServers {
    /// Records a reading. Returns what has changed since the one before.
    fn update(&mut self, servers: &[ServerStatus], now: Instant) -> Vec<ServerChange> {
        let is_first = self.known.is_none();
        let mut earlier = self.known.take().unwrap_or_default();
        let (mut known, mut events, mut is_changed) = (BTreeMap::new(), Vec::new(), false);
        for server in servers.iter().map(WatchedServer::from) {
            let before = earlier.remove(&server.id);
            let (was_alive, is_alive) = (before.as_ref().is_some_and(|before| before.is_alive), server.is_alive);
            match (was_alive, is_alive) {
                (false, true) if !is_first => events.push(ServerChange::Registered(server.clone())),
                (true, false) => events.push(ServerChange::Dead(server.clone())),
                _ => {}
            }
            is_changed |= was_alive != is_alive || before.is_some_and(|before| before.addresses != server.addresses);
            known.insert(server.id.clone(), server);
        }
        let removed: Vec<_> = earlier.into_values().filter(|server| server.is_alive).collect();
        is_changed |= !removed.is_empty();
        events.extend(removed.into_iter().map(ServerChange::Removed));
        // Most readings change nothing, and need no search for equal addresses.
        if is_changed || self.shared.values().any(Option::is_some) {
            self.find_shared(&known, now, &mut events);
        }
        self.known = Some(known);
        events
    }

    /// Finds the living servers that advertise the address of another one. They get a line once the other one would be
    /// dead if it had ended: a restarted server may have another id than before.
    fn find_shared(
        &mut self,
        known: &BTreeMap<RegistryName, WatchedServer>,
        now: Instant,
        events: &mut Vec<ServerChange>,
    ) {
        let earlier = std::mem::take(&mut self.shared);
        let mut owners = BTreeMap::new();
        for server in known.values().filter(|server| server.is_alive) {
            for address in &server.addresses {
                let owner: &RegistryName = owners.entry(*address).or_insert(&server.id);
                if *owner == server.id {
                    continue;
                }
                let key = (server.id.clone(), *address);
                let mut since = earlier.get(&key).copied().unwrap_or(Some(now));
                if since.is_some_and(|since| now.duration_since(since) >= DEAD_AFTER) {
                    events.push(ServerChange::SharesAddress(server.clone(), owner.clone(), *address));
                    since = None;
                }
                self.shared.insert(key, since);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::registry::Registration;

    /// Returns a server with this port and the age of its last heartbeat in milliseconds.
    fn server(id: &str, port: u16, heartbeat_age: u64) -> ServerStatus {
        let registration = Registration {
            id: id.parse().unwrap(),
            protocol_id: 7,
            addresses: vec![([192, 0, 2, 1], port).into()],
            group: "g".parse().unwrap(),
            region: None,
            slots: 4,
            free_slots: 4,
            is_draining: false,
            build: None,
        };
        ServerStatus { registration, reserved_slots: 0, heartbeat_age: Duration::from_millis(heartbeat_age) }
    }

    fn lines(events: &[ServerChange]) -> Vec<String> {
        let line = |event: &ServerChange| match event {
            ServerChange::Registered(server) => format!("{} registered", server.id),
            ServerChange::Dead(server) => format!("{} dead", server.id),
            ServerChange::Removed(server) => format!("{} removed", server.id),
            ServerChange::SharesAddress(server, other, address) => format!("{} {other} {address}", server.id),
        };
        events.iter().map(line).collect()
    }

    #[test]
    fn each_change_of_a_server_has_one_event() {
        let (mut watched, now) = (WatchedServers::default(), Instant::now());
        let mut read = |servers: &[ServerStatus]| lines(&watched.update(servers, now));
        let none: [&str; 0] = [];
        assert_eq!(read(&[server("a", 1, 0)]), none, "it has registered before the issuer started");
        assert_eq!(read(&[server("a", 1, 900), server("b", 2, 0)]), ["b registered"]);
        assert_eq!(read(&[server("a", 1, 2999), server("b", 2, 900)]), none);
        assert_eq!(read(&[server("a", 1, 3000), server("b", 2, 900)]), ["a dead"]);
        assert_eq!(read(&[server("a", 1, 4000), server("b", 2, 900)]), none);
        assert_eq!(read(&[server("a", 1, 0)]), ["a registered", "b removed"]);
        assert_eq!(read(&[server("a", 1, 3000)]), ["a dead"]);
        assert_eq!(read(&[]), none, "a dead server leaves the list");
        assert_eq!(read(&[server("c", 1, 3000)]), none, "it was dead when it was seen first");
    }

    #[test]
    fn servers_with_one_address_have_one_event_if_both_live_on() {
        let (mut watched, start) = (WatchedServers::default(), Instant::now());
        let mut read = |second: u64, servers: &[ServerStatus]| {
            let events = watched.update(servers, start + Duration::from_secs(second));
            lines(&events).into_iter().filter(|line| line.contains("192.0.2.1")).collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        let both = [server("a", 1, 0), server("b", 1, 0), server("c", 2, 0)];
        assert_eq!(read(0, &both), none);
        assert_eq!(read(2, &both), none, "one of them may have ended");
        assert_eq!(read(3, &both), ["b a 192.0.2.1:1"]);
        assert_eq!(read(9, &both), none, "once");
        // A restart with another id: the earlier run is dead in time.
        assert_eq!(read(10, &[server("a", 1, 0), server("b", 2, 0)]), none);
        assert_eq!(read(11, &[server("a", 1, 1000), server("d", 1, 0)]), none);
        assert_eq!(read(14, &[server("a", 1, 4000), server("d", 1, 0)]), none);
        assert_eq!(read(20, &[server("d", 1, 0), server("e", 1, 0)]), none);
        assert_eq!(read(23, &[server("d", 1, 0), server("e", 1, 0)]), ["e d 192.0.2.1:1"], "a new pair");
    }
}
