//! The server and the client of `netcode-official` on real sockets, each with a game that records its events.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use netcode::ServerEvent;
use slipgate_client::ClientState;
use slipgate_session::connection::CloseKind;
use slipgate_tests::live::{
    GameClient, GameServer, IPV4, IPV6, MintedToken, PRIVATE_KEY, PROTOCOL_ID, ServerLog, Turn,
};

/// The peer's server.
pub struct TheirServer {
    server: netcode::Server,
    start: Instant,
    log: ServerLog,
    /// The client of each slot: a disconnect reports only the slot.
    slots: Vec<u64>,
}

impl Turn for TheirServer {
    fn turn(&mut self) {
        self.server.update(self.start.elapsed().as_secs_f64());
        while let Some(event) = self.server.next_event() {
            self.note(event);
        }
        for slot in 0..self.slots.len() {
            while let Some((payload, _)) = self.server.receive_packet(slot) {
                self.log.payloads.push(payload);
            }
        }
    }

    fn describe(&self) -> String {
        let log = &self.log;
        let (connected, ended, payloads) = (log.connected.len(), &log.ended, log.payloads.len());
        format!("their server: {connected} connected, {ended:?} disconnected, {payloads} payloads")
    }
}

impl TheirServer {
    fn note(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::ClientConnected { client_index } => {
                let client_id = self.server.client_id(client_index);
                let user_data = self.server.client_user_data(client_index).expect("the client is connected");
                self.slots[client_index] = client_id;
                self.log.connected.push((client_id, *user_data));
            }
            ServerEvent::ClientDisconnected { client_index, reason } => {
                let reason = match reason {
                    netcode::DisconnectReason::TimedOut => CloseKind::TimedOut,
                    netcode::DisconnectReason::ClientDisconnect => CloseKind::Left,
                    netcode::DisconnectReason::ServerDisconnect => CloseKind::Kicked,
                };
                self.log.ended.push((self.slots[client_index], Some(reason)));
            }
        }
    }

    fn slot(&self, client_id: u64) -> usize {
        let has_it = |slot: &usize| self.server.client_id(*slot) == client_id;
        (0..self.slots.len()).find(has_it).expect("the client is connected")
    }
}

impl GameServer for TheirServer {
    fn start(ip: IpAddr, slots: u32) -> Self {
        let address = SocketAddr::new(ip, 0);
        let mut server =
            netcode::Server::new(address, PROTOCOL_ID, &PRIVATE_KEY, 0.0).expect("the system has a free port");
        server.start(slots as usize).expect("a valid number of slots");
        Self { server, start: Instant::now(), log: ServerLog::default(), slots: vec![0; slots as usize] }
    }

    fn address(&self) -> SocketAddr {
        self.server.address()
    }

    fn log(&self) -> &ServerLog {
        &self.log
    }

    fn connected(&self) -> usize {
        self.server.num_connected_clients()
    }

    fn send(&mut self, client_id: u64, payload: &[u8]) {
        self.server.send_packet(self.slot(client_id), payload).expect("1 to 1200 bytes");
    }

    fn kick(&mut self, client_id: u64) {
        self.server.disconnect_client(self.slot(client_id));
    }
}

/// The peer's client.
pub struct TheirClient {
    client: netcode::Client,
    start: Instant,
    received: Vec<Vec<u8>>,
}

impl Turn for TheirClient {
    fn turn(&mut self) {
        self.client.update(self.start.elapsed().as_secs_f64());
        while let Some((payload, _)) = self.client.receive_packet() {
            self.received.push(payload);
        }
    }

    fn describe(&self) -> String {
        format!("their client: {}, {} payloads", self.client.state(), self.received.len())
    }
}

impl GameClient for TheirClient {
    fn connect(minted: &MintedToken) -> Self {
        let server = minted.token.facts().servers[0];
        let own = SocketAddr::new(if server.is_ipv4() { IPV4 } else { IPV6 }, 0);
        let mut client = netcode::Client::new(own, 0.0).expect("the system has a free port");
        client.connect(minted.token.as_bytes()).expect("the token can be read");
        Self { client, start: Instant::now(), received: Vec::new() }
    }

    fn state(&self) -> ClientState {
        match self.client.state() {
            netcode::ClientState::ConnectTokenExpired => ClientState::TokenExpired,
            netcode::ClientState::InvalidConnectToken => ClientState::InvalidToken,
            netcode::ClientState::ConnectionTimedOut => ClientState::TimedOut,
            netcode::ClientState::ConnectionResponseTimedOut => ClientState::ResponseTimedOut,
            netcode::ClientState::ConnectionRequestTimedOut => ClientState::RequestTimedOut,
            netcode::ClientState::ConnectionDenied => ClientState::Denied,
            netcode::ClientState::Disconnected => ClientState::Disconnected,
            netcode::ClientState::SendingConnectionRequest => ClientState::SendingRequest,
            netcode::ClientState::SendingConnectionResponse => ClientState::SendingResponse,
            netcode::ClientState::Connected => ClientState::Connected,
        }
    }

    fn slot_info(&self) -> Option<(u32, u32)> {
        let is_connected = self.client.state() == netcode::ClientState::Connected;
        is_connected.then(|| (self.client.client_index() as u32, self.client.max_clients() as u32))
    }

    fn received(&self) -> &[Vec<u8>] {
        &self.received
    }

    fn send(&mut self, payload: &[u8]) {
        self.client.send_packet(payload).expect("1 to 1200 bytes");
    }

    fn leave(&mut self) {
        self.client.disconnect();
    }
}
