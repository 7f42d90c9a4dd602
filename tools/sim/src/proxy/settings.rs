//! The settings of a proxy, and their defaults.

use std::net::SocketAddr;
use std::time::Duration;

use crate::conditions::Conditions;
use crate::nat::Rebinding;
use crate::path::Bounds;

/// The default maximum of clients.
pub const DEFAULT_MAX_CLIENTS: usize = 64;
/// How long an idle client is kept by default. NATs keep a UDP mapping for at least 2 minutes (RFC 4787, REQ-5).
pub const DEFAULT_IDLE: Duration = Duration::from_secs(120);
/// The default bounds for one client in one direction.
pub const DEFAULT_BOUNDS: Bounds = Bounds { datagrams: 4096, bytes: 4 << 20 };

/// Which random outcomes the paths of several clients have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClientPaths {
    /// Each client has random outcomes of its own.
    #[default]
    Independent,
    /// All clients have those of the first one. Clients that connect at the same time have runs of losses at the same
    /// times, so that they can be compared.
    Same,
}

/// The settings of a proxy.
#[derive(Clone, PartialEq, Debug)]
pub struct ProxySettings {
    /// The address for clients; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// The server.
    pub to: SocketAddr,
    /// From clients to the server.
    pub up: Conditions,
    /// From the server to clients.
    pub down: Conditions,
    /// When a client gets another address at the server; `None` for never.
    pub rebinding: Option<Rebinding>,
    /// The seed of all random outcomes. The first client of two proxies with one seed sees the same impairments.
    pub seed: u64,
    /// Whether all clients see the same impairments.
    pub paths: ClientPaths,
    /// The maximum number of clients at once. Datagrams of further clients are dropped and counted.
    pub max_clients: usize,
    /// How long a client is kept that sends nothing.
    pub idle: Duration,
    /// The bounds for one client in one direction.
    pub bounds: Bounds,
}

impl ProxySettings {
    /// Creates the settings of a proxy without impairments, with the default bounds.
    #[must_use]
    pub const fn new(listen: SocketAddr, to: SocketAddr, seed: u64) -> Self {
        Self {
            listen,
            to,
            up: Conditions::perfect(),
            down: Conditions::perfect(),
            rebinding: None,
            seed,
            paths: ClientPaths::Independent,
            max_clients: DEFAULT_MAX_CLIENTS,
            idle: DEFAULT_IDLE,
            bounds: DEFAULT_BOUNDS,
        }
    }
}
