//! Properties of the parsers: they never panic, and writers reproduce the bytes that they accept.

use std::net::SocketAddr;

use proptest::collection::vec;
use proptest::prelude::*;
use slipgate_netcode::address::{Address, is_dialable};
use slipgate_netcode::ids::{ClientId, ClientIndex};
use slipgate_netcode::time::{UnixMillis, UnixSeconds};
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::wire::cursor::Writer;
use slipgate_netcode::wire::packet::{Challenge, KeepAlive, PacketHeader, PacketKind, Request};
use slipgate_netcode::wire::token::{PrivateLayout, PublicLayout, Servers};
use slipgate_netcode::wire::{
    CONNECT_TOKEN_BYTES, MAX_ENCRYPTED_BYTES, MAX_SERVERS_PER_TOKEN, PRIVATE_TOKEN_PLAIN_BYTES, REQUEST_BYTES,
    TAG_BYTES, VERSION,
};

const KINDS: [PacketKind; 6] = [
    PacketKind::Denied,
    PacketKind::Challenge,
    PacketKind::Response,
    PacketKind::KeepAlive,
    PacketKind::Payload,
    PacketKind::Disconnect,
];

fn bytes<const N: usize>() -> impl Strategy<Value = [u8; N]> {
    vec(any::<u8>(), N).prop_map(|bytes| bytes.try_into().expect("N bytes"))
}

/// Generates sequence numbers of every length.
fn sequence() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..64_u32).prop_map(|(number, shift)| number >> shift)
}

fn address() -> impl Strategy<Value = SocketAddr> {
    let special = prop::sample::select(vec![
        "0.0.0.0:0",
        "[::]:0",
        "[::ffff:192.168.1.2]:30000",
        "[::ffff:0.0.0.0]:480",
        "[::1]:65535",
    ])
    .prop_map(|text| text.parse().expect("an address"));
    prop_oneof![8 => any::<SocketAddr>().prop_map(on_the_wire), 1 => special]
}

/// Removes scope and flow label, which the wire format does not contain.
fn on_the_wire(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip(), address.port())
}

fn servers() -> impl Strategy<Value = Servers> {
    vec(address(), 1..=MAX_SERVERS_PER_TOKEN).prop_map(|list| Servers::new(&list).expect("1 to 32 servers"))
}

/// Generates noise behind a valid prefix, so that a parser gets past its first checks.
fn nearly(valid: Vec<u8>, longest: usize) -> impl Strategy<Value = Vec<u8>> {
    (0..=valid.len(), vec(any::<u8>(), 0..=longest)).prop_map(move |(kept, noise)| {
        let rest = noise.into_iter().skip(kept);
        valid.iter().take(kept).copied().chain(rest).collect()
    })
}

proptest! {
    #[test]
    fn packet_parsers_never_panic(
        datagram in prop_oneof![vec(any::<u8>(), 0..64), vec(any::<u8>(), 0..=1300)],
        first in any::<u8>(),
        protocol_id in any::<u64>(),
    ) {
        let mut chosen = datagram.clone();
        if let Some(byte) = chosen.first_mut() {
            *byte = first;
        }
        for datagram in [&datagram, &chosen] {
            for accepted in [PacketKind::TO_SERVER, PacketKind::TO_CLIENT, &KINDS, &[]] {
                if let Ok(header) = PacketHeader::parse(datagram, accepted) {
                    prop_assert!(accepted.contains(&header.kind));
                    prop_assert!((2..=9).contains(&header.bytes) && header.bytes + TAG_BYTES <= datagram.len());
                }
            }
            prop_assert!(Request::parse(datagram, protocol_id).is_err(), "noise has no version");
            prop_assert_eq!(Challenge::parse(datagram).is_some(), datagram.len() >= 308);
            prop_assert_eq!(KeepAlive::parse(datagram).is_some(), datagram.len() >= 8);
        }
    }

    #[test]
    fn connect_token_parser_never_panics(
        bytes in nearly([&VERSION[..], &[0; 24], &[7; 24 + 1024 + 4], &[32, 0, 0, 0]].concat(), 2200),
        to_length in any::<bool>(),
    ) {
        let mut bytes = bytes;
        if to_length {
            bytes.resize(CONNECT_TOKEN_BYTES, 2);
        }
        let parsed = ConnectToken::from_bytes(&bytes);
        prop_assert!(parsed.is_err() || bytes.len() == CONNECT_TOKEN_BYTES);
    }

    #[test]
    fn private_part_parser_never_panics(
        mut plain in bytes::<PRIVATE_TOKEN_PLAIN_BYTES>(),
        count in 0..40_u32,
        kind in 0..4_u8,
    ) {
        let _ = PrivateLayout::parse(&plain).is_ok();
        plain[12..16].copy_from_slice(&count.to_le_bytes());
        plain[16..].fill(kind);
        if let Ok(private) = PrivateLayout::parse(&plain) {
            prop_assert_eq!(private.servers.len(), count as usize);
        }
    }

    #[test]
    fn header_round_trips(sequence in sequence(), kind in prop::sample::select(&KINDS[..])) {
        let header = PacketHeader::canonical(kind, sequence);
        let mut datagram = [0; 1 + 8 + TAG_BYTES];
        let mut writer = Writer::new(&mut datagram);
        header.emit(&mut writer);
        prop_assert_eq!(writer.written(), Some(header.bytes));
        prop_assert_eq!(header.bytes, 2.max(1 + (64 - sequence.leading_zeros() as usize).div_ceil(8)));
        let length = (header.bytes + TAG_BYTES).max(18);
        prop_assert_eq!(PacketHeader::parse(&datagram[..length], &[kind]), Ok(header));
    }

    #[test]
    fn parsed_header_is_written_back_unchanged(datagram in vec(any::<u8>(), 18..=MAX_ENCRYPTED_BYTES)) {
        if let Ok(header) = PacketHeader::parse(&datagram, &KINDS) {
            let mut written = [0; 9];
            header.emit(&mut Writer::new(&mut written));
            prop_assert_eq!(&written[..header.bytes], &datagram[..header.bytes]);
        }
    }

    #[test]
    fn request_round_trips(
        protocol_id in any::<u64>(),
        expires in any::<u64>(),
        nonce in bytes::<24>(),
        sealed in bytes::<1024>(),
    ) {
        let mut datagram = [0; REQUEST_BYTES];
        let mut writer = Writer::new(&mut datagram);
        Request { expires: UnixSeconds(expires), nonce: &nonce, sealed: &sealed }.emit(protocol_id, &mut writer);
        prop_assert_eq!(writer.written(), Some(REQUEST_BYTES));
        let request = Request::parse(&datagram, protocol_id).map_err(|discard| TestCaseError::fail(discard.name()))?;
        prop_assert_eq!((request.expires.0, request.nonce, request.sealed), (expires, &nonce, &sealed));
        prop_assert!(Request::parse(&datagram, !protocol_id).is_err());
    }

    #[test]
    fn challenge_and_keep_alive_round_trip(
        sequence in any::<u64>(),
        sealed in bytes::<300>(),
        client_index in any::<u32>(),
        max_clients in any::<u32>(),
    ) {
        let challenge = Challenge { sequence, sealed };
        prop_assert!(Challenge::parse(&challenge.to_bytes()) == Some(challenge));
        let keep_alive = KeepAlive { client_index: ClientIndex(client_index), max_clients };
        prop_assert_eq!(KeepAlive::parse(&keep_alive.to_bytes()), Some(keep_alive));
    }

    #[test]
    fn public_layout_round_trips(
        (protocol_id, created, lifetime) in (any::<u64>(), any::<u64>(), any::<u64>()),
        timeout_seconds in any::<i32>(),
        servers in servers(),
        (nonce, sealed) in (bytes::<24>(), bytes::<1024>()),
        (client_to_server, server_to_client) in (bytes::<32>(), bytes::<32>()),
    ) {
        let (created, expires) = (UnixSeconds(created), UnixSeconds(created.saturating_add(lifetime)));
        let layout = PublicLayout {
            protocol_id,
            created,
            expires,
            nonce: &nonce,
            sealed: &sealed,
            timeout_seconds,
            servers: servers.clone(),
            client_to_server: &client_to_server,
            server_to_client: &server_to_client,
        };
        let mut token = [0xaa; CONNECT_TOKEN_BYTES];
        layout.emit(&mut token);
        let read = PublicLayout::parse(&token).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!((read.protocol_id, read.created, read.expires), (protocol_id, created, expires));
        prop_assert_eq!((read.timeout_seconds, &read.servers), (timeout_seconds, &servers));
        prop_assert_eq!((read.nonce, read.sealed), (&nonce, &sealed));
        prop_assert_eq!((read.client_to_server, read.server_to_client), (&client_to_server, &server_to_client));
        prop_assert!(ConnectToken::from_bytes(&token).is_ok_and(|copy| copy.as_bytes() == &token));
    }

    #[test]
    fn private_layout_round_trips(
        client_id in any::<u64>(),
        timeout_seconds in any::<i32>(),
        servers in servers(),
        (client_to_server, server_to_client) in (bytes::<32>(), bytes::<32>()),
        user_data in bytes::<256>(),
        minted in any::<Option<u64>>(),
    ) {
        let layout = PrivateLayout {
            client_id: ClientId(client_id),
            timeout_seconds,
            servers: servers.clone(),
            client_to_server: &client_to_server,
            server_to_client: &server_to_client,
            user_data: &user_data,
            minted: minted.map(UnixMillis),
        };
        let mut plain = [0xaa; PRIVATE_TOKEN_PLAIN_BYTES];
        layout.emit(&mut plain);
        let read = PrivateLayout::parse(&plain).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(read.client_id.0, client_id);
        prop_assert_eq!((read.timeout_seconds, &read.servers), (timeout_seconds, &servers));
        prop_assert_eq!((read.client_to_server, read.server_to_client), (&client_to_server, &server_to_client));
        prop_assert_eq!((read.user_data, read.minted), (&user_data, minted.map(UnixMillis)));
    }

    #[test]
    fn address_has_one_canonical_form(address in address(), other in address()) {
        let (canonical, other) = (Address::from(address), Address::from(other));
        prop_assert_eq!(Address::from(canonical.socket_addr()), canonical);
        prop_assert_eq!(canonical.to_bytes() == other.to_bytes(), canonical == other);
        prop_assert_eq!(canonical.socket_addr().ip(), address.ip().to_canonical());
        prop_assert_eq!(is_dialable(address), is_dialable(canonical.socket_addr()));
    }
}
