//! Stories of the two doors: spoofed connects, locked-out owners, floods of the pending table.

use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::client::ClientState;
use slipgate_netcode::discard::Discard;
use slipgate_netcode::server::{Event, Fence};
use slipgate_netcode::time::Now;
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_tests::holder::Holder;
use slipgate_tests::world::{ServerId, TURN, TokenSpec, World, address};

const SECOND: Duration = Duration::from_secs(1);

fn attacker() -> Address {
    address("10.66.0.1:6666")
}

fn victim() -> Address {
    address("10.77.0.1:7777")
}

fn holder(world: &mut World, client_id: u64, server: ServerId) -> Holder {
    Holder::of(&world.token(client_id, &[server]))
}

/// The `number`th of many strangers.
fn stranger(number: usize) -> Address {
    address(&format!("10.200.{}.{}:9000", number / 250, number % 250 + 1))
}

// A challenge proves an address, for one token, soon --------------------------------------------------------------

#[test]
fn a_challenge_earned_at_the_attackers_address_admits_nobody_from_a_spoofed_one() {
    // Under the same client id the later token pushes the earlier one out, and only the digest tells them apart.
    for (seed, second_client_id) in [(1, 2), (2, 1)] {
        let mut world = World::perfect(seed);
        let server = world.add_server(4);
        let mut first = holder(&mut world, 1, server);
        let earned = world.challenged(server, &first, attacker());

        let mut second = holder(&mut world, second_client_id, server);
        world.present(server, victim(), &second.request()).unwrap();
        let spoofed = second.response(&earned);
        assert_eq!(world.present(server, victim(), &spoofed), Err(Discard::ChallengeForeign));

        world.run_for(10 * SECOND);
        assert_eq!(world.servers[server].core.connected(), 0);
        let streamed = world.sent().iter().filter(|(_, to, _)| *to == victim());
        assert!(streamed.map(|(_, _, datagram)| datagram.len()).sum::<usize>() < second.request().len());
        // The attacker's own place at its own address is as good as anybody's, while it lasts.
        let late = world.present(server, attacker(), &first.response(&earned));
        assert_eq!(late, Err(Discard::UnknownSender));
    }
}

#[test]
fn a_challenge_of_this_token_from_another_of_its_addresses_admits_nobody() {
    let mut world = World::perfect(3);
    let server = world.add_server(4);
    let mut thief = holder(&mut world, 1, server);
    let earned = world.challenged(server, &thief, attacker());
    world.present(server, victim(), &thief.request()).unwrap();
    let spoofed = thief.response(&earned);
    assert_eq!(world.present(server, victim(), &spoofed), Err(Discard::ChallengeForeign));
    assert_eq!(world.present(server, attacker(), &thief.response(&earned)), Ok(None));
    assert_eq!(world.servers[server].core.connected(), 1);
}

#[test]
fn a_challenge_of_an_earlier_pending_client_admits_nobody_when_the_same_token_is_pending_there_anew() {
    let mut world = World::perfect(4);
    let server = world.add_server_with(4, |config| {
        config.fence = Fence::Open;
        config.challenge_lifetime = 60 * SECOND;
    });
    let mut holder = holder(&mut world, 1, server);
    let earlier = world.challenged(server, &holder, attacker());
    world.run_for(6 * SECOND);
    assert_eq!(world.servers[server].core.pending(), 0);
    let later = world.challenged(server, &holder, attacker());
    let stale = holder.response(&earlier);
    assert_eq!(world.present(server, attacker(), &stale), Err(Discard::ChallengeForeign));
    assert_eq!(world.present(server, attacker(), &holder.response(&later)), Ok(None));
}

#[test]
fn a_challenge_expires_while_its_client_is_still_pending_and_a_new_one_admits() {
    let mut world = World::perfect(5);
    let server = world.add_server_with(4, |config| {
        config.fence = Fence::Open;
        config.pending_lifetime = 60 * SECOND;
    });
    let token = world.mint(&TokenSpec { timeout: 60, ..world.spec(1, &[server]) });
    let mut holder = Holder::of(&token);
    let early = world.challenged(server, &holder, attacker());
    world.run_for(6 * SECOND);
    let late = holder.response(&early);
    assert_eq!(world.present(server, attacker(), &late), Err(Discard::ChallengeExpired));
    world.admitted(server, &mut holder, attacker());
}

#[test]
fn an_earlier_challenge_of_the_same_pending_client_stays_good() {
    let mut world = World::perfect(6);
    let server = world.add_server(4);
    let mut holder = holder(&mut world, 1, server);
    let first = world.challenged(server, &holder, attacker());
    world.challenged(server, &holder, attacker());
    assert_eq!(world.present(server, attacker(), &holder.response(&first)), Ok(None));
    assert_eq!(world.servers[server].core.connected(), 1);
}

// Whoever comes first -----------------------------------------------------------------------------------------------

#[test]
fn a_thief_who_presents_a_sniffed_request_first_does_not_lock_the_owner_out() {
    let mut world = World::perfect(7);
    let server = world.add_server(4);
    let token = world.token(1, &[server]);
    let thief = Holder::of(&token);
    world.present(server, attacker(), &thief.request()).unwrap();
    let owner = world.add_client();
    world.connect(owner, token);
    world.run_until(SECOND, |world| world.state(owner) == ClientState::Connected);
}

#[test]
fn the_response_consumes_the_token_for_every_other_address_at_which_it_is_pending() {
    let mut world = World::perfect(8);
    let server = world.add_server(4);
    let token = world.token(1, &[server]);
    let mut thief = Holder::of(&token);
    let challenge = world.challenged(server, &thief, attacker());
    let owner = world.add_client();
    world.connect(owner, token);
    world.run_until(SECOND, |world| world.state(owner) == ClientState::Connected);

    assert_eq!(world.servers[server].core.pending(), 0);
    assert_eq!(world.present(server, attacker(), &thief.response(&challenge)), Err(Discard::UnknownSender));
    assert_eq!(world.present(server, attacker(), &thief.request()), Err(Discard::TokenUsed));
    // After the owner has gone, too.
    world.clients[owner].core.disconnect();
    world.run_for(SECOND);
    assert_eq!(world.servers[server].core.connected(), 0);
    assert_eq!(world.present(server, attacker(), &thief.request()), Err(Discard::TokenUsed));
}

#[test]
fn a_flood_of_one_token_from_spoofed_addresses_fills_as_many_places_as_one_token_may_have() {
    for addresses_per_token in [1, 4, 8] {
        let mut world = World::perfect(9);
        let server = world.add_server_with(4, |config| {
            config.fence = Fence::Open;
            config.addresses_per_token = addresses_per_token;
        });
        let flood = holder(&mut world, 1, server);
        let refused = (0..100).filter(|number| {
            let presented = world.present(server, stranger(*number), &flood.request());
            presented == Err(Discard::TokenAddresses)
        });
        assert_eq!(refused.count(), 100 - usize::from(addresses_per_token));
        assert_eq!(world.servers[server].core.pending(), usize::from(addresses_per_token));
        assert_eq!(world.servers[server].core.remembered_tokens(), 0);
        // It makes no difference to anybody else.
        let mut other = holder(&mut world, 2, server);
        world.admitted(server, &mut other, attacker());
    }
}

// The pending table -------------------------------------------------------------------------------------------------

#[test]
fn a_full_pending_table_refuses_and_has_room_again_after_five_seconds_whatever_arrives() {
    let mut world = World::perfect(10);
    let server = world.add_server_with(4, |config| {
        config.fence = Fence::Open;
        config.pending_clients = 3;
    });
    let waiting: Vec<_> = (1..=3).map(|id| holder(&mut world, id, server)).collect();
    for (number, holder) in waiting.iter().enumerate() {
        world.present(server, stranger(number), &holder.request()).unwrap();
    }
    let mut next = holder(&mut world, 4, server);
    assert_eq!(world.present(server, attacker(), &next.request()), Err(Discard::PendingFull));
    // Repeated requests, empty datagrams and junk lengthen nobody's time.
    for _ in 0..42 {
        world.run_for(SECOND / 10);
        for (number, holder) in waiting.iter().enumerate() {
            world.present(server, stranger(number), &holder.request()).unwrap();
            world.present(server, stranger(number), &[0x13; 326]).unwrap_err();
            world.present(server, stranger(number), &[]).unwrap_err();
        }
    }
    assert_eq!(world.servers[server].core.pending(), 3);
    world.run_for(SECOND / 2);
    assert_eq!(world.servers[server].core.pending(), 0);
    world.admitted(server, &mut next, attacker());
}

#[test]
fn a_tokens_shorter_time_out_shortens_the_time_in_which_its_client_may_answer() {
    for (timeout, in_time, late) in [(0, 900, 1100), (1, 900, 1100), (2, 1900, 2100), (30, 4900, 5100)] {
        for (millis, admits) in [(in_time, true), (late, false)] {
            let mut world = World::perfect(11);
            let server = world.add_server(4);
            let token = world.mint(&TokenSpec { timeout, ..world.spec(1, &[server]) });
            let mut holder = Holder::of(&token);
            let challenge = world.challenged(server, &holder, attacker());
            world.run_for(Duration::from_millis(millis) - 2 * TURN);
            let presented = world.present(server, attacker(), &holder.response(&challenge));
            assert_eq!(presented.is_ok(), admits, "time-out {timeout} s, {millis} ms");
        }
    }
}

#[test]
fn a_response_that_comes_too_late_is_refused_before_a_tick_has_swept_its_client_away() {
    let mut world = World::perfect(22);
    let server = world.add_server(4);
    let mut holder = holder(&mut world, 1, server);
    let challenge = world.challenged(server, &holder, attacker());
    let late = Now { monotonic: world.monotonic().after(5 * SECOND), ..world.now() };
    let core = &mut world.servers[server].core;
    let (mut response, mut request) = (holder.response(&challenge), holder.request());
    assert_eq!(core.handle(attacker(), &mut response, late).err(), Some(Discard::UnknownSender));
    assert_eq!(core.pending(), 1);
    assert_eq!(core.handle(attacker(), &mut request, late).err(), None, "its time begins anew");
    assert_eq!(core.pending(), 1);
}

#[test]
fn one_client_id_is_pending_with_one_token_and_a_newer_one_takes_its_place() {
    let mut world = World::perfect(12);
    let server = world.add_server(4);
    let old = holder(&mut world, 1, server);
    world.run_for(SECOND);
    let same_moment = [holder(&mut world, 1, server), holder(&mut world, 1, server)];
    let [mut newer, equal] = same_moment;

    let forgotten = world.challenged(server, &old, stranger(1));
    let challenge = world.challenged(server, &newer, stranger(2));
    assert_eq!(world.servers[server].core.pending(), 1, "the newer one is in the older one's place");
    assert_eq!(world.present(server, stranger(1), &old.request()), Err(Discard::ClientIdPending));
    assert_eq!(world.present(server, stranger(3), &equal.request()), Err(Discard::ClientIdPending));
    let mut old = old;
    assert_eq!(world.present(server, stranger(1), &old.response(&forgotten)), Err(Discard::UnknownSender));
    assert_eq!(world.present(server, stranger(2), &newer.response(&challenge)), Ok(None));
    assert_eq!(world.servers[server].core.connected(), 1);
}

#[test]
fn a_newer_token_of_the_same_client_from_the_same_address_takes_its_place() {
    let mut world = World::perfect(13);
    let server = world.add_server(4);
    let old = holder(&mut world, 1, server);
    world.challenged(server, &old, attacker());
    let mut newer = holder(&mut world, 1, server);
    world.admitted(server, &mut newer, attacker());
}

#[test]
fn a_client_that_is_pending_is_not_pushed_out_by_another_from_its_own_address() {
    let mut world = World::perfect(14);
    let server = world.add_server(4);
    let mut first = holder(&mut world, 1, server);
    let challenge = world.challenged(server, &first, victim());
    let intruder = holder(&mut world, 2, server);
    assert_eq!(world.present(server, victim(), &intruder.request()), Err(Discard::AddressPending));
    assert_eq!(world.present(server, victim(), &first.response(&challenge)), Ok(None));
    // Once it is gone the address is free for the other one.
    world.present(server, victim(), &first.seal(PacketKind::Disconnect, &[])).unwrap();
    let mut second = intruder;
    world.admitted(server, &mut second, victim());
}

// What gets no answer -----------------------------------------------------------------------------------------------

#[test]
fn refused_requests_get_no_answer_and_ten_repeated_ones_get_one() {
    let mut world = World::perfect(15);
    let server = world.add_server(4);
    let holder = holder(&mut world, 1, server);
    let good = holder.request();
    let altered = |place: usize| {
        let mut request = good.clone();
        request[place] ^= 1;
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
        let before = world.discarded(server, reason);
        assert_eq!(world.present(server, attacker(), &request), Err(reason), "{what}");
        assert_eq!(world.discarded(server, reason), before + 1, "{what}");
        assert_eq!(world.replies_to(attacker()), Vec::<Vec<u8>>::new(), "{what}");
    }
    assert_eq!(world.servers[server].core.pending(), 0);
    for _ in 0..10 {
        world.present(server, attacker(), &good).unwrap();
    }
    assert_eq!(world.replies_to(attacker()).len(), 1, "ten duplicates make one debt");
}

#[test]
fn a_valid_token_for_other_servers_is_ignored_and_its_list_is_kept_for_the_operator() {
    let mut world = World::perfect(16);
    let server = world.add_server(4);
    let elsewhere = address("10.0.9.9:40000");
    let spec = TokenSpec { servers: vec![elsewhere], ..world.spec(1, &[server]) };
    let holder = Holder::of(&world.mint(&spec));
    assert!(world.servers[server].core.misdirected().is_none());
    assert_eq!(world.present(server, attacker(), &holder.request()), Err(Discard::AddressNotListed));
    assert_eq!(world.replies_to(attacker()), Vec::<Vec<u8>>::new());
    let listed = world.servers[server].core.misdirected().expect("the list of the last such token");
    assert_eq!(listed.as_slice(), [elsewhere.socket_addr()]);
    assert_eq!((world.servers[server].core.pending(), world.servers[server].core.remembered_tokens()), (0, 0));
}

#[test]
fn a_server_knows_itself_by_every_address_that_it_advertises_in_every_spelling() {
    for (advertised, listed, admits) in [
        (vec!["203.0.113.7:40000", "10.0.0.1:40000"], "203.0.113.7:40000", true),
        (vec!["203.0.113.7:40000", "10.0.0.1:40000"], "10.0.0.1:40000", true),
        (vec!["203.0.113.7:40000"], "[::ffff:203.0.113.7]:40000", true),
        (vec!["203.0.113.7:40000"], "203.0.113.7:40001", false),
        (vec!["203.0.113.7:40000"], "10.0.0.1:40000", false),
    ] {
        let mut world = World::perfect(17);
        let server = world.add_server_with(4, |config| {
            config.fence = Fence::Open;
            config.advertised = advertised.iter().map(|text| address(text)).collect();
        });
        let spec = TokenSpec { servers: vec![address(listed)], ..world.spec(1, &[server]) };
        let holder = Holder::of(&world.mint(&spec));
        let presented = world.present(server, attacker(), &holder.request());
        assert_eq!(presented.is_ok(), admits, "{advertised:?} in a token for {listed}");
    }
}

#[test]
fn empty_datagrams_are_counted_and_delay_nobody() {
    let mut world = World::perfect(18);
    let server = world.add_server_with(4, |config| {
        config.fence = Fence::Open;
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
    let newcomer = world.add_client();
    let token = world.token(8, &[server]);
    world.connect(newcomer, token);
    world.turn();
    assert_eq!(world.discarded(server, Discard::Empty), 200);
    assert_eq!(world.servers[server].received.last().map(|(_, bytes)| bytes), Some(&payload));
    world.run_until(SECOND / 5, |world| world.state(newcomer) == ClientState::Connected);
}

#[test]
fn a_full_server_denies_holders_of_valid_tokens_and_nobody_else() {
    let mut world = World::perfect(19);
    let server = world.add_server(1);
    world.connected_client(1, server);
    let late = holder(&mut world, 2, server);
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
fn a_slot_that_was_taken_between_request_and_response_is_denied_and_admits_when_it_is_free_again() {
    let mut world = World::perfect(20);
    let server = world.add_server(1);
    let (mut first, mut second) = (holder(&mut world, 1, server), holder(&mut world, 2, server));
    let challenge = world.challenged(server, &second, stranger(2));
    let handle = world.admitted(server, &mut first, stranger(1));
    assert_eq!(world.present(server, stranger(2), &second.response(&challenge)), Ok(None));
    let replies = world.replies_to(stranger(2));
    assert_eq!(second.open(&replies[0]).map(|opened| opened.kind), Some(PacketKind::Denied));
    assert!(world.servers[server].core.disconnect(handle));
    world.turn();
    assert_eq!(world.present(server, stranger(2), &second.response(&challenge)), Ok(None));
    assert_eq!(world.servers[server].core.find(2).map(|client| client.slot()), Some(0));
    let (_, last) = world.servers[server].events.last().expect("events");
    assert!(matches!(last, Event::Connected { client_id: 2, .. }));
}

#[test]
fn one_slot_for_each_address_and_each_client_id() {
    let mut world = World::perfect(21);
    let server = world.add_server(4);
    let mut first = holder(&mut world, 1, server);
    world.admitted(server, &mut first, attacker());
    let same_id = holder(&mut world, 1, server);
    assert_eq!(world.present(server, victim(), &same_id.request()), Err(Discard::ClientIdConnected));
    let same_address = holder(&mut world, 2, server);
    assert_eq!(world.present(server, attacker(), &same_address.request()), Err(Discard::AddressConnected));
    assert_eq!(world.present(server, attacker(), &same_id.request()), Err(Discard::AddressConnected));
    assert_eq!(world.replies_to(victim()), Vec::<Vec<u8>>::new());
}
