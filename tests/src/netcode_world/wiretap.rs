//! The wiretap of the simulated world: it knows the keys of all tokens and checks the invariants of every datagram.

use std::collections::{BTreeMap, BTreeSet};

use slipgate_netcode::address::Address;
use slipgate_netcode::crypto::key::Key;
use slipgate_netcode::crypto::packet::PacketCipher;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::wire::packet::{PacketHeader, PacketKind, REQUEST_PREFIX};
use slipgate_netcode::wire::{MAX_ENCRYPTED_BYTES, REQUEST_BYTES};

/// Every kind of encrypted packet.
const ALL: &[PacketKind] = &[
    PacketKind::Denied,
    PacketKind::Challenge,
    PacketKind::Response,
    PacketKind::KeepAlive,
    PacketKind::Payload,
    PacketKind::Disconnect,
];

pub(super) struct Wiretap {
    cipher: PacketCipher,
    /// Two keys for each token: client to server, server to client.
    keys: Vec<Key>,
    /// The key that opened the last packet between two addresses: it most likely opens the next.
    last_key: BTreeMap<(Address, Address), usize>,
    nonces: BTreeSet<(usize, u64)>,
    /// Bytes that a stranger sent to a server, minus the bytes that the server sent to it.
    credit: BTreeMap<(Address, Address), i64>,
    sent: Vec<(Address, Address, Vec<u8>)>,
}

impl Wiretap {
    pub(super) fn new(protocol_id: u64) -> Self {
        Self {
            cipher: PacketCipher::new(protocol_id),
            keys: Vec::new(),
            last_key: BTreeMap::new(),
            nonces: BTreeSet::new(),
            credit: BTreeMap::new(),
            sent: Vec::new(),
        }
    }

    pub(super) fn learn(&mut self, token: &ConnectToken) {
        self.keys.push(token.keys().client_to_server);
        self.keys.push(token.keys().server_to_client);
    }

    pub(super) fn sent(&self) -> &[(Address, Address, Vec<u8>)] {
        &self.sent
    }

    /// Counts a datagram that an attacker sends with a spoofed address as sent by that address.
    pub(super) fn note_injected(&mut self, from: Address, to: Address, bytes: usize) {
        *self.credit.entry((to, from)).or_default() += bytes as i64;
    }

    /// Forgets the strangers of a restarted server.
    pub(super) fn forget_server(&mut self, server: Address) {
        self.credit.retain(|(of, _), _| *of != server);
    }

    /// Checks the invariants of a datagram; `to_stranger` is known for datagrams of a server.
    pub(super) fn note_sent(&mut self, from: Address, to: Address, datagram: &[u8], to_stranger: Option<bool>) {
        let is_request = datagram.first() == Some(&REQUEST_PREFIX);
        let max = if is_request { REQUEST_BYTES } else { MAX_ENCRYPTED_BYTES };
        assert!(datagram.len() <= max, "a datagram of {} bytes", datagram.len());
        match to_stranger {
            None => *self.credit.entry((to, from)).or_default() += datagram.len() as i64,
            Some(false) => {}
            Some(true) => self.check_amplification(from, to, datagram),
        }
        if !is_request {
            self.check_nonce(from, to, datagram);
        }
        self.sent.push((from, to, datagram.to_vec()));
    }

    fn check_amplification(&mut self, from: Address, to: Address, datagram: &[u8]) {
        // The disconnect packet of a connection that has just ended goes to a validated address.
        if datagram.first().is_some_and(|prefix| prefix & 0x0f == PacketKind::Disconnect as u8) {
            return;
        }
        let credit = self.credit.entry((from, to)).or_default();
        *credit -= datagram.len() as i64;
        assert!(*credit >= 0, "{from} sent the stranger {to} more than it received from it");
    }

    fn check_nonce(&mut self, from: Address, to: Address, datagram: &[u8]) {
        let header = PacketHeader::parse(datagram, ALL).expect("our own packets can be parsed");
        let opens = |key: &Key| self.cipher.open(key, &header, &mut datagram.to_vec()).is_ok();
        let last = self.last_key.get(&(from, to)).copied();
        let key = last.filter(|key| opens(&self.keys[*key])).or_else(|| self.keys.iter().rposition(opens));
        let key = key.expect("every packet is sealed under a token's key");
        self.last_key.insert((from, to), key);
        assert!(self.nonces.insert((key, header.sequence)), "nonce {} used twice under one key", header.sequence);
    }
}
