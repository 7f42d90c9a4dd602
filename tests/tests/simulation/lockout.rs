//! No player is locked out: not by unused tokens, not by junk at its address, and not by a thief with an earlier
//! request.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use slipgate_netcode::client::{ClientState, NetcodeClient};
use slipgate_netcode::discard::Discard;
use slipgate_netcode::server::{ServerConfig, ServerConfigError};
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_tests::netcode_world::{NetcodeWorld, ServerId, VecOutbox, address};
use slipgate_tests::raw_client::RawClient;

const SECOND: Duration = Duration::from_secs(1);

fn connects_soon(world: &mut NetcodeWorld, server: ServerId) {
    let client = world.add_client();
    let token = world.token(1, &[server]);
    world.connect(client, token);
    world.run_until(4 * SECOND, |world| world.state(client) == ClientState::Connected);
}

// The history -------------------------------------------------------------------------------------------------------

#[test]
fn presented_but_unused_tokens_do_not_fill_the_history() {
    let mut world = NetcodeWorld::perfect(1);
    let server = world.add_server(64);
    for number in 0..4096_u32 {
        let spec = world.spec(666, &[server]);
        let request = RawClient::new(&world.mint(&spec)).request();
        let _ = world.present(server, address("10.66.6.6:666"), &request);
        if number % 16 == 15 {
            world.turn();
        }
    }
    assert_eq!(world.servers[server].core.table_usage().used_tokens, 0);
    connects_soon(&mut world, server);
}

#[test]
fn freed_slot_of_a_crowded_server_goes_to_the_next_player() {
    let mut world = NetcodeWorld::perfect(2);
    let server = world.add_server(4);
    let (first, _) = world.connected_client(900, server);
    for id in 901..904 {
        world.connected_client(id, server);
    }
    for number in 0..4096_u64 {
        let token = world.token(10_000 + number, &[server]);
        let from = address(&format!("10.77.{}.{}:777", number / 250, number % 250 + 1));
        let _ = world.present(server, from, &RawClient::new(&token).request());
        if number % 8 == 7 {
            world.turn();
        }
    }
    world.clients[first].core.disconnect();
    world.run_for(SECOND);
    connects_soon(&mut world, server);
}

#[test]
fn full_server_denies_every_request() {
    let mut world = NetcodeWorld::perfect(3);
    let server = world.add_server_with(1, |config| {
        config.token_cutoff = slipgate_netcode::server::TokenCutoff::None;
        config.pending_clients = 8;
    });
    world.connected_client(9, server);
    for number in 0..500_u64 {
        let token = world.token(100 + number, &[server]);
        let from = address(&format!("10.77.{}.{}:777", number / 250, number % 250 + 1));
        world.present(server, from, &RawClient::new(&token).request()).unwrap();
        let (now, mut outbox) = (world.now(), VecOutbox::default());
        world.servers[server].core.transmit(now, &mut outbox);
        assert_eq!(outbox.datagrams.iter().filter(|(to, _)| *to == from).count(), 1);
    }
    assert_eq!(world.servers[server].core.table_usage().pending, 0);
}

// Junk at the address of a player ------------------------------------------------------------------------------------

#[test]
fn junk_at_a_player_address_does_not_affect_the_player() {
    let mut world = NetcodeWorld::perfect(4);
    let server = world.add_server(4);
    let mut raw_client = RawClient::new(&world.token(1, &[server]));
    let victim = address("10.5.5.5:5555");
    world.admit_raw(server, &mut raw_client, victim);
    for turn in 0..390_u64 {
        for number in 0..300 {
            let mut junk = [0x85; 26];
            junk[1..9].copy_from_slice(&(1_000_000 + turn * 300 + number).to_le_bytes());
            world.present(server, victim, &junk).unwrap_err();
        }
        world.present(server, victim, &raw_client.keep_alive()).unwrap();
        world.turn();
    }
    assert_eq!(world.servers[server].disconnects(), []);
    assert_eq!(world.discard_count(server, Discard::ClientBudget), 0);
}

#[test]
fn forgeries_at_player_addresses_have_a_separate_budget() {
    let mut world = NetcodeWorld::perfect(5);
    let server = world.add_server_with(4, |config| {
        config.token_cutoff = slipgate_netcode::server::TokenCutoff::None;
        config.budgets.forgeries_per_turn = 10;
    });
    let mut raw_client = RawClient::new(&world.token(1, &[server]));
    let victim = address("10.5.5.5:5555");
    world.admit_raw(server, &mut raw_client, victim);
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
fn forgeries_at_one_address_do_not_block_other_players() {
    let mut world = NetcodeWorld::perfect(7);
    let server = world.add_server_with(4, |config| config.token_cutoff = slipgate_netcode::server::TokenCutoff::None);
    let players = [address("10.5.5.5:5555"), address("10.5.5.6:5555")];
    let mut raw_clients = [1, 2].map(|client| RawClient::new(&world.token(client, &[server])));
    for (raw_client, index) in raw_clients.iter_mut().zip(players) {
        world.admit_raw(server, raw_client, index);
    }
    world.turn();
    // A number that is far ahead of the client's, and one that it might send next.
    for (number, max) in [(0x4000_u16, 1024), (200, 8192)] {
        let [low, high] = number.to_le_bytes();
        let forged = [0x25, low, high, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17];
        let opened =
            (0..20_000).filter(|_| world.present(server, players[0], &forged) == Err(Discard::NotAuthentic)).count();
        assert_eq!(opened, max);
    }
    assert_eq!(world.present(server, players[1], &raw_clients[1].keep_alive()), Ok(None));
    world.turn();
    assert_eq!(
        world.present(server, players[0], &raw_clients[0].keep_alive()),
        Ok(None),
        "the first one stays refused in the next turn"
    );
}

// Thieves with an earlier request ------------------------------------------------------------------------------------

#[test]
fn thief_at_all_token_addresses_does_not_block_the_owner() {
    let mut world = NetcodeWorld::perfect(6);
    let server = world.add_server(4);
    let client = world.add_client();
    let token = world.token(1, &[server]);
    let sniffed = RawClient::new(&token).request();
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
fn foreign_token_at_a_player_address_does_not_block_the_player() {
    let mut world = NetcodeWorld::perfect(7);
    let server = world.add_server(4);
    let client = world.add_client();
    let mine = world.token(1, &[server]);
    let theirs = RawClient::new(&world.token(666, &[server])).request();
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
fn pending_client_keeps_its_entry_for_one_second() {
    let mut world = NetcodeWorld::perfect(8);
    let server = world.add_server(4);
    let raw_client = RawClient::new(&world.token(1, &[server]));
    let at = |number: u8| address(&format!("10.66.6.{number}:666"));
    (1..=4).for_each(|number| drop(world.present(server, at(number), &raw_client.request()).unwrap()));
    world.run_for(SECOND / 2);
    assert_eq!(world.present(server, at(5), &raw_client.request()), Err(Discard::TokenAddresses));
    world.run_for(SECOND / 2);
    assert_eq!(world.present(server, at(5), &raw_client.request()), Ok(None));
    assert_eq!(world.servers[server].core.table_usage().pending, 4);
}

// Packets of one server in the name of another ----------------------------------------------------------------------

#[test]
fn replayed_denial_of_another_server_is_discarded() {
    let mut world = NetcodeWorld::perfect(9);
    let (full, free) = (world.add_server(1), world.add_server(1));
    world.connected_client(9, full);
    let client = world.add_client();
    let token = world.token(1, &[full, free]);
    let raw_client = RawClient::new(&token);
    let (at_full, at_free, at) =
        (world.servers[full].address, world.servers[free].address, world.clients[client].address);
    world.connect(client, token);
    world.run_until(2 * SECOND, |world| world.clients[client].core.server() == Some(at_free));
    let is_denial = |datagram: &[u8]| raw_client.open(datagram).is_some_and(|opened| opened.kind == PacketKind::Denied);
    let denial =
        world.sent().iter().find(|(from, to, datagram)| *from == at_full && *to == at && is_denial(datagram)).cloned();
    world.inject(at_free, at, &denial.expect("a denial of the full server").2);
    world.run_until(2 * SECOND, |world| world.state(client) == ClientState::Connected);
    assert_eq!(world.clients[client].core.discards()[Discard::Replayed], 1);
}

#[test]
fn packet_from_another_server_nonce_lane_is_refused() {
    let mut world = NetcodeWorld::perfect(10);
    let (a, b) = (world.add_server(4), world.add_server(4));
    // The client tries A first; the index of A in the token is 1, because the entry of B precedes it.
    let token = world.token(1, &[b, a]);
    let raw_client = RawClient::new(&token);
    let (at, at_b) = (address("10.9.9.9:9999"), world.servers[b].address);
    let mut a_address = raw_client;
    world.admit_raw(a, &mut a_address, at);
    let slot = world.servers[a].core.find(1).unwrap();
    world.server_sends(a, slot, b"meant for A's client").unwrap();
    let recorded = world.replies_to(at);

    let mut client = NetcodeClient::new(TimeoutPolicy::Clamped);
    client.connect(token, world.monotonic(), |_| true).unwrap();
    assert_eq!(client.server(), Some(at_b));
    let of_slots = recorded.iter().filter(|datagram| {
        let mut copy = (*datagram).clone();
        client.handle(at_b, &mut copy, world.monotonic()) == Err(Discard::Replayed)
    });
    assert!(of_slots.count() >= 2, "the keep-alive and the payload of A's slot");
}

// Settings ----------------------------------------------------------------------------------------------------------

#[test]
fn settings_that_admit_no_client_are_refused() {
    type Change = fn(&mut ServerConfig);
    const WILDCARD: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 40_000);
    const NO_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 0);
    let cases: [(Change, ServerConfigError); 12] = [
        (|config| config.pending_lifetime = Duration::ZERO, ServerConfigError::PendingLifetime),
        (|config| config.challenge_lifetime = Duration::ZERO, ServerConfigError::PendingLifetime),
        (|config| config.pending_lifetime = 61 * SECOND, ServerConfigError::PendingLifetime),
        (|config| config.max_token_lifetime = Some(Duration::ZERO), ServerConfigError::TokenLifetime),
        (|config| config.budgets.strangers_per_turn = 0, ServerConfigError::Budgets),
        (|config| config.budgets.packets_per_client_and_turn = 0, ServerConfigError::Budgets),
        (|config| config.budgets.forgeries_per_turn = 0, ServerConfigError::Budgets),
        (|config| config.budgets.decrypts = 2, ServerConfigError::Budgets),
        (|config| config.budgets.decrypts_per_source = 2, ServerConfigError::Budgets),
        (|config| config.advertised = vec![WILDCARD], ServerConfigError::Advertised(WILDCARD)),
        (|config| config.advertised = vec![NO_PORT], ServerConfigError::Advertised(NO_PORT)),
        (|config| config.advertised.clear(), ServerConfigError::NoAdvertised),
    ];
    for (change, error) in cases {
        let mut config = ServerConfig::new(1, 4, &[address("10.0.0.1:1").socket_addr()]);
        assert_eq!(config.check(), Ok(()));
        change(&mut config);
        assert_eq!(config.check(), Err(error));
    }
}

// Used tokens -------------------------------------------------------------------------------------------------------

#[test]
fn client_refuses_its_token_after_any_disconnect() {
    for end in ["left", "kicked", "timed out"] {
        let mut world = NetcodeWorld::perfect(11);
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
        let again = world.clients[client].core.connect(token, now, |_| true);
        assert_eq!(again, Err(slipgate_netcode::client::ConnectError::TokenUsed), "{end}");
    }
}
