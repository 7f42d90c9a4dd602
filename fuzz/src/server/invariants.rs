//! Invariants of a server under any operations.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::ids::ClientId;
use slipgate_netcode::server::{ClientHandle, NetcodeEvent, NetcodeServer, ServerConfig, TokenCutoff};
use slipgate_netcode::timing::{MAX_TIMEOUT, TimeoutPolicy};
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_netcode::wire::packet::{PacketKind, REQUEST_PREFIX};

use super::tokens::{Opened, RawClient};

/// A server with a longer time between two ticks was asleep (`specs/hardening.md`, H8).
const MAX_AWAKE: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_secs(1);

/// The connection that a token admitted.
struct Admission {
    client: ClientHandle,
    /// The record of the token survives a restart, if there is a journal.
    is_durable: bool,
}

pub(super) struct Invariants {
    config: ServerConfig,
    /// The connected clients according to the events so far.
    open: BTreeMap<ClientHandle, ClientId>,
    /// The earliest possible time of each client's last authentic packet.
    received: BTreeMap<ClientHandle, Duration>,
    /// The sequence numbers that the server used with each token's key.
    nonces: BTreeSet<(usize, u64)>,
    client_nonces: BTreeSet<(usize, u64)>,
    /// The tokens that admitted a client, each with its connection.
    admitted: BTreeMap<usize, Admission>,
    /// Bytes received from each address, minus the handshake bytes sent to it.
    credit: BTreeMap<Address, i64>,
    clock_went_back: bool,
    last_tick: Duration,
    /// Until when no client times out, because the server slept.
    grace_until: Duration,
}

impl Invariants {
    pub(super) fn new(config: &ServerConfig) -> Self {
        Self {
            config: config.clone(),
            open: BTreeMap::new(),
            received: BTreeMap::new(),
            nonces: BTreeSet::new(),
            client_nonces: BTreeSet::new(),
            admitted: BTreeMap::new(),
            credit: BTreeMap::new(),
            clock_went_back: false,
            last_tick: Duration::ZERO,
            grace_until: Duration::ZERO,
        }
    }

    pub(super) fn on_delivered(&mut self, from: Address, bytes: usize) {
        *self.credit.entry(from).or_default() += bytes as i64;
    }

    /// Checks that a payload comes from a connected client and from its address.
    pub(super) fn on_payload(
        &mut self,
        server: &NetcodeServer,
        from: Address,
        payload: Option<(ClientHandle, usize)>,
        time: Duration,
    ) {
        if let Some((client, bytes)) = payload {
            let info = server.client(client).expect("a payload comes from a connected client");
            assert_eq!(info.address, Some(from), "a payload comes from its client's address");
            assert!((1..=MAX_PAYLOAD_BYTES).contains(&bytes) && info.confirmed);
        }
        let at = |client: &ClientHandle| server.client(*client).and_then(|info| info.address) == Some(from);
        if let Some(client) = server.clients().find(at) {
            self.received.insert(client, time);
        }
    }

    /// Checks that a token admits a client once: at any address, after its client has left, timed out or was taken
    /// over, and after restarts that keep the history or refuse earlier tokens.
    pub(super) fn admitted(&mut self, server: &NetcodeServer, token: usize, from: Address) {
        let at = |client: &ClientHandle| server.client(*client).and_then(|info| info.address) == Some(from);
        let client = server.clients().find(at).expect("the admitted client has a slot");
        let before = self.admitted.insert(token, Admission { client, is_durable: false });
        assert!(before.is_none(), "token {token} admitted a second client");
    }

    /// Checks that no number repeats under a key, and that no handshake sends more than it received.
    pub(super) fn sent(
        &mut self,
        server: &NetcodeServer,
        to: Address,
        raw_client: usize,
        opened: &Opened,
        bytes: usize,
    ) {
        assert!(
            self.nonces.insert((raw_client, opened.sequence)),
            "{:?} {}: a nonce twice",
            opened.kind,
            opened.sequence
        );
        let is_handshake = matches!(opened.kind, PacketKind::Challenge | PacketKind::Denied);
        assert_eq!(is_handshake, opened.sequence >= 1 << 63, "handshakes have a lane of their own");
        if is_handshake {
            let credit = self.credit.entry(to).or_default();
            *credit -= bytes as i64;
            assert!(*credit >= 0, "a stranger is sent more than came from it");
        }
        if opened.kind == PacketKind::Payload {
            let info = |client| server.client(client).and_then(|info| info.address);
            assert!(server.clients().any(|client| info(client) == Some(to)), "a payload for no client");
        }
    }

    /// Checks that the client repeats no number in all its sessions.
    pub(super) fn client_sent(&mut self, raw_clients: &[RawClient], datagram: &[u8]) {
        if datagram.first() == Some(&REQUEST_PREFIX) {
            return;
        }
        let opened = raw_clients
            .iter()
            .enumerate()
            .find_map(|(n, raw_client)| Some((n, raw_client.open_from_client(datagram)?)));
        let (raw_client, opened) = opened.expect("every packet is sealed under a token's key");
        assert!(self.client_nonces.insert((raw_client, opened.sequence)), "the client used a nonce twice");
    }

    /// Checks that events come in pairs and in order. Returns the handle of a new client.
    pub(super) fn happened(&mut self, event: NetcodeEvent, time: Duration) -> Option<ClientHandle> {
        match event {
            NetcodeEvent::Connected { client, client_id } => {
                assert!(!self.open.values().any(|id| *id == client_id), "client {client_id} twice");
                assert!(!self.open.keys().any(|other| other.slot() == client.slot()), "a slot twice");
                self.open.insert(client, client_id);
                self.received.entry(client).or_insert(time);
                Some(client)
            }
            NetcodeEvent::Disconnected { client, client_id, .. } => {
                assert_eq!(self.open.remove(&client), Some(client_id), "an end without a beginning");
                self.received.remove(&client);
                None
            }
        }
    }

    pub(super) const fn clock_went_back(&mut self) {
        self.clock_went_back = true;
    }

    /// Forgets all clients at a new start. No number may repeat with a journal, or with a token cutoff and
    /// steady clocks.
    pub(super) fn restarted(&mut self, has_journal: bool, token_cutoff: TokenCutoff) {
        self.open.clear();
        self.received.clear();
        self.credit.clear();
        if !has_journal && (token_cutoff == TokenCutoff::None || self.clock_went_back) {
            self.nonces.clear();
            self.admitted.clear();
        }
        // A token whose record was lost admitted a client that never received its slot.
        self.admitted.retain(|_, admission| !has_journal || admission.is_durable);
    }

    /// Checks that tables are bounded and agree with each other.
    pub(super) fn check(&mut self, server: &NetcodeServer) {
        for admission in self.admitted.values_mut() {
            admission.is_durable |= server.client(admission.client).is_some_and(|client| client.durable);
        }
        assert!(server.connected_count() <= self.config.slots);
        let is_durable = |client: &ClientHandle| server.client(*client).is_some_and(|client| client.durable);
        assert_eq!(server.clients().filter(is_durable).count(), server.connected_count() as usize);
        assert!(server.clients().count() <= self.config.slots as usize);
        assert!(server.table_usage().pending <= self.config.pending_clients as usize);
        assert!(server.table_usage().used_tokens <= self.config.history_tokens);
        for client in server.clients() {
            let info = server.client(client).expect("a listed client is connected");
            assert_eq!(server.find(info.client_id), Some(client));
        }
        let (connects, disconnects) = (server.stats().connects, server.stats().disconnects);
        assert_eq!(connects - disconnects, u64::from(server.connected_count()));
    }

    /// Checks that a client is gone after the longest timeout without a packet, unless the server slept: it
    /// waits a second more for its clients.
    pub(super) fn check_after_tick(&mut self, server: &NetcodeServer, time: Duration) {
        let slept = time - std::mem::replace(&mut self.last_tick, time);
        if slept > MAX_AWAKE {
            self.grace_until = time + GRACE;
        }
        if time <= self.grace_until {
            return;
        }
        for (client, received) in &self.received {
            let is_bound = self.config.timeouts == TimeoutPolicy::Clamped && !is_loopback(server, *client);
            let is_live = server.client(*client).is_some();
            assert!(!is_live || !is_bound || time - *received <= MAX_TIMEOUT, "silent for {:?}", time - *received);
        }
    }

    /// Checks that the events name all connected clients, and that all other handles are stale.
    pub(super) fn check_after_all_events(&self, server: &NetcodeServer, handles: &[ClientHandle]) {
        // A client with a token record that is not durable yet must have no event.
        let is_durable = |client: &ClientHandle| server.client(*client).is_some_and(|client| client.durable);
        let connected: Vec<ClientHandle> = server.clients().filter(is_durable).collect();
        let mut open: Vec<ClientHandle> = self.open.keys().copied().collect();
        open.sort_by_key(|client| client.slot());
        assert_eq!(open, connected, "events report the connected clients");
        for handle in handles {
            assert_eq!(server.client(*handle).is_some(), self.open.contains_key(handle), "a stale handle");
        }
    }
}

fn is_loopback(server: &NetcodeServer, client: ClientHandle) -> bool {
    server.client(client).is_some_and(|info| info.address.is_none())
}
