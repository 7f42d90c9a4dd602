//! The holder of a connect token without our client: an attacker, or a client that does as it likes.
//!
//! It seals any packet under the token's keys and opens what a server sends it; it keeps no rules of its own.

use slipgate_netcode::crypto::key::Key;
use slipgate_netcode::crypto::packet::PacketCipher;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::wire::cursor::Writer;
use slipgate_netcode::wire::packet::{Challenge, Header, KeepAlive, PacketKind, Request};
use slipgate_netcode::wire::{MAX_DATAGRAM_BYTES, REQUEST_BYTES};

/// A packet that a server sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// Which of the kinds.
    pub kind: PacketKind,
    /// Its sequence number.
    pub sequence: u64,
    /// What was sealed.
    pub content: Vec<u8>,
}

/// Whoever holds a connect token's bytes.
pub struct Holder {
    token: ConnectToken,
    cipher: PacketCipher,
    client_to_server: Key,
    server_to_client: Key,
    next_sequence: u64,
}

impl Holder {
    /// The holder of this token.
    #[must_use]
    pub fn of(token: &ConnectToken) -> Self {
        Self {
            cipher: PacketCipher::new(token.facts().protocol_id),
            client_to_server: token.client_to_server_key(),
            server_to_client: token.server_to_client_key(),
            next_sequence: 0,
            token: token.clone(),
        }
    }

    /// The connection request with this token.
    #[must_use]
    pub fn request(&self) -> Vec<u8> {
        let mut datagram = vec![0; REQUEST_BYTES];
        let (nonce, sealed) = (self.token.nonce(), self.token.sealed_private_part());
        let facts = self.token.facts();
        Request { expires: facts.expires, nonce: &nonce, sealed: &sealed }
            .emit(facts.protocol_id, &mut Writer::new(&mut datagram));
        datagram
    }

    /// A packet to the server under the next sequence number.
    pub fn seal(&mut self, kind: PacketKind, content: &[u8]) -> Vec<u8> {
        self.next_sequence += 1;
        self.seal_at(self.next_sequence - 1, kind, content)
    }

    /// A packet to the server under any sequence number.
    ///
    /// # Panics
    /// When the content is too long.
    #[must_use]
    pub fn seal_at(&self, sequence: u64, kind: PacketKind, content: &[u8]) -> Vec<u8> {
        let mut datagram = [0; MAX_DATAGRAM_BYTES];
        let length = self.cipher.seal(&self.client_to_server, kind, sequence, content, &mut datagram);
        datagram[..length.expect("a content of the right size")].to_vec()
    }

    /// The response to a challenge, be it this token's or another's.
    pub fn response(&mut self, challenge: &Challenge) -> Vec<u8> {
        self.seal(PacketKind::Response, &challenge.to_bytes())
    }

    /// A keep-alive to the server.
    pub fn keep_alive(&mut self) -> Vec<u8> {
        self.seal(PacketKind::KeepAlive, &KeepAlive::default().to_bytes())
    }

    /// Opens what a server sent, if it is sealed under this token's key.
    #[must_use]
    pub fn open(&self, datagram: &[u8]) -> Option<Opened> {
        let header = Header::parse(datagram, PacketKind::TO_CLIENT).ok()?;
        let mut datagram = datagram.to_vec();
        let content = self.cipher.open(&self.server_to_client, &header, &mut datagram).ok()?.to_vec();
        Some(Opened { kind: header.kind, sequence: header.sequence, content })
    }

    /// The challenge in what a server sent, if it is one.
    #[must_use]
    pub fn challenge(&self, datagram: &[u8]) -> Option<Challenge> {
        let opened = self.open(datagram)?;
        (opened.kind == PacketKind::Challenge).then(|| Challenge::parse(&opened.content))?
    }
}
