//! Redirects: a server sends its client to another server, and a hostile one cannot send it where it likes.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::client::ClientState;
use slipgate_netcode::token::ConnectToken;
use slipgate_session::channel::{ChannelConfig, Kind, Layout};
use slipgate_session::client::ClientSessionEvent;
use slipgate_session::connection::{CloseCode, CloseKind, ConnectionConfig, Memory, Traffic};
use slipgate_sim::{Conditions, Loss, Share};
use slipgate_tests::hostile_server::HostileServerWorld;
use slipgate_tests::malicious_peer::{MaliciousPeer, PeerPacket, bye, redirect, redirect_part};
use slipgate_tests::netcode_world::{NetcodeWorld, TokenSpec, address};
use slipgate_tests::scale::pick;
use slipgate_tests::session_world::SessionWorld;

/// The bytes that a client may hold for a server that sends parts of tokens.
const MAX_CLIENT_BYTES: i64 = 256 << 10;

fn layout() -> Arc<Layout> {
    Arc::new(Layout::try_from(vec![ChannelConfig::from(Kind::ReliableOrdered)]).unwrap())
}

/// Returns a server with a player on this path, and a token of the player for another server.
fn world(conditions: Conditions) -> (SessionWorld, ConnectToken) {
    let mut world = SessionWorld::new(4, &layout(), &ConnectionConfig::default(), Memory::default());
    world.join(conditions);
    let token = world.token_to(1, &[address("10.0.0.2:40000")]);
    (world, token)
}

/// Returns the token of the player's redirect, or the reason of its end.
fn outcome(world: &mut SessionWorld) -> Option<Result<ConnectToken, CloseKind>> {
    world.player(1).events.iter().find_map(|event| match event {
        ClientSessionEvent::Redirected { token, .. } => Some(Ok((**token).clone())),
        ClientSessionEvent::Ended { reason } => Some(Err(reason.kind)),
        _ => None,
    })
}

/// Runs turns until the player's connection has ended. Returns the outcome and the time.
fn run_to_end(world: &mut SessionWorld) -> (Result<ConnectToken, CloseKind>, Duration) {
    let start = world.now().monotonic;
    loop {
        world.turn();
        let time = world.now().monotonic.since(start);
        if let Some(outcome) = outcome(world) {
            return (outcome, time);
        }
        assert!(time < Duration::from_secs(10), "the connection did not end");
    }
}

#[test]
fn client_gets_the_token_on_paths_with_losses() {
    for (percent, most) in [(0.0, 300), (10.0, 900), (30.0, 1500)] {
        let loss = Loss::Random(Share::percent(percent));
        let mut worst = Duration::ZERO;
        for seed in 0..pick(10, 40) {
            let latency = Duration::from_millis(20 + 5 * (seed % 8));
            let (mut world, token) = world(Conditions { latency, loss, ..Conditions::perfect() });
            let handle = world.handle(1).unwrap();
            world.run_for(Duration::from_millis(16 * seed));
            world.server.redirect(handle, token.clone(), "moving").unwrap();
            let (outcome, time) = run_to_end(&mut world);
            assert_eq!(outcome.unwrap().as_bytes(), token.as_bytes(), "{percent} %, seed {seed}");
            assert_eq!(world.disconnects(), [(1, CloseKind::ServerStopped)]);
            worst = worst.max(time);
        }
        println!("{percent} % lost: {worst:?}");
        assert!(worst <= Duration::from_millis(most), "{percent} % lost: {worst:?}");
    }
}

#[test]
fn slot_is_free_after_a_redirect() {
    let (mut world, token) = world(Conditions::perfect());
    let handle = world.handle(1).unwrap();
    world.server.redirect(handle, token.clone(), "").unwrap();
    assert!(world.server.redirect(handle, token, "").is_err(), "it is gone for the application");
    assert!(run_to_end(&mut world).0.is_ok());
    world.run_for(Duration::from_millis(100));
    assert!(world.handle(1).is_none());
}

#[test]
fn player_who_leaves_is_not_redirected() {
    let (mut world, token) = world(Conditions { latency: Duration::from_millis(50), ..Conditions::perfect() });
    let handle = world.handle(1).unwrap();
    world.server.redirect(handle, token, "").unwrap();
    world.turn();
    world.player(1).core.disconnect();
    assert_eq!(run_to_end(&mut world).0.unwrap_err(), CloseKind::Left);
}

#[test]
fn client_counts_as_connecting_until_its_redirect_is_taken() {
    let (mut world, token) = world(Conditions::perfect());
    let handle = world.handle(1).unwrap();
    world.server.redirect(handle, token.clone(), "").unwrap();
    while outcome(&mut world).is_none() {
        let state = world.player(1).core.state();
        assert!(state.is_active(), "{state}");
        world.turn();
    }
    assert!(outcome(&mut world).unwrap().is_ok());
}

#[test]
fn leaving_before_a_redirect_is_taken_is_an_end() {
    let (mut world, token) = world(Conditions::perfect());
    let handle = world.handle(1).unwrap();
    world.server.redirect(handle, token, "").unwrap();
    while world.player(1).core.netcode.state().is_active() {
        world.turn();
    }
    assert!(outcome(&mut world).is_none(), "the event is not taken");
    world.player(1).core.disconnect();
    assert_eq!(run_to_end(&mut world).0.unwrap_err(), CloseKind::ServerStopped);
}

#[test]
fn client_without_channels_is_disconnected() {
    let mut world = SessionWorld::new(4, &layout(), &ConnectionConfig::default(), Memory::default());
    world.traffic = Traffic::Payloads;
    world.server.set_traffic(Traffic::Payloads).unwrap();
    let handle = world.join(Conditions::perfect());
    let token = world.token_to(1, &[address("10.0.0.2:40000")]);
    world.server.redirect(handle, token, "moving").unwrap();
    assert_eq!(run_to_end(&mut world).0.unwrap_err(), CloseKind::DisconnectedByServer);
}

#[test]
fn client_follows_three_redirects_in_a_row() {
    let (mut world, _) = world(Conditions::perfect());
    let home = world.server_address;
    for redirects in 1..=4 {
        let (handle, token) = (world.handle(1).unwrap(), world.token_to(1, &[home]));
        world.server.redirect(handle, token, "again").unwrap();
        let (outcome, _) = run_to_end(&mut world);
        assert_eq!(outcome.is_ok(), redirects < 4, "redirect {redirects}");
        // The token of the application begins a new row.
        let token = outcome.unwrap_or_else(|_| world.token(1));
        world.run_for(Duration::from_millis(200));
        let now = world.now().monotonic;
        world.player(1).events.clear();
        world.player(1).core.connect(token, now, |_| true).unwrap();
        world.run_for(Duration::from_millis(500));
        assert_eq!(world.player(1).core.state(), ClientState::Connected, "redirect {redirects}");
    }
    let (handle, token) = (world.handle(1).unwrap(), world.token_to(1, &[home]));
    world.server.redirect(handle, token, "").unwrap();
    assert!(run_to_end(&mut world).0.is_ok());
}

// Hostile servers -----------------------------------------------------------------------------------------------------

/// Returns the bytes of a token without the zeros at its end.
fn token_bytes(servers: &[Address]) -> Vec<u8> {
    let spec = TokenSpec { client_id: 1, servers: servers.to_vec(), lifetime: 45, timeout: 5, user_data: [0; 256] };
    let mut bytes = NetcodeWorld::perfect(9).mint(&spec).as_bytes().to_vec();
    bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1);
    bytes
}

/// Sends control messages, one in each packet, and then a close message. Returns the redirect or the end's reason.
fn against(what: &str, controls: &[Vec<u8>]) -> Result<ConnectToken, CloseKind> {
    let mut world = HostileServerWorld::connected(&layout());
    let (mut peer, hash) = (MaliciousPeer::default(), layout().hash());
    for control in controls.iter().chain([&bye(CloseCode::SHUTDOWN, "moving")]) {
        let payload = peer.packet(PeerPacket::frames(hash, control));
        world.turn_of_payloads(vec![payload]);
    }
    for _ in 0..10 {
        world.turn_of_payloads(Vec::new());
    }
    let (end, token) = (world.report.end.take(), world.report.redirect.take());
    assert!(world.report.peak_bytes < MAX_CLIENT_BYTES, "{what}: {} bytes", world.report.peak_bytes);
    world.assert_others_unaffected(what);
    token.ok_or_else(|| end.unwrap_or_else(|| panic!("{what}: the connection did not end")).kind)
}

#[test]
fn hostile_redirect_is_a_plain_close() {
    let private = [address("10.0.0.2:40000")];
    let good = token_bytes(&private);
    let parts = redirect(&good);
    assert_eq!(against("an honest redirect", &parts).unwrap().as_bytes()[..good.len()], good);
    let reversed: Vec<_> = parts.iter().rev().flat_map(|part| [part.clone(), part.clone()]).collect();
    assert!(against("parts twice and in any order", &reversed).is_ok());
    let mut other_game = good.clone();
    other_game[13] ^= 1;
    let (mut expired, mut broken) = (good.clone(), good.clone());
    // It expires before its creation.
    expired[29..37].fill(0);
    broken[0] = b'X';
    let to = |servers: &[&str]| redirect(&token_bytes(&servers.iter().map(|text| address(text)).collect::<Vec<_>>()));
    let incomplete = parts[..parts.len() - 1].to_vec();
    let repeated = incomplete.iter().cycle().take(20 * incomplete.len()).cloned().collect();
    let sizes = (1..=2048).step_by(7).map(|bytes| redirect_part(bytes, 0, &[7; 400][..400.min(bytes.into())]));
    let mut changed = vec![redirect_part(good.len() as u16 + 1, 0, &good[..400])];
    changed.extend(parts.clone());
    for (what, controls) in [
        ("no part", Vec::new()),
        ("the last part is missing", incomplete),
        ("the first part is missing", parts[1..].to_vec()),
        ("some parts again and again", repeated),
        ("a part of another size first", changed),
        ("parts of all sizes", sizes.collect()),
        ("another game", redirect(&other_game)),
        ("an expired token", redirect(&expired)),
        ("no token", redirect(&broken)),
        ("zeros", redirect(&[0; 2048])),
        ("the client's own machine", to(&["127.0.0.1:40000"])),
        ("its link", to(&["169.254.169.254:80"])),
        ("its link by IPv6", to(&["[fe80::1]:40000"])),
        ("one of several", to(&["10.0.0.2:40000", "[::1]:40000"])),
    ] {
        assert_eq!(against(what, &controls).unwrap_err(), CloseKind::ServerStopped, "{what}");
    }
    // From a private network to a public one is allowed.
    assert!(against("a public server", &to(&["203.0.113.7:40000", "[2001:db8::7]:40000"])).is_ok());
}

#[test]
fn malformed_part_is_a_violation() {
    for (what, control) in [
        ("a token of no bytes", redirect_part(0, 0, &[])),
        ("a token that is too long", redirect_part(2049, 0, &[7; 400])),
        ("a part behind the end", redirect_part(800, 2, &[7; 400])),
        ("the last index", redirect_part(2048, 255, &[7; 400])),
        ("a part that is too short", redirect_part(800, 0, &[7; 399])),
    ] {
        let end = against(what, &[control]).unwrap_err();
        assert_eq!(end.name(), "violation", "{what}");
    }
}

#[test]
fn redirect_after_the_close_message_has_no_effect() {
    let parts = redirect(&token_bytes(&[address("10.0.0.2:40000")]));
    let controls: Vec<_> = [bye(CloseCode::KICKED, "out")].into_iter().chain(parts).collect();
    assert_eq!(against("parts after the close message", &controls).unwrap_err(), CloseKind::Kicked);
}
