//! Nobody is locked out: not by tokens that are never used, not by junk in one's name, not by a thief who was first.

use std::time::Duration;

use slipgate_netcode::client::{Client, ClientState};
use slipgate_netcode::discard::Discard;
use slipgate_netcode::server::{Config, ConfigError};
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_tests::holder::Holder;
use slipgate_tests::world::{Collected, ServerId, World, address};

const SECOND: Duration = Duration::from_secs(1);

fn connects_soon(world: &mut World, server: ServerId) {
    let client = world.add_client();
    let token = world.token(1, &[server]);
    world.connect(client, token);
    world.run_until(4 * SECOND, |world| world.state(client) == ClientState::Connected);
}

// The history -------------------------------------------------------------------------------------------------------

#[test]
fn tokens_that_are_presented_and_never_used_do_not_fill_the_history() {
    let mut world = World::perfect(1);
    let server = world.add_server(64);
    for number in 0..4096_u32 {
        let spec = world.spec(666, &[server]);
        let request = Holder::of(&world.mint(&spec)).request();
        let _ = world.present(server, address("10.66.6.6:666"), &request);
        if number % 16 == 15 {
            world.turn();
        }
    }
    assert_eq!(world.servers[server].core.remembered_tokens(), 0);
    connects_soon(&mut world, server);
}

#[test]
fn a_rush_on_a_full_server_leaves_the_slot_that_is_freed_to_the_next_player() {
    let mut world = World::perfect(2);
    let server = world.add_server(4);
    let (first, _) = world.connected_client(900, server);
    for id in 901..904 {
        world.connected_client(id, server);
    }
    for number in 0..4096_u64 {
        let token = world.token(10_000 + number, &[server]);
        let from = address(&format!("10.77.{}.{}:777", number / 250, number % 250 + 1));
        let _ = world.present(server, from, &Holder::of(&token).request());
        if number % 8 == 7 {
            world.turn();
        }
    }
    world.clients[first].core.disconnect();
    world.run_for(SECOND);
    connects_soon(&mut world, server);
}

#[test]
fn a_full_server_denies_everybody_who_asks_however_many() {
    let mut world = World::perfect(3);
    let server = world.add_server_with(1, |config| {
        config.fence = slipgate_netcode::server::Fence::Open;
        config.pending_clients = 8;
    });
    world.connected_client(9, server);
    for number in 0..500_u64 {
        let token = world.token(100 + number, &[server]);
        let from = address(&format!("10.77.{}.{}:777", number / 250, number % 250 + 1));
        world.present(server, from, &Holder::of(&token).request()).unwrap();
        let (now, mut outbox) = (world.now(), Collected::default());
        world.servers[server].core.transmit(now, &mut outbox);
        assert_eq!(outbox.datagrams.iter().filter(|(to, _)| *to == from).count(), 1);
    }
    assert_eq!(world.servers[server].core.pending(), 0);
}

// Junk in one's name ------------------------------------------------------------------------------------------------

#[test]
fn junk_under_a_players_address_costs_the_player_nothing() {
    let mut world = World::perfect(4);
    let server = world.add_server(4);
    let mut holder = Holder::of(&world.token(1, &[server]));
    let victim = address("10.5.5.5:5555");
    world.admitted(server, &mut holder, victim);
    for turn in 0..390_u64 {
        for number in 0..300 {
            let mut junk = [0x85; 26];
            junk[1..9].copy_from_slice(&(1_000_000 + turn * 300 + number).to_le_bytes());
            world.present(server, victim, &junk).unwrap_err();
        }
        world.present(server, victim, &holder.keep_alive()).unwrap();
        world.turn();
    }
    assert_eq!(world.servers[server].ends(), []);
    assert_eq!(world.discarded(server, Discard::ClientBudget), 0);
}

#[test]
fn forgeries_under_players_addresses_have_a_budget_of_their_own() {
    let mut world = World::perfect(5);
    let server = world.add_server_with(4, |config| {
        config.fence = slipgate_netcode::server::Fence::Open;
        config.budgets.forgeries_per_turn = 10;
    });
    let mut holder = Holder::of(&world.token(1, &[server]));
    let victim = address("10.5.5.5:5555");
    world.admitted(server, &mut holder, victim);
    for _ in 0..2 {
        for number in 0..15_u8 {
            let expected = if number < 10 { Discard::NotAuthentic } else { Discard::ForgeryBudget };
            assert_eq!(
                world.present(
                    server,
                    victim,
                    &[0x15, 200 + number, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]
                ),
                Err(expected)
            );
        }
        world.turn();
    }
}

#[test]
fn forgeries_under_one_players_address_silence_no_other_player() {
    let mut world = World::perfect(7);
    let server = world.add_server_with(4, |config| config.fence = slipgate_netcode::server::Fence::Open);
    let players = [address("10.5.5.5:5555"), address("10.5.5.6:5555")];
    let mut holders = [1, 2].map(|client| Holder::of(&world.token(client, &[server])));
    for (holder, place) in holders.iter_mut().zip(players) {
        world.admitted(server, holder, place);
    }
    world.turn();
    let forged = [0x15, 200, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17];
    let opened =
        (0..20_000).filter(|_| world.present(server, players[0], &forged) == Err(Discard::NotAuthentic)).count();
    assert_eq!(opened, 1024);
    assert_eq!(world.present(server, players[1], &holders[1].keep_alive()), Ok(None));
    world.turn();
    assert_eq!(
        world.present(server, players[0], &holders[0].keep_alive()),
        Ok(None),
        "and in the next turn neither the one"
    );
}

// Thieves who are first ---------------------------------------------------------------------------------------------

#[test]
fn a_thief_at_as_many_addresses_as_a_token_may_have_does_not_lock_its_owner_out() {
    let mut world = World::perfect(6);
    let server = world.add_server(4);
    let client = world.add_client();
    let token = world.token(1, &[server]);
    let sniffed = Holder::of(&token).request();
    let spoofed: Vec<_> = (1..=4).map(|number| address(&format!("10.66.6.{number}:666"))).collect();
    world.connect(client, token);
    for turn in 0..300 {
        if turn % 6 == 0 {
            for from in &spoofed {
                let _ = world.present(server, *from, &sniffed);
            }
        }
        world.turn();
    }
    assert_eq!(world.state(client), ClientState::Connected);
}

#[test]
fn another_players_token_under_ones_own_address_does_not_lock_one_out() {
    let mut world = World::perfect(7);
    let server = world.add_server(4);
    let client = world.add_client();
    let mine = world.token(1, &[server]);
    let theirs = Holder::of(&world.token(666, &[server])).request();
    let at = world.clients[client].address;
    let _ = world.present(server, at, &theirs);
    world.connect(client, mine);
    for turn in 0..300 {
        if turn % 6 == 0 {
            let _ = world.present(server, at, &theirs);
        }
        world.turn();
    }
    assert_eq!(world.state(client), ClientState::Connected);
}

#[test]
fn a_pending_client_keeps_its_place_for_a_second_whoever_wants_it() {
    let mut world = World::perfect(8);
    let server = world.add_server(4);
    let holder = Holder::of(&world.token(1, &[server]));
    let at = |number: u8| address(&format!("10.66.6.{number}:666"));
    (1..=4).for_each(|number| drop(world.present(server, at(number), &holder.request()).unwrap()));
    world.run_for(SECOND / 2);
    assert_eq!(world.present(server, at(5), &holder.request()), Err(Discard::TokenAddresses));
    world.run_for(SECOND / 2);
    assert_eq!(world.present(server, at(5), &holder.request()), Ok(None));
    assert_eq!(world.servers[server].core.pending(), 4);
}

// One server's packets in another's name ----------------------------------------------------------------------------

#[test]
fn a_denial_of_one_server_replayed_in_the_name_of_the_next_is_not_believed() {
    let mut world = World::perfect(9);
    let (full, free) = (world.add_server(1), world.add_server(1));
    world.connected_client(9, full);
    let client = world.add_client();
    let token = world.token(1, &[full, free]);
    let holder = Holder::of(&token);
    let (at_full, at_free, at) =
        (world.servers[full].address, world.servers[free].address, world.clients[client].address);
    world.connect(client, token);
    world.run_until(2 * SECOND, |world| world.clients[client].core.server() == Some(at_free));
    let is_denial = |datagram: &[u8]| holder.open(datagram).is_some_and(|opened| opened.kind == PacketKind::Denied);
    let denial =
        world.sent().iter().find(|(from, to, datagram)| *from == at_full && *to == at && is_denial(datagram)).cloned();
    world.inject(at_free, at, &denial.expect("the full server denied").2);
    world.run_until(2 * SECOND, |world| world.state(client) == ClientState::Connected);
    assert_eq!(world.clients[client].core.discards().count(Discard::Replayed), 1);
}

#[test]
fn a_slot_packet_from_the_lane_of_another_server_of_the_token_is_refused() {
    let mut world = World::perfect(10);
    let (a, b) = (world.add_server(4), world.add_server(4));
    // The client dials A first; A's place in the token is 1, that of the second entry, for B stands before it.
    let token = world.token(1, &[b, a]);
    let holder = Holder::of(&token);
    let (at, at_b) = (address("10.9.9.9:9999"), world.servers[b].address);
    let mut at_a = holder;
    world.admitted(a, &mut at_a, at);
    let slot = world.servers[a].core.find(1).unwrap();
    world.server_sends(a, slot, b"meant for A's client").unwrap();
    let recorded = world.replies_to(at);

    let mut client = Client::new(TimeoutPolicy::Clamped);
    client.connect(token, world.monotonic()).unwrap();
    assert_eq!(client.server(), Some(at_b));
    let of_slots = recorded.iter().filter(|datagram| {
        let mut copy = (*datagram).clone();
        client.handle(at_b, &mut copy, world.monotonic()) == Err(Discard::Replayed)
    });
    assert!(of_slots.count() >= 2, "the keep-alive and the payload of A's slot");
}

// Settings ----------------------------------------------------------------------------------------------------------

#[test]
fn settings_under_which_nobody_could_connect_are_refused() {
    type Change = fn(&mut Config);
    let cases: [(Change, ConfigError); 12] = [
        (|config| config.pending_lifetime = Duration::ZERO, ConfigError::PendingLifetime),
        (|config| config.challenge_lifetime = Duration::ZERO, ConfigError::PendingLifetime),
        (|config| config.pending_lifetime = 61 * SECOND, ConfigError::PendingLifetime),
        (|config| config.max_token_lifetime = Some(Duration::ZERO), ConfigError::TokenLifetime),
        (|config| config.budgets.strangers_per_turn = 0, ConfigError::Budgets),
        (|config| config.budgets.packets_per_client_and_turn = 0, ConfigError::Budgets),
        (|config| config.budgets.forgeries_per_turn = 0, ConfigError::Budgets),
        (|config| config.budgets.decrypts = 2, ConfigError::Budgets),
        (|config| config.budgets.decrypts_per_source = 2, ConfigError::Budgets),
        (|config| config.advertised = vec![address("0.0.0.0:40000")], ConfigError::Advertised),
        (|config| config.advertised = vec![address("10.0.0.1:0")], ConfigError::Advertised),
        (|config| config.advertised.clear(), ConfigError::Advertised),
    ];
    for (change, error) in cases {
        let mut config = Config::new(1, 4, vec![address("10.0.0.1:1")]);
        assert_eq!(config.check(), Ok(()));
        change(&mut config);
        assert_eq!(config.check(), Err(error));
    }
}

// Used tokens -------------------------------------------------------------------------------------------------------

#[test]
fn a_token_is_used_up_for_the_client_however_its_session_ended() {
    for end in ["left", "kicked", "timed out"] {
        let mut world = World::perfect(11);
        let (server, other) = (world.add_server(4), world.add_server(4));
        let client = world.add_client();
        let token = world.token(1, &[server, other]);
        world.connect(client, token.clone());
        world.run_for(SECOND);
        let handle = world.servers[server].core.find(1).unwrap();
        match end {
            "left" => world.clients[client].core.disconnect(),
            "kicked" => drop(world.servers[server].core.disconnect(handle)),
            _ => world.crash(server),
        }
        world.run_until(10 * SECOND, |world| !world.state(client).is_active());
        let now = world.monotonic();
        let again = world.clients[client].core.connect(token, now);
        assert_eq!(again, Err(slipgate_netcode::client::ConnectError::TokenUsed), "{end}");
    }
}
