//! Stories of floods: what a turn may cost, whom it concerns, and what stays bounded.

use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::client::ClientState;
use slipgate_netcode::crypto::aead::{nonce, packets};
use slipgate_netcode::discard::Discard;
use slipgate_netcode::server::{DisconnectReason, Event, Fence, LoopbackError};
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::wire::VERSION;
use slipgate_netcode::wire::cursor::Writer;
use slipgate_netcode::wire::packet::{Header, PacketKind};
use slipgate_tests::holder::Holder;
use slipgate_tests::world::{Collected, ServerId, World, address};

const SECOND: Duration = Duration::from_secs(1);

fn stranger(number: usize) -> Address {
    address(&format!("10.200.{}.{}:9000", number / 250, number % 250 + 1))
}

fn holder(world: &mut World, client_id: u64, server: ServerId) -> Holder {
    Holder::of(&world.token(client_id, &[server]))
}

#[test]
fn a_flood_of_strangers_is_cut_in_each_turn_and_costs_connected_clients_nothing() {
    let mut world = World::perfect(1);
    let server = world.add_server_with(4, |config| {
        config.fence = Fence::Open;
        config.budgets.strangers_per_turn = 50;
    });
    let (client, _) = world.connected_client(1, server);
    world.run_for(SECOND / 10);
    let request = holder(&mut world, 2, server).request();
    let junk = [vec![0x15; 100], vec![0x13; 326], vec![0xff; 1300]];
    let server_at = world.servers[server].address;
    for turn in 0..60 {
        for number in 0..210 {
            world.inject(stranger(number), server_at, &junk[(turn + number) % junk.len()]);
            world.inject(stranger(number), server_at, &request);
        }
        let payload = world.payload(60);
        world.client_sends(client, &payload).unwrap();
        world.turn();
    }
    world.turn();
    world.turn();
    assert_eq!(world.servers[server].received.len(), 60, "every payload of the client's");
    assert_eq!(world.clients[client].received.len(), 60, "and every echo");
    // Some of them asked for admission, and are pending.
    assert!(world.discarded(server, Discard::StrangerBudget) >= 60 * 150);
    assert_eq!(world.discarded(server, Discard::ClientBudget), 0);
}

#[test]
fn a_flood_under_a_connected_clients_address_takes_from_its_own_budget_and_from_nobody_elses() {
    let mut world = World::perfect(2);
    let server = world.add_server_with(4, |config| {
        config.fence = Fence::Open;
        config.budgets.packets_per_client_and_turn = 10;
    });
    let mut flooding = holder(&mut world, 1, server);
    world.admitted(server, &mut flooding, stranger(1));
    let (client, _) = world.connected_client(2, server);
    world.run_for(SECOND / 10);
    for _ in 0..3 {
        let mut delivered = 0;
        for _ in 0..100 {
            let datagram = flooding.seal(PacketKind::Payload, &world.payload(20));
            match world.present(server, stranger(1), &datagram) {
                Ok(payload) => delivered += usize::from(payload.is_some()),
                Err(discard) => assert_eq!(discard, Discard::ClientBudget),
            }
        }
        assert_eq!(delivered, 10);
        let payload = world.payload(30);
        world.client_sends(client, &payload).unwrap();
        world.turn();
        assert_eq!(world.servers[server].received.last().map(|(_, bytes)| bytes), Some(&payload));
    }
    assert_eq!(world.discarded(server, Discard::ClientBudget), 270);
    assert_eq!(world.discarded(server, Discard::StrangerBudget), 0);
}

/// A packet that opens and has a size that its kind has not.
fn keep_alive_of_a_wrong_size(token: &ConnectToken, sequence: u64) -> Vec<u8> {
    let header = Header::canonical(PacketKind::KeepAlive, sequence);
    let associated = [&VERSION[..], &token.facts().protocol_id.to_le_bytes(), &[header.prefix]].concat();
    let mut plain = [7; 9];
    let tag = packets::seal(&token.client_to_server_key(), nonce(sequence), &associated, &mut plain);
    let mut datagram = vec![0; header.bytes];
    header.emit(&mut Writer::new(&mut datagram));
    [&datagram[..], &plain, &tag].concat()
}

#[test]
fn authentic_packets_of_a_wrong_size_are_opened_within_the_clients_own_budget() {
    let mut world = World::perfect(13);
    let server = world.add_server_with(4, |config| config.fence = Fence::Open);
    let token = world.token(1, &[server]);
    world.admitted(server, &mut Holder::of(&token), stranger(1));
    world.turn();
    let most = u64::from(world.servers[server].core.config().budgets.packets_per_client_and_turn);
    for sequence in 1000..11_000 {
        let expected = if sequence < 1000 + most { Discard::ContentSize } else { Discard::ClientBudget };
        let datagram = keep_alive_of_a_wrong_size(&token, sequence);
        assert_eq!(world.present(server, stranger(1), &datagram), Err(expected), "{sequence}");
    }
    world.turn();
    let again = keep_alive_of_a_wrong_size(&token, 1000);
    assert_eq!(world.present(server, stranger(1), &again), Err(Discard::Replayed), "it was marked first (§1.8)");
}

#[test]
fn forgeries_under_forty_players_addresses_silence_no_other_player() {
    let mut world = World::perfect(14);
    let server = world.add_server_with(64, |config| config.fence = Fence::Open);
    let mut holders: Vec<_> = (0..41).map(|client| holder(&mut world, client, server)).collect();
    for (number, holder) in holders.iter_mut().enumerate() {
        world.admitted(server, holder, stranger(number));
    }
    world.turn();
    let forged = [0x15, 200, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17];
    for _ in 0..2 {
        let mut opened = 0;
        for number in 0..40 * 1100 {
            opened += usize::from(world.present(server, stranger(number % 40), &forged) == Err(Discard::NotAuthentic));
        }
        assert_eq!(opened, 16_384, "all together");
        assert_eq!(world.present(server, stranger(0), &holders[0].keep_alive()), Err(Discard::ForgeryBudget));
        // Nobody wrote under this address, and three do not silence it; what they cost has an end all the same.
        for _ in 0..3 {
            assert_eq!(world.present(server, stranger(40), &forged), Err(Discard::NotAuthentic));
        }
        for _ in 0..50 {
            assert_eq!(world.present(server, stranger(40), &holders[40].keep_alive()), Ok(None));
        }
        assert_eq!(world.present(server, stranger(40), &forged), Err(Discard::NotAuthentic));
        assert_eq!(world.present(server, stranger(40), &forged), Err(Discard::ForgeryBudget));
        world.turn();
    }
}

#[test]
fn requests_from_a_connected_address_are_strangers_work_and_responses_nobodys() {
    let mut world = World::perfect(3);
    let server = world.add_server_with(4, |config| {
        config.fence = Fence::Open;
        config.budgets.packets_per_client_and_turn = 2;
        config.budgets.strangers_per_turn = 10;
    });
    let mut token = holder(&mut world, 1, server);
    world.admitted(server, &mut token, stranger(1));
    world.turn();
    for _ in 0..10 {
        let response = token.seal(PacketKind::Response, &[0; 308]);
        assert_eq!(world.present(server, stranger(1), &response), Err(Discard::AddressConnected));
    }
    for _ in 0..10 {
        assert_eq!(world.present(server, stranger(1), &token.request()), Err(Discard::TokenUsed));
    }
    assert_eq!(world.present(server, stranger(1), &token.request()), Err(Discard::StrangerBudget));
    let payload = world.payload(20);
    let datagram = token.seal(PacketKind::Payload, &payload);
    assert_eq!(world.present(server, stranger(1), &datagram), Ok(Some(payload)));
}

#[test]
fn a_flood_of_strangers_or_under_another_pending_address_keeps_no_pending_client_out() {
    let mut world = World::perfect(6);
    let server = world.add_server_with(4, |config| {
        config.fence = Fence::Open;
        config.budgets.strangers_per_turn = 10;
    });
    let mut honest = holder(&mut world, 1, server);
    let flooded = holder(&mut world, 2, server);
    let everywhere = holder(&mut world, 3, server).request();
    let challenge = world.challenged(server, &honest, stranger(1));
    world.challenged(server, &flooded, stranger(2));
    world.turn();
    for number in 0..200 {
        let _ = world.present(server, stranger(10 + number), &everywhere);
        assert!(world.present(server, stranger(2), &[0x13; 326]).is_err());
    }
    assert!(world.discarded(server, Discard::StrangerBudget) >= 190);
    assert_eq!(world.discarded(server, Discard::PendingBudget), 200 - 64, "so many forgeries are opened of each");
    let response = honest.response(&challenge);
    assert_eq!(world.present(server, stranger(1), &response), Ok(None));
    assert_eq!(world.servers[server].core.connected(), 1);
}

#[test]
fn a_pending_client_that_seals_what_is_no_answer_to_its_challenge_keeps_no_other_out() {
    let mut world = World::perfect(10);
    let server = world.add_server_with(4, |config| config.fence = Fence::Open);
    let mut honest = holder(&mut world, 1, server);
    let mut flooding = holder(&mut world, 2, server);
    let challenge = world.challenged(server, &honest, stranger(1));
    world.challenged(server, &flooding, stranger(2));
    world.turn();
    for _ in 0..2 {
        let mut opened = 0;
        for number in 0..5000 {
            // Garbage, and the challenge of somebody else.
            let response = if number % 2 == 0 {
                flooding.seal(PacketKind::Response, &[0; 308])
            } else {
                flooding.response(&challenge)
            };
            match world.present(server, stranger(2), &response) {
                Err(Discard::PendingBudget) => {}
                Err(Discard::ChallengeNotAuthentic | Discard::ChallengeForeign) => opened += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(opened, 64);
        world.turn();
    }
    for _ in 0..5000 {
        let _ = world.present(server, stranger(2), &flooding.seal(PacketKind::Response, &[0; 308]));
    }
    let response = honest.response(&challenge);
    assert_eq!(world.present(server, stranger(1), &response), Ok(None));
    assert_eq!(world.servers[server].core.connected(), 1);
}

#[test]
fn forty_pending_clients_that_send_all_they_may_leave_the_first_response_of_each_other_one() {
    let mut world = World::perfect(11);
    let server = world.add_server_with(64, |config| config.fence = Fence::Open);
    let mut honest = holder(&mut world, 1, server);
    let challenge = world.challenged(server, &honest, stranger(1));
    let mut flooding: Vec<_> = (2..42).map(|client| holder(&mut world, client, server)).collect();
    for (number, holder) in flooding.iter().enumerate() {
        world.challenged(server, holder, stranger(10 + number));
    }
    world.turn();
    let mut opened = 0;
    for (number, holder) in flooding.iter_mut().enumerate() {
        for _ in 0..100 {
            let outcome = world.present(server, stranger(10 + number), &holder.seal(PacketKind::Response, &[0; 308]));
            opened += usize::from(outcome == Err(Discard::ChallengeNotAuthentic));
        }
    }
    assert!((512..=512 + flooding.len()).contains(&opened), "{opened}");
    let response = honest.response(&challenge);
    assert_eq!(world.present(server, stranger(1), &response), Ok(None));
}

#[test]
fn a_response_that_is_repeated_and_doubled_a_few_times_in_one_long_turn_still_admits() {
    let mut world = World::perfect(12);
    let server = world.add_server_with(4, |config| config.fence = Fence::Open);
    let mut honest = holder(&mut world, 1, server);
    let foreign = holder(&mut world, 2, server);
    let challenge = world.challenged(server, &honest, stranger(1));
    let stale = world.challenged(server, &foreign, stranger(2));
    world.turn();
    // What a second of silence gathered, ten answers and their doubles, does not reach the bound.
    for _ in 0..20 {
        let response = honest.response(&stale);
        assert_eq!(world.present(server, stranger(1), &response), Err(Discard::ChallengeForeign));
    }
    let response = honest.response(&challenge);
    assert_eq!(world.present(server, stranger(1), &response), Ok(None));
}

#[test]
fn junk_and_forgeries_under_a_pending_clients_own_address_do_not_keep_it_out() {
    let mut world = World::perfect(8);
    let server = world.add_server_with(4, |config| config.fence = Fence::Open);
    let mut honest = holder(&mut world, 1, server);
    let challenge = world.challenged(server, &honest, stranger(1));
    world.turn();
    // Whatever is no response does not count, and forged ones do not for a while.
    for _ in 0..5000 {
        assert!(world.present(server, stranger(1), &[0x15; 100]).is_err());
        assert!(world.present(server, stranger(1), &[0x13; 300]).is_err());
    }
    for _ in 0..60 {
        assert_eq!(world.present(server, stranger(1), &[0x13; 326]), Err(Discard::NotAuthentic));
    }
    let response = honest.response(&challenge);
    assert_eq!(world.present(server, stranger(1), &response), Ok(None));
    assert_eq!(world.servers[server].core.connected(), 1);
}

#[test]
fn packets_of_strangers_keep_no_request_out() {
    let mut world = World::perfect(9);
    let server = world.add_server_with(4, |config| config.fence = Fence::Open);
    let honest = holder(&mut world, 1, server);
    for number in 0..10_000 {
        // The shape of a keep-alive, which a kernel's filter lets pass.
        let presented = world.present(server, stranger(number), &[0x14; 26]);
        assert_eq!(presented, Err(Discard::UnknownSender));
        let mut foreign = honest.request();
        foreign[15] ^= 1;
        assert_eq!(world.present(server, stranger(number), &foreign), Err(Discard::RequestProtocol));
    }
    world.challenged(server, &honest, stranger(1));
}

#[test]
fn responses_of_all_pending_clients_together_have_a_budget_of_a_turn() {
    let mut world = World::perfect(7);
    let server = world.add_server_with(4, |config| {
        config.fence = Fence::Open;
        config.budgets.responses_per_turn = 5;
    });
    for client in 1..=8 {
        let holder = holder(&mut world, client, server);
        world.challenged(server, &holder, stranger(client as usize));
    }
    world.turn();
    let outcomes = (1..=8).map(|client| world.present(server, stranger(client), &[0x13; 326]));
    let refused = outcomes.filter(|outcome| *outcome == Err(Discard::PendingBudget)).count();
    assert_eq!(refused, 3);
}

#[test]
fn budgets_come_back_with_the_next_turn() {
    let mut world = World::perfect(4);
    let server = world.add_server_with(4, |config| {
        config.fence = Fence::Open;
        config.budgets.strangers_per_turn = 3;
    });
    let mut altered = holder(&mut world, 1, server).request();
    *altered.last_mut().unwrap() ^= 1;
    for _ in 0..5 {
        let outcomes: Vec<_> = (0..5).map(|_| world.present(server, stranger(1), &altered).unwrap_err()).collect();
        let (seen, unseen) = (Discard::TokenNotAuthentic, Discard::StrangerBudget);
        assert_eq!(outcomes, [seen, seen, seen, unseen, unseen]);
        world.turn();
    }
}

#[test]
fn an_application_that_takes_no_events_stops_admission_and_its_memory_stays_bounded() {
    const SLOTS: u32 = 2;
    let mut world = World::perfect(5);
    let server = world.add_server(SLOTS);
    let now = world.now();
    let core = &mut world.servers[server].core;
    let mut admitted = 0;
    for id in 0..100 {
        match core.connect_loopback(id, [0; 256], now) {
            Ok(client) => {
                admitted += 1;
                core.disconnect(client);
            }
            Err(error) => assert_eq!(error, LoopbackError::Full),
        }
    }
    assert_eq!(admitted, 2, "two events for each slot, and no more");
    // Over the network too: the challenge is answered, the response is refused until events are taken.
    let token = world.token(1000, &[server]);
    let mut holder = Holder::of(&token);
    let request = holder.request();
    let core = &mut world.servers[server].core;
    core.handle(stranger(1), &mut request.clone(), now).unwrap();
    let mut outbox = Collected::default();
    core.transmit(now, &mut outbox);
    let challenge = holder.challenge(&outbox.datagrams[0].1).unwrap();
    for _ in 0..3 {
        let mut response = holder.response(&challenge);
        assert_eq!(core.handle(stranger(1), &mut response, now), Err(Discard::EventsFull));
    }
    assert_eq!(core.connected(), 0);
    let mut events = 0;
    while core.poll_event().is_some() {
        events += 1;
    }
    assert_eq!(events, 2 * SLOTS);
    assert_eq!(core.handle(stranger(1), &mut holder.response(&challenge), now), Ok(None), "the token was not used");
    assert!(matches!(core.poll_event(), Some(Event::Connected { client_id: 1000, .. })));
}

#[test]
fn ends_are_told_however_late_the_application_asks() {
    let mut world = World::perfect(6);
    let server = world.add_server(3);
    let mut holders: Vec<_> = (0..3).map(|id| holder(&mut world, id, server)).collect();
    for (place, holder) in holders.iter_mut().enumerate() {
        world.admitted(server, holder, stranger(place));
    }
    // Everybody's time runs out in one tick, and the application sees each of them.
    world.run_for(6 * SECOND);
    let timed_out = DisconnectReason::TimedOut;
    assert_eq!(world.servers[server].ends(), [(0, timed_out), (1, timed_out), (2, timed_out)]);
}

#[test]
fn a_crowd_that_connects_at_once_is_admitted_within_a_few_turns() {
    let mut world = World::perfect(7);
    let server = world.add_server(100);
    let crowd: Vec<_> = (0..100).map(|id| (world.add_client(), world.token(id, &[server]))).collect();
    for (client, token) in &crowd {
        world.connect(*client, token.clone());
    }
    world.run_until(SECOND / 5, |world| {
        world.clients.iter().all(|client| client.core.state() == ClientState::Connected)
    });
    let mut slots: Vec<_> = world.clients.iter().filter_map(|client| client.core.client_index()).collect();
    slots.sort_unstable();
    assert_eq!(slots, (0..100).collect::<Vec<u32>>());
    assert!(crowd.iter().all(|(client, _)| world.clients[*client].core.max_clients() == Some(100)));
}

#[test]
fn a_million_bytes_of_noise_from_everywhere_are_counted_and_nothing_else_happens() {
    let mut world = World::perfect(8);
    let server = world.add_server(4);
    let (client, _) = world.connected_client(1, server);
    world.run_for(SECOND / 5);
    let before = world.servers[server].core.discards().total();
    let from_client = world.clients[client].address;
    let noise: Vec<Vec<u8>> = {
        use rand::RngExt;
        let rng = world.rng();
        (0..1500).map(|_| (0..rng.random_range(0..1300)).map(|_| rng.random()).collect()).collect()
    };
    for (number, datagram) in noise.iter().enumerate() {
        let from = if number % 3 == 0 { from_client } else { stranger(number) };
        world.present(server, from, datagram).unwrap_err();
        if number % 100 == 0 {
            world.turn();
        }
    }
    assert_eq!(world.servers[server].core.discards().total() - before, noise.len() as u64);
    assert_eq!((world.servers[server].core.connected(), world.servers[server].core.pending()), (1, 0));
    assert_eq!(world.servers[server].core.remembered_tokens(), 1);
    assert_eq!(world.state(client), ClientState::Connected);
}
