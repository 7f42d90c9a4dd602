//! What must hold, whatever is done to a server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::server::{ClientHandle, Config, Event, Fence, Server};
use slipgate_netcode::timing::{MAX_TIMEOUT, TimeoutPolicy};
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_netcode::wire::packet::{PacketKind, REQUEST_PREFIX};

use super::tokens::{Holder, Opened};

pub(super) struct Laws {
    config: Config,
    /// Who is connected, by the events so far.
    open: BTreeMap<ClientHandle, u64>,
    /// When something authentic of each client was taken last, at the earliest.
    heard: BTreeMap<ClientHandle, Duration>,
    /// Which numbers the server used under which token's key.
    nonces: BTreeSet<(usize, u64)>,
    client_nonces: BTreeSet<(usize, u64)>,
    /// Bytes that were brought in the name of an address, less those of the handshake that were sent to it.
    credit: BTreeMap<Address, i64>,
    clock_went_back: bool,
}

impl Laws {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            config: config.clone(),
            open: BTreeMap::new(),
            heard: BTreeMap::new(),
            nonces: BTreeSet::new(),
            client_nonces: BTreeSet::new(),
            credit: BTreeMap::new(),
            clock_went_back: false,
        }
    }

    pub(super) fn brought(&mut self, from: Address, bytes: usize) {
        *self.credit.entry(from).or_default() += bytes as i64;
    }

    /// A payload comes from a connected client, from its own address.
    pub(super) fn taken(
        &mut self,
        server: &Server,
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
            self.heard.insert(client, time);
        }
    }

    /// No number is used twice under a key, and no handshake sends more than it received.
    pub(super) fn sent(&mut self, server: &Server, to: Address, holder: usize, opened: &Opened, bytes: usize) {
        assert!(self.nonces.insert((holder, opened.sequence)), "{:?} {}: a nonce twice", opened.kind, opened.sequence);
        let is_handshake = matches!(opened.kind, PacketKind::Challenge | PacketKind::Denied);
        assert_eq!(is_handshake, opened.sequence >= 1 << 63, "handshakes have a lane of their own");
        if is_handshake {
            let credit = self.credit.entry(to).or_default();
            *credit -= bytes as i64;
            assert!(*credit >= 0, "a stranger is sent more than came from it");
        }
        if opened.kind == PacketKind::Payload {
            let info = |client| server.client(client).and_then(|info| info.address);
            assert!(server.clients().any(|client| info(client) == Some(to)), "a payload for nobody");
        }
    }

    /// Our client uses no number twice either, with all its sessions.
    pub(super) fn client_sent(&mut self, holders: &[Holder], datagram: &[u8]) {
        if datagram.first() == Some(&REQUEST_PREFIX) {
            return;
        }
        let opened = holders.iter().enumerate().find_map(|(n, holder)| Some((n, holder.open_from_client(datagram)?)));
        let (holder, opened) = opened.expect("every packet is sealed under a token's key");
        assert!(self.client_nonces.insert((holder, opened.sequence)), "the client used a nonce twice");
    }

    /// Events come in pairs, in order; the handle of a new client comes back.
    pub(super) fn happened(&mut self, event: Event, time: Duration) -> Option<ClientHandle> {
        match event {
            Event::Connected { client, client_id } => {
                assert!(!self.open.values().any(|id| *id == client_id), "client {client_id} twice");
                assert!(!self.open.keys().any(|other| other.slot() == client.slot()), "a slot twice");
                self.open.insert(client, client_id);
                self.heard.entry(client).or_insert(time);
                Some(client)
            }
            Event::Disconnected { client, client_id, .. } => {
                assert_eq!(self.open.remove(&client), Some(client_id), "an end without a beginning");
                self.heard.remove(&client);
                None
            }
        }
    }

    pub(super) const fn clock_went_back(&mut self) {
        self.clock_went_back = true;
    }

    /// A new start knows nobody. With a journal, or behind a fence that no clock has moved, it repeats no number.
    pub(super) fn restarted(&mut self, has_journal: bool, fence: Fence) {
        self.open.clear();
        self.heard.clear();
        self.credit.clear();
        if !has_journal && (fence == Fence::Open || self.clock_went_back) {
            self.nonces.clear();
        }
    }

    /// Tables are bounded and agree with each other.
    pub(super) fn check(&self, server: &Server) {
        assert!(server.connected() <= self.config.slots);
        assert_eq!(server.clients().count(), server.connected() as usize);
        assert!(server.pending() <= self.config.pending_clients as usize);
        assert!(server.remembered_tokens() <= self.config.history_tokens);
        for client in server.clients() {
            let info = server.client(client).expect("who is listed is connected");
            assert_eq!(server.find(info.client_id), Some(client));
        }
        let (connects, disconnects) = (server.stats().connects, server.stats().disconnects);
        assert_eq!(connects - disconnects, u64::from(server.connected()));
    }

    /// Who is silent for longer than the longest time-out is gone.
    pub(super) fn check_after_tick(&self, server: &Server, time: Duration) {
        for (client, heard) in &self.heard {
            let is_bound = self.config.timeouts == TimeoutPolicy::Clamped && !is_loopback(server, *client);
            let is_live = server.client(*client).is_some();
            assert!(!is_live || !is_bound || time - *heard <= MAX_TIMEOUT, "silent for {:?}", time - *heard);
        }
    }

    /// When every event was taken, they tell who is connected, and all other handles reach nobody.
    pub(super) fn check_after_all_events(&self, server: &Server, handles: &[ClientHandle]) {
        // Of those whose used tokens are not durable yet no event may tell.
        let connected: Vec<ClientHandle> = server.clients().filter(|client| server.is_announced(*client)).collect();
        let mut open: Vec<ClientHandle> = self.open.keys().copied().collect();
        open.sort_by_key(|client| client.slot());
        assert_eq!(open, connected, "events tell who is connected");
        for handle in handles {
            assert_eq!(server.client(*handle).is_some(), self.open.contains_key(handle), "a stale handle");
        }
    }
}

fn is_loopback(server: &Server, client: ClientHandle) -> bool {
    server.client(client).is_some_and(|info| info.address.is_none())
}
