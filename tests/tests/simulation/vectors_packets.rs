//! Packets of every type, byte for byte as the reference writes and reads them, under both cipher backends.
//!
//! Whether a server or a client *accepts* a packet depends on its state; these tests cover the checks without state.

use slipgate_netcode::crypto::aead::{NONCE_BYTES, NotAuthentic, PacketKey, nonce, portable, ring};
use slipgate_netcode::crypto::key::{Key, KeyRing};
use slipgate_netcode::crypto::packet::PacketCipher;
use slipgate_netcode::crypto::replay::ReplayWindow;
use slipgate_netcode::discard::Discard;
use slipgate_netcode::time::UnixSeconds;
use slipgate_netcode::token::redeem::redeem;
use slipgate_netcode::wire::cursor::Writer;
use slipgate_netcode::wire::packet::{Challenge, KeepAlive, PacketHeader, PacketKind, REQUEST_PREFIX, Request};
use slipgate_netcode::wire::{
    MAX_ENCRYPTED_BYTES, MAX_PAYLOAD_BYTES, PRIVATE_TOKEN_BYTES, REQUEST_BYTES, TAG_BYTES, VERSION,
};
use slipgate_tests::vectors::{Case, Vectors};

const VALID: &str = "netcode_packets_valid.json";
const INVALID: &str = "netcode_packets_invalid.json";

// Cipher backends --------------------------------------------------------------------------------------------------

type Nonce = [u8; NONCE_BYTES];
type Seal = fn(&Key, Nonce, &[u8], &mut [u8]) -> [u8; TAG_BYTES];
type Open = for<'a> fn(&Key, Nonce, &[u8], &'a mut [u8]) -> Opened<'a>;
type Opened<'a> = Result<&'a mut [u8], NotAuthentic>;

/// One of the two backends, called without the packet layer.
struct Backend {
    name: &'static str,
    seal: Seal,
    open: Open,
}

const BACKENDS: [Backend; 2] = [
    Backend { name: "portable", seal: seal::<portable::PreparedKey>, open: open::<portable::PreparedKey> },
    Backend { name: "ring", seal: seal::<ring::PreparedKey>, open: open::<ring::PreparedKey> },
];

fn seal<K: PacketKey + From<Key>>(key: &Key, nonce: Nonce, associated: &[u8], plain: &mut [u8]) -> [u8; TAG_BYTES] {
    K::from(key.clone()).seal(nonce, associated, plain)
}

fn open<'a, K: PacketKey + From<Key>>(key: &Key, nonce: Nonce, associated: &[u8], sealed: &'a mut [u8]) -> Opened<'a> {
    K::from(key.clone()).open(nonce, associated, sealed)
}

/// Returns whether the replay window covers a kind (§1.8: types 4, 5 and 6).
const fn is_replay_protected(kind: PacketKind) -> bool {
    matches!(kind, PacketKind::KeepAlive | PacketKind::Payload | PacketKind::Disconnect)
}

fn associated(protocol_id: u64, prefix: u8) -> [u8; 22] {
    let mut associated = [0; 22];
    let mut writer = Writer::new(&mut associated);
    writer.bytes(&VERSION);
    writer.write::<u64>(protocol_id);
    writer.write::<u8>(prefix);
    associated
}

/// Opens a datagram with each backend and checks that they agree.
fn open_with_backends(
    case: &Case<'_>,
    key: &Key,
    protocol_id: u64,
    header: &PacketHeader,
) -> Result<Vec<u8>, NotAuthentic> {
    let [portable, ring] = BACKENDS.map(|backend| {
        let mut sealed = case.bytes("wire_hex").split_off(header.bytes);
        (backend.open)(key, nonce(header.sequence), &associated(protocol_id, header.prefix), &mut sealed)
            .map(|plain| plain.to_vec())
    });
    assert_eq!(portable, ring, "{case}: portable and ring");
    portable
}

// Encrypted packets ------------------------------------------------------------------------------------------------

/// The packets that one side of a connection accepts.
#[derive(Clone, Copy)]
struct Side {
    name: &'static str,
    accepts: &'static [PacketKind],
}

const SIDES: [Side; 2] =
    [Side { name: "server", accepts: PacketKind::TO_SERVER }, Side { name: "client", accepts: PacketKind::TO_CLIENT }];

fn kind(case: &Case<'_>) -> PacketKind {
    let (number, name) = (case.u32("packet_type_u8"), case.text("packet_type_name"));
    match (number, name) {
        (1, "connection_denied") => PacketKind::Denied,
        (2, "connection_challenge") => PacketKind::Challenge,
        (3, "connection_response") => PacketKind::Response,
        (4, "connection_keep_alive") => PacketKind::KeepAlive,
        (5, "connection_payload") => PacketKind::Payload,
        (6, "connection_disconnect") => PacketKind::Disconnect,
        _ => panic!("{case}: no encrypted packet has type {number}, {name}"),
    }
}

/// Returns the content from the fields of the case, encoded by our code.
fn content(case: &Case<'_>, kind: PacketKind) -> Vec<u8> {
    match kind {
        PacketKind::Denied | PacketKind::Disconnect => Vec::new(),
        PacketKind::Challenge | PacketKind::Response => challenge(case).to_bytes().to_vec(),
        PacketKind::KeepAlive => keep_alive(case).to_bytes().to_vec(),
        PacketKind::Payload => case.bytes("payload_hex"),
    }
}

fn challenge(case: &Case<'_>) -> Challenge {
    Challenge { sequence: case.u64("challenge_token_sequence_u64"), sealed: case.array("challenge_token_hex") }
}

fn keep_alive(case: &Case<'_>) -> KeepAlive {
    KeepAlive { client_index: case.u32("client_index_u32").into(), max_clients: case.u32("max_clients_u32") }
}

#[test]
fn packet_encoding_matches_the_reference() {
    for case in Vectors::load(VALID).cases("encrypted_packet_cases", 82) {
        let (kind, sequence, protocol_id) = (kind(&case), case.u64("sequence_u64"), case.u64("protocol_id_u64"));
        let key = Key::from(case.array("key_hex"));
        let content = content(&case, kind);
        assert_eq!(hex::encode(&content), case.text("plaintext_hex"), "{case}");

        let header = PacketHeader::canonical(kind, sequence);
        assert_eq!([header.prefix], case.array("prefix_byte_hex"), "{case}");
        assert_eq!(header.bytes as u32, 1 + case.u32("sequence_bytes_u8"), "{case}");
        assert_eq!(associated(protocol_id, header.prefix), case.array("associated_data_hex"), "{case}");
        assert_eq!(nonce(sequence), case.array("nonce_hex"), "{case}");

        let mut datagram = [0; MAX_ENCRYPTED_BYTES];
        let length = PacketCipher::new(protocol_id).seal(&key, kind, sequence, &content, &mut datagram);
        let length = length.unwrap_or_else(|| panic!("{case}: the packet fits"));
        assert_eq!(length as u32, case.u32("wire_bytes_u32"), "{case}");
        assert_eq!(hex::encode(&datagram[..length]), case.text("wire_hex"), "{case}");

        for backend in BACKENDS {
            let mut sealed = content.clone();
            let tag = (backend.seal)(&key, nonce(sequence), &associated(protocol_id, header.prefix), &mut sealed);
            sealed.extend_from_slice(&tag);
            assert_eq!(sealed, case.bytes("wire_hex")[header.bytes..], "{case}: {}", backend.name);
        }
    }
}

#[test]
fn packet_decodes_to_reference_fields_on_the_same_side() {
    for case in Vectors::load(VALID).cases("encrypted_packet_cases", 82) {
        let (kind, protocol_id) = (kind(&case), case.u64("protocol_id_u64"));
        let key = Key::from(case.array("key_hex"));
        for side in SIDES {
            let parsed = PacketHeader::parse(&case.bytes("wire_hex"), side.accepts);
            if !case.texts("accepted_by").contains(&side.name) {
                assert_eq!(parsed, Err(Discard::UnexpectedType), "{case}: {}", side.name);
                continue;
            }
            let header = PacketHeader::canonical(kind, case.u64("sequence_u64"));
            assert_eq!(parsed, Ok(header), "{case}: {}", side.name);
            let plain = open_with_backends(&case, &key, protocol_id, &header).map(hex::encode);
            assert_eq!(plain.as_deref(), Ok(case.text("plaintext_hex")), "{case}");

            let mut datagram = case.bytes("wire_hex");
            let content = PacketCipher::new(protocol_id).open(&key, &header, &mut datagram);
            assert_content(&case, kind, content);
            let mut datagram = case.bytes("wire_hex");
            let mut window = ReplayWindow::default();
            let content = PacketCipher::new(protocol_id).open_fresh(&key, &mut window, &header, &mut datagram);
            assert_content(&case, kind, content);
            assert_eq!(window.newest(), is_replay_protected(kind).then_some(header.sequence), "{case}");
        }
    }
}

fn assert_content(case: &Case<'_>, kind: PacketKind, content: Result<&mut [u8], Discard>) {
    let content = content.unwrap_or_else(|discard| panic!("{case}: {discard}"));
    match kind {
        PacketKind::Denied | PacketKind::Disconnect => assert!(content.is_empty(), "{case}"),
        PacketKind::Challenge | PacketKind::Response => {
            assert!(Challenge::parse(content) == Some(challenge(case)), "{case}");
        }
        PacketKind::KeepAlive => assert_eq!(KeepAlive::parse(content), Some(keep_alive(case)), "{case}"),
        PacketKind::Payload => {
            assert_eq!(hex::encode(&content), case.text("payload_hex"), "{case}");
            assert_eq!(content.len() as u32, case.u32("payload_bytes_u32"), "{case}");
        }
    }
}

#[test]
fn packets_tolerated_by_the_reference_are_accepted() {
    let vectors = Vectors::load(VALID);
    for case in vectors.cases("tolerated_cases", 4) {
        assert_eq!((case.text("expected"), case.u32("packet_type_u8")), ("accept", 5), "{case}");
        assert_eq!(case.texts("accepted_by"), SIDES.map(|side| side.name), "{case}");
        let read = SIDES.map(|side| read_tolerated(&case, side));
        assert_eq!(read[0], read[1], "{case}: server and client");
        let [read, _] = read;
        if let Some((sequence, payload)) = vectors.tolerate(&case, read) {
            assert_eq!(sequence, case.u64("sequence_u64"), "{case}");
            assert_eq!(payload, case.bytes("payload_hex"), "{case}");
        }
    }
    vectors.all_refusals_were_needed();
}

fn read_tolerated(case: &Case<'_>, side: Side) -> Result<(u64, Vec<u8>), Discard> {
    let (key, protocol_id) = (Key::from(case.array("key_hex")), case.u64("protocol_id_u64"));
    let mut datagram = case.bytes("wire_hex");
    let header = PacketHeader::parse(&datagram, side.accepts)?;
    open_with_backends(case, &key, protocol_id, &header).map_err(|NotAuthentic| Discard::NotAuthentic)?;
    let content = PacketCipher::new(protocol_id).open(&key, &header, &mut datagram)?;
    Ok((header.sequence, content.to_vec()))
}

// Connection requests ----------------------------------------------------------------------------------------------

#[test]
fn connection_request_matches_the_reference() {
    for case in Vectors::load(VALID).cases("connection_request_cases", 6) {
        assert_eq!((case.u32("packet_type_u8"), case.text("packet_type_name")), (0, "connection_request"), "{case}");
        assert_eq!(case.texts("accepted_by"), ["server"], "{case}");
        let (nonce, sealed) = (case.array("nonce_hex"), case.array::<PRIVATE_TOKEN_BYTES>("private_encrypted_hex"));
        let expires = UnixSeconds(case.u64("expire_timestamp_u64"));
        let protocol_id = case.u64("protocol_id_u64");

        let mut datagram = [0xaa; REQUEST_BYTES];
        let mut writer = Writer::new(&mut datagram);
        Request { expires, nonce: &nonce, sealed: &sealed }.emit(protocol_id, &mut writer);
        assert_eq!(writer.written().map(|bytes| bytes as u32), Some(case.u32("wire_bytes_u32")), "{case}");
        assert_eq!(hex::encode(datagram), case.text("wire_hex"), "{case}");

        let request = Request::parse(&datagram, protocol_id).unwrap_or_else(|discard| panic!("{case}: {discard}"));
        assert_eq!((request.expires, request.nonce, request.sealed), (expires, &nonce, &sealed), "{case}");
        assert!(request.expires > UnixSeconds(case.u64("accepted_when_current_timestamp_is_u64")), "{case}");
        let keys = KeyRing::from(Key::from(case.array("private_key_hex")));
        assert!(redeem(&request, protocol_id, &keys).is_ok(), "{case}");

        let to_client = PacketHeader::parse(&datagram, PacketKind::TO_CLIENT);
        assert_eq!(to_client, Err(Discard::UnexpectedType), "{case}: clients accept no requests");
    }
}

// Refusals ---------------------------------------------------------------------------------------------------------

/// The outcome at this layer for a check that the reference names.
#[derive(Clone, Copy)]
enum Here {
    /// Refused here, for this reason.
    Refused(Discard),
    /// Refused here, for the second reason if the datagram is longer than any packet of ours, else for the first. The
    /// reference checks only the size of the content; our code does not decrypt a datagram that cannot be a packet.
    RefusedBySize(Discard, Discard),
    /// Refused by the server or the client, which knows the sender; all checks of this layer pass.
    PassesWithoutSender,
    /// Refused by the server, which has the clock; all checks of this layer pass, and the expiry is not later than the
    /// clock.
    PassesButExpired,
}

/// The checks of the reference, and ours.
///
/// `type_0_with_sequence_bits`: the reference's server decrypts such a packet before it detects the unknown kind; our
/// code detects it in the prefix. `too_short_for_sequence_and_tag` is the same as `too_short_for_any_packet`.
const CHECKS: &[(&str, Here)] = &[
    ("too_short_for_any_packet", Here::Refused(Discard::TooShort)),
    ("packet_type_invalid", Here::Refused(Discard::UnknownType)),
    ("packet_type_not_allowed_here", Here::Refused(Discard::UnexpectedType)),
    ("type_0_with_sequence_bits", Here::Refused(Discard::UnexpectedType)),
    ("sequence_length_out_of_range", Here::Refused(Discard::SequenceLength)),
    ("too_short_for_sequence_and_tag", Here::Refused(Discard::TooShort)),
    ("authentication_failed", Here::Refused(Discard::NotAuthentic)),
    ("content_size_wrong", Here::Refused(Discard::ContentSize)),
    ("payload_empty", Here::Refused(Discard::ContentSize)),
    ("payload_too_large", Here::RefusedBySize(Discard::ContentSize, Discard::TooLong)),
    ("no_key_for_sender", Here::PassesWithoutSender),
    ("request_size_wrong", Here::Refused(Discard::RequestLength)),
    ("request_version_wrong", Here::Refused(Discard::RequestVersion)),
    ("request_protocol_wrong", Here::Refused(Discard::RequestProtocol)),
    ("request_expired", Here::PassesButExpired),
    ("request_private_part_fails", Here::Refused(Discard::TokenNotAuthentic)),
];

fn check(case: &Case<'_>) -> Here {
    let name = case.text("failed_check");
    let found = CHECKS.iter().find(|(check, _)| *check == name).map(|(_, here)| *here);
    found.unwrap_or_else(|| panic!("{case}: the check {name} is not in the table"))
}

#[test]
fn invalid_datagram_fails_the_check_named_by_the_reference() {
    let vectors = Vectors::load(INVALID);
    let cases = vectors.cases("cases", 74);
    for case in &cases {
        assert_eq!(case.text("expected"), "reject", "{case}");
        assert_eq!(case.bytes("wire_hex").len() as u32, case.u32("wire_bytes_u32"), "{case}");
        let receivers = case.texts("receivers");
        let sides: Vec<Side> = SIDES.into_iter().filter(|side| receivers.contains(&side.name)).collect();
        assert_eq!(sides.len(), receivers.len(), "{case}: receivers");
        for side in sides {
            assert_refused(case, side);
        }
    }
    for (check, _) in CHECKS {
        assert!(cases.iter().any(|case| case.text("failed_check") == *check), "no case for {check}");
    }
}

fn assert_refused(case: &Case<'_>, side: Side) {
    let outcome = receive(case, side);
    let bytes = case.bytes("wire_hex").len();
    match check(case) {
        Here::Refused(discard) => assert_eq!(outcome, Err(discard), "{case}: {}", side.name),
        Here::RefusedBySize(content, datagram) => {
            let expected = if bytes > MAX_ENCRYPTED_BYTES { datagram } else { content };
            assert_eq!(outcome, Err(expected), "{case}: {}", side.name);
            assert!(bytes > MAX_PAYLOAD_BYTES, "{case}");
        }
        Here::PassesWithoutSender => assert_eq!(outcome, Ok(None), "{case}: {}", side.name),
        Here::PassesButExpired => {
            let now = UnixSeconds(case.u64("current_timestamp_u64"));
            let expires = outcome.ok().flatten();
            assert!(expires.is_some_and(|expires| expires <= now), "{case}: {}", side.name);
        }
    }
}

/// Reads a datagram without state: returns the expiry of a request, or nothing for other packets.
fn receive(case: &Case<'_>, side: Side) -> Result<Option<UnixSeconds>, Discard> {
    let mut datagram = case.bytes("wire_hex");
    let protocol_id = case.u64("protocol_id_u64");
    if datagram.first() == Some(&REQUEST_PREFIX) && side.name == "server" {
        let request = Request::parse(&datagram, protocol_id)?;
        let keys = KeyRing::from(Key::from(case.array("private_key_hex")));
        return redeem(&request, protocol_id, &keys).map(|redeemed| Some(redeemed.expires));
    }
    let header = PacketHeader::parse(&datagram, side.accepts)?;
    if !case.has("key_hex") {
        return Ok(None);
    }
    let key = Key::from(case.array("key_hex"));
    let opens = open_with_backends(case, &key, protocol_id, &header).is_ok();
    let mut window = ReplayWindow::default();
    let content = PacketCipher::new(protocol_id).open_fresh(&key, &mut window, &header, &mut datagram);
    assert_eq!(content != Err(Discard::NotAuthentic), opens, "{case}: packet layer and backends");
    let marked = opens && is_replay_protected(header.kind);
    assert_eq!(window.newest(), marked.then_some(header.sequence), "{case}: only authentic packets move the window");
    content.map(|_| None)
}
