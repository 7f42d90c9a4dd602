//! Stories of a player whose game crashed: a newer token takes the silent slot over, where that is switched on.

use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::client::ClientState;
use slipgate_netcode::discard::Discard;
use slipgate_netcode::server::{ClientHandle, DisconnectReason, Event, Fence};
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_tests::holder::Holder;
use slipgate_tests::world::{ServerId, World, address};

const SECOND: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_secs(2);

fn home() -> Address {
    address("10.50.0.1:5000")
}

fn elsewhere() -> Address {
    address("10.60.0.1:6000")
}

fn holder(world: &mut World, client_id: u64, server: ServerId) -> Holder {
    Holder::of(&world.token(client_id, &[server]))
}

/// A server of one slot with takeover after two seconds, and player 1 in that slot.
fn with_a_player(seed: u64) -> (World, ServerId, Holder, ClientHandle) {
    let mut world = World::perfect(seed);
    let server = world.add_server_with(1, |config| {
        config.fence = Fence::Open;
        config.takeover_after = Some(GRACE);
    });
    let mut player = holder(&mut world, 1, server);
    let handle = world.admitted(server, &mut player, home());
    (world, server, player, handle)
}

#[test]
fn takeover_is_off_by_default_and_the_player_waits_for_the_time_out() {
    let mut world = World::perfect(1);
    let server = world.add_server(4);
    let mut crashed = holder(&mut world, 1, server);
    world.admitted(server, &mut crashed, home());
    world.run_for(4 * SECOND);
    let mut newer = holder(&mut world, 1, server);
    assert_eq!(world.present(server, elsewhere(), &newer.request()), Err(Discard::ClientIdConnected));
    assert_eq!(world.present(server, home(), &newer.request()), Err(Discard::AddressConnected));
    world.run_for(2 * SECOND);
    assert_eq!(world.servers[server].ends(), [(1, DisconnectReason::TimedOut)]);
    world.admitted(server, &mut newer, elsewhere());
}

#[test]
fn a_newer_token_takes_the_very_slot_of_a_silent_player_and_its_old_address_is_ignored() {
    let (mut world, server, mut crashed, old) = with_a_player(2);
    world.run_for(GRACE + SECOND / 5);
    let mut newer = holder(&mut world, 1, server);
    let new = world.admitted(server, &mut newer, elsewhere());
    assert_eq!(new.slot(), old.slot());
    assert_ne!(new, old);

    let events: Vec<Event> = world.servers[server].events.iter().map(|(_, event)| *event).collect();
    let expected = [
        Event::Connected { client: old, client_id: 1 },
        Event::Disconnected { client: old, client_id: 1, reason: DisconnectReason::TakenOver },
        Event::Connected { client: new, client_id: 1 },
    ];
    assert_eq!(events, expected);
    assert_eq!(world.servers[server].core.connected(), 1);
    assert_eq!(world.servers[server].core.client(new).and_then(|info| info.address), Some(elsewhere()));
    assert!(world.servers[server].core.client(old).is_none());

    let late = crashed.keep_alive();
    assert_eq!(world.present(server, home(), &late), Err(Discard::UnknownSender));
    let late = crashed.seal(PacketKind::Disconnect, &[]);
    assert_eq!(world.present(server, home(), &late), Err(Discard::UnknownSender));
    assert_eq!(world.present(server, elsewhere(), &late), Err(Discard::NotAuthentic));
    assert_eq!(world.present(server, home(), &crashed.request()), Err(Discard::TokenUsed));
    let keep_alive = newer.keep_alive();
    assert_eq!(world.present(server, elsewhere(), &keep_alive), Ok(None));
}

#[test]
fn a_player_takes_its_own_slot_over_from_the_same_address() {
    let (mut world, server, mut crashed, old) = with_a_player(3);
    world.run_for(GRACE + SECOND / 5);
    let mut newer = holder(&mut world, 1, server);
    let new = world.admitted(server, &mut newer, home());
    assert_eq!((new.slot(), new != old), (old.slot(), true));
    let late = crashed.seal(PacketKind::Disconnect, &[]);
    assert_eq!(world.present(server, home(), &late), Err(Discard::NotAuthentic));
    let payload = world.payload(20);
    let datagram = newer.seal(PacketKind::Payload, &payload);
    assert_eq!(world.present(server, home(), &datagram), Ok(Some(payload)));
}

#[test]
fn before_the_grace_time_nobody_takes_over_and_whoever_talks_is_never_silent() {
    let (mut world, server, mut player, _) = with_a_player(4);
    for _ in 0..30 {
        world.run_for(SECOND / 5);
        let keep_alive = player.keep_alive();
        assert_eq!(world.present(server, home(), &keep_alive), Ok(None));
    }
    world.run_for(GRACE - SECOND / 5);
    let newer = holder(&mut world, 1, server);
    assert_eq!(world.present(server, elsewhere(), &newer.request()), Err(Discard::ClientIdConnected));
    world.run_for(SECOND / 5);
    assert_eq!(world.present(server, elsewhere(), &newer.request()), Ok(None));
}

#[test]
fn a_player_that_speaks_again_between_request_and_response_keeps_its_slot() {
    let (mut world, server, mut player, old) = with_a_player(5);
    world.run_for(GRACE + SECOND / 5);
    let mut newer = holder(&mut world, 1, server);
    let challenge = world.challenged(server, &newer, elsewhere());
    let keep_alive = player.keep_alive();
    assert_eq!(world.present(server, home(), &keep_alive), Ok(None));
    let response = newer.response(&challenge);
    assert_eq!(world.present(server, elsewhere(), &response), Err(Discard::ClientIdConnected));
    assert!(world.servers[server].core.client(old).is_some());
}

#[test]
fn a_request_alone_takes_nothing_over() {
    let (mut world, server, _, old) = with_a_player(6);
    world.run_for(GRACE + SECOND / 5);
    let newer = holder(&mut world, 1, server);
    world.challenged(server, &newer, elsewhere());
    assert!(world.servers[server].core.client(old).is_some());
    assert_eq!(world.servers[server].ends(), []);
}

#[test]
fn a_token_that_is_older_or_of_the_same_moment_takes_nothing_over() {
    let mut world = World::perfect(7);
    let server = world.add_server_with(4, |config| {
        config.fence = Fence::Open;
        config.takeover_after = Some(GRACE);
    });
    let older = holder(&mut world, 1, server);
    world.run_for(SECOND);
    let (mut current, equal) = (holder(&mut world, 1, server), holder(&mut world, 1, server));
    world.admitted(server, &mut current, home());
    world.run_for(GRACE + SECOND / 5);
    for stale in [older, equal] {
        assert_eq!(world.present(server, elsewhere(), &stale.request()), Err(Discard::ClientIdConnected));
    }
}

#[test]
fn another_player_takes_nothing_over_neither_by_its_name_nor_by_its_address() {
    let (mut world, server, ..) = with_a_player(8);
    world.run_for(GRACE + SECOND / 5);
    let other = holder(&mut world, 2, server);
    assert_eq!(world.present(server, home(), &other.request()), Err(Discard::AddressConnected));
    assert_eq!(world.present(server, elsewhere(), &other.request()), Ok(None));
    let replies = world.replies_to(elsewhere());
    assert_eq!(other.open(&replies[0]).map(|opened| opened.kind), Some(PacketKind::Denied));
}

#[test]
fn nobody_takes_over_from_the_address_of_a_third() {
    let mut world = World::perfect(9);
    let server = world.add_server_with(4, |config| {
        config.fence = Fence::Open;
        config.takeover_after = Some(GRACE);
    });
    let (mut crashed, mut third) = (holder(&mut world, 1, server), holder(&mut world, 3, server));
    world.admitted(server, &mut crashed, home());
    world.admitted(server, &mut third, elsewhere());
    world.run_for(GRACE + SECOND / 5);
    let newer = holder(&mut world, 1, server);
    assert_eq!(world.present(server, elsewhere(), &newer.request()), Err(Discard::AddressConnected));
}

#[test]
fn a_game_that_crashed_is_back_after_the_grace_time_instead_of_the_time_out() {
    let mut world = World::perfect(10);
    let server = world.add_server_with(2, |config| {
        config.fence = Fence::Open;
        config.takeover_after = Some(GRACE);
    });
    let (_, handle) = world.connected_client(1, server);
    // The process dies: nothing is sent any more, and the next one comes from another port.
    world.clients[0].address = address("10.250.0.1:1");
    world.clients[0].core = slipgate_netcode::client::Client::new(Default::default());
    let (again, token) = (world.add_client(), world.token(1, &[server]));
    world.connect(again, token);
    world.run_until(GRACE + SECOND / 2, |world| world.state(again) == ClientState::Connected);
    assert_eq!(world.clients[again].core.client_index(), Some(handle.slot()));
    assert_eq!(world.servers[server].ends(), [(1, DisconnectReason::TakenOver)]);
}
