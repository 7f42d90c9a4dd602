//! The running parts: the server, the conditioner, and a client for each pane.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use slipgate_cli::Failure;
use slipgate_client::ConnectToken;
use slipgate_netcode::crypto::key::Key;
use slipgate_server::{Clock, Sockets};
use slipgate_sim::proxy::ClientPaths;
use slipgate_token_issuer::{Issuer, Limits, TokenRequest, wall_clock};

use super::client::{CubeClient, CubeClientSetup};
use super::keyboard::Keyboard;
use super::knobs::Knobs;
use super::pane::{Pane, PaneKind, Panes};
use super::server::{CubeServer, CubeServerSetup};
use super::truth::Truth;
use super::views::view_of;
use crate::demo::failures::cannot_listen;
use crate::demo::impaired_path::ImpairedPath;
use crate::demo::issuer::PROTOCOL_ID;
use crate::keygen::entropy;

/// Everything that runs with one set of worlds.
pub(super) struct CubeStage {
    pub(super) panes: Arc<Panes>,
    server: CubeServer,
    path: ImpairedPath,
    clients: Vec<CubeClient>,
}

impl CubeStage {
    pub(super) fn start(knobs: Knobs, keyboard: &Arc<Keyboard>) -> Result<Self, Failure> {
        let panes: Arc<Panes> = Arc::new(PaneKind::ALL.map(|_| Arc::new(Pane::new())));
        let (key, clock, truth) = (Key::random(&mut entropy()?), Clock::start(), Arc::<Truth>::default());
        let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let sockets = Sockets::bind(&[bind]).map_err(|error| cannot_listen("server", "UDP", bind, &error))?;
        let address = sockets.local_addresses().first().copied().unwrap_or(bind);
        let slots = PaneKind::CLIENTS.len() as u32;
        let conditions = knobs.conditions();
        // With losses of their own, clients with different methods would differ by their luck.
        let path = ImpairedPath::start((conditions, conditions), address, slots, ClientPaths::Same)?;
        let setup = CubeServerSetup {
            advertised: path.address(),
            keys: key.clone().into(),
            protocol_id: PROTOCOL_ID,
            clock,
            knobs,
            truth: Arc::clone(&truth),
            panes: Arc::clone(&panes),
        };
        let server = CubeServer::start(sockets, setup, slots)?;
        let mut stage = Self { panes, server, path, clients: Vec::new() };
        let issuer = Issuer::new(PROTOCOL_ID, key.into(), &[stage.path.address()], Limits::default())
            .map_err(|error| Failure::run_time(error.to_string()))?;
        for kind in PaneKind::CLIENTS {
            let Some(pane) = stage.panes.get(kind as usize).map(Arc::clone) else { continue };
            let (token, truth, name) = (token(&issuer, kind.client_id())?, Arc::clone(&truth), kind.name());
            let setup = CubeClientSetup { name, token, clock, truth, pane };
            stage.clients.push(CubeClient::start(setup, view_of(kind, knobs, keyboard))?);
        }
        Ok(stage)
    }

    /// Changes the path.
    pub(super) fn set_conditions(&self, knobs: Knobs) {
        let conditions = knobs.conditions();
        self.path.set_conditions((conditions, conditions));
        self.panes.iter().for_each(|pane| pane.reset());
    }

    /// Returns whether a part has ended by itself, which [`stop`](Self::stop) reports.
    pub(super) fn has_failed(&self) -> bool {
        self.server.has_failed() || self.clients.iter().any(CubeClient::has_ended)
    }

    /// Stops everything. Returns the first failure.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
        let clients = self.clients.iter_mut().map(CubeClient::stop).collect::<Vec<_>>();
        let (server, path) = (self.server.stop(), self.path.stop());
        clients.into_iter().chain([server, path]).collect()
    }
}

fn token(issuer: &Issuer, client_id: u64) -> Result<ConnectToken, Failure> {
    let minted = issuer.mint(&TokenRequest::new(client_id), wall_clock(), &mut entropy()?);
    minted.map(|minted| minted.token).map_err(|error| Failure::run_time(error.to_string()))
}
