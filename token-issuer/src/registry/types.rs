//! What servers report, what requests ask for, and the limits of both.

use core::net::SocketAddr;
use std::time::Duration;

use slipgate_netcode::ids::ClientId;

use super::name::RegistryName;

/// The interval between two heartbeats of a server.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// The number of heartbeats that a server may miss before it counts as dead.
pub const MISSED_HEARTBEATS: u32 = 3;
/// The age of the last heartbeat from which on a server counts as dead.
pub const DEAD_AFTER: Duration = Duration::from_secs(HEARTBEAT_INTERVAL.as_secs() * MISSED_HEARTBEATS as u64);
/// How long a dead server stays in the list.
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// The time that a reservation outlives its token: 5 s in which a pending client may finish its handshake, and 3 s in
/// which the server's heartbeat reports it.
pub const RESERVATION_GRACE: Duration = Duration::from_secs(8);
/// How long before a server's start a token was minted at least, if its reservation ends with the restart. The margin
/// is for the difference of the clocks of issuer and server, and for the time that a heartbeat takes.
pub const RESTART_MARGIN: Duration = Duration::from_secs(2);
/// How long the number of a run's last heartbeat or removal is remembered.
pub(super) const RUN_FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// The maximum number of runs of which it is remembered: those of all servers, and as many that have ended.
pub(super) const MAX_REMEMBERED_RUNS: usize = 2 * MAX_REGISTERED_SERVERS;
/// The maximum number of registered servers.
pub const MAX_REGISTERED_SERVERS: usize = 10_000;
/// The maximum number of addresses of one server: one for each address family, and two to spare.
pub const MAX_ADDRESSES_PER_SERVER: usize = 4;
/// The maximum number of servers in a token for a group.
pub const MAX_SERVERS_PER_GROUP_TOKEN: usize = 4;
/// The maximum number of regions in the preference of a request.
pub const MAX_REGIONS: usize = 8;
/// The maximum number of client ids in one heartbeat.
pub const MAX_ADMITTED_PER_HEARTBEAT: usize = 128;
/// The maximum number of slots of a server, as of the dedicated server.
pub const MAX_SLOTS: u32 = 65_536;

/// What a dedicated server reports with each heartbeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registration {
    /// The server's own id, unique in the registry.
    pub id: RegistryName,
    /// The protocol id of its game.
    pub protocol_id: u64,
    /// The addresses to which clients send, in the order in which they try them: 1 to 4.
    pub addresses: Vec<SocketAddr>,
    /// The group from which a token may pick it.
    pub group: RegistryName,
    /// Where it runs.
    pub region: Option<RegistryName>,
    /// The maximum number of clients.
    pub slots: u32,
    /// The number of slots without a client.
    pub free_slots: u32,
    /// Whether it admits no new clients.
    pub is_draining: bool,
    /// The version of its program, for people.
    pub build: Option<String>,
}

/// A registration, and the clients that need their reservations no longer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heartbeat {
    /// What the server reports of itself.
    pub registration: Registration,
    /// The clients that got a slot since the last heartbeat. `free_slots` no longer counts these slots.
    pub admitted: Vec<ClientId>,
    /// How long the server has been running, if it refuses tokens from before its start. The first heartbeat of a
    /// restarted server then ends the reservations of those tokens. `None` keeps them until they end.
    pub running: Option<Duration>,
    /// The run of the server that sends it.
    pub instance: Option<ServerInstance>,
}

/// A run of a server, and the place of a heartbeat or removal in the order of that run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerInstance {
    /// Distinguishes this run of the server from another server with its id, and from its own restart.
    pub name: RegistryName,
    /// Higher than that of each earlier heartbeat of the run. `None` says nothing about the order; the removal of a
    /// run without it is the last.
    pub sequence: Option<u64>,
}

/// A request for slots on servers of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotRequest {
    /// The protocol id of the game.
    pub protocol_id: u64,
    /// The group of servers.
    pub group: RegistryName,
    /// Regions in order of preference.
    pub regions: Vec<RegistryName>,
    /// Whether servers of other regions are left out.
    pub only_regions: bool,
    /// The maximum number of servers, at least 1.
    pub server_count: usize,
    /// The client for which the slots are.
    pub client_id: ClientId,
    /// How long the reservation lasts.
    pub lifetime: Duration,
}

impl SlotRequest {
    /// Returns the place of a server in the preference of regions. `None` leaves the server out.
    pub(super) fn region_rank(&self, server: &Registration) -> Option<usize> {
        let named = self.regions.iter().position(|region| server.region.as_ref() == Some(region));
        named.or_else(|| (!self.only_regions).then_some(self.regions.len()))
    }
}

/// A server on which a slot was reserved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReservedServer {
    /// The server's id.
    pub id: RegistryName,
    /// The addresses to which clients send.
    pub addresses: Vec<SocketAddr>,
}
