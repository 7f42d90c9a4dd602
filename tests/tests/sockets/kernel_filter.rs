//! The kernel's filter passes what a server would heed, and that alone.
//!
//! A million generated datagrams of either kind, valid and junk, and the vectors are judged by a machine of our own,
//! which runs the program as the kernel does. The kernel itself judges 100,000 of both kinds on real sockets of each
//! family.

use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use serde_json::Value;
use slipgate_client::ClientState;
use slipgate_netcode::discard::Discard;
use slipgate_netcode::wire::cursor::Writer;
use slipgate_netcode::wire::packet::{Header, PacketKind, Request};
use slipgate_netcode::wire::{MAX_DATAGRAM_BYTES, MAX_PAYLOAD_BYTES, REQUEST_BYTES, TAG_BYTES, VERSION};
use slipgate_server::{Clock, Config, Fence, Inbox, Key, Server};
use slipgate_tests::live::{self, GameClient, GameServer, Order, OurClient, OurServer, Turn, until};
use slipgate_udp::{Filter, Foreign, Instruction, ReceiveBatch, Sockets, code};

const PROTOCOL_ID: u64 = 0x1122_3344_5566_7788;
/// Datagrams that are judged by a machine of our own.
const GENERATED: u32 = 1_000_000;
/// Datagrams that real sockets of each family are sent: as many as take a second.
const BY_THE_KERNEL: u32 = 100_000;
const STRICT: Filter = Filter { protocol_id: PROTOCOL_ID, foreign: Foreign::Dropped };

// The rules, and a machine ------------------------------------------------------------------------------------------

/// Whether a server of this protocol id would look at a datagram with its keys: by the protocol's own checks.
fn is_welcome(datagram: &[u8], protocol_id: u64) -> bool {
    match datagram.first() {
        None => false,
        Some(0) => Request::parse(datagram, protocol_id).is_ok(),
        Some(_) => Header::parse(datagram, PacketKind::TO_SERVER)
            .is_ok_and(|header| header.kind.allows_content(datagram.len() - header.bytes - TAG_BYTES)),
    }
}

/// Runs a program as the kernel does, on the datagram behind a UDP header.
fn passes(program: &[Instruction], datagram: &[u8]) -> bool {
    let packet = [&[0; 8], datagram].concat();
    let load = |offset: u32, bytes: usize| {
        let part = packet.get(offset as usize..offset as usize + bytes)?;
        Some(part.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte)))
    };
    let (mut a, mut x, mut next) = (0_u32, 0_u32, 0);
    loop {
        let Instruction { code, if_true, if_false, operand } = program[next];
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
            _ => panic!("no instruction is {code:#x}"),
        };
        // What loads from behind the packet's end drops it.
        let Some(loaded) = loaded else { return false };
        a = loaded;
    }
}

// Datagrams ---------------------------------------------------------------------------------------------------------

/// A generator that tells its seed, so that a failure can be played again.
fn entropy() -> StdRng {
    let seed = 4_711;
    println!("seed {seed}");
    StdRng::seed_from_u64(seed)
}

fn request(entropy: &mut StdRng, protocol_id: u64) -> Vec<u8> {
    let mut datagram = vec![0; REQUEST_BYTES];
    // The sealed part's bytes do not matter; a few of them will do.
    entropy.fill_bytes(&mut datagram[22..54]);
    datagram[1..14].copy_from_slice(&VERSION);
    datagram[14..22].copy_from_slice(&protocol_id.to_le_bytes());
    datagram
}

/// A packet as a client may send it: of any kind that servers take, with a sequence number of any length.
fn encrypted(entropy: &mut StdRng) -> Vec<u8> {
    let kind = PacketKind::TO_SERVER[entropy.random_range(0..PacketKind::TO_SERVER.len())];
    let content = match kind {
        PacketKind::Payload => entropy.random_range(1..=MAX_PAYLOAD_BYTES),
        kind => (0..MAX_PAYLOAD_BYTES).find(|bytes| kind.allows_content(*bytes)).unwrap(),
    };
    let mut datagram = [0x5a; MAX_DATAGRAM_BYTES];
    let header = Header::canonical(kind, entropy.random::<u64>() >> entropy.random_range(0..64));
    header.emit(&mut Writer::new(&mut datagram));
    let mut datagram = datagram[..header.bytes + content + TAG_BYTES].to_vec();
    // Longer forms than needed are readable (§1.7).
    while datagram[0] >> 4 < 8 && entropy.random_ratio(1, 4) {
        datagram[0] += 0x10;
        datagram.push(0);
    }
    datagram
}

fn valid(entropy: &mut StdRng) -> Vec<u8> {
    if entropy.random_ratio(1, 8) { request(entropy, PROTOCOL_ID) } else { encrypted(entropy) }
}

/// What is nearly valid, or not at all.
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

// By the machine ----------------------------------------------------------------------------------------------------

#[test]
fn a_million_valid_packets_pass() {
    let (program, mut entropy) = (STRICT.program(), entropy());
    for number in 0..GENERATED {
        let datagram = valid(&mut entropy);
        assert!(is_welcome(&datagram, PROTOCOL_ID), "{number}: the generator is wrong");
        assert!(passes(&program, &datagram), "{number}: {:02x?}…, {} bytes", &datagram[..9], datagram.len());
    }
}

#[test]
fn of_a_million_datagrams_of_junk_pass_those_at_which_a_server_would_look() {
    let (program, mut entropy) = (STRICT.program(), entropy());
    let mut passed = 0;
    for number in 0..GENERATED {
        let datagram = junk(&mut entropy);
        let is_welcome = is_welcome(&datagram, PROTOCOL_ID);
        assert_eq!(passes(&program, &datagram), is_welcome, "{number}: {datagram:02x?}");
        passed += u32::from(is_welcome);
    }
    assert!((GENERATED / 10..GENERATED / 2).contains(&passed), "{passed} passed: too few or too many to say much");
}

/// Every prefix with every length: nothing else counts for what is not a request.
#[test]
fn every_prefix_and_length_is_judged_as_the_protocol_judges_it() {
    let program = STRICT.program();
    for prefix in 1..=u8::MAX {
        for length in 1..=1300 {
            let mut datagram = vec![0; length];
            datagram[0] = prefix;
            assert_eq!(passes(&program, &datagram), is_welcome(&datagram, PROTOCOL_ID), "{prefix:#x}, {length} bytes");
        }
    }
}

/// Collects datagrams and protocol ids, wherever they stand in a file of vectors.
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
fn every_datagram_of_the_vectors_is_judged_as_the_protocol_judges_it() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/vectors");
    let (mut welcome, mut unwelcome) = (0, 0);
    for file in std::fs::read_dir(home).unwrap().map(|entry| entry.unwrap().path()) {
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
            let program = Filter { protocol_id, ..STRICT }.program();
            for datagram in &datagrams {
                let is_welcome = is_welcome(datagram, protocol_id);
                assert_eq!(passes(&program, datagram), is_welcome, "{name}: {datagram:02x?}");
                *if is_welcome { &mut welcome } else { &mut unwelcome } += 1;
            }
        }
    }
    assert!(welcome > 500 && unwelcome > 500, "{welcome} welcome, {unwelcome} not: were the vectors found?");
}

#[test]
fn requests_for_other_protocol_ids_pass_where_they_are_to_be_told_of() {
    let mut entropy = entropy();
    let lenient = Filter { foreign: Foreign::Passes, ..STRICT }.program();
    for bit in 0..64 {
        let foreign = request(&mut entropy, PROTOCOL_ID ^ 1 << bit);
        assert!(!passes(&STRICT.program(), &foreign) && passes(&lenient, &foreign), "bit {bit}");
    }
    for place in 1..14 {
        let mut other_version = request(&mut entropy, PROTOCOL_ID);
        other_version[place] ^= 1;
        assert!(!passes(&lenient, &other_version), "byte {place}");
    }
}

// By real sockets ---------------------------------------------------------------------------------------------------

/// Sends datagrams through the kernel, and checks that those arrive which `expected` says, and no others.
fn judge_by_the_kernel(home: &str, filter: Option<&Filter>, count: u32, expected: impl Fn(&[u8]) -> bool) {
    let (Ok(mut sockets), Ok(sender)) = (Sockets::bind(&[home.parse().unwrap()]), UdpSocket::bind(home)) else {
        return println!("SKIPPED: this machine has no {home}");
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
        // All of them went through the kernel while they were sent.
        sockets.receive(&mut batch);
        let arrived: Vec<_> = (0..batch.len()).map(|place| batch.bytes(place).to_vec()).collect();
        passing.iter_mut().for_each(|datagram| datagram.truncate(1300));
        assert_eq!(arrived, passing);
    }
    assert_eq!(sockets.stats().dropped_by_system, Some(refused), "what the filter drops is told");
}

#[test]
fn the_kernel_judges_as_the_protocol_does() {
    for home in ["127.0.0.1:0", "[::1]:0"] {
        judge_by_the_kernel(home, Some(&STRICT), BY_THE_KERNEL, |datagram| is_welcome(datagram, PROTOCOL_ID));
        judge_by_the_kernel(home, None, 640, |_| true);
    }
}

#[test]
fn nobody_wakes_for_what_the_filter_drops() {
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
fn a_filter_is_replaced_and_taken_away() {
    let (mut sockets, sender) =
        (Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let foreign = request(&mut entropy(), PROTOCOL_ID + 1);
    let mut batch = ReceiveBatch::default();
    let lenient = Filter { foreign: Foreign::Passes, ..STRICT };
    for (filter, arrives) in [(Some(lenient), 1), (Some(STRICT), 0), (Some(lenient), 1), (None, 2), (None, 2)] {
        sockets.set_filter(filter.as_ref()).unwrap();
        sender.send_to(&foreign, sockets.local_addresses()[0]).unwrap();
        sender.send_to(b"junk", sockets.local_addresses()[0]).unwrap();
        sockets.receive(&mut batch);
        assert_eq!(batch.len(), arrives, "{filter:?}");
    }
}

#[test]
fn a_server_hears_of_the_first_request_for_another_protocol_id_and_of_no_other_junk() {
    let sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
    let config = Config {
        fence: Fence::Open,
        ..Config::new(PROTOCOL_ID, 4, vec!["127.0.0.1:40000".parse::<std::net::SocketAddr>().unwrap().into()])
    };
    let clock = Clock::start();
    let mut server = Server::new(sockets, config, Key::from_bytes([7; 32]).into(), clock.now()).unwrap();
    assert!(server.has_kernel_filter());
    let (to, sender) = (server.local_addresses()[0], UdpSocket::bind("127.0.0.1:0").unwrap());
    let foreign = request(&mut entropy(), PROTOCOL_ID + 1);
    let mut inbox = Inbox::default();
    let mut turn = |server: &mut Server| {
        for _ in 0..3 {
            sender.send_to(&foreign, to).unwrap();
            sender.send_to(&[], to).unwrap();
            sender.send_to(b"junk", to).unwrap();
        }
        server.wait(Duration::ZERO).unwrap();
        server.begin_turn(clock.now());
        while inbox.next(server).is_some() {}
        server.end_turn();
        let discards = server.discards();
        (discards.count(Discard::RequestProtocol), discards.total(), server.socket_stats().dropped_by_system)
    };
    assert_eq!(turn(&mut server), (3, 3, Some(6)));
    assert_eq!(turn(&mut server), (3, 3, Some(15)));
    server.set_kernel_filter(false).unwrap();
    assert!(!server.has_kernel_filter());
    assert_eq!(turn(&mut server), (6, 12, Some(15)));
    server.set_kernel_filter(true).unwrap();
    assert_eq!(turn(&mut server), (9, 15, Some(21)));
}

/// A sandbox in which sockets may lose their filters, but get none: a server that is to have another one keeps its own,
/// and says so.
#[test]
fn a_server_whose_filter_cannot_be_replaced_keeps_it_and_says_so() {
    use std::io::Write as _;

    match std::thread::spawn(keeps_its_filter).join().unwrap() {
        Ok(()) => {}
        // Past libtest, which keeps what passing tests print to itself.
        Err(reason) => writeln!(std::io::stderr(), "SKIPPED, a sandbox: no seccomp here: {reason}").unwrap(),
    }
}

/// The same sandbox from the start on: there is no filter, and everything is the server's own affair.
#[test]
fn a_server_that_gets_no_filter_drops_junk_itself_and_admits_players() {
    use std::io::Write as _;

    match std::thread::spawn(does_without_a_filter).join().unwrap() {
        Ok(()) => {}
        Err(reason) => writeln!(std::io::stderr(), "SKIPPED, a sandbox: no seccomp here: {reason}").unwrap(),
    }
}

fn does_without_a_filter() -> Result<(), String> {
    refuse_new_filters()?;
    let mut server = OurServer::start(live::IPV4, 4);
    assert!(!server.server.has_kernel_filter());
    let (to, sender) = (server.address(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let foreign = request(&mut entropy(), live::PROTOCOL_ID + 1);
    // None is asked for after the first request for another protocol id either, so that each of them is counted.
    for turns in 1..=3 {
        sender.send_to(&foreign, to).unwrap();
        sender.send_to(b"junk", to).unwrap();
        server.turn();
        let (server, expected) = (&server.server, (turns, 2 * turns, Some(0)));
        let discards = server.discards();
        let foreign = discards.count(Discard::RequestProtocol);
        assert_eq!((foreign, discards.total(), server.socket_stats().dropped_by_system), expected);
    }
    assert!(server.server.set_kernel_filter(true).is_err() && !server.server.has_kernel_filter());
    server.server.set_kernel_filter(false).unwrap();
    let mut player = OurClient::connect(&Order::new(1, &[to]).mint());
    until(&mut (&mut server, &mut player), "a player gets in", |(_, player)| player.state() == ClientState::Connected);
    assert_eq!(server.server.discards().total(), 6);
    Ok(())
}

fn keeps_its_filter() -> Result<(), String> {
    let sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
    let config = Config::new(PROTOCOL_ID, 4, vec!["127.0.0.1:40000".parse::<std::net::SocketAddr>().unwrap().into()]);
    let clock = Clock::start();
    let mut server = Server::new(sockets, config, Key::from_bytes([7; 32]).into(), clock.now()).unwrap();
    assert!(server.has_kernel_filter());
    refuse_new_filters()?;
    let (to, sender) = (server.local_addresses()[0], UdpSocket::bind("127.0.0.1:0").unwrap());
    let foreign = request(&mut entropy(), PROTOCOL_ID + 1);
    let mut inbox = Inbox::default();
    let mut turn = |server: &mut Server| {
        sender.send_to(&foreign, to).unwrap();
        sender.send_to(b"junk", to).unwrap();
        server.begin_turn(clock.now());
        while inbox.next(server).is_some() {}
        server.end_turn();
        let discards = server.discards();
        (discards.count(Discard::RequestProtocol), discards.total(), server.socket_stats().dropped_by_system)
    };
    // The first turn asks for a stricter one, which the system refuses.
    assert_eq!(turn(&mut server), (1, 1, Some(1)));
    assert_eq!((turn(&mut server), server.has_kernel_filter()), ((2, 2, Some(2)), true), "junk is dropped as before");
    assert!(server.set_kernel_filter(true).is_err());
    assert_eq!((turn(&mut server), server.has_kernel_filter()), ((3, 3, Some(3)), true));
    server.set_kernel_filter(false).unwrap();
    assert_eq!((turn(&mut server), server.has_kernel_filter()), ((4, 5, Some(3)), false));
    assert!(server.set_kernel_filter(true).is_err());
    assert!(!server.has_kernel_filter());
    Ok(())
}

/// Has the kernel refuse new filters of sockets to this thread.
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
