//! The handshake: spoofed connects, blocked owners, floods of the pending table.

use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::client::ClientState;
use slipgate_netcode::discard::Discard;
use slipgate_netcode::ids::ClientId;
use slipgate_netcode::server::{NetcodeEvent, TokenCutoff};
use slipgate_netcode::time::Now;
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_tests::netcode_world::{NetcodeWorld, ServerId, TURN, TokenSpec, address};
use slipgate_tests::raw_client::RawClient;

const SECOND: Duration = Duration::from_secs(1);

fn attacker() -> Address {
    address("10.66.0.1:6666")
}

fn victim() -> Address {
    address("10.77.0.1:7777")
}

fn raw_client(world: &mut NetcodeWorld, client_id: u64, server: ServerId) -> RawClient {
    RawClient::new(&world.token(client_id, &[server]))
}

/// Returns the address of stranger `number`.
fn stranger(number: usize) -> Address {
    address(&format!("10.200.{}.{}:9000", number / 250, number % 250 + 1))
}

// A challenge proves an address, for one token, for a short time ------------------------------------------------------

#[test]
fn challenge_of_another_address_admits_no_spoofed_client() {
    // The later token of the same client id replaces the earlier one, and only the digest distinguishes them.
    for (seed, second_client_id) in [(1, 2), (2, 1)] {
        let mut world = NetcodeWorld::perfect(seed);
        let server = world.add_server(4);
        let mut first = raw_client(&mut world, 1, server);
        let earned = world.request_challenge(server, &first, attacker());

        let mut second = raw_client(&mut world, second_client_id, server);
        world.present(server, victim(), &second.request()).unwrap();
        let spoofed = second.response(&earned);
        assert_eq!(world.present(server, victim(), &spoofed), Err(Discard::ChallengeForeign));

        world.run_for(10 * SECOND);
        assert_eq!(world.servers[server].core.connected_count(), 0);
        let streamed = world.sent().iter().filter(|(_, to, _)| *to == victim());
        assert!(streamed.map(|(_, _, datagram)| datagram.len()).sum::<usize>() < second.request().len());
        // The pending entry at the attacker's own address is valid while it exists.
        let late = world.present(server, attacker(), &first.response(&earned));
        assert_eq!(late, Err(Discard::UnknownSender));
    }
}

#[test]
fn challenge_of_another_address_of_the_token_is_discarded() {
    let mut world = NetcodeWorld::perfect(3);
    let server = world.add_server(4);
    let mut thief = raw_client(&mut world, 1, server);
    let earned = world.request_challenge(server, &thief, attacker());
    world.present(server, victim(), &thief.request()).unwrap();
    let spoofed = thief.response(&earned);
    assert_eq!(world.present(server, victim(), &spoofed), Err(Discard::ChallengeForeign));
    assert_eq!(world.present(server, attacker(), &thief.response(&earned)), Ok(None));
    assert_eq!(world.servers[server].core.connected_count(), 1);
}

#[test]
fn challenge_of_an_earlier_pending_entry_is_discarded() {
    let mut world = NetcodeWorld::perfect(4);
    let server = world.add_server_with(4, |config| {
        config.token_cutoff = TokenCutoff::None;
        config.challenge_lifetime = 60 * SECOND;
    });
    let mut raw_client = raw_client(&mut world, 1, server);
    let earlier = world.request_challenge(server, &raw_client, attacker());
    world.run_for(6 * SECOND);
    assert_eq!(world.servers[server].core.table_usage().pending, 0);
    let later = world.request_challenge(server, &raw_client, attacker());
    let stale = raw_client.response(&earlier);
    assert_eq!(world.present(server, attacker(), &stale), Err(Discard::ChallengeForeign));
    assert_eq!(world.present(server, attacker(), &raw_client.response(&later)), Ok(None));
}

#[test]
fn expired_challenge_is_discarded_and_a_new_one_admits() {
    let mut world = NetcodeWorld::perfect(5);
    let server = world.add_server_with(4, |config| {
        config.token_cutoff = TokenCutoff::None;
        config.pending_lifetime = 60 * SECOND;
    });
    let token = world.mint(&TokenSpec { timeout: 60, ..world.spec(1, &[server]) });
    let mut raw_client = RawClient::new(&token);
    let early = world.request_challenge(server, &raw_client, attacker());
    world.run_for(6 * SECOND);
    let late = raw_client.response(&early);
    assert_eq!(world.present(server, attacker(), &late), Err(Discard::ChallengeExpired));
    world.admit_raw(server, &mut raw_client, attacker());
}

#[test]
fn earlier_challenge_of_a_pending_client_stays_valid() {
    let mut world = NetcodeWorld::perfect(6);
    let server = world.add_server(4);
    let mut raw_client = raw_client(&mut world, 1, server);
    let first = world.request_challenge(server, &raw_client, attacker());
    world.request_challenge(server, &raw_client, attacker());
    assert_eq!(world.present(server, attacker(), &raw_client.response(&first)), Ok(None));
    assert_eq!(world.servers[server].core.connected_count(), 1);
}

// The first request ------------------------------------------------------------------------------------------------

#[test]
fn sniffed_request_presented_first_does_not_block_the_owner() {
    let mut world = NetcodeWorld::perfect(7);
    let server = world.add_server(4);
    let token = world.token(1, &[server]);
    let thief = RawClient::new(&token);
    world.present(server, attacker(), &thief.request()).unwrap();
    let owner = world.add_client();
    world.connect(owner, token);
    world.run_until(SECOND, |world| world.state(owner) == ClientState::Connected);
}

#[test]
fn response_consumes_the_token_at_all_other_addresses() {
    let mut world = NetcodeWorld::perfect(8);
    let server = world.add_server(4);
    let token = world.token(1, &[server]);
    let mut thief = RawClient::new(&token);
    let challenge = world.request_challenge(server, &thief, attacker());
    let owner = world.add_client();
    world.connect(owner, token);
    world.run_until(SECOND, |world| world.state(owner) == ClientState::Connected);

    assert_eq!(world.servers[server].core.table_usage().pending, 0);
    assert_eq!(world.present(server, attacker(), &thief.response(&challenge)), Err(Discard::UnknownSender));
    assert_eq!(world.present(server, attacker(), &thief.request()), Err(Discard::TokenUsed));
    // Also after the owner has disconnected.
    world.clients[owner].core.disconnect();
    world.run_for(SECOND);
    assert_eq!(world.servers[server].core.connected_count(), 0);
    assert_eq!(world.present(server, attacker(), &thief.request()), Err(Discard::TokenUsed));
}

#[test]
fn one_token_cannot_exceed_its_pending_entries() {
    for addresses_per_token in [1, 4, 8] {
        let mut world = NetcodeWorld::perfect(9);
        let server = world.add_server_with(4, |config| {
            config.token_cutoff = TokenCutoff::None;
            config.addresses_per_token = addresses_per_token;
        });
        let flood = raw_client(&mut world, 1, server);
        let refused = (0..100).filter(|number| {
            let presented = world.present(server, stranger(*number), &flood.request());
            presented == Err(Discard::TokenAddresses)
        });
        assert_eq!(refused.count(), 100 - usize::from(addresses_per_token));
        assert_eq!(world.servers[server].core.table_usage().pending, usize::from(addresses_per_token));
        assert_eq!(world.servers[server].core.table_usage().used_tokens, 0);
        // Other clients are not affected.
        let mut other = raw_client(&mut world, 2, server);
        world.admit_raw(server, &mut other, attacker());
    }
}

// The pending table -------------------------------------------------------------------------------------------------

#[test]
fn full_pending_table_has_space_again_after_five_seconds() {
    let mut world = NetcodeWorld::perfect(10);
    let server = world.add_server_with(4, |config| {
        config.token_cutoff = TokenCutoff::None;
        config.pending_clients = 3;
    });
    let waiting: Vec<_> = (1..=3).map(|id| raw_client(&mut world, id, server)).collect();
    for (number, raw_client) in waiting.iter().enumerate() {
        world.present(server, stranger(number), &raw_client.request()).unwrap();
    }
    let mut next = raw_client(&mut world, 4, server);
    assert_eq!(world.present(server, attacker(), &next.request()), Err(Discard::PendingFull));
    // Repeated requests, empty datagrams and junk do not extend the lifetime.
    for _ in 0..42 {
        world.run_for(SECOND / 10);
        for (number, raw_client) in waiting.iter().enumerate() {
            world.present(server, stranger(number), &raw_client.request()).unwrap();
            world.present(server, stranger(number), &[0x13; 326]).unwrap_err();
            world.present(server, stranger(number), &[]).unwrap_err();
        }
    }
    assert_eq!(world.servers[server].core.table_usage().pending, 3);
    world.run_for(SECOND / 2);
    assert_eq!(world.servers[server].core.table_usage().pending, 0);
    world.admit_raw(server, &mut next, attacker());
}

#[test]
fn short_token_timeout_shortens_the_pending_time() {
    for (timeout, in_time, late) in [(0, 900, 1100), (1, 900, 1100), (2, 1900, 2100), (30, 4900, 5100)] {
        for (millis, admits) in [(in_time, true), (late, false)] {
            let mut world = NetcodeWorld::perfect(11);
            let server = world.add_server(4);
            let token = world.mint(&TokenSpec { timeout, ..world.spec(1, &[server]) });
            let mut raw_client = RawClient::new(&token);
            let challenge = world.request_challenge(server, &raw_client, attacker());
            world.run_for(Duration::from_millis(millis) - 2 * TURN);
            let presented = world.present(server, attacker(), &raw_client.response(&challenge));
            assert_eq!(presented.is_ok(), admits, "timeout {timeout} s, {millis} ms");
        }
    }
}

#[test]
fn late_response_is_refused_before_the_tick_expires_it() {
    let mut world = NetcodeWorld::perfect(22);
    let server = world.add_server(4);
    let mut raw_client = raw_client(&mut world, 1, server);
    let challenge = world.request_challenge(server, &raw_client, attacker());
    let late = Now { monotonic: world.monotonic().after(5 * SECOND), ..world.now() };
    let core = &mut world.servers[server].core;
    let (mut response, mut request) = (raw_client.response(&challenge), raw_client.request());
    assert_eq!(core.handle(attacker(), &mut response, late).err(), Some(Discard::UnknownSender));
    assert_eq!(core.table_usage().pending, 1);
    assert_eq!(core.handle(attacker(), &mut request, late).err(), None, "its lifetime starts again");
    assert_eq!(core.table_usage().pending, 1);
}

#[test]
fn newer_token_replaces_the_pending_one_of_its_client_id() {
    let mut world = NetcodeWorld::perfect(12);
    let server = world.add_server(4);
    let old = raw_client(&mut world, 1, server);
    world.run_for(SECOND);
    let same_moment = [raw_client(&mut world, 1, server), raw_client(&mut world, 1, server)];
    let [mut newer, equal] = same_moment;

    let forgotten = world.request_challenge(server, &old, stranger(1));
    let challenge = world.request_challenge(server, &newer, stranger(2));
    assert_eq!(world.servers[server].core.table_usage().pending, 1, "the newer token replaced the older one");
    assert_eq!(world.present(server, stranger(1), &old.request()), Err(Discard::ClientIdPending));
    assert_eq!(world.present(server, stranger(3), &equal.request()), Err(Discard::ClientIdPending));
    let mut old = old;
    assert_eq!(world.present(server, stranger(1), &old.response(&forgotten)), Err(Discard::UnknownSender));
    assert_eq!(world.present(server, stranger(2), &newer.response(&challenge)), Ok(None));
    assert_eq!(world.servers[server].core.connected_count(), 1);
}

#[test]
fn newer_token_at_the_same_address_replaces_the_pending_one() {
    let mut world = NetcodeWorld::perfect(13);
    let server = world.add_server(4);
    let old = raw_client(&mut world, 1, server);
    world.request_challenge(server, &old, attacker());
    let mut newer = raw_client(&mut world, 1, server);
    world.admit_raw(server, &mut newer, attacker());
}

#[test]
fn pending_client_is_not_replaced_by_another_at_its_address() {
    let mut world = NetcodeWorld::perfect(14);
    let server = world.add_server(4);
    let mut first = raw_client(&mut world, 1, server);
    let challenge = world.request_challenge(server, &first, victim());
    let intruder = raw_client(&mut world, 2, server);
    assert_eq!(world.present(server, victim(), &intruder.request()), Err(Discard::AddressPending));
    assert_eq!(world.present(server, victim(), &first.response(&challenge)), Ok(None));
    // Once it has disconnected, the address is free for the other client.
    world.present(server, victim(), &first.seal(PacketKind::Disconnect, &[])).unwrap();
    let mut second = intruder;
    world.admit_raw(server, &mut second, victim());
}

// Datagrams without a reply ----------------------------------------------------------------------------------------

#[test]
fn refused_request_gets_no_reply_and_ten_repeats_get_one() {
    let mut world = NetcodeWorld::perfect(15);
    let server = world.add_server(4);
    let raw_client = raw_client(&mut world, 1, server);
    let good = raw_client.request();
    let altered = |index: usize| {
        let mut request = good.clone();
        request[index] ^= 1;
        request
    };
    let cases: [(&str, Vec<u8>, Discard); 9] = [
        ("nothing", Vec::new(), Discard::Empty),
        ("one byte", vec![0], Discard::RequestLength),
        ("one short", good[..1077].to_vec(), Discard::RequestLength),
        ("one long", [&good[..], &[0]].concat(), Discard::RequestLength),
        ("prefix 0x10", [&[0x10], &good[1..]].concat(), Discard::UnknownSender),
        ("version", altered(3), Discard::RequestVersion),
        ("protocol", altered(14), Discard::RequestProtocol),
        ("nonce", altered(30), Discard::TokenNotAuthentic),
        ("tag", altered(1077), Discard::TokenNotAuthentic),
    ];
    for (what, request, reason) in cases {
        let before = world.discard_count(server, reason);
        assert_eq!(world.present(server, attacker(), &request), Err(reason), "{what}");
        assert_eq!(world.discard_count(server, reason), before + 1, "{what}");
        assert_eq!(world.replies_to(attacker()), Vec::<Vec<u8>>::new(), "{what}");
    }
    assert_eq!(world.servers[server].core.table_usage().pending, 0);
    for _ in 0..10 {
        world.present(server, attacker(), &good).unwrap();
    }
    assert_eq!(world.replies_to(attacker()).len(), 1, "ten duplicates queue one reply");
}

#[test]
fn token_for_other_servers_is_ignored_and_its_list_recorded() {
    let mut world = NetcodeWorld::perfect(16);
    let server = world.add_server(4);
    let elsewhere = address("10.0.9.9:40000");
    let spec = TokenSpec { servers: vec![elsewhere], ..world.spec(1, &[server]) };
    let raw_client = RawClient::new(&world.mint(&spec));
    assert!(world.servers[server].core.misdirected().is_none());
    assert_eq!(world.present(server, attacker(), &raw_client.request()), Err(Discard::AddressNotListed));
    assert_eq!(world.replies_to(attacker()), Vec::<Vec<u8>>::new());
    let listed = world.servers[server].core.misdirected().expect("the list of the last such token");
    assert_eq!(listed[..], [elsewhere.socket_addr()]);
    assert_eq!(
        (world.servers[server].core.table_usage().pending, world.servers[server].core.table_usage().used_tokens),
        (0, 0)
    );
}

#[test]
fn server_matches_every_form_of_its_advertised_addresses() {
    for (advertised, listed, admits) in [
        (vec!["203.0.113.7:40000", "10.0.0.1:40000"], "203.0.113.7:40000", true),
        (vec!["203.0.113.7:40000", "10.0.0.1:40000"], "10.0.0.1:40000", true),
        (vec!["203.0.113.7:40000"], "[::ffff:203.0.113.7]:40000", true),
        (vec!["203.0.113.7:40000"], "203.0.113.7:40001", false),
        (vec!["203.0.113.7:40000"], "10.0.0.1:40000", false),
    ] {
        let mut world = NetcodeWorld::perfect(17);
        let server = world.add_server_with(4, |config| {
            config.token_cutoff = TokenCutoff::None;
            config.advertised = advertised.iter().map(|text| text.parse().unwrap()).collect();
        });
        let spec = TokenSpec { servers: vec![address(listed)], ..world.spec(1, &[server]) };
        let raw_client = RawClient::new(&world.mint(&spec));
        let presented = world.present(server, attacker(), &raw_client.request());
        assert_eq!(presented.is_ok(), admits, "{advertised:?} in a token for {listed}");
    }
}

#[test]
fn empty_datagrams_are_counted_and_cause_no_delay() {
    let mut world = NetcodeWorld::perfect(18);
    let server = world.add_server_with(4, |config| {
        config.token_cutoff = TokenCutoff::None;
        config.budgets.strangers_per_turn = 2;
        config.budgets.packets_per_client_and_turn = 1;
    });
    let (client, _) = world.connected_client(7, server);
    world.turn();
    for _ in 0..100 {
        world.inject(attacker(), world.servers[server].address, &[]);
        world.inject(world.clients[client].address, world.servers[server].address, &[]);
    }
    let payload = world.payload(20);
    world.client_sends(client, &payload).unwrap();
    let new_client = world.add_client();
    let token = world.token(8, &[server]);
    world.connect(new_client, token);
    world.turn();
    assert_eq!(world.discard_count(server, Discard::Empty), 200);
    assert_eq!(world.servers[server].received.last().map(|(_, bytes)| bytes), Some(&payload));
    world.run_until(SECOND / 5, |world| world.state(new_client) == ClientState::Connected);
}

#[test]
fn full_server_denies_only_valid_tokens() {
    let mut world = NetcodeWorld::perfect(19);
    let server = world.add_server(1);
    world.connected_client(1, server);
    let late = raw_client(&mut world, 2, server);
    world.present(server, attacker(), &late.request()).unwrap();
    let replies = world.replies_to(attacker());
    let kinds: Vec<_> = replies.iter().map(|reply| late.open(reply).expect("under its own key").kind).collect();
    assert_eq!(kinds, [PacketKind::Denied]);
    let mut forged = late.request();
    forged[500] ^= 1;
    assert_eq!(world.present(server, victim(), &forged), Err(Discard::TokenNotAuthentic));
    assert_eq!(world.replies_to(victim()), Vec::<Vec<u8>>::new());
}

#[test]
fn response_without_free_slot_is_denied_until_one_is_free() {
    let mut world = NetcodeWorld::perfect(20);
    let server = world.add_server(1);
    let (mut first, mut second) = (raw_client(&mut world, 1, server), raw_client(&mut world, 2, server));
    let challenge = world.request_challenge(server, &second, stranger(2));
    let handle = world.admit_raw(server, &mut first, stranger(1));
    assert_eq!(world.present(server, stranger(2), &second.response(&challenge)), Ok(None));
    let replies = world.replies_to(stranger(2));
    assert_eq!(second.open(&replies[0]).map(|opened| opened.kind), Some(PacketKind::Denied));
    assert!(world.servers[server].core.disconnect(handle));
    world.turn();
    assert_eq!(world.present(server, stranger(2), &second.response(&challenge)), Ok(None));
    assert_eq!(world.servers[server].core.find(2).map(|client| client.slot().0), Some(0));
    let (_, last) = world.servers[server].events.last().expect("events");
    assert!(matches!(last, NetcodeEvent::Connected { client_id: ClientId(2), .. }));
}

#[test]
fn each_address_and_client_id_has_one_slot() {
    let mut world = NetcodeWorld::perfect(21);
    let server = world.add_server(4);
    let mut first = raw_client(&mut world, 1, server);
    world.admit_raw(server, &mut first, attacker());
    let same_id = raw_client(&mut world, 1, server);
    assert_eq!(world.present(server, victim(), &same_id.request()), Err(Discard::ClientIdConnected));
    let same_address = raw_client(&mut world, 2, server);
    assert_eq!(world.present(server, attacker(), &same_address.request()), Err(Discard::AddressConnected));
    assert_eq!(world.present(server, attacker(), &same_id.request()), Err(Discard::AddressConnected));
    assert_eq!(world.replies_to(victim()), Vec::<Vec<u8>>::new());
}
