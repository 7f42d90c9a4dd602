//! The places of open connections. A supervisor restarts a game whose health it cannot read, so an attacker that opens
//! connections must not keep a probe waiting.
//!
//! When all places are taken, a new connection replaces one that has not sent an allowed request: the oldest one of
//! the address with the most of these.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::state::lock;

/// The maximum number of open connections.
pub(super) const MAX_CONNECTIONS: usize = 32;

/// The other end of a connection, which each of its requests carries.
#[derive(Clone, Debug)]
pub(super) struct AdminPeer {
    id: u64,
    address: SocketAddr,
    is_allowed: Arc<AtomicBool>,
}

impl AdminPeer {
    pub(super) fn new(id: u64, address: SocketAddr) -> Self {
        Self { id, address, is_allowed: Arc::default() }
    }

    pub(super) const fn id(&self) -> u64 {
        self.id
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Records that its request has passed all checks, so that no other connection replaces it.
    pub(super) fn allow(&self) {
        self.is_allowed.store(true, Ordering::Relaxed);
    }

    fn is_allowed(&self) -> bool {
        self.is_allowed.load(Ordering::Relaxed)
    }
}

/// An open connection. Its end is a task, which can be aborted once it runs.
struct OpenConnection {
    peer: AdminPeer,
    task: Option<AbortHandle>,
}

#[derive(Default)]
struct PlaceTable {
    next_id: u64,
    /// In the order of their begin.
    open: Vec<OpenConnection>,
}

/// All places.
#[derive(Default)]
pub(super) struct Places {
    table: Mutex<PlaceTable>,
    released: Notify,
}

impl Places {
    /// Takes a place, and aborts another connection if none is free. It waits if all have sent an allowed request.
    pub(super) async fn take(&self, address: SocketAddr) -> AdminPeer {
        loop {
            let released = self.released.notified();
            if let Some(peer) = self.try_take(address) {
                return peer;
            }
            released.await;
        }
    }

    fn try_take(&self, address: SocketAddr) -> Option<AdminPeer> {
        let mut table = lock(&self.table);
        if table.open.len() >= MAX_CONNECTIONS {
            let replaced = replaceable(&table.open)?;
            let place = table.open.remove(replaced);
            place.task.inspect(AbortHandle::abort);
        }
        table.next_id += 1;
        let peer = AdminPeer::new(table.next_id, address);
        table.open.push(OpenConnection { peer: peer.clone(), task: None });
        Some(peer)
    }

    /// Records the task of a connection that has a place.
    pub(super) fn occupy(&self, id: u64, task: AbortHandle) {
        let mut table = lock(&self.table);
        if let Some(place) = table.open.iter_mut().find(|place| place.peer.id == id) {
            place.task = Some(task);
        }
    }

    /// Returns the place of a connection that has ended.
    pub(super) fn release(&self, id: u64) {
        lock(&self.table).open.retain(|place| place.peer.id != id);
        self.released.notify_waiters();
    }

    /// Waits until no connection is open.
    pub(super) async fn until_empty(&self) {
        loop {
            let released = self.released.notified();
            if lock(&self.table).open.is_empty() {
                return;
            }
            released.await;
        }
    }
}

/// Returns the index of the connection that a new one replaces.
fn replaceable(open: &[OpenConnection]) -> Option<usize> {
    let strangers = || open.iter().enumerate().filter(|(_, place)| !place.peer.is_allowed());
    let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
    strangers().for_each(|(_, place)| *counts.entry(place.peer.address.ip()).or_default() += 1);
    let most = *counts.values().max()?;
    strangers().find(|(_, place)| counts.get(&place.peer.address.ip()) == Some(&most)).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(host: u8) -> SocketAddr {
        ([192, 0, 2, host], 1000).into()
    }

    #[test]
    fn oldest_stranger_of_the_busiest_address_is_replaced() {
        let places = Places::default();
        let prober = places.try_take(address(1)).unwrap();
        let allowed = places.try_take(address(2)).unwrap();
        allowed.allow();
        let strangers: Vec<_> = (2..MAX_CONNECTIONS).map(|_| places.try_take(address(2)).unwrap()).collect();
        let ids = || lock(&places.table).open.iter().map(|place| place.peer.id).collect::<Vec<_>>();
        let newest = places.try_take(address(3)).unwrap();
        assert!(!ids().contains(&strangers[0].id) && ids().contains(&prober.id) && ids().contains(&newest.id));
        assert!(ids().contains(&allowed.id), "a request in progress is not replaced");
        assert_eq!(ids().len(), MAX_CONNECTIONS);
    }

    #[test]
    fn places_of_allowed_requests_are_waited_for() {
        let places = Places::default();
        let peers: Vec<_> = (0..MAX_CONNECTIONS).map(|_| places.try_take(address(1)).unwrap()).collect();
        peers.iter().for_each(AdminPeer::allow);
        assert!(places.try_take(address(2)).is_none());
        places.release(peers[7].id);
        assert!(places.try_take(address(2)).is_some());
    }
}
