//! A fleet of real programs on loopback: issuers that share a registry, servers that register, a backend, and players.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]

mod backend;
mod player;
mod store;

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use slipgate_token_issuer::api_key::ApiKey;

pub(crate) use self::backend::{Backend, TokenFetcher};
pub(crate) use self::player::Player;
#[cfg(target_os = "linux")]
pub(crate) use self::player::traffic;
pub(crate) use self::store::Store;
use crate::{issuer, server};

/// The longest time until a program must have done something.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60);
/// The time-out in the tokens of players, which is the default. The issuer notices the loss of a server earlier.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);
/// The group of all servers.
pub(crate) const GROUP: &str = "ranked";

/// The folders, the keys and the addresses of a fleet. Programs that are started again have the same ones.
pub(crate) struct FleetWorld {
    issuer_folder: issuer::program::TestFolder,
    server_folder: server::program::TestFolder,
    issuers: Vec<SocketAddr>,
    servers: Vec<SocketAddr>,
    lobby: String,
    registration: String,
}

impl FleetWorld {
    /// Creates a fleet without running programs. Its issuers keep the servers in `registry`.
    pub(crate) fn new(issuers: usize, servers: usize, registry: &str) -> Self {
        let (issuer_folder, server_folder) = (issuer::program::TestFolder::new(), server::program::TestFolder::new());
        let keys = [(); 2].map(|()| ApiKey::random(&mut slipgate_token_issuer::system_entropy().unwrap()));
        let digests =
            [0, 1].map(|index: usize| keys[index].digest(&mut slipgate_token_issuer::system_entropy().unwrap()));
        let issuers = free_ports(issuers, |address| TcpListener::bind(address).unwrap());
        for (index, address) in issuers.iter().enumerate() {
            let text = format!(
                "bind = \"{address}\"\nprotocol_id = 0x1234\nkey_file = \"keys\"\nregistry = \"{registry}\"\n\
                 [[api_keys]]\nid = \"lobby\"\ndigests = [\"{}\"]\npermissions = [\"mint\", \"observe\"]\n\
                 [[api_keys]]\nid = \"server\"\ndigests = [\"{}\"]\npermissions = [\"register\", \"mint\"]\n\
                 groups = [\"{GROUP}\"]\n",
                digests[0], digests[1],
            );
            issuer_folder.write(&format!("issuer-{index}.toml"), &text, 0o600);
        }
        let [lobby, registration] = keys;
        let registration = format!("server.{}", registration.expose());
        server_folder.write("registration.key", &registration, 0o600);
        let servers = free_ports(servers, |address| UdpSocket::bind(address).unwrap());
        let lobby = format!("lobby.{}", lobby.expose());
        Self { issuer_folder, server_folder, issuers, servers, lobby, registration }
    }

    pub(crate) fn start_issuer(&self, index: usize) -> issuer::program::Program {
        let config = self.issuer_folder.path.join(format!("issuer-{index}.toml"));
        issuer::program::Program::start(self.issuer_folder.bare(&["--config", config.to_str().unwrap()]))
    }

    /// Starts the server with this index, which echoes messages and redirects its clients at a drain.
    pub(crate) fn start_server(&self, index: usize, flags: &[&str]) -> server::program::Program {
        let (bind, id) = (self.servers[index].to_string(), server_id(index));
        let history = format!("history-{index}");
        let mut own = vec!["--app", "echo-messages", "--redirect", "--group", GROUP, "--server-id", &id];
        own.extend(["--issuer-key-file", "registration.key", "--history", &history]);
        let issuers: Vec<_> = self.issuers.iter().map(|address| format!("http://{address}")).collect();
        own.extend(issuers.iter().flat_map(|url| ["--issuer", url]));
        own.extend(flags);
        let mut command = self.server_folder.on(&[&bind], &own);
        command.env("RUST_LOG", "trace").env("SLIPGATE_SERVER_DRAIN", "30s");
        server::program::Program::start(command)
    }

    pub(crate) fn server_address(&self, index: usize) -> SocketAddr {
        self.servers[index]
    }

    /// Returns how the server with this index registers, for a server in the test's own process.
    #[cfg(target_os = "linux")]
    pub(crate) fn registration(&self, index: usize) -> slipgate_fleet::RegistrationConfig {
        slipgate_fleet::RegistrationConfig {
            issuers: self.issuers.iter().map(|address| format!("http://{address}")).collect(),
            authorities: None,
            key: slipgate_fleet::RegistrationKey::read(self.server_folder.path("registration.key")).unwrap(),
            server_id: server_id(index),
            group: GROUP.to_owned(),
            region: None,
            build: None,
            protocol_id: server::program::PROTOCOL_ID,
            addresses: vec![self.servers[index]],
            accepts_earlier_tokens: false,
            redirects: true,
            redirects_in_region: false,
        }
    }

    /// Returns the private keys of all servers.
    #[cfg(target_os = "linux")]
    pub(crate) fn keys(&self) -> slipgate_server::keys::KeyRing {
        slipgate_server::keys::read_key_file(self.server_folder.path("keys")).unwrap()
    }

    /// Checks that the log of a server does not show its API key.
    pub(crate) fn assert_no_key(&self, log: &str) {
        assert!(!log.contains(&self.registration[20..40]), "{log}");
    }

    pub(crate) fn backend(&self) -> Backend {
        Backend::new(&self.issuers, &self.lobby)
    }
}

/// Returns the id of the server with this index.
pub(crate) fn server_id(index: usize) -> String {
    format!("s{index}")
}

/// Returns addresses with different free ports.
fn free_ports<S>(count: usize, bind: impl Fn(SocketAddr) -> S) -> Vec<SocketAddr>
where
    S: LocalAddress,
{
    // All of them are open at once, so that none is chosen twice.
    let sockets: Vec<_> = (0..count).map(|_| bind((Ipv4Addr::LOCALHOST, 0).into())).collect();
    sockets.iter().map(LocalAddress::local_address).collect()
}

trait LocalAddress {
    fn local_address(&self) -> SocketAddr;
}

impl LocalAddress for TcpListener {
    fn local_address(&self) -> SocketAddr {
        self.local_addr().unwrap()
    }
}

impl LocalAddress for UdpSocket {
    fn local_address(&self) -> SocketAddr {
        self.local_addr().unwrap()
    }
}

/// Repeats a check until it holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < MAX_WAIT, "not {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
