//! The parts of the demo that run: issuer, server, line, clients and flood; and what a person can do to them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slipgate_cli::Failure;
use slipgate_netcode::crypto::key::Key;
use slipgate_sim::proxy::ClientPaths;
use slipgate_token_issuer::api_key::ApiKey;
use slipgate_token_issuer::http::RunningService;

use super::clients::{AfterEnd, Clients, JoinSettings, ServerState};
use super::flags::DemoFlags;
use super::flood::{Flood, FloodCount};
use super::game::GameSettings;
use super::impaired_path::ImpairedPath;
use super::issuer::{PROTOCOL_ID, start_issuer};
use super::line::Line;
use super::server::{BoundServer, GameServer, ServerReport, ServerSettings};
use super::server_game::ServerSideReport;
use super::snapshot::DemoSnapshot;
use crate::keygen::entropy;

/// How long a restart tries to open the server's port again.
const BIND_TIMEOUT: Duration = Duration::from_secs(2);

/// Whether a person at a terminal controls the demo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DemoControl {
    Keys,
    Unattended,
}

/// All running parts.
pub(super) struct DemoStage {
    issuer: RunningService,
    pub(super) server_address: SocketAddr,
    path: Option<ImpairedPath>,
    line: Line,
    server: GameServer,
    server_settings: ServerSettings,
    pub(super) clients: Clients,
    flood: Option<Flood>,
    restart: Option<Restart>,
    restarts: u32,
    /// Wrong messages that stopped servers received.
    wrong_before: u64,
}

/// A restart after which players are still away.
struct Restart {
    began_at: Instant,
    /// The time without a server.
    outage: Duration,
}

/// A restart after which all players are back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Restarted {
    /// The number of the restart, counted from 1.
    pub(super) number: u32,
    /// The time without a server.
    pub(super) outage: Duration,
    /// The time from the key to the slot of the last player.
    pub(super) all_back: Duration,
}

impl DemoStage {
    pub(super) fn start(flags: &DemoFlags, control: DemoControl) -> Result<Self, Failure> {
        let (private_key, api_key) = (Key::random(&mut entropy()?), ApiKey::random(&mut entropy()?));
        let game = GameSettings::new(flags.rate(), flags.map)?;
        let bound = BoundServer::bind(flags.server)?;
        let (server_address, line) = (bound.address(), Line(flags.preset));
        // The line can be changed only if there is a proxy. Without one, nothing is between clients and server.
        let needs_path = control == DemoControl::Keys || flags.preset.is_some();
        let start = || ImpairedPath::start(line.conditions(), server_address, flags.clients, ClientPaths::Independent);
        let path = needs_path.then(start).transpose()?;
        // Clients connect to the address that their tokens list: the proxy's, if there is one.
        let advertised = path.as_ref().map_or(server_address, ImpairedPath::address);
        let server_settings = ServerSettings {
            advertised,
            slots: flags.clients,
            keys: private_key.clone().into(),
            protocol_id: PROTOCOL_ID,
            game: game.clone(),
        };
        let server = GameServer::start(bound, &server_settings)?;
        let issuer = start_issuer(flags.issuer, private_key.into(), advertised, &api_key)?;
        let after_end = if control == DemoControl::Keys { AfterEnd::Rejoin } else { AfterEnd::Fail };
        let url = format!("http://{}", issuer.address());
        let (api_key, fetching) = (Arc::new(api_key), Arc::default());
        let join = JoinSettings { issuer: url, api_key, server: advertised, after_end, fetching };
        let clients = Clients::start(flags.clients, &game, &join)?;
        let (flood, restart, restarts, wrong_before) = (None, None, 0, 0);
        Ok(Self {
            issuer,
            server_address,
            path,
            line,
            server,
            server_settings,
            clients,
            flood,
            restart,
            restarts,
            wrong_before,
        })
    }

    pub(super) fn issuer_address(&self) -> SocketAddr {
        self.issuer.address()
    }

    /// Returns the address that the tokens list.
    pub(super) const fn advertised(&self) -> SocketAddr {
        self.server_settings.advertised
    }

    pub(super) const fn line(&self) -> Line {
        self.line
    }

    pub(super) fn snapshot(&self) -> DemoSnapshot {
        DemoSnapshot::new(self.clients.reports(), self.server_report(), &self.server_settings.game)
    }

    pub(super) fn server_report(&self) -> ServerReport {
        let report = self.server.report();
        ServerReport { past_wrong: report.past_wrong + self.wrong_before, ..report }
    }

    /// Returns whether the server's thread has ended by itself, which `end` reports.
    pub(super) fn has_failed(&self) -> bool {
        self.server.has_failed()
    }

    pub(super) fn set_line(&mut self, line: Line) {
        if let Some(path) = &self.path {
            path.set_conditions(line.conditions());
            self.line = line;
        }
    }

    pub(super) fn kick_one(&self) {
        self.server.kick_one();
    }

    /// Starts the flood, or stops it.
    pub(super) fn toggle_flood(&mut self) -> Result<(), Failure> {
        self.flood = match self.flood.take() {
            Some(_) => None,
            None => Some(Flood::start(self.server_address)?),
        };
        Ok(())
    }

    /// Returns the number of junk datagrams that the running flood has sent; `None` if there is none.
    pub(super) fn flood_count(&self) -> Option<FloodCount> {
        self.flood.as_ref().map(Flood::count)
    }

    /// Stops the server and starts another one on the same port. Its clients get new tokens and connect again.
    pub(super) fn restart(&mut self) -> Result<(), Failure> {
        let began_at = Instant::now();
        self.clients.set_server_state(ServerState::Down);
        let report = self.server.stop()?;
        self.wrong_before += report.past_wrong + report.clients.iter().map(ServerSideReport::wrong).sum::<u64>();
        let bound = self.bind_again(began_at)?;
        self.server = GameServer::start(bound, &self.server_settings)?;
        self.clients.set_server_state(ServerState::Up);
        self.restarts += 1;
        self.restart = Some(Restart { began_at, outage: began_at.elapsed() });
        Ok(())
    }

    fn bind_again(&self, began_at: Instant) -> Result<BoundServer, Failure> {
        loop {
            match BoundServer::bind(self.server_address) {
                Err(_) if began_at.elapsed() < BIND_TIMEOUT => std::thread::sleep(Duration::from_millis(10)),
                result => return result,
            }
        }
    }

    /// Returns the last restart, once, when all players are back.
    pub(super) fn take_restarted(&mut self) -> Option<Restarted> {
        let restart = self.restart.as_ref()?;
        let connected = |at: Option<Instant>| at.filter(|at| *at > restart.began_at);
        let reports = self.clients.reports();
        let back: Option<Vec<Instant>> = reports
            .iter()
            .map(|client| connected(client.player.connected_at).filter(|_| client.player.state.is_connected()))
            .collect();
        let last = back?.into_iter().max()?;
        let all_back = last.duration_since(restart.began_at);
        let restarted = Restarted { number: self.restarts, outage: restart.outage, all_back };
        self.restart = None;
        Some(restarted)
    }

    /// Stops everything that still runs.
    pub(super) fn end(mut self) -> Result<(), Failure> {
        drop((self.flood, self.issuer));
        self.path.map_or(Ok(()), ImpairedPath::stop)?;
        self.server.stop().map(drop)
    }
}
