//! Properties of sealing: sealed bytes open to their content, and changing any bit of them makes opening fail.

use proptest::collection::vec;
use proptest::prelude::*;
use rand::{TryCryptoRng, TryRng};
use slipgate_netcode::crypto::aead::NotAuthentic;
use slipgate_netcode::crypto::key::{Key, KeyRing};
use slipgate_netcode::crypto::packet::PacketCipher;
use slipgate_netcode::crypto::replay::ReplayWindow;
use slipgate_netcode::crypto::sealed_token::{PrivateContext, open_challenge, open_private, seal_challenge};
use slipgate_netcode::discard::Discard;
use slipgate_netcode::ids::ClientId;
use slipgate_netcode::time::{UnixMillis, UnixSeconds};
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::token::issue::{Claims, issue};
use slipgate_netcode::token::redeem::{Redeemed, redeem};
use slipgate_netcode::wire::cursor::Writer;
use slipgate_netcode::wire::packet::{PacketHeader, PacketKind, Request};
use slipgate_netcode::wire::token::Servers;
use slipgate_netcode::wire::{MAX_ENCRYPTED_BYTES, PRIVATE_TOKEN_BYTES, REQUEST_BYTES};
use std::convert::Infallible;
use std::net::SocketAddr;

const NOW: UnixMillis = UnixMillis(1_700_000_000_123);
const PROTOCOL_ID: u64 = 0x1122_3344_5566_7788;

// Tokens -----------------------------------------------------------------------------------------------------------

/// Deterministic entropy: the bytes count up from a start value, so that two start values make two tokens.
struct CountingRng(u8);

impl TryRng for CountingRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.try_next_u64().map(|number| number as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes).map(|()| u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for byte in bytes {
            *byte = self.0;
            self.0 = self.0.wrapping_add(1);
        }
        Ok(())
    }
}

impl TryCryptoRng for CountingRng {}

fn key() -> Key {
    Key::from([0x5a; 32])
}

fn some_token() -> ConnectToken {
    let servers = Servers::new(&["192.0.2.1:40000", "[2001:db8::1]:40001"].map(|text| text.parse().expect("address")));
    let claims = Claims {
        protocol_id: PROTOCOL_ID,
        client_id: ClientId(77),
        servers: &servers.expect("two servers"),
        internal_servers: None,
        lifetime_seconds: 30,
        timeout_seconds: 5,
        user_data: &[9; 256],
    };
    issue(&claims, &key(), NOW, &mut CountingRng(1)).expect("a token")
}

fn request_of(token: &ConnectToken) -> [u8; REQUEST_BYTES] {
    let mut datagram = [0; REQUEST_BYTES];
    let request =
        Request { expires: token.facts().expires, nonce: token.request().nonce, sealed: token.request().sealed };
    request.emit(token.facts().protocol_id, &mut Writer::new(&mut datagram));
    datagram
}

fn redeem_datagram(datagram: &[u8], protocol_id: u64, keys: &KeyRing) -> Result<Redeemed, Discard> {
    redeem(&Request::parse(datagram, protocol_id)?, protocol_id, keys)
}

fn flipped(bytes: &[u8], bit: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    *bytes.get_mut(bit / 8).expect("a bit of these bytes") ^= 1 << (bit % 8);
    bytes
}

proptest! {
    #[test]
    fn issued_token_redeems_to_its_claims_with_each_key_of_the_ring(
        (protocol_id, client_id) in any::<(u64, u64)>(),
        list in vec(any::<(SocketAddr, SocketAddr)>(), 1..=32),
        nat in any::<bool>(),
        (lifetime_seconds, timeout_seconds) in (1..=u32::MAX, any::<i32>()),
        user_data in vec(any::<u8>(), 256),
        now in any::<u64>(),
        entropy in any::<u8>(),
        index in 0..3_usize,
    ) {
        let plain = |address: &SocketAddr| SocketAddr::new(address.ip(), address.port());
        let (dialled, internal): (Vec<_>, Vec<_>) = list.iter().map(|(one, other)| (plain(one), plain(other))).unzip();
        let (dialled, internal) = (Servers::new(&dialled).expect("servers"), Servers::new(&internal).expect("servers"));
        let user_data = user_data.try_into().expect("256 bytes");
        let claims = Claims {
            protocol_id,
            client_id: ClientId(client_id),
            servers: &dialled,
            internal_servers: nat.then_some(&internal),
            lifetime_seconds,
            timeout_seconds,
            user_data: &user_data,
        };
        let token = issue(&claims, &key(), UnixMillis(now), &mut CountingRng(entropy)).expect("a token");
        let token = ConnectToken::from_bytes(token.as_bytes()).expect("what we issue, we read");
        prop_assert_eq!(&token.facts().servers, &dialled);
        prop_assert_eq!(token.facts().created.0, now / 1000);
        prop_assert_eq!(token.facts().expires.0, now / 1000 + u64::from(lifetime_seconds));

        let mut ring = [1, 2, 3].map(|byte| Key::from([byte; 32]));
        ring[index] = key();
        let keys = KeyRing::new(&ring).expect("three keys");
        let redeemed = redeem_datagram(&request_of(&token), protocol_id, &keys);
        let redeemed = redeemed.map_err(|discard| TestCaseError::fail(discard.name()))?;
        prop_assert_eq!((redeemed.client_id.0, redeemed.timeout_seconds), (client_id, timeout_seconds));
        prop_assert_eq!(&redeemed.servers, if nat { &internal } else { &dialled });
        prop_assert_eq!(redeemed.user_data, user_data);
        prop_assert_eq!((redeemed.minted, redeemed.expires), (Some(UnixMillis(now)), token.facts().expires));
        prop_assert!(redeemed.client_to_server == token.keys().client_to_server);
        prop_assert!(redeemed.server_to_client == token.keys().server_to_client);

        ring[index] = Key::from([4; 32]);
        let keys = KeyRing::new(&ring).expect("three keys");
        let discard = redeem_datagram(&request_of(&token), protocol_id, &keys).map(|_| ());
        prop_assert_eq!(discard, Err(Discard::TokenNotAuthentic));
    }
}

#[test]
fn changing_any_bit_of_a_private_part_is_detected() {
    let token = some_token();
    let nonce = *token.request().nonce;
    let context = PrivateContext { protocol_id: PROTOCOL_ID, expires: token.facts().expires, nonce: &nonce };
    let sealed = *token.request().sealed;
    assert!(open_private(&key(), &context, &mut sealed.clone()).is_ok());
    for bit in 0..PRIVATE_TOKEN_BYTES * 8 {
        let mut altered = flipped(&sealed, bit).try_into().expect("1024 bytes");
        assert_eq!(open_private(&key(), &context, &mut altered).err(), Some(NotAuthentic), "bit {bit}");
    }
}

#[test]
fn changing_any_bit_of_a_request_is_detected() {
    // The end of each field (§1.7), and the discard reason for a change in it.
    const FIELDS: [(usize, Discard); 4] = [
        (1, Discard::UnexpectedType),
        (14, Discard::RequestVersion),
        (22, Discard::RequestProtocol),
        (REQUEST_BYTES, Discard::TokenNotAuthentic), // expiry, nonce and sealed part
    ];
    let keys = KeyRing::from(key());
    let datagram = request_of(&some_token());
    assert!(redeem_datagram(&datagram, PROTOCOL_ID, &keys).is_ok());
    for bit in 0..REQUEST_BYTES * 8 {
        let refused = redeem_datagram(&flipped(&datagram, bit), PROTOCOL_ID, &keys).err();
        let expected = FIELDS.iter().find(|(end, _)| bit / 8 < *end).map(|(_, discard)| *discard);
        assert_eq!(refused, expected, "bit {bit}");
    }
}

#[test]
fn changing_any_bit_of_key_protocol_expiry_or_nonce_is_detected() {
    let token = some_token();
    let open = |key: &Key, protocol_id: u64, expires: u64, nonce: &[u8; 24]| {
        let context = PrivateContext { protocol_id, expires: UnixSeconds(expires), nonce };
        open_private(key, &context, &mut token.request().sealed.clone()).is_ok()
    };
    let (expires, nonce) = (token.facts().expires.0, *token.request().nonce);
    assert!(open(&key(), PROTOCOL_ID, expires, &nonce));
    for bit in 0..256 {
        let other: [u8; 32] = flipped(key().expose(), bit).try_into().expect("32 bytes");
        let other = Key::from(other);
        assert!(!open(&other, PROTOCOL_ID, expires, &nonce), "bit {bit} of the key");
    }
    for bit in 0..64 {
        assert!(!open(&key(), PROTOCOL_ID ^ 1 << bit, expires, &nonce), "bit {bit} of the protocol id");
        assert!(!open(&key(), PROTOCOL_ID, expires ^ 1 << bit, &nonce), "bit {bit} of the expiry");
    }
    for bit in 0..24 * 8 {
        let other = flipped(&nonce, bit).try_into().expect("24 bytes");
        assert!(!open(&key(), PROTOCOL_ID, expires, &other), "bit {bit} of the nonce");
    }
}

#[test]
fn changing_any_bit_of_a_challenge_token_is_detected() {
    let mut sealed = [3; 300];
    seal_challenge(&key(), 1000, &mut sealed);
    assert!(open_challenge(&key(), 1000, &mut sealed.clone()).is_ok());
    for bit in 0..300 * 8 {
        let mut altered = flipped(&sealed, bit).try_into().expect("300 bytes");
        assert_eq!(open_challenge(&key(), 1000, &mut altered).err(), Some(NotAuthentic), "bit {bit}");
    }
    for bit in 0..64 {
        let mut copy = sealed;
        let opened = open_challenge(&key(), 1000 ^ 1 << bit, &mut copy);
        assert_eq!(opened.err(), Some(NotAuthentic), "bit {bit} of the sequence");
    }
}

// Packets ----------------------------------------------------------------------------------------------------------

const KINDS: [PacketKind; 6] = [
    PacketKind::Denied,
    PacketKind::Challenge,
    PacketKind::Response,
    PacketKind::KeepAlive,
    PacketKind::Payload,
    PacketKind::Disconnect,
];

/// Returns the minimum of content bytes of a kind. Except for payloads this is also the maximum.
fn smallest_content(kind: PacketKind) -> usize {
    (0..=1200).find(|bytes| kind.allows_content(*bytes)).expect("every kind has a size")
}

fn sealed_packet(kind: PacketKind, sequence: u64, content: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0; MAX_ENCRYPTED_BYTES];
    let length = PacketCipher::new(PROTOCOL_ID).seal(&key(), kind, sequence, content, &mut datagram);
    datagram.truncate(length.expect("it fits"));
    datagram
}

fn open_packet(datagram: &[u8], window: &mut ReplayWindow) -> Result<(PacketHeader, Vec<u8>), Discard> {
    let header = PacketHeader::parse(datagram, &KINDS)?;
    let mut datagram = datagram.to_vec();
    let content = PacketCipher::new(PROTOCOL_ID).open_fresh(&key(), window, &header, &mut datagram)?;
    Ok((header, content.to_vec()))
}

fn assert_any_change_is_detected(kind: PacketKind, sequence: u64, content: &[u8]) {
    let datagram = sealed_packet(kind, sequence, content);
    let mut window = ReplayWindow::default();
    for bit in 0..datagram.len() * 8 {
        let refused = open_packet(&flipped(&datagram, bit), &mut window).err();
        let what = format!("bit {bit} of {kind:?} {sequence}: {refused:?}");
        if bit < 8 {
            assert!(refused.is_some(), "{what}");
        } else {
            assert_eq!(refused, Some(Discard::NotAuthentic), "{what}");
        }
    }
    assert_eq!(window.newest(), None, "a packet that does not open must not move the window");
    assert_eq!(open_packet(&datagram, &mut window).map(|(_, opened)| opened), Ok(content.to_vec()));
}

#[test]
fn changing_any_bit_of_a_sealed_packet_is_detected() {
    for sequence in [0, 1, 255, 256, 0x01_0203, 1 << 63, u64::MAX] {
        for kind in KINDS {
            let content = vec![0xc3; smallest_content(kind)];
            assert_any_change_is_detected(kind, sequence, &content);
        }
    }
    assert_any_change_is_detected(PacketKind::Payload, u64::MAX, &[0x11; 1200]);
}

/// Returns whether the replay window covers a kind (§1.8: types 4, 5 and 6).
const fn is_replay_protected(kind: PacketKind) -> bool {
    matches!(kind, PacketKind::KeepAlive | PacketKind::Payload | PacketKind::Disconnect)
}

proptest! {
    #[test]
    fn sealed_packet_opens_to_its_content_once(
        kind in prop::sample::select(&KINDS[..]),
        (sequence, shift) in (any::<u64>(), 0..64_u32),
        noise in vec(any::<u8>(), 1200),
        payload_bytes in 1..=1200_usize,
    ) {
        let sequence = sequence >> shift;
        let bytes = if kind == PacketKind::Payload { payload_bytes } else { smallest_content(kind) };
        let content = &noise[..bytes];
        let datagram = sealed_packet(kind, sequence, content);
        let mut window = ReplayWindow::default();
        let opened = open_packet(&datagram, &mut window);
        prop_assert_eq!(opened, Ok((PacketHeader::canonical(kind, sequence), content.to_vec())));
        let again = open_packet(&datagram, &mut window).map(|(_, again)| again);
        let expected = if is_replay_protected(kind) { Err(Discard::Replayed) } else { Ok(content.to_vec()) };
        prop_assert_eq!(again, expected);
    }
}
