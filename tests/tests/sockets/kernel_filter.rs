//! The kernel filter passes exactly the datagrams that a server would accept for processing.
//!
//! A million generated datagrams, valid and junk, and the vectors run through our own interpreter of the filter's
//! program. The kernel itself runs it on 100,000 of both kinds, on real sockets of each family.

use std::io::Write as _;
use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use serde_json::Value;
use slipgate_client::ClientState;
use slipgate_netcode::discard::Discard;
use slipgate_netcode::wire::cursor::Writer;
use slipgate_netcode::wire::packet::{PacketHeader, PacketKind, Request};
use slipgate_netcode::wire::{MAX_DATAGRAM_BYTES, MAX_PAYLOAD_BYTES, REQUEST_BYTES, TAG_BYTES, VERSION};
use slipgate_server::config::TokenCutoff;
use slipgate_server::keys::Key;
use slipgate_server::{Clock, Inbox, Server, ServerConfig};
use slipgate_tests::live::{self, GameClient, GameServer, OurClient, OurServer, TokenOrder, Turn, until};
use slipgate_udp::{BpfInstruction, OtherProtocol, ReceiveBatch, SocketFilter, Sockets, code};

const PROTOCOL_ID: u64 = 0x1122_3344_5566_7788;
/// Datagrams for the interpreter.
const GENERATED: u32 = 1_000_000;
/// Datagrams to real sockets of each family: as many as take a second.
const BY_THE_KERNEL: u32 = 100_000;
const STRICT: SocketFilter = SocketFilter { protocol_id: PROTOCOL_ID, other_protocols: OtherProtocol::Dropped };

// The rules, and an interpreter -------------------------------------------------------------------------------------

/// Returns whether a server of this protocol id would process a datagram, by the checks of the protocol itself.
fn is_accepted(datagram: &[u8], protocol_id: u64) -> bool {
    match datagram.first() {
        None => false,
        Some(0) => Request::parse(datagram, protocol_id).is_ok(),
        Some(_) => PacketHeader::parse(datagram, PacketKind::TO_SERVER)
            .is_ok_and(|header| header.kind.allows_content(datagram.len() - header.bytes - TAG_BYTES)),
    }
}

/// Runs a program as the kernel does, on the datagram behind a UDP header.
fn passes(program: &[BpfInstruction], datagram: &[u8]) -> bool {
    let packet = [&[0; 8], datagram].concat();
    let load = |offset: u32, bytes: usize| {
        let part = packet.get(offset as usize..offset as usize + bytes)?;
        Some(part.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte)))
    };
    let (mut a, mut x, mut next) = (0_u32, 0_u32, 0);
    loop {
        let BpfInstruction { code, if_true, if_false, operand } = program[next];
        next += 1;
        let loaded = match code {
            code::LOAD_BYTE => load(operand, 1),
            code::LOAD_HALF => load(operand, 2),
            code::LOAD_WORD => load(operand, 4),
            code::LOAD_LENGTH => Some(packet.len() as u32),
            code::AND => Some(a & operand),
            code::SHIFT_RIGHT => Some(a >> operand),
            code::SUBTRACT => Some(a.wrapping_sub(operand)),
            code::SUBTRACT_X => Some(a.wrapping_sub(x)),
            code::FROM_X => Some(x),
            code::TO_X => {
                x = a;
                continue;
            }
            code::IS | code::IS_ABOVE => {
                let holds = if code == code::IS { a == operand } else { a > operand };
                next += usize::from(if holds { if_true } else { if_false });
                continue;
            }
            code::END => return operand > 0,
            _ => panic!("unknown instruction {code:#x}"),
        };
        // A load behind the end of the packet drops it.
        let Some(loaded) = loaded else { return false };
        a = loaded;
    }
}

// Datagrams ---------------------------------------------------------------------------------------------------------

/// Returns a generator and prints its seed, so that a failure can be repeated.
fn entropy() -> StdRng {
    let seed = 4_711;
    println!("seed {seed}");
    StdRng::seed_from_u64(seed)
}

fn request(entropy: &mut StdRng, protocol_id: u64) -> Vec<u8> {
    let mut datagram = vec![0; REQUEST_BYTES];
    // The bytes of the sealed part do not matter; a few of them suffice.
    entropy.fill_bytes(&mut datagram[22..54]);
    datagram[1..14].copy_from_slice(&VERSION);
    datagram[14..22].copy_from_slice(&protocol_id.to_le_bytes());
    datagram
}

/// Returns a packet of a client: of any kind that servers accept, with a sequence number of any length.
fn encrypted(entropy: &mut StdRng) -> Vec<u8> {
    let kind = PacketKind::TO_SERVER[entropy.random_range(0..PacketKind::TO_SERVER.len())];
    let content = match kind {
        PacketKind::Payload => entropy.random_range(1..=MAX_PAYLOAD_BYTES),
        kind => (0..MAX_PAYLOAD_BYTES).find(|bytes| kind.allows_content(*bytes)).unwrap(),
    };
    let mut datagram = [0x5a; MAX_DATAGRAM_BYTES];
    let header = PacketHeader::canonical(kind, entropy.random::<u64>() >> entropy.random_range(0..64));
    header.emit(&mut Writer::new(&mut datagram));
    let mut datagram = datagram[..header.bytes + content + TAG_BYTES].to_vec();
    // Longer encodings than needed are valid (§1.7).
    while datagram[0] >> 4 < 8 && entropy.random_ratio(1, 4) {
        datagram[0] += 0x10;
        datagram.push(0);
    }
    datagram
}

fn valid(entropy: &mut StdRng) -> Vec<u8> {
    if entropy.random_ratio(1, 8) { request(entropy, PROTOCOL_ID) } else { encrypted(entropy) }
}

/// Returns a datagram that is almost valid, or not at all.
fn junk(entropy: &mut StdRng) -> Vec<u8> {
    let mut datagram = match entropy.random_range(0..4) {
        0 => vec![entropy.random(); entropy.random_range(0..1400)],
        1 => {
            let bit = entropy.random_range(0..128);
            request(entropy, if bit < 64 { PROTOCOL_ID ^ 1 << bit } else { PROTOCOL_ID })
        }
        _ => encrypted(entropy),
    };
    let front = datagram.len().min(24);
    match entropy.random_range(0..4) {
        0 => datagram.truncate(datagram.len().saturating_sub(entropy.random_range(0..3))),
        1 => datagram.resize(datagram.len() + entropy.random_range(0..3), 7),
        2 if front > 0 => datagram[0] = entropy.random(),
        3 if front > 0 => datagram[entropy.random_range(0..front)] ^= 1 << entropy.random_range(0..8),
        _ => {}
    }
    datagram
}

// The interpreter --------------------------------------------------------------------------------------------------

#[test]
fn filter_passes_a_million_valid_packets() {
    let (program, mut entropy) = (STRICT.program(), entropy());
    for number in 0..GENERATED {
        let datagram = valid(&mut entropy);
        assert!(is_accepted(&datagram, PROTOCOL_ID), "{number}: the generator is wrong");
        assert!(passes(&program, &datagram), "{number}: {:02x?}…, {} bytes", &datagram[..9], datagram.len());
    }
}

#[test]
fn filter_passes_only_well_formed_datagrams_of_a_million() {
    let (program, mut entropy) = (STRICT.program(), entropy());
    let mut passed = 0;
    for number in 0..GENERATED {
        let datagram = junk(&mut entropy);
        let is_accepted = is_accepted(&datagram, PROTOCOL_ID);
        assert_eq!(passes(&program, &datagram), is_accepted, "{number}: {datagram:02x?}");
        passed += u32::from(is_accepted);
    }
    assert!((GENERATED / 10..GENERATED / 2).contains(&passed), "{passed} passed: the share is out of range");
}

/// Every prefix with every length: other bytes do not matter unless it is a request.
#[test]
fn filter_agrees_with_the_protocol_on_every_prefix() {
    let program = STRICT.program();
    for prefix in 1..=u8::MAX {
        for length in 1..=1300 {
            let mut datagram = vec![0; length];
            datagram[0] = prefix;
            assert_eq!(passes(&program, &datagram), is_accepted(&datagram, PROTOCOL_ID), "{prefix:#x}, {length} bytes");
        }
    }
}

/// Collects datagrams and protocol ids anywhere in a file of vectors.
fn collect(json: &Value, datagrams: &mut Vec<Vec<u8>>, protocol_ids: &mut Vec<u64>) {
    match json {
        Value::Array(values) => values.iter().for_each(|value| collect(value, datagrams, protocol_ids)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match (name.as_str(), value.as_str()) {
                    ("wire_hex" | "datagram_hex", Some(text)) => datagrams.extend(hex::decode(text)),
                    ("protocol_id_u64", Some(text)) => protocol_ids.extend(text.parse::<u64>()),
                    _ => collect(value, datagrams, protocol_ids),
                }
            }
        }
        _ => {}
    }
}

#[test]
fn filter_agrees_with_the_protocol_on_every_vector() {
    let server_address = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/vectors");
    let (mut accepted, mut refused) = (0, 0);
    for file in std::fs::read_dir(server_address).unwrap().map(|entry| entry.unwrap().path()) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if !name.starts_with("netcode_") || !name.ends_with(".json") {
            continue;
        }
        let json = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let (mut datagrams, mut protocol_ids) = (Vec::new(), Vec::new());
        collect(&json, &mut datagrams, &mut protocol_ids);
        protocol_ids.sort_unstable();
        protocol_ids.dedup();
        for protocol_id in protocol_ids {
            let program = SocketFilter { protocol_id, ..STRICT }.program();
            for datagram in &datagrams {
                let is_accepted = is_accepted(datagram, protocol_id);
                assert_eq!(passes(&program, datagram), is_accepted, "{name}: {datagram:02x?}");
                *if is_accepted { &mut accepted } else { &mut refused } += 1;
            }
        }
    }
    assert!(accepted > 500 && refused > 500, "{accepted} accepted, {refused} not: the vectors must be found");
}

#[test]
fn requests_for_other_protocol_ids_pass_when_reported() {
    let mut entropy = entropy();
    let lenient = SocketFilter { other_protocols: OtherProtocol::Passes, ..STRICT }.program();
    for bit in 0..64 {
        let foreign = request(&mut entropy, PROTOCOL_ID ^ 1 << bit);
        assert!(!passes(&STRICT.program(), &foreign) && passes(&lenient, &foreign), "bit {bit}");
    }
    for index in 1..14 {
        let mut other_version = request(&mut entropy, PROTOCOL_ID);
        other_version[index] ^= 1;
        assert!(!passes(&lenient, &other_version), "byte {index}");
    }
}

// Real sockets -----------------------------------------------------------------------------------------------------

/// Sends datagrams through the kernel, and checks that exactly those selected by `expected` arrive.
fn check_with_the_kernel(
    server_address: &str,
    filter: Option<&SocketFilter>,
    count: u32,
    expected: impl Fn(&[u8]) -> bool,
) {
    let (Ok(mut sockets), Ok(sender)) =
        (Sockets::bind(&[server_address.parse().unwrap()]), UdpSocket::bind(server_address))
    else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: this machine has no {server_address}");
        return;
    };
    sockets.set_filter(filter).unwrap();
    let to = sockets.local_addresses()[0];
    let (mut entropy, mut batch, mut refused) = (entropy(), ReceiveBatch::default(), 0);
    for _ in 0..count / 32 {
        let mut passing = Vec::new();
        for number in 0..32 {
            let datagram = if number % 2 == 0 { junk(&mut entropy) } else { valid(&mut entropy) };
            sender.send_to(&datagram, to).unwrap();
            if expected(&datagram) {
                passing.push(datagram);
            } else {
                refused += 1;
            }
        }
        // All of them passed the kernel while they were sent.
        sockets.receive(&mut batch);
        let arrived: Vec<_> = (0..batch.len()).map(|index| batch.bytes(index).to_vec()).collect();
        passing.iter_mut().for_each(|datagram| datagram.truncate(1300));
        assert_eq!(arrived, passing);
    }
    assert_eq!(sockets.stats().dropped_by_system, Some(refused), "the filter reports its drops");
}

#[test]
fn kernel_agrees_with_the_protocol() {
    for server_address in ["127.0.0.1:0", "[::1]:0"] {
        check_with_the_kernel(server_address, Some(&STRICT), BY_THE_KERNEL, |datagram| {
            is_accepted(datagram, PROTOCOL_ID)
        });
        check_with_the_kernel(server_address, None, 640, |_| true);
    }
}

#[test]
fn dropped_datagrams_wake_no_thread() {
    let (mut sockets, sender) =
        (Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    for (filter, is_woken) in [(Some(&STRICT), false), (None, true)] {
        sockets.set_filter(filter).unwrap();
        sender.send_to(b"junk", sockets.local_addresses()[0]).unwrap();
        sockets.wait(Duration::ZERO).unwrap();
        assert_eq!(!sockets.is_drained(), is_woken, "{filter:?}");
    }
}

#[test]
fn filter_can_be_replaced_and_removed() {
    let (mut sockets, sender) =
        (Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let foreign = request(&mut entropy(), PROTOCOL_ID + 1);
    let mut batch = ReceiveBatch::default();
    let lenient = SocketFilter { other_protocols: OtherProtocol::Passes, ..STRICT };
    for (filter, arrives) in [(Some(lenient), 1), (Some(STRICT), 0), (Some(lenient), 1), (None, 2), (None, 2)] {
        sockets.set_filter(filter.as_ref()).unwrap();
        sender.send_to(&foreign, sockets.local_addresses()[0]).unwrap();
        sender.send_to(b"junk", sockets.local_addresses()[0]).unwrap();
        sockets.receive(&mut batch);
        assert_eq!(batch.len(), arrives, "{filter:?}");
    }
}

#[test]
fn requests_for_another_protocol_id_pass_until_the_warning() {
    let sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
    let config = ServerConfig {
        token_cutoff: TokenCutoff::None,
        ..ServerConfig::new(PROTOCOL_ID, 4, &["127.0.0.1:40000".parse().unwrap()])
    };
    let clock = Clock::start();
    let mut server = Server::new(sockets, config, Key::from([7; 32]).into(), clock.now()).unwrap();
    assert!(server.sockets().filter().is_some());
    let (to, sender) = (server.sockets().local_addresses()[0], UdpSocket::bind("127.0.0.1:0").unwrap());
    let foreign = request(&mut entropy(), PROTOCOL_ID + 1);
    let mut inbox = Inbox::default();
    let mut turn = |server: &mut Server| {
        for _ in 0..5 {
            sender.send_to(&foreign, to).unwrap();
            sender.send_to(&[], to).unwrap();
            sender.send_to(b"junk", to).unwrap();
        }
        server.wait(Duration::ZERO).unwrap();
        server.begin_turn(clock.now());
        while inbox.next(server).is_some() {}
        server.end_turn();
        let discards = server.discards();
        (discards[Discard::RequestProtocol], discards.total(), server.sockets().stats().dropped_by_system)
    };
    // The warning needs ten of them.
    assert_eq!(turn(&mut server), (5, 5, Some(10)));
    assert_eq!(turn(&mut server), (10, 10, Some(20)));
    assert_eq!(turn(&mut server), (10, 10, Some(35)));
    server.set_kernel_filter(false).unwrap();
    assert!(server.sockets().filter().is_none());
    assert_eq!(turn(&mut server), (15, 25, Some(35)));
    server.set_kernel_filter(true).unwrap();
    assert_eq!(turn(&mut server), (20, 30, Some(45)));
}

/// A sandbox in which sockets can lose their filter but not get one: a server that needs another one keeps its own, and
/// logs it.
#[test]
fn failed_filter_replacement_keeps_the_filter_and_is_logged() {
    match std::thread::spawn(keeps_its_filter).join().unwrap() {
        Ok(()) => {}
        // stderr, because libtest hides the standard output of passing tests.
        Err(reason) => writeln!(std::io::stderr(), "SKIPPED, a sandbox: no seccomp: {reason}").unwrap(),
    }
}

/// The same sandbox from the start: there is no filter, and the server does all checks itself.
#[test]
fn server_without_filter_drops_junk_and_admits_players() {
    match std::thread::spawn(does_without_a_filter).join().unwrap() {
        Ok(()) => {}
        Err(reason) => writeln!(std::io::stderr(), "SKIPPED, a sandbox: no seccomp: {reason}").unwrap(),
    }
}

fn does_without_a_filter() -> Result<(), String> {
    refuse_new_filters()?;
    let mut server = OurServer::start(live::IPV4, 4);
    assert!(server.server.sockets().filter().is_none());
    let (to, sender) = (server.address(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let foreign = request(&mut entropy(), live::PROTOCOL_ID + 1);
    // No filter is requested after the first request for another protocol id either, so that each of them is counted.
    for turns in 1..=3 {
        sender.send_to(&foreign, to).unwrap();
        sender.send_to(b"junk", to).unwrap();
        server.turn();
        let (server, expected) = (&server.server, (turns, 2 * turns, Some(0)));
        let discards = server.discards();
        let foreign = discards[Discard::RequestProtocol];
        assert_eq!((foreign, discards.total(), server.sockets().stats().dropped_by_system), expected);
    }
    assert!(server.server.set_kernel_filter(true).is_err() && server.server.sockets().filter().is_none());
    server.server.set_kernel_filter(false).unwrap();
    let mut player = OurClient::connect(&TokenOrder::new(1, &[to]).mint());
    until(&mut (&mut server, &mut player), "a player connects", |(_, player)| player.state() == ClientState::Connected);
    assert_eq!(server.server.discards().total(), 6);
    Ok(())
}

fn keeps_its_filter() -> Result<(), String> {
    let sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
    let config = ServerConfig::new(PROTOCOL_ID, 4, &["127.0.0.1:40000".parse::<std::net::SocketAddr>().unwrap()]);
    let clock = Clock::start();
    let mut server = Server::new(sockets, config, Key::from([7; 32]).into(), clock.now()).unwrap();
    assert!(server.sockets().filter().is_some());
    refuse_new_filters()?;
    let (to, sender) = (server.sockets().local_addresses()[0], UdpSocket::bind("127.0.0.1:0").unwrap());
    let foreign = request(&mut entropy(), PROTOCOL_ID + 1);
    let mut inbox = Inbox::default();
    let mut turn = |server: &mut Server| {
        (0..10).for_each(|_| assert!(sender.send_to(&foreign, to).is_ok()));
        sender.send_to(b"junk", to).unwrap();
        server.begin_turn(clock.now());
        while inbox.next(server).is_some() {}
        server.end_turn();
        let discards = server.discards();
        (discards[Discard::RequestProtocol], discards.total(), server.sockets().stats().dropped_by_system)
    };
    // The first turn requests a stricter one, which the system refuses.
    assert_eq!(turn(&mut server), (10, 10, Some(1)));
    assert_eq!(
        (turn(&mut server), server.sockets().filter().is_some()),
        ((20, 20, Some(2)), true),
        "junk is dropped as before"
    );
    assert!(server.set_kernel_filter(true).is_err());
    assert_eq!((turn(&mut server), server.sockets().filter().is_some()), ((30, 30, Some(3)), true));
    server.set_kernel_filter(false).unwrap();
    assert_eq!((turn(&mut server), server.sockets().filter().is_some()), ((40, 41, Some(3)), false));
    assert!(server.set_kernel_filter(true).is_err());
    assert!(server.sockets().filter().is_none());
    Ok(())
}

/// Makes the kernel refuse new filters on sockets of this thread.
fn refuse_new_filters() -> Result<(), String> {
    use nix::libc::{ENOMEM, SO_ATTACH_FILTER, SYS_setsockopt};
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    };

    let option = SeccompCondition::new(2, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, SO_ATTACH_FILTER as u64);
    let rule = option.and_then(|option| SeccompRule::new(vec![option])).map_err(|error| error.to_string())?;
    let calls = [(SYS_setsockopt, vec![rule])].into();
    let arch = std::env::consts::ARCH.try_into().map_err(|error| format!("{error}"))?;
    let filter = SeccompFilter::new(calls, SeccompAction::Allow, SeccompAction::Errno(ENOMEM as u32), arch);
    let program: BpfProgram = filter.and_then(TryInto::try_into).map_err(|error| error.to_string())?;
    seccompiler::apply_filter(&program).map_err(|error| error.to_string())
}
