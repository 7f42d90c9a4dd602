//! A connect token without our client: for an attacker, or for a client that breaks the protocol.
//!
//! It seals any packet under the keys of the token, and opens the packets of the server. It follows no rules of its
//! own.

use slipgate_netcode::crypto::key::Key;
use slipgate_netcode::crypto::packet::PacketCipher;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::wire::cursor::Writer;
use slipgate_netcode::wire::packet::{Challenge, KeepAlive, PacketHeader, PacketKind};
use slipgate_netcode::wire::{MAX_DATAGRAM_BYTES, REQUEST_BYTES};

/// A packet that a server sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Opened {
    /// The kind of the packet.
    pub kind: PacketKind,
    /// Its sequence number.
    pub sequence: u64,
    /// The decrypted content.
    pub content: Vec<u8>,
}

/// A client that holds a connect token and sends any packets it likes.
pub struct RawClient {
    token: ConnectToken,
    cipher: PacketCipher,
    client_to_server: Key,
    server_to_client: Key,
    next_sequence: u64,
}

impl RawClient {
    /// Creates a client for this token.
    #[must_use]
    pub fn new(token: &ConnectToken) -> Self {
        Self {
            cipher: PacketCipher::new(token.facts().protocol_id),
            client_to_server: token.keys().client_to_server,
            server_to_client: token.keys().server_to_client,
            next_sequence: 0,
            token: token.clone(),
        }
    }

    /// Returns the connection request with this token.
    #[must_use]
    pub fn request(&self) -> Vec<u8> {
        let mut datagram = vec![0; REQUEST_BYTES];
        self.token.request().emit(self.token.facts().protocol_id, &mut Writer::new(&mut datagram));
        datagram
    }

    /// Seals a packet to the server under the next sequence number.
    pub fn seal(&mut self, kind: PacketKind, content: &[u8]) -> Vec<u8> {
        self.next_sequence += 1;
        self.seal_at(self.next_sequence - 1, kind, content)
    }

    /// Seals a packet to the server under any sequence number.
    ///
    /// # Panics
    /// If the content is too long.
    #[must_use]
    pub fn seal_at(&self, sequence: u64, kind: PacketKind, content: &[u8]) -> Vec<u8> {
        let mut datagram = [0; MAX_DATAGRAM_BYTES];
        let length = self.cipher.seal(&self.client_to_server, kind, sequence, content, &mut datagram);
        datagram[..length.expect("a content of valid size")].to_vec()
    }

    /// Seals the response to a challenge, of this token or of another one.
    pub fn response(&mut self, challenge: &Challenge) -> Vec<u8> {
        self.seal(PacketKind::Response, &challenge.to_bytes())
    }

    /// Seals a keep-alive to the server.
    pub fn keep_alive(&mut self) -> Vec<u8> {
        self.seal(PacketKind::KeepAlive, &KeepAlive::default().to_bytes())
    }

    /// Opens a packet of the server, if it is sealed under the key of this token.
    #[must_use]
    pub fn open(&self, datagram: &[u8]) -> Option<Opened> {
        let header = PacketHeader::parse(datagram, PacketKind::TO_CLIENT).ok()?;
        let mut datagram = datagram.to_vec();
        let content = self.cipher.open(&self.server_to_client, &header, &mut datagram).ok()?.to_vec();
        Some(Opened { kind: header.kind, sequence: header.sequence, content })
    }

    /// Returns the challenge in a packet of the server, if it holds one.
    #[must_use]
    pub fn challenge(&self, datagram: &[u8]) -> Option<Challenge> {
        let opened = self.open(datagram)?;
        (opened.kind == PacketKind::Challenge).then(|| Challenge::parse(&opened.content))?
    }
}
