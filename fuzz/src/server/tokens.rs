//! Connect tokens and their holders, which send packets of every kind with any sequence number.

use std::net::SocketAddr;

use slipgate_netcode::address::Address;
use slipgate_netcode::crypto::key::Key;
use slipgate_netcode::crypto::packet::PacketCipher;
use slipgate_netcode::crypto::sealed_token::PrivateContext;
use slipgate_netcode::time::{UnixMillis, UnixSeconds};
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::token::issue::seal;
use slipgate_netcode::wire::cursor::Writer;
use slipgate_netcode::wire::packet::{PacketHeader, PacketKind};
use slipgate_netcode::wire::token::{PrivateLayout, PublicLayout, Servers};
use slipgate_netcode::wire::{CONNECT_TOKEN_BYTES, MAX_DATAGRAM_BYTES, REQUEST_BYTES};

use crate::{Input, PROTOCOL_ID};

/// Returns one of two private keys. A server starts with the first.
pub(super) fn private_key(number: u8) -> Key {
    Key::from([0x60 + (number & 1); 32])
}

/// A packet that a server sent.
pub(super) struct Opened {
    pub(super) kind: PacketKind,
    pub(super) sequence: u64,
    pub(super) content: Vec<u8>,
}

/// Returns the servers of a token: the one under test, another one, or both.
fn servers_of(choices: u8, server_address: Address) -> Servers {
    let elsewhere = SocketAddr::from(([10, 7, 7, 7], 7));
    let servers: &[SocketAddr] = match choices & 3 {
        0 | 1 => &[server_address.socket_addr()],
        2 => &[elsewhere, server_address.socket_addr()],
        _ => &[elsewhere],
    };
    Servers::new(servers).expect("one or two")
}

/// A holder of a connect token.
pub(super) struct RawClient {
    token: ConnectToken,
    client_to_server: Key,
    server_to_client: Key,
    next_sequence: u64,
}

impl RawClient {
    /// Mints a token for one of four clients. The input gives lifetime, timeout, servers, key and mint time.
    pub(super) fn mint(number: u8, input: &mut Input<'_>, unix_ms: u64, server_address: Address) -> Self {
        let [client_id, lifetime, timeout, choices] = input.array::<4>();
        let (servers, nonce) = (servers_of(choices, server_address), [number; 24]);
        let minted = UnixMillis(unix_ms);
        let (created, timeout_seconds) = (UnixSeconds::from(minted), i32::from(timeout) - 8);
        let expires = UnixSeconds(created.0 + u64::from(lifetime % 64));
        let (up, down) = (Key::from([number; 32]), Key::from([0x80 + number; 32]));
        let private = PrivateLayout {
            client_id: u64::from(client_id % 4).into(),
            timeout_seconds,
            servers: servers.clone(),
            client_to_server: up.expose(),
            server_to_client: down.expose(),
            user_data: &[number; 256],
            minted: (choices & 4 == 0).then_some(minted),
        };
        let context = PrivateContext { protocol_id: PROTOCOL_ID, expires, nonce: &nonce };
        let sealed = seal(&private, &private_key(choices >> 4), &context);
        let mut bytes = [0; CONNECT_TOKEN_BYTES];
        let public = PublicLayout {
            protocol_id: PROTOCOL_ID,
            created,
            expires,
            nonce: &nonce,
            sealed: &sealed,
            timeout_seconds,
            servers,
            client_to_server: up.expose(),
            server_to_client: down.expose(),
        };
        public.emit(&mut bytes);
        let token = ConnectToken::from_bytes(&bytes).expect("the written token can be read");
        Self { token, client_to_server: up, server_to_client: down, next_sequence: 0 }
    }

    pub(super) fn token(&self) -> ConnectToken {
        self.token.clone()
    }

    pub(super) fn request(&self) -> Vec<u8> {
        let mut datagram = vec![0; REQUEST_BYTES];
        let request = self.token.request();
        request.emit(PROTOCOL_ID, &mut Writer::new(&mut datagram));
        datagram
    }

    /// Seals a packet for the server with the next sequence number or a given one.
    pub(super) fn seal(&mut self, kind: PacketKind, content: &[u8], sequence: Option<u64>) -> Vec<u8> {
        let sequence = sequence.unwrap_or_else(|| {
            self.next_sequence += 1;
            self.next_sequence
        });
        let mut datagram = [0; MAX_DATAGRAM_BYTES];
        let cipher = PacketCipher::new(PROTOCOL_ID);
        let length = cipher.seal(&self.client_to_server, kind, sequence, content, &mut datagram);
        datagram[..length.expect("it fits")].to_vec()
    }

    /// Opens a packet from the server.
    pub(super) fn open(&self, datagram: &[u8]) -> Option<Opened> {
        open(&self.server_to_client, PacketKind::TO_CLIENT, datagram)
    }

    /// Returns whether a packet is a response of a client with this token.
    pub(super) fn opens_response(&self, datagram: &[u8]) -> bool {
        // Other kinds are not decrypted, which saves most of the time.
        open(&self.client_to_server, &[PacketKind::Response], datagram).is_some()
    }

    /// Opens a packet from a client with this token.
    pub(super) fn open_from_client(&self, datagram: &[u8]) -> Option<Opened> {
        open(&self.client_to_server, PacketKind::TO_SERVER, datagram)
    }
}

fn open(key: &Key, accepted: &[PacketKind], datagram: &[u8]) -> Option<Opened> {
    let header = PacketHeader::parse(datagram, accepted).ok()?;
    let mut datagram = datagram.to_vec();
    let content = PacketCipher::new(PROTOCOL_ID).open(key, &header, &mut datagram).ok()?.to_vec();
    Some(Opened { kind: header.kind, sequence: header.sequence, content })
}
