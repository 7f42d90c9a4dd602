//! A player returns after a crash of its game: a newer token takes over the silent slot, if takeover is enabled.

use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::client::ClientState;
use slipgate_netcode::discard::Discard;
use slipgate_netcode::server::{ClientHandle, DisconnectReason, NetcodeEvent, TokenCutoff};
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_tests::netcode_world::{NetcodeWorld, ServerId, address};
use slipgate_tests::raw_client::RawClient;

const SECOND: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_secs(2);

fn player_address() -> Address {
    address("10.50.0.1:5000")
}

fn elsewhere() -> Address {
    address("10.60.0.1:6000")
}

fn raw_client(world: &mut NetcodeWorld, client_id: u64, server: ServerId) -> RawClient {
    RawClient::new(&world.token(client_id, &[server]))
}

/// Creates a server of one slot with takeover after two seconds, and player 1 in that slot.
fn with_a_player(seed: u64) -> (NetcodeWorld, ServerId, RawClient, ClientHandle) {
    let mut world = NetcodeWorld::perfect(seed);
    let server = world.add_server_with(1, |config| {
        config.token_cutoff = TokenCutoff::None;
        config.takeover_after = Some(GRACE);
    });
    let mut player = raw_client(&mut world, 1, server);
    let handle = world.admit_raw(server, &mut player, player_address());
    (world, server, player, handle)
}

#[test]
fn takeover_is_off_by_default() {
    let mut world = NetcodeWorld::perfect(1);
    let server = world.add_server(4);
    let mut crashed = raw_client(&mut world, 1, server);
    world.admit_raw(server, &mut crashed, player_address());
    world.run_for(4 * SECOND);
    let mut newer = raw_client(&mut world, 1, server);
    assert_eq!(world.present(server, elsewhere(), &newer.request()), Err(Discard::ClientIdConnected));
    assert_eq!(world.present(server, player_address(), &newer.request()), Err(Discard::AddressConnected));
    world.run_for(2 * SECOND);
    assert_eq!(world.servers[server].disconnects(), [(1, DisconnectReason::TimedOut)]);
    world.admit_raw(server, &mut newer, elsewhere());
}

#[test]
fn newer_token_takes_over_the_slot_of_a_silent_player() {
    let (mut world, server, mut crashed, old) = with_a_player(2);
    world.run_for(GRACE + SECOND / 5);
    let mut newer = raw_client(&mut world, 1, server);
    let new = world.admit_raw(server, &mut newer, elsewhere());
    assert_eq!(new.slot().0, old.slot().0);
    assert_ne!(new, old);

    let events: Vec<NetcodeEvent> = world.servers[server].events.iter().map(|(_, event)| *event).collect();
    let expected = [
        NetcodeEvent::Connected { client: old, client_id: 1.into() },
        NetcodeEvent::Disconnected { client: old, client_id: 1.into(), reason: DisconnectReason::TakenOver },
        NetcodeEvent::Connected { client: new, client_id: 1.into() },
    ];
    assert_eq!(events, expected);
    assert_eq!(world.servers[server].core.connected(), 1);
    assert_eq!(world.servers[server].core.client(new).and_then(|info| info.address), Some(elsewhere()));
    assert!(world.servers[server].core.client(old).is_none());

    let late = crashed.keep_alive();
    assert_eq!(world.present(server, player_address(), &late), Err(Discard::UnknownSender));
    let late = crashed.seal(PacketKind::Disconnect, &[]);
    assert_eq!(world.present(server, player_address(), &late), Err(Discard::UnknownSender));
    assert_eq!(world.present(server, elsewhere(), &late), Err(Discard::NotAuthentic));
    assert_eq!(world.present(server, player_address(), &crashed.request()), Err(Discard::TokenUsed));
    let keep_alive = newer.keep_alive();
    assert_eq!(world.present(server, elsewhere(), &keep_alive), Ok(None));
}

#[test]
fn player_takes_over_its_slot_from_the_same_address() {
    let (mut world, server, mut crashed, old) = with_a_player(3);
    world.run_for(GRACE + SECOND / 5);
    let mut newer = raw_client(&mut world, 1, server);
    let new = world.admit_raw(server, &mut newer, player_address());
    assert_eq!((new.slot().0, new != old), (old.slot().0, true));
    let late = crashed.seal(PacketKind::Disconnect, &[]);
    assert_eq!(world.present(server, player_address(), &late), Err(Discard::NotAuthentic));
    let payload = world.payload(20);
    let datagram = newer.seal(PacketKind::Payload, &payload);
    assert_eq!(world.present(server, player_address(), &datagram), Ok(Some(payload)));
}

#[test]
fn active_player_is_not_taken_over_before_the_grace_time() {
    let (mut world, server, mut player, _) = with_a_player(4);
    for _ in 0..30 {
        world.run_for(SECOND / 5);
        let keep_alive = player.keep_alive();
        assert_eq!(world.present(server, player_address(), &keep_alive), Ok(None));
    }
    world.run_for(GRACE - SECOND / 5);
    let newer = raw_client(&mut world, 1, server);
    assert_eq!(world.present(server, elsewhere(), &newer.request()), Err(Discard::ClientIdConnected));
    world.run_for(SECOND / 5);
    assert_eq!(world.present(server, elsewhere(), &newer.request()), Ok(None));
}

#[test]
fn player_active_again_before_the_response_keeps_its_slot() {
    let (mut world, server, mut player, old) = with_a_player(5);
    world.run_for(GRACE + SECOND / 5);
    let mut newer = raw_client(&mut world, 1, server);
    let challenge = world.request_challenge(server, &newer, elsewhere());
    let keep_alive = player.keep_alive();
    assert_eq!(world.present(server, player_address(), &keep_alive), Ok(None));
    let response = newer.response(&challenge);
    assert_eq!(world.present(server, elsewhere(), &response), Err(Discard::ClientIdConnected));
    assert!(world.servers[server].core.client(old).is_some());
}

#[test]
fn request_alone_takes_over_no_slot() {
    let (mut world, server, _, old) = with_a_player(6);
    world.run_for(GRACE + SECOND / 5);
    let newer = raw_client(&mut world, 1, server);
    world.request_challenge(server, &newer, elsewhere());
    assert!(world.servers[server].core.client(old).is_some());
    assert_eq!(world.servers[server].disconnects(), []);
}

#[test]
fn token_of_the_same_age_or_older_takes_over_no_slot() {
    let mut world = NetcodeWorld::perfect(7);
    let server = world.add_server_with(4, |config| {
        config.token_cutoff = TokenCutoff::None;
        config.takeover_after = Some(GRACE);
    });
    let older = raw_client(&mut world, 1, server);
    world.run_for(SECOND);
    let (mut current, equal) = (raw_client(&mut world, 1, server), raw_client(&mut world, 1, server));
    world.admit_raw(server, &mut current, player_address());
    world.run_for(GRACE + SECOND / 5);
    for stale in [older, equal] {
        assert_eq!(world.present(server, elsewhere(), &stale.request()), Err(Discard::ClientIdConnected));
    }
}

#[test]
fn another_client_id_or_address_takes_over_no_slot() {
    let (mut world, server, ..) = with_a_player(8);
    world.run_for(GRACE + SECOND / 5);
    let other = raw_client(&mut world, 2, server);
    assert_eq!(world.present(server, player_address(), &other.request()), Err(Discard::AddressConnected));
    assert_eq!(world.present(server, elsewhere(), &other.request()), Ok(None));
    let replies = world.replies_to(elsewhere());
    assert_eq!(other.open(&replies[0]).map(|opened| opened.kind), Some(PacketKind::Denied));
}

#[test]
fn address_of_a_third_player_takes_over_no_slot() {
    let mut world = NetcodeWorld::perfect(9);
    let server = world.add_server_with(4, |config| {
        config.token_cutoff = TokenCutoff::None;
        config.takeover_after = Some(GRACE);
    });
    let (mut crashed, mut third) = (raw_client(&mut world, 1, server), raw_client(&mut world, 3, server));
    world.admit_raw(server, &mut crashed, player_address());
    world.admit_raw(server, &mut third, elsewhere());
    world.run_for(GRACE + SECOND / 5);
    let newer = raw_client(&mut world, 1, server);
    assert_eq!(world.present(server, elsewhere(), &newer.request()), Err(Discard::AddressConnected));
}

#[test]
fn crashed_game_reconnects_after_the_grace_time() {
    let mut world = NetcodeWorld::perfect(10);
    let server = world.add_server_with(2, |config| {
        config.token_cutoff = TokenCutoff::None;
        config.takeover_after = Some(GRACE);
    });
    let (_, handle) = world.connected_client(1, server);
    // The process dies: it sends nothing more, and the next one uses another port.
    world.clients[0].address = address("10.250.0.1:1");
    world.clients[0].core = slipgate_netcode::client::NetcodeClient::new(Default::default());
    let (again, token) = (world.add_client(), world.token(1, &[server]));
    world.connect(again, token);
    world.run_until(GRACE + SECOND / 2, |world| world.state(again) == ClientState::Connected);
    assert_eq!(world.clients[again].core.slot_info().map(|(index, _)| index.0), Some(handle.slot().0));
    assert_eq!(world.servers[server].disconnects(), [(1, DisconnectReason::TakenOver)]);
}
