//! Every way in which a connection ends, and the reports of both sides: the table of `docs/close-reasons.md`, line by
//! line.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::client::{ClientState, ConnectError};
use slipgate_netcode::server::ClientHandle;
use slipgate_session::channel::control::VERSION;
use slipgate_session::channel::{ChannelConfig, ChannelViolation, Kind, Layout};
use slipgate_session::client;
use slipgate_session::connection::CloseCode;
use slipgate_session::connection::{CloseKind, CloseReason, ClosedBy, ConnectionConfig, Memory, Traffic};
use slipgate_session::server::{self, StopMode};
use slipgate_sim::Conditions;
use slipgate_tests::conditions;
use slipgate_tests::malicious_peer::{MaliciousPeer, PeerPacket, hello};
use slipgate_tests::netcode_world::{VecOutbox, address};
use slipgate_tests::session_world::SessionWorld;

const PAGE: &str = include_str!("../../../docs/close-reasons.md");

const SECOND: Duration = Duration::from_secs(1);

fn layout(kind: Kind) -> Arc<Layout> {
    Arc::new(Layout::try_from(vec![ChannelConfig::from(kind)]).unwrap())
}

fn world(slots: u32) -> SessionWorld {
    SessionWorld::new(slots, &layout(Kind::ReliableOrdered), &ConnectionConfig::default(), Memory::default())
}

/// Creates a world with one player.
fn with_player() -> (SessionWorld, ClientHandle) {
    let mut world = world(4);
    let client = world.join(Conditions::perfect());
    world.run_for(SECOND / 2);
    (world, client)
}

/// Creates a world with one player, without channels.
fn with_player_without_channels() -> (SessionWorld, ClientHandle) {
    let mut world = world(4);
    world.traffic = Traffic::Payloads;
    world.server.set_traffic(Traffic::Payloads).unwrap();
    let client = world.join(Conditions::perfect());
    (world, client)
}

/// The side that carries channels.
enum Side {
    Server,
    Client,
}

/// Creates a world in which only one side carries channels.
fn with_channels_on(side: Side) -> (SessionWorld, ClientHandle) {
    let mut world = world(4);
    match side {
        Side::Server => world.traffic = Traffic::Payloads,
        Side::Client => world.server.set_traffic(Traffic::Payloads).unwrap(),
    }
    let client = world.join(Conditions::perfect());
    world.run_for(SECOND / 2);
    let ended = |world: &mut SessionWorld| world.player(1).core.close_reason().map(|reason| reason.kind);
    assert_eq!(ended(&mut world), None, "no end before the other side sent a payload");
    (world, client)
}

/// Returns such a world after a minute without payloads of the applications.
fn mismatch_found(side: Side) -> SessionWorld {
    let (mut world, _) = with_channels_on(side);
    world.run_for(25 * SECOND);
    assert_eq!(world.player(1).core.close_reason().map(|reason| reason.kind), None, "the end comes too early");
    world.run_for(40 * SECOND);
    world
}

/// Creates a world with a player that starts to connect after `wait`, with a token of `lifetime` seconds.
fn begin_connect_after(wait: Duration, lifetime: u32) -> (SessionWorld, u64) {
    let mut world = world(4);
    let token = world.token_for(1, lifetime);
    world.run_for(wait);
    let player = world.begin_connect(Conditions::perfect(), token);
    (world, player)
}

/// Returns an address without a program: it cuts the path between the server and a player.
fn unreachable() -> Address {
    address("10.200.0.1:1")
}

/// Sends payloads to the server that our client never sends.
fn send_invalid_to_server(world: &mut SessionWorld, payloads: &[Vec<u8>]) {
    let now = world.now().monotonic;
    let player = world.player(1);
    for payload in payloads {
        let mut outbox = VecOutbox::default();
        player.core.netcode.send(payload, now, &mut outbox).unwrap();
        outbox.datagrams.iter().for_each(|(_, datagram)| player.link.up.push(datagram, now));
    }
}

/// Sends payloads to the client that our server never sends.
fn send_invalid_to_client(world: &mut SessionWorld, client: ClientHandle, payloads: &[Vec<u8>]) {
    let now = world.now();
    for payload in payloads {
        let mut outbox = VecOutbox::default();
        world.server.netcode.send(client, payload, now, &mut outbox).unwrap();
        for (_, datagram) in outbox.datagrams {
            world.player(1).link.down.push(&datagram, now.monotonic);
        }
    }
}

/// Returns packets with a control message. Their numbers are ahead of those that the peer itself has sent or skipped.
fn packets(control: &[u8]) -> Vec<Vec<u8>> {
    let (mut peer, layout) = (MaliciousPeer::default(), layout(Kind::ReliableOrdered).hash());
    let packets = (0..200).map(|_| peer.packet(PeerPacket { hello: None, ..PeerPacket::frames(layout, control) }));
    packets.skip(100).collect()
}

/// A payload that a program without channels may send.
const PAYLOAD: &[u8] = &[1; 40];
const CUT_GREETING: &[u8] = &[0, 1, 3, 1, 1, 0];

/// A scenario; the test looks at the end of its last player.
type Scenario = fn() -> SessionWorld;

fn ended_by(act: impl FnOnce(&mut SessionWorld, ClientHandle)) -> SessionWorld {
    let (mut world, client) = with_player();
    act(&mut world, client);
    world
}

fn ended_by_without_channels(act: impl FnOnce(&mut SessionWorld, ClientHandle)) -> SessionWorld {
    let (mut world, client) = with_player_without_channels();
    act(&mut world, client);
    world
}

fn leaves() -> [(&'static str, Scenario); 2] {
    [
        ("`client.disconnect()`", || ended_by(|world, _| world.player(1).core.disconnect())),
        ("`client.leave(CloseCode(300), \"good night\")`", || {
            ended_by(|world, _| world.player(1).core.leave(CloseCode(300), "good night"))
        }),
    ]
}

fn kicks() -> [(&'static str, Scenario); 5] {
    [
        ("`server.kick(client, \"\")`", || {
            ended_by(|world, client| world.server.kick(client, CloseCode::KICKED, "").unwrap())
        }),
        ("`server.kick(client, \"enough\")`", || {
            ended_by(|world, client| world.server.kick(client, CloseCode::KICKED, "enough").unwrap())
        }),
        ("`server.client(client)?.kick_with(CloseCode(400), \"enough\")`", || {
            ended_by(|world, client| world.server.kick(client, CloseCode(400), "enough").unwrap())
        }),
        ("`server.client(client)?.disconnect()`", || {
            ended_by(|world, client| world.server.disconnect(client).unwrap())
        }),
        ("any kick, without channels", || {
            ended_by_without_channels(|world, client| world.server.kick(client, CloseCode(400), "enough").unwrap())
        }),
    ]
}

fn stops() -> [(&'static str, Scenario); 3] {
    [
        ("`server.stop(\"\")`", || ended_by(|world, _| world.server.stop("", StopMode::Repeat))),
        ("`server.stop(\"until tomorrow\")`", || {
            ended_by(|world, _| world.server.stop("until tomorrow", StopMode::Repeat))
        }),
        ("any stop, without channels", || {
            ended_by_without_channels(|world, _| world.server.stop("", StopMode::Repeat))
        }),
    ]
}

fn refusals() -> [(&'static str, Scenario); 7] {
    [
        ("all slots are taken", || {
            let mut world = world(1);
            world.join(Conditions::perfect());
            let token = world.token(2);
            world.begin_connect(Conditions::perfect(), token);
            world
        }),
        ("the server accepts no new clients: `accept_new_clients(false)`, a drain", || {
            let (mut world, _) = begin_connect_after(Duration::ZERO, 45);
            world.server.netcode.accept_new_clients(false);
            world
        }),
        ("another program has used the token", || {
            let mut world = world(4);
            let token = world.token(1);
            let first = world.begin_connect(Conditions::perfect(), token.clone());
            world.run_for(SECOND);
            let first = world.player(first);
            // It has disconnected, so that only the token prevents the connection.
            assert!(first.core.netcode.state().is_connected());
            first.core.disconnect();
            world.run_for(SECOND);
            world.begin_connect(Conditions::perfect(), token);
            world
        }),
        ("this program has used the token", || {
            let mut world = world(4);
            let token = world.token(1);
            world.begin_connect(Conditions::perfect(), token.clone());
            world.run_for(SECOND);
            let now = world.now().monotonic;
            let core = &mut world.player(1).core;
            core.disconnect();
            while core.poll_event().is_some() {}
            assert_eq!(core.connect(token, now, |_| true), Err(ConnectError::TokenUsed));
            world
        }),
        ("the token expired before it arrived", || begin_connect_after(46 * SECOND, 45).0),
        ("the token expires and no server replies", || begin_connect_after(4 * SECOND, 3).0),
        ("the path breaks after the challenge", || {
            let (mut world, player) = begin_connect_after(Duration::ZERO, 45);
            while world.player(player).core.netcode.state() != ClientState::SendingResponse {
                world.turn();
            }
            // The response that is on its way comes from an unknown address, and nothing follows.
            world.player(player).address = unreachable();
            let now = world.now().monotonic;
            world.player(player).link.set_conditions(conditions::cut(), conditions::cut(), now);
            world
        }),
    ]
}

fn failures() -> [(&'static str, Scenario); 11] {
    [
        ("the path breaks, or one side crashes", || ended_by(|world, _| world.player(1).address = unreachable())),
        ("the client's program stands still for longer than the timeout", || {
            ended_by(|world, _| {
                world.player(1).is_asleep = true;
                world.run_for(8 * SECOND);
                world.player(1).is_asleep = false;
            })
        }),
        ("the layouts differ", || {
            let mut world = world(4);
            world.traffic = Traffic::channels((*layout(Kind::Sequenced)).clone());
            world.join(Conditions::perfect());
            world
        }),
        ("the client has a session version that the server does not support", || {
            let control = hello(VERSION + 1, layout(Kind::ReliableOrdered).hash());
            ended_by(|world, _| send_invalid_to_server(world, &packets(&control)))
        }),
        ("the client has no channels", || {
            let (mut world, _) = with_channels_on(Side::Server);
            send_invalid_to_server(&mut world, &[PAYLOAD.to_vec()]);
            world
        }),
        ("the server has no channels", || {
            let (mut world, client) = with_channels_on(Side::Client);
            send_invalid_to_client(&mut world, client, &[PAYLOAD.to_vec()]);
            world
        }),
        ("the client has no channels, and sends nothing", || mismatch_found(Side::Server)),
        ("the server has no channels, and sends nothing", || mismatch_found(Side::Client)),
        ("the client violates the protocol", || {
            ended_by(|world, _| send_invalid_to_server(world, &packets(CUT_GREETING)))
        }),
        ("the server violates the protocol", || {
            ended_by(|world, client| send_invalid_to_client(world, client, &packets(CUT_GREETING)))
        }),
        ("a socket fails for a moment", || {
            ended_by(|world, _| {
                // A datagram that the system refuses to send is lost, as on the path.
                let server_address = std::mem::replace(&mut world.player(1).address, unreachable());
                world.run_for(SECOND);
                world.player(1).address = server_address;
            })
        }),
    ]
}

/// Returns the close text in the form of the table.
fn close_text(reason: &CloseReason) -> String {
    match (reason.kind, reason.code) {
        (CloseKind::Left | CloseKind::Kicked | CloseKind::ServerStopped, Some(code)) => {
            format!("{} \"{}\"", code.0, reason.text)
        }
        // The other codes belong to the session: the kind says all.
        _ => String::new(),
    }
}

/// Returns the name of a kind without its details.
fn kind_name(kind: CloseKind) -> String {
    format!("{kind:?}").split([' ', '(']).next().unwrap().to_owned()
}

/// Returns the reports of both sides on the end of the last player, as a line of the table.
fn line(what: &str, world: &mut SessionWorld) -> String {
    world.run_for(8 * SECOND);
    let id = world.players.len() as u64;
    let core = &world.players[id as usize - 1].core;
    let here = core.close_reason();
    // The event and the close reason are the same.
    let events = world.players[id as usize - 1].events.iter();
    let event = events.rev().find_map(|event| match event {
        client::ClientSessionEvent::Ended { reason } => Some(reason),
        _ => None,
    });
    assert!(event.is_none() || event == here, "{what}: {event:?}, {here:?}");
    let there = world.events.iter().rev().find_map(|event| match event {
        server::SessionEvent::Disconnected { client_id, reason, .. } if client_id.0 == id => Some(reason),
        _ => None,
    });
    let name = |reason: Option<&CloseReason>| {
        reason.map_or_else(String::new, |reason| format!("`{}`", kind_name(reason.kind)))
    };
    let text = |reason: Option<&CloseReason>| reason.map_or_else(String::new, close_text);
    let cells = [what, &name(here), &text(here), &name(there), &text(there)];
    cells.map(|cell| if cell.is_empty() { "|".to_owned() } else { format!("| {cell} ") }).concat() + "|"
}

#[test]
fn both_sides_report_every_close_reason_of_the_table() {
    let scenarios = leaves().into_iter().chain(kicks()).chain(stops()).chain(refusals()).chain(failures());
    let found: Vec<String> = scenarios.map(|(what, story)| line(what, &mut story())).collect();
    let ended_by: Vec<&str> = PAGE.lines().skip_while(|line| !line.starts_with("| event |")).skip(2).collect();
    let ended_by: Vec<&str> = ended_by.into_iter().take_while(|line| line.starts_with('|')).collect();
    assert_eq!(found, ended_by, "the table in docs/close-reasons.md should be\n{}\n", found.join("\n"));
}

/// Returns why both sides say that the last player's connection ended.
fn kinds_of_end(world: &mut SessionWorld) -> [Option<CloseKind>; 2] {
    // A client reports its end after its close message was repeated for a second.
    world.run_for(2 * SECOND);
    let there = world.events.iter().rev().find_map(|event| match event {
        server::SessionEvent::Disconnected { reason, .. } => Some(reason.kind),
        _ => None,
    });
    [world.player(1).core.close_reason().map(|reason| reason.kind), there]
}

/// Returns how both sides say that a connection ended, if nothing arrived for this time when the server stopped.
fn ends_of_stop_in_outage(outage: Duration, stop: fn(&mut SessionWorld)) -> [Option<CloseKind>; 2] {
    let (mut world, _) = with_player();
    let (server_address, now) = (world.player(1).address, world.now().monotonic);
    // The queues keep nothing.
    world.player(1).link.set_conditions(conditions::cut(), conditions::cut(), now);
    world.player(1).address = unreachable();
    stop(&mut world);
    world.run_for(outage);
    let now = world.now().monotonic;
    world.player(1).link.set_conditions(Conditions::perfect(), Conditions::perfect(), now);
    world.player(1).address = server_address;
    kinds_of_end(&mut world)
}

/// What is sent only once may get lost with all its copies: a full socket, or a moment without radio.
#[test]
fn stop_reaches_players_behind_an_outage() {
    let stopped = Some(CloseKind::ServerStopped);
    let outage = Duration::from_millis(700);
    assert_eq!(ends_of_stop_in_outage(outage, |world| world.server.stop("", StopMode::Repeat)), [stopped; 2]);
    let at_once = ends_of_stop_in_outage(outage, |world| world.server.stop("", StopMode::AtOnce));
    assert_eq!(at_once, [None, stopped], "the player waits for its timeout");
}

#[test]
fn first_payload_shows_a_side_without_channels() {
    let lengths = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 19, 40, 44, 45, 1200];
    let zeros = lengths.map(|bytes| vec![0; bytes]);
    let others = [&b"x"[..], b"z!", b"hi.", &[0x20, 0, 0, 9], &[0, 1, 0, 0, 0, 0, 0, 0], b"input of this tick"];
    for payload in zeros.into_iter().chain(others.map(<[u8]>::to_vec)) {
        let (mut world, _) = with_channels_on(Side::Server);
        send_invalid_to_server(&mut world, std::slice::from_ref(&payload));
        assert_eq!(kinds_of_end(&mut world)[1], Some(CloseKind::NotASession), "to the server: {payload:?}");
        let (mut world, client) = with_channels_on(Side::Client);
        send_invalid_to_client(&mut world, client, std::slice::from_ref(&payload));
        assert_eq!(kinds_of_end(&mut world)[0], Some(CloseKind::NotASession), "to the client: {payload:?}");
    }
}

#[test]
fn every_close_reason_is_documented() {
    let hash = layout(Kind::ReliableOrdered).hash();
    let kinds = [
        CloseKind::Left,
        CloseKind::DisconnectedByServer,
        CloseKind::TimedOut,
        CloseKind::ResponseTimedOut,
        CloseKind::RequestTimedOut,
        CloseKind::Denied,
        CloseKind::TokenExpired,
        CloseKind::InvalidToken,
        CloseKind::Kicked,
        CloseKind::ServerStopped,
        CloseKind::TakenOver,
        CloseKind::SequencesUsedUp,
        CloseKind::LayoutMismatch { local: hash, remote: None, local_version: 0, local_channels: 0 },
        CloseKind::VersionMismatch,
        CloseKind::NotASession,
        CloseKind::Violation(ChannelViolation::Control),
        CloseKind::Accused,
    ];
    let rows = PAGE.lines().skip_while(|line| !line.starts_with("| kind | `reason` in a log |")).skip(2);
    assert_eq!(rows.take_while(|line| line.starts_with('|')).count(), kinds.len());
    for kind in kinds {
        let reason = CloseReason { by: ClosedBy::Netcode, kind, code: None, text: String::new() };
        let line = format!("| `{}` | `{}` | {reason} |", kind_name(kind), kind.name());
        assert!(PAGE.lines().any(|ended_by| ended_by.starts_with(&line)), "{line}");
    }
    for (code, name) in [
        (CloseCode::KICKED, "KICKED"),
        (CloseCode::LAYOUT_MISMATCH, "LAYOUT_MISMATCH"),
        (CloseCode::VERSION_MISMATCH, "VERSION_MISMATCH"),
        (CloseCode::VIOLATION, "VIOLATION"),
        (CloseCode::SHUTDOWN, "SHUTDOWN"),
    ] {
        let row = format!("| {code} | `{name}` |");
        assert!(PAGE.lines().any(|line| line.starts_with(&row)), "{row}");
    }
}

#[test]
fn close_reason_does_not_carry_over_to_the_next_connection() {
    let (mut world, client) = with_player();
    world.server.kick(client, CloseCode(400), "enough").unwrap();
    world.run_for(SECOND);
    let kicked = world.player(1).core.close_reason().unwrap();
    assert_eq!((kicked.kind, kicked.text.as_str()), (CloseKind::Kicked, "enough"));
    let (token, now) = (world.token(9), world.now().monotonic);
    world.server.netcode.accept_new_clients(false);
    world.player(1).core.connect(token, now, |_| true).unwrap();
    assert_eq!(world.player(1).core.close_reason(), None);
    world.run_for(SECOND);
    let denied = world.player(1).core.close_reason().unwrap();
    assert_eq!((denied.kind, denied.code, denied.text.as_str()), (CloseKind::Denied, None, ""));
    let last = &world.players[0].events;
    let [.., client::ClientSessionEvent::Ended { reason }] = &last[..] else { panic!("{last:?}") };
    assert_eq!(reason.kind, CloseKind::Denied);
}

#[test]
fn application_cannot_send_a_reserved_close_code() {
    for code in [1, 2, 3, 5, 255].map(CloseCode) {
        let (mut world, client) = with_player();
        world.server.kick(client, code, "").unwrap();
        world.run_for(SECOND);
        let expected = (CloseKind::Kicked, Some(CloseCode::KICKED), String::new());
        let Some(server::SessionEvent::Disconnected { reason, .. }) = world.events.last() else {
            panic!("{:?}", world.events)
        };
        assert_eq!((reason.kind, reason.code, reason.text.clone()), expected, "{code:?}");
        let reason = world.player(1).core.close_reason().unwrap();
        assert_eq!((reason.kind, reason.code, reason.text.clone()), expected, "{code:?}");
    }
}
