//! A hostile server that holds the keys of a token: the client ends with the right reason or goes on, within bounds of
//! work and memory, and disturbs no other connection of its program.
//!
//! `HostileServerWorld` checks its laws in every turn. Frames of a hostile peer are in `malicious_peers`.

use std::collections::HashMap;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use slipgate_netcode::address::Address;
use slipgate_netcode::client::ClientState;
use slipgate_netcode::crypto::key::Key;
use slipgate_netcode::discard::Discard;
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_session::channel::control::VERSION;
use slipgate_session::channel::transfer::frame::{TransferBegin, TransferFrame};
use slipgate_session::channel::transfer::{ContentDigest, MAX_TRANSFER_BYTES, MIN_SLICE_BYTES, TransferId};
use slipgate_session::channel::{ChannelConfig, ChannelId, ChannelViolation, Kind, Layout, LayoutHash, SendOptions};
use slipgate_session::connection::CloseCode;
use slipgate_session::connection::CloseKind;
use slipgate_session::wire::reliable::{Acks, ReliableHeader, Sequence};
use slipgate_session::wire::session_frame::{AckNonces, SessionFrame, Timestamp};
use slipgate_tests::counting::{allocations, peak};
use slipgate_tests::hostile::{FloodMix, FloodWriter, flood_layout};
use slipgate_tests::hostile_server::HostileServerWorld;
use slipgate_tests::malicious_peer::{MaliciousPeer, PeerPacket, bye, hello, transfer, whole};
use slipgate_tests::netcode_world::address;
use slipgate_tests::nonce_sum::{nonce_planes, nonce_sum};
use slipgate_tests::raw_server::FromClient;
use slipgate_tests::scale::pick;
use slipgate_tests::session_world::TURN;
use slipgate_typed::{Bincode, Codec, MAX_ALLOCATIONS, MEMORY_BASE, MEMORY_PER_BYTE, Postcard};

const UNRELIABLE: u8 = 0;
const ORDERED: u8 = 1;
const TRANSFERS: u8 = 2;
/// The bytes that a client may hold for a hostile server which sends no transfers.
const MAX_CLIENT_BYTES: i64 = 256 << 10;
/// The tables of the chunks of two transfers of 64 MiB in the smallest slices: 590 KiB for each.
const TABLES_BYTES: i64 = 2 * (590 << 10);
/// Packets of a flood in each turn: 15,000 a second.
const FLOOD_PACKETS: usize = 240;
/// The bytes that a client may hold in a flood of 3 s.
const MAX_FLOOD_BYTES: i64 = 8 << 20;
const SEEDS: u64 = 40;

fn layout() -> Arc<Layout> {
    let kinds = [Kind::Unreliable, Kind::ReliableOrdered, Kind::Transfers];
    Arc::new(Layout::try_from(kinds.map(ChannelConfig::from).to_vec()).unwrap())
}

/// Returns the turns in this number of seconds.
fn turns(seconds: u64) -> u64 {
    seconds * 1000 / TURN.as_millis() as u64
}

// Packets of netcode ------------------------------------------------------------------------------------------------

/// The datagrams of a hostile server in each turn, and the expected outcome.
struct Script {
    name: &'static str,
    /// How many addresses of the server the token lists.
    servers: usize,
    /// The slots that the client reports.
    slots: &'static [(u32, u32)],
    /// The name of the reason of the end; `None` if the connection goes on.
    end: Option<&'static str>,
    compose: Compose,
}

/// Returns the datagrams of a turn, each with the address that it comes from.
type Compose = fn(&mut HostileServerWorld, u64) -> Vec<(Address, Vec<u8>)>;

/// Returns whether the client sent a request, or a response, in the last turn.
fn asked(world: &HostileServerWorld) -> (bool, bool) {
    let is_response = |packet: &FromClient| matches!(packet, FromClient::Sealed(PacketKind::Response, ..));
    let sent = || world.sent.iter().map(|(_, packet)| packet);
    (sent().any(|packet| *packet == FromClient::Request), sent().any(is_response))
}

/// Returns the replies of an honest server: a challenge for a request, slot 0 of 4 for a response, and keep-alives.
fn honest(world: &mut HostileServerWorld) -> Vec<(Address, Vec<u8>)> {
    let home = world.homes[0];
    let datagram = match (asked(world), world.client.state()) {
        ((_, true), _) | (_, ClientState::Connected) => world.server.keep_alive(0, 4),
        ((true, _), _) => world.server.challenge(7),
        _ => return Vec::new(),
    };
    vec![(home, datagram)]
}

/// Returns these datagrams as from the first address of the server.
fn from_home(world: &HostileServerWorld, datagrams: impl IntoIterator<Item = Vec<u8>>) -> Vec<(Address, Vec<u8>)> {
    datagrams.into_iter().map(|datagram| (world.homes[0], datagram)).collect()
}

/// Returns the replies of an honest server until the client is connected, and then other datagrams.
fn then(
    world: &mut HostileServerWorld,
    datagrams: impl FnOnce(&mut HostileServerWorld) -> Vec<Vec<u8>>,
) -> Vec<(Address, Vec<u8>)> {
    if world.client.state() != ClientState::Connected {
        return honest(world);
    }
    let datagrams = datagrams(world);
    from_home(world, datagrams)
}

const REQUEST_TIMED_OUT: Option<&str> = Some("connection_request_timed_out");
const RESPONSE_TIMED_OUT: Option<&str> = Some("connection_response_timed_out");
const TIMED_OUT: Option<&str> = Some("timed_out");
const DENIED: Option<&str> = Some("connection_denied");

#[rustfmt::skip]
const HANDSHAKES: &[Script] = &[
    Script { name: "silence", servers: 1, slots: &[], end: REQUEST_TIMED_OUT, compose: |_, _| Vec::new() },
    Script { name: "silent servers until the token expires", servers: 12, slots: &[],
        end: Some("connect_token_expired"), compose: |_, _| Vec::new() },
    Script { name: "a challenge, then silence", servers: 1, slots: &[], end: RESPONSE_TIMED_OUT,
        compose: |world, turn| if turn == 1 { honest(world) } else { Vec::new() } },
    Script { name: "challenges of noise", servers: 1, slots: &[], end: REQUEST_TIMED_OUT, compose: |world, turn| {
        let mut chance = StdRng::seed_from_u64(turn);
        let mut noise = world.server.challenge(7);
        noise.iter_mut().skip(1).for_each(|byte| *byte = chance.random());
        from_home(world, [noise, vec![], vec![0], vec![0x12; 17]])
    } },
    Script { name: "challenges under another key", servers: 1, slots: &[], end: REQUEST_TIMED_OUT,
        compose: |world, turn| {
            let mut other = foreign_server();
            other.next_handshake += turn;
            from_home(world, [other.challenge(7), other.denial(), other.keep_alive(0, 4)])
        } },
    Script { name: "challenges of wrong sizes", servers: 1, slots: &[], end: REQUEST_TIMED_OUT, compose: |world, _| {
        let sizes = [0, 1, 307, 309, 1200, 1201, 4000];
        let sealed = sizes.map(|bytes| world.server.seal(PacketKind::Challenge, &vec![7; bytes]));
        from_home(world, sealed)
    } },
    Script { name: "keep-alives of wrong sizes", servers: 1, slots: &[], end: RESPONSE_TIMED_OUT,
        compose: |world, turn| {
            let sealed = [0, 4, 7, 9, 1200].map(|bytes| world.server.seal(PacketKind::KeepAlive, &vec![0; bytes]));
            if turn == 1 { honest(world) } else { from_home(world, sealed) }
        } },
    Script { name: "two hundred challenges in each turn", servers: 1, slots: &[], end: RESPONSE_TIMED_OUT,
        compose: |world, _| {
            let challenges: Vec<_> = (0..200).map(|fill| world.server.challenge(fill)).collect();
            from_home(world, challenges)
        } },
    Script { name: "one challenge again and again", servers: 1, slots: &[], end: RESPONSE_TIMED_OUT,
        compose: |world, _| {
            world.server.next_handshake = 1 << 63;
            let challenge = world.server.challenge(7);
            from_home(world, vec![challenge; 50])
        } },
    Script { name: "a challenge after the end", servers: 1, slots: &[], end: REQUEST_TIMED_OUT,
        compose: |world, turn| {
            let datagrams = [world.server.challenge(7), world.server.keep_alive(0, 4)];
            if turn > turns(5) { from_home(world, datagrams) } else { Vec::new() }
        } },
    Script { name: "denied, and then accepted", servers: 1, slots: &[], end: DENIED, compose: |world, _| {
        let datagrams = [world.server.denial(), world.server.challenge(7), world.server.keep_alive(0, 4)];
        from_home(world, datagrams)
    } },
    Script { name: "denied after the challenge", servers: 1, slots: &[], end: DENIED, compose: |world, _| {
        let datagrams = [world.server.challenge(7), world.server.denial(), world.server.keep_alive(0, 4)];
        from_home(world, datagrams)
    } },
    Script { name: "denied by the first of two, which then accepts", servers: 2, slots: &[], end: REQUEST_TIMED_OUT,
        compose: |world, _| {
            let datagrams = [world.server.denial(), world.server.challenge(7), world.server.keep_alive(0, 4)];
            from_home(world, datagrams)
        } },
    Script { name: "denied by all of 32", servers: 32, slots: &[], end: DENIED, compose: |world, _| {
        let homes = world.homes.clone();
        homes.into_iter().map(|home| (home, world.server.denial())).collect()
    } },
    Script { name: "slots at or above the number of slots", servers: 1, slots: &[], end: RESPONSE_TIMED_OUT,
        compose: |world, turn| {
            let slots = [(7, 4), (4, 4), (0, 0), (u32::MAX, u32::MAX), (u32::MAX, 1), (1, 0)];
            let datagrams = slots.map(|(slot, max_clients)| world.server.keep_alive(slot, max_clients));
            if turn == 1 { honest(world) } else { from_home(world, datagrams) }
        } },
    Script { name: "the last of 2^32 - 1 slots", servers: 1, slots: &[(u32::MAX - 1, u32::MAX)], end: TIMED_OUT,
        compose: |world, turn| match turn {
            1 => honest(world),
            2 => { let slot = world.server.keep_alive(u32::MAX - 1, u32::MAX); from_home(world, [slot]) }
            _ => Vec::new(),
        } },
    Script { name: "a slot before the challenge", servers: 1, slots: &[], end: REQUEST_TIMED_OUT,
        compose: |world, _| { let slot = world.server.keep_alive(0, 4); from_home(world, [slot]) } },
    Script { name: "disconnects before the slot", servers: 1, slots: &[], end: RESPONSE_TIMED_OUT,
        compose: |world, turn| {
            let disconnect = world.server.disconnect();
            if turn == 1 { honest(world) } else { from_home(world, [disconnect]) }
        } },
    Script { name: "payloads before the slot", servers: 1, slots: &[], end: REQUEST_TIMED_OUT, compose: |world, _| {
        let payload = world.server.payload(&[0; 1200]);
        from_home(world, [payload])
    } },
    Script { name: "valid packets from other addresses", servers: 1, slots: &[], end: REQUEST_TIMED_OUT,
        compose: |world, _| {
            let away = ["10.0.9.1:40001", "10.0.9.2:40000", "127.0.0.1:1", "[2001:db8::1]:40000"].map(address);
            away.iter().flat_map(|from| [(*from, world.server.challenge(7)), (*from, world.server.denial())]).collect()
        } },
    Script { name: "the client's own packets", servers: 1, slots: &[], end: REQUEST_TIMED_OUT,
        compose: |world, _| from_home(world, world.sent_datagrams.clone()) },
    Script { name: "the highest number first", servers: 1, slots: &[(0, 4)], end: TIMED_OUT, compose: |world, turn| {
        if turn == 2 {
            world.server.next_sequence = u64::MAX;
        }
        honest(world)
    } },
    Script { name: "numbers that jump to the highest ones", servers: 1, slots: &[(0, 4)], end: TIMED_OUT,
        compose: |world, turn| {
            if turn == 40 {
                world.server.next_sequence = u64::MAX - 20;
            }
            honest(world)
        } },
    Script { name: "both lanes exchanged", servers: 1, slots: &[(0, 4)], end: None, compose: |world, turn| {
        if turn == 0 {
            (world.server.next_handshake, world.server.next_sequence) = (0, 1 << 63);
        }
        honest(world)
    } },
    Script { name: "the lane of another server of the token", servers: 2, slots: &[], end: REQUEST_TIMED_OUT,
        compose: |world, turn| {
            if turn == 0 {
                world.server.next_sequence = 1 << 40;
            }
            honest(world)
        } },
];

#[rustfmt::skip]
const CONNECTIONS: &[Script] = &[
    Script { name: "an honest server", servers: 1, slots: &[(0, 4)], end: None, compose: |world, _| honest(world) },
    Script { name: "silence with a slot", servers: 1, slots: &[(0, 4)], end: TIMED_OUT,
        compose: |world, _| then(world, |_| Vec::new()) },
    Script { name: "challenges and denials with a slot", servers: 1, slots: &[(0, 4)], end: TIMED_OUT,
        compose: |world, _| then(world, |world| vec![world.server.challenge(9), world.server.denial()]) },
    Script { name: "endless denials beside keep-alives", servers: 2, slots: &[(0, 4)], end: None,
        compose: |world, _| then(world, |world| {
            let mut datagrams: Vec<_> = (0..50).map(|_| world.server.denial()).collect();
            datagrams.push(world.server.keep_alive(0, 4));
            datagrams
        }) },
    Script { name: "slots that change", servers: 1, slots: &[(0, 4)], end: None,
        compose: |world, turn| then(world, |world| {
            vec![world.server.keep_alive(turn as u32 % 9, 4), world.server.keep_alive(u32::MAX, turn as u32)]
        }) },
    Script { name: "an end of netcode", servers: 2, slots: &[(0, 4)], end: Some("disconnected_by_server"),
        compose: |world, _| then(world, |world| vec![world.server.disconnect(), world.server.keep_alive(0, 4)]) },
    Script { name: "an end from another address", servers: 2, slots: &[(0, 4)], end: None, compose: |world, _| {
        let mut datagrams = honest(world);
        let away = world.homes[1];
        datagrams.extend([(away, world.server.disconnect()), (address("10.0.9.1:1"), world.server.disconnect())]);
        datagrams
    } },
    Script { name: "all in one turn: a challenge, a slot, a denial", servers: 1, slots: &[(1, 4)], end: TIMED_OUT,
        compose: |world, turn| {
            let datagrams = [world.server.challenge(7), world.server.keep_alive(1, 4), world.server.denial()];
            if turn == 1 { from_home(world, datagrams) } else { Vec::new() }
        } },
    Script { name: "payloads of all sizes and plain bytes", servers: 1, slots: &[(0, 4)], end: Some("not_a_session"),
        compose: |world, turn| then(world, |world| {
            [0, 1, 1200, 1201, 4000].map(|bytes| world.server.payload(&vec![turn as u8; bytes])).to_vec()
        }) },
];

/// Returns a server with the keys of another token.
fn foreign_server() -> slipgate_tests::raw_server::RawServer {
    let mut world = slipgate_tests::netcode_world::NetcodeWorld::perfect(77);
    world.private_key = Key::from([3; 32]);
    let servers = vec![address("10.0.9.1:40000")];
    let spec = slipgate_tests::netcode_world::TokenSpec {
        client_id: 2,
        servers,
        lifetime: 45,
        timeout: 5,
        user_data: [0; 256],
    };
    slipgate_tests::raw_server::RawServer::new(&world.mint(&spec))
}

/// Runs a script until the client has ended, and a second longer, or for 10 s of a connection.
fn run_script(script: &Script) {
    let mut world = HostileServerWorld::new(&layout(), script.servers);
    let (mut last, mut turn) = (turns(60), 0);
    while turn < last {
        let datagrams = (script.compose)(&mut world, turn);
        world.turn(datagrams);
        if world.report.end.is_some() {
            last = last.min(turn + turns(1));
        } else if world.client.state() == ClientState::Connected {
            last = last.min(turn + turns(10));
        }
        turn += 1;
    }
    let (report, name) = (&world.report, script.name);
    let end = report.end.as_ref().map(|end| end.kind.name());
    println!("{name}: {end:?} after {turn} turns, slots {:?}, {} bytes", report.slots, report.peak_bytes);
    assert_eq!((end, &report.slots[..]), (script.end, script.slots), "{name}");
    assert_eq!(report.messages, 0, "{name}");
    assert!(report.peak_bytes < MAX_CLIENT_BYTES, "{name}: {} bytes", report.peak_bytes);
    if script.end.is_none() {
        let slot = world.client.netcode.slot_info().map(|(slot, max_clients)| (slot.0, max_clients));
        assert_eq!(slot.as_ref(), script.slots.first(), "{name}: the slot stays");
    }
    world.assert_others_unaffected(name);
}

#[test]
fn hostile_handshakes_end_the_client_with_a_reason() {
    HANDSHAKES.iter().for_each(run_script);
}

#[test]
fn hostile_servers_end_the_connection_with_a_reason() {
    CONNECTIONS.iter().for_each(run_script);
}

#[test]
fn sequence_numbers_near_the_maximum_are_taken_once() {
    let mut world = HostileServerWorld::connected(&layout());
    let mut peer = MaliciousPeer::default();
    let hash = layout().hash();
    for sequence in [1 << 63, u64::MAX - 1, u64::MAX, u64::MAX, u64::MAX - 1, 1 << 63, 0, 5] {
        world.server.next_sequence = sequence;
        let payload = peer.packet(PeerPacket::frames(hash, &whole(UNRELIABLE, None, b"hi")));
        world.turn_of_payloads(vec![payload]);
    }
    assert_eq!(world.report.messages, 3);
    assert!(world.client.netcode.discards()[Discard::Replayed] >= 5);
    world.assert_others_unaffected("the highest numbers");
}

// Floods ------------------------------------------------------------------------------------------------------------

/// The mixes of the quick tests.
const QUICK: [FloodMix; 6] = [
    FloodMix::EmptyUnreliable,
    FloodMix::LastSlices,
    FloodMix::GapThenAll,
    FloodMix::TransferHoles,
    FloodMix::Hellos,
    FloodMix::All,
];
/// The mixes of which most packets of a turn exceed the work budget.
const COSTLY: [FloodMix; 2] = [FloodMix::EmptyUnreliable, FloodMix::EmptySequenced];

/// Returns whether a flood may end a connection so: refused packets leave gaps, behind which the window ends, and two
/// mixes acknowledge packets that the client did not send.
const fn is_expected(end: CloseKind) -> bool {
    matches!(
        end,
        CloseKind::Violation(ChannelViolation::Flood | ChannelViolation::Overrun(_) | ChannelViolation::AcksOfUnsent)
    )
}

#[test]
fn floods_of_a_server_keep_turns_of_the_client_short() {
    let layout = flood_layout();
    for mix in pick(&QUICK[..], &FloodMix::EVERY[..]).iter().copied() {
        let mut world = HostileServerWorld::connected(&layout);
        let mut writer = FloodWriter::new(mix, &layout);
        let mut turn = 0;
        // A client that ends the connection itself waits for an acknowledgement of its close message.
        let last = if COSTLY.contains(&mix) { turns(8) } else { turns(3) };
        while turn < last && world.report.end.is_none() {
            world.turn_of_payloads((0..FLOOD_PACKETS).map(|_| writer.next_payload()).collect());
            turn += 1;
        }
        let report = &world.report;
        let end = report.end.as_ref().map(|end| end.kind);
        println!(
            "{mix:?}: {end:?} after {turn} turns, {} messages, a turn {:?} by estimate, {:?} by the clock, {} bytes",
            report.messages, report.turn_work, report.turn_time, report.peak_bytes
        );
        if COSTLY.contains(&mix) {
            assert_eq!(end, Some(CloseKind::Violation(ChannelViolation::Flood)), "{mix:?}");
        }
        assert!(end.is_none_or(is_expected), "{mix:?}: {end:?}");
        assert!(report.peak_bytes < MAX_FLOOD_BYTES, "{mix:?}: {} bytes", report.peak_bytes);
        world.assert_others_unaffected(&format!("{mix:?}"));
    }
}

// Messages and transfers --------------------------------------------------------------------------------------------

#[test]
fn unasked_transfers_take_twice_what_has_arrived() {
    let (mut world, mut peer) = (HostileServerWorld::connected(&layout()), MaliciousPeer::default());
    let hash = layout().hash();
    let mut sent = 0;
    for turn in 0..turns(5) {
        let payloads = (0..40).map(|at| {
            let number = (turn * 40 + at) as u32;
            let id = TransferId((number % 8) as u16);
            let begin = TransferBegin {
                id,
                slice_bytes: MIN_SLICE_BYTES,
                length: MAX_TRANSFER_BYTES,
                label: 1,
                digest: ContentDigest([3; 32]),
            };
            // Two of them are received at once; slices come from all over them.
            let slices = MAX_TRANSFER_BYTES / u32::from(MIN_SLICE_BYTES);
            let id_of_slice = TransferId((number % 2) as u16);
            let index = number.wrapping_mul(7919) % slices;
            let slice = TransferFrame::Slice { id: id_of_slice, index, bytes: &[7; MIN_SLICE_BYTES as usize] };
            sent += i64::from(MIN_SLICE_BYTES);
            let begins = if number < 8 { transfer(TRANSFERS, &TransferFrame::Begin(begin)) } else { Vec::new() };
            let slices = if number < 8 { Vec::new() } else { transfer(TRANSFERS, &slice) };
            peer.packet(PeerPacket::frames(hash, &[begins, slices].concat()))
        });
        let payloads = payloads.collect();
        world.turn_of_payloads(payloads);
    }
    let report = &world.report;
    println!("{} bytes held for {sent} bytes of slices, {:?}", report.peak_bytes, report.end);
    assert_eq!(report.end, None, "unasked transfers break no rule");
    let max_bytes = 2 * sent + TABLES_BYTES + MAX_CLIENT_BYTES;
    assert!(report.peak_bytes < max_bytes, "{} bytes for {sent}", report.peak_bytes);
    world.assert_others_unaffected("transfers");
}

/// Messages that announce far more than they contain, by bincode and by postcard.
fn bombs() -> Vec<Vec<u8>> {
    let huge = [0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    let varint = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let mut bombs = vec![huge.to_vec(), varint.to_vec(), vec![0xff; 1100], vec![1; 1100], vec![0; 1100]];
    // Lists of lists, and lists of empty options.
    bombs.push([&[251, 0xff, 0x03][..], &[0; 1000]].concat());
    bombs.push([&[0xff, 0x07][..], &[0; 1000]].concat());
    bombs
}

/// Decodes a message as a shape by both codecs. Returns the largest number of bytes and of allocations.
fn decode<T: serde::de::DeserializeOwned>(message: &[u8]) -> (i64, u64) {
    let mut bytes = 0;
    let allocation_count = allocations(|| {
        let ((), high) = peak(|| {
            let _ = Bincode::default().decode_owned::<T>(message);
            let _ = Postcard::default().decode_owned::<T>(message);
        });
        bytes = high;
    });
    (bytes, allocation_count)
}

#[test]
fn messages_that_expand_are_decoded_within_bounds() {
    let (mut world, mut peer) = (HostileServerWorld::connected(&layout()), MaliciousPeer::default());
    let hash = layout().hash();
    for bomb in bombs() {
        world.turn_of_payloads(vec![peer.packet(PeerPacket::frames(hash, &whole(UNRELIABLE, None, &bomb)))]);
        let message = &world.report.last_message;
        assert_eq!(*message, bomb, "the message reaches the game");
        let max_bytes = (MEMORY_PER_BYTE * message.len() + MEMORY_BASE) as i64;
        for (bytes, allocation_count) in [
            decode::<Vec<u64>>(message),
            decode::<Vec<String>>(message),
            decode::<Vec<Vec<Option<()>>>>(message),
            decode::<std::collections::BTreeMap<u8, Vec<()>>>(message),
            decode::<Vec<Box<(u8, Option<String>)>>>(message),
        ] {
            assert!(bytes <= max_bytes, "{bytes} bytes for {}", message.len());
            assert!(allocation_count <= 2 * (MAX_ALLOCATIONS as u64 + 1), "{allocation_count} allocations");
        }
    }
    assert_eq!((world.report.end.clone(), world.report.messages), (None, bombs().len()));
    world.assert_others_unaffected("messages that expand");
}

// Control messages --------------------------------------------------------------------------------------------------

#[test]
fn close_texts_of_a_hostile_server_are_shown_as_plain_text() {
    let raw = |text: &[u8]| [&[0, 2][..], &[2 + text.len() as u8], &300_u16.to_le_bytes(), text].concat();
    let plain = |text: &str| bye(CloseCode(300), text);
    let long = "a long text ".repeat(40);
    let cases: [(&str, Vec<u8>, &str, &str); 7] = [
        ("escapes", plain("\u{1b}[2J\u{1b}]0;owned\u{7}bye\u{9b}31m"), "kicked", "[2J]0;ownedbye31m"),
        ("line breaks", plain("bye\r\nWARN forged\n"), "kicked", "bye  WARN forged "),
        ("directions", plain("\u{202e}gnp\u{2066}.exe\u{200f}"), "kicked", "gnp.exe"),
        ("separators", plain("one\u{2028}two\u{85}three\u{feff}\0"), "kicked", "one two three"),
        ("too long", plain(&long), "kicked", &long[..256]),
        ("no UTF-8", raw(b"bye \xff\xfe\x1b"), "violation", ""),
        ("cut", vec![0, 2, 200, 44, 1, b'x'], "violation", ""),
    ];
    for (name, frames, end, text) in cases {
        let (mut world, mut peer) = (HostileServerWorld::connected(&layout()), MaliciousPeer::default());
        world.turn_of_payloads(vec![peer.packet(PeerPacket::frames(layout().hash(), &frames))]);
        // A client that ends the connection itself waits for an acknowledgement of its close message.
        (0..turns(4)).for_each(|_| world.turn_from_home(Vec::new()));
        let reason = world.report.end.clone().unwrap_or_else(|| panic!("{name}: the client goes on"));
        assert_eq!((reason.kind.name(), reason.text.as_str()), (end, text), "{name}");
        world.assert_others_unaffected(name);
    }
}

#[test]
fn hello_of_a_hostile_server_ends_with_a_reason_or_counts_once() {
    let (right, wrong) = (layout().hash(), LayoutHash([7; 8]));
    let cases: [(&str, Vec<u8>, Option<&str>); 6] = [
        ("another layout", hello(VERSION, wrong), Some("layout_mismatch")),
        ("another version", hello(VERSION + 1, right), Some("version_mismatch")),
        ("none, and messages", whole(UNRELIABLE, None, b"hi"), Some("not_a_session")),
        ("none at all", Vec::new(), None),
        ("sixty in each packet", hello(VERSION, right).repeat(60), None),
        (
            "another layout behind the right one",
            [hello(VERSION, right), hello(VERSION, wrong)].concat(),
            Some("layout_mismatch"),
        ),
    ];
    for (name, control, end) in cases {
        let (mut world, mut peer) = (HostileServerWorld::connected(&layout()), MaliciousPeer::default());
        for _ in 0..turns(4) {
            let content = PeerPacket { hello: None, ..PeerPacket::frames(right, &control) };
            let payloads = (0..4).map(|_| peer.packet(content)).collect();
            world.turn_of_payloads(payloads);
        }
        println!("{name}: {:?}", world.report.end);
        assert_eq!(world.report.end.as_ref().map(|end| end.kind.name()), end, "{name}");
        world.assert_others_unaffected(name);
    }
}

// Acknowledgements and clocks ---------------------------------------------------------------------------------------

/// Returns the packet number and the nonce of a payload of the client.
fn packet_number(packet: &FromClient) -> Option<(u16, u8)> {
    let FromClient::Sealed(PacketKind::Payload, _, content) = packet else { return None };
    let (header, payload) = ReliableHeader::parse(content).ok()?;
    Some((header.sequence.0, SessionFrame::parse(payload).ok()?.0.nonces.own))
}

/// Runs a game whose client sends a message in each turn, to a server that acknowledges by `acks`: it gets the numbers
/// of all packets so far. Returns the reason of the end, and the turns.
fn run_acks(seconds: u64, stamp: impl Fn(u64) -> u16, acks: impl Fn(&[u16]) -> Acks) -> (Option<CloseKind>, u64) {
    let (mut world, mut peer) = (HostileServerWorld::connected(&layout()), MaliciousPeer::default());
    let (mut numbers, mut nonces, hash) = (Vec::new(), HashMap::new(), layout().hash());
    for turn in 0..turns(seconds) {
        if let Ok(connection) = world.client.connection_mut() {
            let now = connection_now(turn);
            let _ = connection.send(ChannelId(ORDERED), &[1; 50], SendOptions::default(), now);
        }
        let acks = acks(&numbers);
        let planes = nonce_planes(acks, &[], |number| nonces.get(&number).copied().unwrap_or(0));
        let nonces_of_acks = AckNonces { own: 0, sum: nonce_sum(peer.next_number(), &planes) };
        let frame =
            SessionFrame { sent: Timestamp(stamp(turn)), nonces: nonces_of_acks, arrived: None, extended_acks: &[] };
        let message = whole(UNRELIABLE, None, b"state");
        let packet = PeerPacket { acks, frame, ..PeerPacket::frames(hash, &message) };
        world.turn_of_payloads(vec![peer.packet(packet)]);
        for (number, nonce) in world.sent.iter().filter_map(|(_, packet)| packet_number(packet)) {
            numbers.push(number);
            nonces.insert(number, nonce);
        }
        if let Some(end) = world.report.end.clone() {
            world.assert_others_unaffected("acknowledgements");
            return (Some(end.kind), turn);
        }
    }
    world.assert_others_unaffected("acknowledgements");
    (None, turns(seconds))
}

/// Returns the clock of an application: only deadlines of messages depend on it.
fn connection_now(turn: u64) -> slipgate_netcode::time::Instant {
    slipgate_netcode::time::Instant::from_start(std::time::Duration::from_secs(2) + TURN * turn as u32)
}

/// Returns true acknowledgements of the newest packet and the 31 before it.
fn true_acks(numbers: &[u16]) -> Acks {
    let Some(newest) = numbers.last() else { return Acks::NONE };
    let bit = |back: u32| u32::from(numbers.contains(&newest.wrapping_sub(back as u16))) << back;
    Acks { ack: Sequence(*newest), bits: (0..32).map(bit).sum() }
}

#[test]
fn acks_of_numbers_that_the_client_skipped_end_it() {
    let violation = Some(CloseKind::Violation(ChannelViolation::AcksOfUnsent));
    let own_clock = |turn: u64| (turn * 16) as u16;
    assert_eq!(run_acks(20, own_clock, true_acks).0, None, "true acknowledgements");
    let all = |numbers: &[u16]| Acks { bits: u32::MAX, ..true_acks(numbers) };
    let skipped = |numbers: &[u16]| if numbers.len() < 32 { true_acks(numbers) } else { all(numbers) };
    let (end, turn) = run_acks(20, own_clock, skipped);
    println!("acknowledgements of skipped numbers end the client after {turn} turns");
    assert_eq!(end, violation);
    let unsent = |numbers: &[u16]| {
        let Acks { ack, bits } = true_acks(numbers);
        Acks { ack: Sequence(ack.0.wrapping_add(2000)), bits }
    };
    assert_eq!(run_acks(20, own_clock, unsent).0, violation, "numbers that were never sent");
}

#[test]
fn timestamps_that_go_back_or_jump_have_no_effect() {
    let stamps = [
        ("backwards", (|turn| 0_u16.wrapping_sub((turn * 16) as u16)) as fn(u64) -> u16),
        ("still", |_| 0),
        ("jumps", |turn| (turn as u16).wrapping_mul(30_011)),
        ("fast", |turn| (turn * 4000) as u16),
    ];
    for (name, stamp) in stamps {
        assert_eq!(run_acks(10, stamp, true_acks).0, None, "{name}");
    }
}

// Chance ------------------------------------------------------------------------------------------------------------

/// Returns the datagrams of a random hostile server in one turn.
fn random_datagrams(
    world: &mut HostileServerWorld,
    writer: &mut FloodWriter,
    chance: &mut StdRng,
) -> Vec<(Address, Vec<u8>)> {
    let mut datagrams = honest(world);
    for _ in 0..chance.random_range(0..4) {
        if chance.random_range(0..50) == 0 {
            world.server.next_sequence = match chance.random_range(0..3) {
                0 => world.server.next_sequence.saturating_add(chance.random_range(0..1 << 20)),
                1 => (chance.random_range(0..40_u64)) << 40,
                _ => u64::MAX - chance.random_range(0..100),
            };
        }
        let repeats = if chance.random_range(0..20) == 0 { 100 } else { 1 };
        let datagram = random_datagram(world, writer, chance);
        let from = match chance.random_range(0..20) {
            0 => address("10.0.9.77:7"),
            1 => world.homes[world.homes.len() - 1],
            _ => world.homes[0],
        };
        datagrams.extend(std::iter::repeat_n((from, datagram), repeats));
    }
    datagrams
}

fn random_datagram(world: &mut HostileServerWorld, writer: &mut FloodWriter, chance: &mut StdRng) -> Vec<u8> {
    let mut noise = vec![0; chance.random_range(1..1300)];
    chance.fill(&mut noise[..]);
    let kinds = [
        PacketKind::Denied,
        PacketKind::Challenge,
        PacketKind::KeepAlive,
        PacketKind::Payload,
        PacketKind::Payload,
        PacketKind::Disconnect,
    ];
    match chance.random_range(0..100) {
        0..15 => world.server.challenge(chance.random()),
        15..17 => world.server.denial(),
        17..30 => world.server.keep_alive(chance.random_range(0..6), chance.random_range(0..5)),
        30 => world.server.disconnect(),
        31..35 => world.server.seal(kinds[chance.random_range(0..kinds.len())], &noise),
        35..40 => noise,
        40..50 => world.sent_datagrams.first().cloned().unwrap_or(noise),
        50 => {
            let text: String = (0..60).map(|_| chance.random::<char>()).collect();
            let payload =
                MaliciousPeer::default().packet(PeerPacket::frames(layout().hash(), &bye(CloseCode(9), &text)));
            world.server.payload(&payload)
        }
        51..53 => {
            let mut payload = writer.next_payload();
            let at = chance.random_range(0..payload.len());
            payload[at] ^= chance.random::<u8>();
            world.server.payload(&payload)
        }
        _ => {
            let payload = writer.next_payload();
            world.server.payload(&payload)
        }
    }
}

#[test]
fn forty_random_hostile_servers_break_no_law() {
    let (layout, mut ends, mut worst) = (flood_layout(), std::collections::BTreeMap::<_, u32>::new(), (0, 0));
    for seed in 0..SEEDS {
        let mut chance = StdRng::seed_from_u64(seed);
        let mut world = HostileServerWorld::new(&layout, 1 + (seed % 4) as usize);
        let mix = FloodMix::EVERY[seed as usize % FloodMix::EVERY.len()];
        let mut writer = FloodWriter::new(mix, &layout);
        for _ in 0..turns(8) {
            let datagrams = random_datagrams(&mut world, &mut writer, &mut chance);
            world.turn(datagrams);
        }
        let report = &world.report;
        let end = report.end.as_ref().map_or("none", |end| end.kind.name());
        println!("seed {seed}, {mix:?}: {end}, slots {:?}, {} bytes", report.slots, report.peak_bytes);
        assert!(report.slots.iter().all(|(slot, max_clients)| slot < max_clients) && report.slots.len() <= 1);
        let is_of_attempt = end.starts_with("connect");
        assert_eq!(is_of_attempt, report.slots.is_empty() && end != "none", "{end}");
        *ends.entry(end).or_default() += 1;
        worst = worst.max((report.peak_bytes, seed));
        world.assert_others_unaffected(&format!("seed {seed}"));
    }
    println!("{ends:?}; at most {} bytes, seed {}", worst.0, worst.1);
    assert!(worst.0 < 4 << 20, "{} bytes, seed {}", worst.0, worst.1);
    assert!(ends.len() >= 3, "the seeds reach several ends: {ends:?}");
}
