//! The list of servers from which candidates are taken. Scripts check them, so it may be some milliseconds old.

use std::collections::HashMap;

use tokio::time::Instant;

use crate::registry::name::RegistryName;
use crate::registry::placement::{RankedServer, choose};
use crate::registry::status::{RegistryState, ServerStatus};
use crate::registry::store::RegistryError;
use crate::registry::table::chance_of;
use crate::registry::types::{Registration, ReservedServer, SlotRequest};

/// The living servers that admit clients, by game and group. A group that has only other servers is empty.
#[derive(Default)]
pub(super) struct RegistryView {
    groups: HashMap<(u64, RegistryName), Vec<ServerInView>>,
    /// When the request for the list was sent.
    read: Option<Instant>,
}

struct ServerInView {
    registration: Registration,
    available: u32,
    /// Whether it had a free slot without a reservation when the list was read.
    had_room: bool,
}

/// A candidate.
pub(super) struct ListedServer {
    pub(super) id: RegistryName,
    addresses: Vec<core::net::SocketAddr>,
}

impl ListedServer {
    pub(super) fn to_reserved(&self) -> ReservedServer {
        ReservedServer { id: self.id.clone(), addresses: self.addresses.clone() }
    }
}

impl RegistryView {
    /// Replaces the list, unless it is a newer one.
    pub(super) fn replace(&mut self, servers: &[ServerStatus], read: Instant) {
        if self.was_read_since(read) {
            return;
        }
        self.groups.clear();
        for server in servers {
            let key = (server.registration.protocol_id, server.registration.group.clone());
            let group = self.groups.entry(key).or_default();
            if matches!(server.state(), RegistryState::Draining | RegistryState::Dead) {
                continue;
            }
            let available = server.available_slots();
            let (registration, had_room) = (server.registration.clone(), available > 0);
            group.push(ServerInView { registration, available, had_room });
        }
        self.read = Some(read);
    }

    pub(super) fn was_read_since(&self, begin: Instant) -> bool {
        self.read.is_some_and(|read| read >= begin)
    }

    /// Returns why no server takes the request: none had room when the list was read, or the group had none at all.
    pub(super) fn refusal(&self, request: &SlotRequest) -> RegistryError {
        match self.groups.contains_key(&(request.protocol_id, request.group.clone())) {
            true => RegistryError::NoFreeSlots,
            false => RegistryError::NoServers,
        }
    }

    /// Returns whether a server for the request had room when the list was read.
    pub(super) fn had_room(&self, request: &SlotRequest) -> bool {
        let group = self.groups.get(&(request.protocol_id, request.group.clone()));
        group.is_some_and(|group| {
            group.iter().any(|server| server.had_room && request.region_rank(&server.registration).is_some())
        })
    }

    /// Returns the best servers for a request, the best first. Those on which the client holds a slot have room for it.
    pub(super) fn candidates(
        &self,
        request: &SlotRequest,
        held: &[RegistryName],
        chance: u64,
        count: usize,
    ) -> Vec<ListedServer> {
        let Some(group) = self.groups.get(&(request.protocol_id, request.group.clone())) else { return Vec::new() };
        let candidates = group.iter().map(|server| RankedServer {
            server: &server.registration,
            available: server.available.max(u32::from(held.contains(&server.registration.id))),
            chance: chance_of(&server.registration.id, chance),
        });
        let listed = |chosen: RankedServer<'_>| ListedServer {
            id: chosen.server.id.clone(),
            addresses: chosen.server.addresses.clone(),
        };
        choose(&candidates, request, count).into_iter().map(listed).collect()
    }

    /// Records what a script has reserved, and which candidates have no room.
    pub(super) fn record(&mut self, request: &SlotRequest, reserved: &[&ListedServer], full: &[&ListedServer]) {
        let Some(group) = self.groups.get_mut(&(request.protocol_id, request.group.clone())) else { return };
        for server in group {
            let is_in = |list: &[&ListedServer]| list.iter().any(|one| one.id == server.registration.id);
            if is_in(full) {
                server.available = 0;
            } else if is_in(reserved) {
                server.available = server.available.saturating_sub(1);
            }
        }
    }
}
