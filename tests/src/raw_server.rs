//! A server without our server: it holds the keys of a connect token, and follows no rules.

use slipgate_netcode::crypto::aead::{PacketKey, nonce};
use slipgate_netcode::crypto::key::Key;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::wire::cursor::Writer;
use slipgate_netcode::wire::packet::{Challenge, KeepAlive, PacketHeader, PacketKind, REQUEST_PREFIX};
use slipgate_netcode::wire::{CHALLENGE_TOKEN_BYTES, TAG_BYTES, VERSION};

/// The first number of the lane of challenges and denials.
const HANDSHAKE_LANE: u64 = 1 << 63;

/// A packet that a client sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FromClient {
    /// A connection request.
    Request,
    /// A sealed packet: its kind, its sequence number, and the decrypted content.
    Sealed(PacketKind, u64, Vec<u8>),
}

/// A server that holds the keys of a connect token and sends any packets it likes.
pub struct RawServer {
    protocol_id: u64,
    client_to_server: Key,
    server_to_client: Key,
    /// The next number of challenges and denials.
    pub next_handshake: u64,
    /// The next number of all other packets.
    pub next_sequence: u64,
}

impl RawServer {
    /// Creates a server for this token.
    #[must_use]
    pub fn new(token: &ConnectToken) -> Self {
        let keys = token.keys();
        Self {
            protocol_id: token.facts().protocol_id,
            client_to_server: keys.client_to_server,
            server_to_client: keys.server_to_client,
            next_handshake: HANDSHAKE_LANE,
            next_sequence: 0,
        }
    }

    /// Returns the associated data of a packet.
    fn associated(&self, prefix: u8) -> [u8; 22] {
        let mut associated = [0; 22];
        let mut writer = Writer::new(&mut associated);
        writer.bytes(&VERSION);
        writer.write::<u64>(self.protocol_id);
        writer.write::<u8>(prefix);
        associated
    }

    /// Seals a packet with a content of any size under any sequence number.
    #[must_use]
    pub fn seal_at(&self, sequence: u64, kind: PacketKind, content: &[u8]) -> Vec<u8> {
        let header = PacketHeader::canonical(kind, sequence);
        let mut datagram = vec![0; header.bytes];
        header.emit(&mut Writer::new(&mut datagram));
        datagram.extend(content);
        let tag =
            self.server_to_client.seal(nonce(sequence), &self.associated(header.prefix), &mut datagram[header.bytes..]);
        datagram.extend(tag);
        datagram
    }

    /// Seals a packet under the next sequence number of its lane.
    pub fn seal(&mut self, kind: PacketKind, content: &[u8]) -> Vec<u8> {
        let is_handshake = matches!(kind, PacketKind::Challenge | PacketKind::Denied);
        let next = if is_handshake { &mut self.next_handshake } else { &mut self.next_sequence };
        let sequence = *next;
        *next = next.wrapping_add(1);
        self.seal_at(sequence, kind, content)
    }

    /// Seals a challenge with any challenge token.
    pub fn challenge(&mut self, fill: u8) -> Vec<u8> {
        let challenge = Challenge { sequence: u64::from(fill), sealed: [fill; CHALLENGE_TOKEN_BYTES] };
        self.seal(PacketKind::Challenge, &challenge.to_bytes())
    }

    /// Seals a denial.
    pub fn denial(&mut self) -> Vec<u8> {
        self.seal(PacketKind::Denied, &[])
    }

    /// Seals a keep-alive that gives the client a slot.
    pub fn keep_alive(&mut self, slot: u32, max_clients: u32) -> Vec<u8> {
        let keep_alive = KeepAlive { client_index: slot.into(), max_clients };
        self.seal(PacketKind::KeepAlive, &keep_alive.to_bytes())
    }

    /// Seals a payload.
    pub fn payload(&mut self, payload: &[u8]) -> Vec<u8> {
        self.seal(PacketKind::Payload, payload)
    }

    /// Seals a disconnect.
    pub fn disconnect(&mut self) -> Vec<u8> {
        self.seal(PacketKind::Disconnect, &[])
    }

    /// Reads a datagram of the client; `None` if it is not a packet under the keys of this token.
    #[must_use]
    pub fn read(&self, datagram: &[u8]) -> Option<FromClient> {
        if datagram.first() == Some(&REQUEST_PREFIX) {
            return Some(FromClient::Request);
        }
        let header = PacketHeader::parse(datagram, PacketKind::TO_SERVER).ok()?;
        let mut sealed = datagram.get(header.bytes..).filter(|sealed| sealed.len() >= TAG_BYTES)?.to_vec();
        let associated = self.associated(header.prefix);
        let content = self.client_to_server.open(nonce(header.sequence), &associated, &mut sealed).ok()?.to_vec();
        Some(FromClient::Sealed(header.kind, header.sequence, content))
    }
}
