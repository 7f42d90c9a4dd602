//! Floods: the cost of a turn, the affected clients, and bounded memory.

use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::client::ClientState;
use slipgate_netcode::crypto::aead::{PacketKey, nonce};
use slipgate_netcode::discard::Discard;
use slipgate_netcode::ids::ClientId;
use slipgate_netcode::server::{DisconnectReason, LoopbackSlotError, NetcodeEvent, TokenCutoff};
use slipgate_netcode::time::Now;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::wire::VERSION;
use slipgate_netcode::wire::cursor::Writer;
use slipgate_netcode::wire::packet::{PacketHeader, PacketKind};
use slipgate_tests::netcode_world::{NetcodeWorld, ServerId, VecOutbox, address};
use slipgate_tests::raw_client::RawClient;

const SECOND: Duration = Duration::from_secs(1);

fn stranger(number: usize) -> Address {
    address(&format!("10.200.{}.{}:9000", number / 250, number % 250 + 1))
}

fn raw_client(world: &mut NetcodeWorld, client_id: u64, server: ServerId) -> RawClient {
    RawClient::new(&world.token(client_id, &[server]))
}

#[test]
fn flood_of_strangers_is_cut_and_spares_connected_clients() {
    let mut world = NetcodeWorld::perfect(1);
    let server = world.add_server_with(4, |config| {
        config.token_cutoff = TokenCutoff::None;
        config.budgets.strangers_per_turn = 50;
    });
    let (client, _) = world.connected_client(1, server);
    world.run_for(SECOND / 10);
    let request = raw_client(&mut world, 2, server).request();
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
    assert_eq!(world.servers[server].received.len(), 60, "every payload of the client");
    assert_eq!(world.clients[client].received.len(), 60, "every echo");
    // Some of them requested admission, and are pending.
    assert!(world.discard_count(server, Discard::StrangerBudget) >= 60 * 150);
    assert_eq!(world.discard_count(server, Discard::ClientBudget), 0);
}

#[test]
fn spoofed_flood_uses_only_the_budget_of_its_address() {
    let mut world = NetcodeWorld::perfect(2);
    let server = world.add_server_with(4, |config| {
        config.token_cutoff = TokenCutoff::None;
        config.budgets.packets_per_client_and_turn = 10;
    });
    let mut flooding = raw_client(&mut world, 1, server);
    world.admit_raw(server, &mut flooding, stranger(1));
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
    assert_eq!(world.discard_count(server, Discard::ClientBudget), 270);
    assert_eq!(world.discard_count(server, Discard::StrangerBudget), 0);
}

#[test]
fn forged_packets_are_not_the_excess_of_a_client() {
    // An upload that had used up its budget was blocked because of packets that others forged under its address.
    let mut world = NetcodeWorld::perfect(16);
    let server = world.add_server_with(4, |config| {
        config.token_cutoff = TokenCutoff::None;
        config.budgets.packets_per_client_and_turn = 10;
    });
    let mut upload = raw_client(&mut world, 1, server);
    world.admit_raw(server, &mut upload, stranger(1));
    world.turn();
    for packet in 0..12 {
        let datagram = upload.seal(PacketKind::Payload, &[7; 20]);
        let expected = if packet < 10 { None } else { Some(Discard::ClientBudget) };
        assert_eq!(world.present(server, stranger(1), &datagram).err(), expected);
    }
    for number in 0..500 {
        let mut datagram = upload.seal(PacketKind::Payload, &[7; 20]);
        *datagram.last_mut().expect("a tag") ^= 1;
        let forged = world.present(server, stranger(1), &datagram).err();
        assert_eq!(forged, Some(Discard::NotAuthentic), "{number}");
    }
    assert_eq!(world.discard_count(server, Discard::ClientBudget), 2);
}

/// Returns an authentic packet with a size that is wrong for its kind.
fn keep_alive_of_a_wrong_size(token: &ConnectToken, sequence: u64) -> Vec<u8> {
    let header = PacketHeader::canonical(PacketKind::KeepAlive, sequence);
    let associated = [&VERSION[..], &token.facts().protocol_id.to_le_bytes(), &[header.prefix]].concat();
    let mut plain = [7; 9];
    let tag = token.keys().client_to_server.seal(nonce(sequence), &associated, &mut plain);
    let mut datagram = vec![0; header.bytes];
    header.emit(&mut Writer::new(&mut datagram));
    [&datagram[..], &plain, &tag].concat()
}

#[test]
fn wrong_sized_authentic_packets_use_their_own_budget() {
    let mut world = NetcodeWorld::perfect(13);
    let server = world.add_server_with(4, |config| config.token_cutoff = TokenCutoff::None);
    let token = world.token(1, &[server]);
    world.admit_raw(server, &mut RawClient::new(&token), stranger(1));
    world.turn();
    let max = u64::from(world.servers[server].core.config().budgets.packets_per_client_and_turn);
    for sequence in 1000..11_000 {
        let expected = if sequence < 1000 + max { Discard::ContentSize } else { Discard::ClientBudget };
        let datagram = keep_alive_of_a_wrong_size(&token, sequence);
        assert_eq!(world.present(server, stranger(1), &datagram), Err(expected), "{sequence}");
    }
    world.turn();
    let again = keep_alive_of_a_wrong_size(&token, 1000);
    assert_eq!(
        world.present(server, stranger(1), &again),
        Err(Discard::Replayed),
        "marked as received at first (§1.8)"
    );
}

#[test]
fn server_at_five_ticks_per_second_takes_all_of_an_upload() {
    let mut world = NetcodeWorld::perfect(15);
    let server = world.add_server_with(4, |config| config.token_cutoff = TokenCutoff::None);
    let token = world.token(1, &[server]);
    world.admit_raw(server, &mut RawClient::new(&token), stranger(1));
    world.turn();
    // Twelve turns of 16 ms, with 256 packets for each.
    let now = world.now();
    let late = Now { monotonic: now.monotonic.after(Duration::from_millis(200)), ..now };
    for sequence in 1000..5000 {
        let expected = if sequence < 1000 + 12 * 256 { Discard::ContentSize } else { Discard::ClientBudget };
        let mut datagram = keep_alive_of_a_wrong_size(&token, sequence);
        let core = &mut world.servers[server].core;
        assert_eq!(core.handle(stranger(1), &mut datagram, late).err(), Some(expected), "{sequence}");
    }
}

#[test]
fn forgeries_at_forty_addresses_do_not_block_other_players() {
    let mut world = NetcodeWorld::perfect(14);
    let server = world.add_server_with(64, |config| config.token_cutoff = TokenCutoff::None);
    let mut raw_clients: Vec<_> = (0..41).map(|client| raw_client(&mut world, client, server)).collect();
    for (number, raw_client) in raw_clients.iter_mut().enumerate() {
        world.admit_raw(server, raw_client, stranger(number));
    }
    world.turn();
    let forged = [0x15, 200, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17];
    for _ in 0..2 {
        let mut opened = 0;
        for number in 0..40 * 1100 {
            opened += usize::from(world.present(server, stranger(number % 40), &forged) == Err(Discard::NotAuthentic));
        }
        assert_eq!(opened, 16_384, "all together");
        assert_eq!(world.present(server, stranger(0), &raw_clients[0].keep_alive()), Err(Discard::ForgeryBudget));
        // No client has written from this address, and three forgeries do not block it; yet their total cost is
        // bounded.
        for _ in 0..3 {
            assert_eq!(world.present(server, stranger(40), &forged), Err(Discard::NotAuthentic));
        }
        for _ in 0..50 {
            assert_eq!(world.present(server, stranger(40), &raw_clients[40].keep_alive()), Ok(None));
        }
        assert_eq!(world.present(server, stranger(40), &forged), Err(Discard::NotAuthentic));
        assert_eq!(world.present(server, stranger(40), &forged), Err(Discard::ForgeryBudget));
        world.turn();
    }
}

#[test]
fn request_at_a_connected_address_uses_the_stranger_budget() {
    let mut world = NetcodeWorld::perfect(3);
    let server = world.add_server_with(4, |config| {
        config.token_cutoff = TokenCutoff::None;
        config.budgets.packets_per_client_and_turn = 2;
        config.budgets.strangers_per_turn = 10;
    });
    let mut token = raw_client(&mut world, 1, server);
    world.admit_raw(server, &mut token, stranger(1));
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
fn flood_at_other_addresses_does_not_block_a_pending_client() {
    let mut world = NetcodeWorld::perfect(6);
    let server = world.add_server_with(4, |config| {
        config.token_cutoff = TokenCutoff::None;
        config.budgets.strangers_per_turn = 10;
    });
    let mut honest = raw_client(&mut world, 1, server);
    let flooded = raw_client(&mut world, 2, server);
    let everywhere = raw_client(&mut world, 3, server).request();
    let challenge = world.request_challenge(server, &honest, stranger(1));
    world.request_challenge(server, &flooded, stranger(2));
    world.turn();
    for number in 0..200 {
        let _ = world.present(server, stranger(10 + number), &everywhere);
        assert!(world.present(server, stranger(2), &[0x13; 326]).is_err());
    }
    assert!(world.discard_count(server, Discard::StrangerBudget) >= 190);
    assert_eq!(
        world.discard_count(server, Discard::PendingBudget),
        200 - 64,
        "the limit of opened forgeries per client"
    );
    let response = honest.response(&challenge);
    assert_eq!(world.present(server, stranger(1), &response), Ok(None));
    assert_eq!(world.servers[server].core.connected_count(), 1);
}

#[test]
fn wrong_responses_do_not_block_other_pending_clients() {
    let mut world = NetcodeWorld::perfect(10);
    let server = world.add_server_with(4, |config| config.token_cutoff = TokenCutoff::None);
    let mut honest = raw_client(&mut world, 1, server);
    let mut flooding = raw_client(&mut world, 2, server);
    let challenge = world.request_challenge(server, &honest, stranger(1));
    world.request_challenge(server, &flooding, stranger(2));
    world.turn();
    for _ in 0..2 {
        let mut opened = 0;
        for number in 0..5000 {
            // Random bytes, and the challenge of another client.
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
    assert_eq!(world.servers[server].core.connected_count(), 1);
}

#[test]
fn forty_busy_pending_clients_do_not_block_first_responses() {
    let mut world = NetcodeWorld::perfect(11);
    let server = world.add_server_with(64, |config| config.token_cutoff = TokenCutoff::None);
    let mut honest = raw_client(&mut world, 1, server);
    let challenge = world.request_challenge(server, &honest, stranger(1));
    let mut flooding: Vec<_> = (2..42).map(|client| raw_client(&mut world, client, server)).collect();
    for (number, raw_client) in flooding.iter().enumerate() {
        world.request_challenge(server, raw_client, stranger(10 + number));
    }
    world.turn();
    let mut opened = 0;
    for (number, raw_client) in flooding.iter_mut().enumerate() {
        for _ in 0..100 {
            let outcome =
                world.present(server, stranger(10 + number), &raw_client.seal(PacketKind::Response, &[0; 308]));
            opened += usize::from(outcome == Err(Discard::ChallengeNotAuthentic));
        }
    }
    assert!((512..=512 + flooding.len()).contains(&opened), "{opened}");
    let response = honest.response(&challenge);
    assert_eq!(world.present(server, stranger(1), &response), Ok(None));
}

#[test]
fn repeated_response_in_one_long_turn_still_admits() {
    let mut world = NetcodeWorld::perfect(12);
    let server = world.add_server_with(4, |config| config.token_cutoff = TokenCutoff::None);
    let mut honest = raw_client(&mut world, 1, server);
    let foreign = raw_client(&mut world, 2, server);
    let challenge = world.request_challenge(server, &honest, stranger(1));
    let stale = world.request_challenge(server, &foreign, stranger(2));
    world.turn();
    // Packets queued during a second of silence, ten responses and their duplicates, stay below the limit.
    for _ in 0..20 {
        let response = honest.response(&stale);
        assert_eq!(world.present(server, stranger(1), &response), Err(Discard::ChallengeForeign));
    }
    let response = honest.response(&challenge);
    assert_eq!(world.present(server, stranger(1), &response), Ok(None));
}

#[test]
fn forgeries_at_a_pending_address_do_not_block_its_client() {
    let mut world = NetcodeWorld::perfect(8);
    let server = world.add_server_with(4, |config| config.token_cutoff = TokenCutoff::None);
    let mut honest = raw_client(&mut world, 1, server);
    let challenge = world.request_challenge(server, &honest, stranger(1));
    world.turn();
    // Other packets than responses do not count; forged responses count against a separate budget.
    for _ in 0..5000 {
        assert!(world.present(server, stranger(1), &[0x15; 100]).is_err());
        assert!(world.present(server, stranger(1), &[0x13; 300]).is_err());
    }
    for _ in 0..60 {
        assert_eq!(world.present(server, stranger(1), &[0x13; 326]), Err(Discard::NotAuthentic));
    }
    let response = honest.response(&challenge);
    assert_eq!(world.present(server, stranger(1), &response), Ok(None));
    assert_eq!(world.servers[server].core.connected_count(), 1);
}

#[test]
fn packets_of_strangers_do_not_block_requests() {
    let mut world = NetcodeWorld::perfect(9);
    let server = world.add_server_with(4, |config| config.token_cutoff = TokenCutoff::None);
    let honest = raw_client(&mut world, 1, server);
    for number in 0..10_000 {
        // It has the form of a keep-alive, which the kernel filter passes.
        let presented = world.present(server, stranger(number), &[0x14; 26]);
        assert_eq!(presented, Err(Discard::UnknownSender));
        let mut foreign = honest.request();
        foreign[15] ^= 1;
        assert_eq!(world.present(server, stranger(number), &foreign), Err(Discard::RequestProtocol));
    }
    world.request_challenge(server, &honest, stranger(1));
}

#[test]
fn responses_of_all_pending_clients_share_a_turn_budget() {
    let mut world = NetcodeWorld::perfect(7);
    let server = world.add_server_with(4, |config| {
        config.token_cutoff = TokenCutoff::None;
        config.budgets.responses_per_turn = 5;
    });
    for client in 1..=8 {
        let raw_client = raw_client(&mut world, client, server);
        world.request_challenge(server, &raw_client, stranger(client as usize));
    }
    world.turn();
    let outcomes = (1..=8).map(|client| world.present(server, stranger(client), &[0x13; 326]));
    let refused = outcomes.filter(|outcome| *outcome == Err(Discard::PendingBudget)).count();
    assert_eq!(refused, 3);
}

#[test]
fn budgets_are_refilled_each_turn() {
    let mut world = NetcodeWorld::perfect(4);
    let server = world.add_server_with(4, |config| {
        config.token_cutoff = TokenCutoff::None;
        config.budgets.strangers_per_turn = 3;
    });
    let mut altered = raw_client(&mut world, 1, server).request();
    *altered.last_mut().unwrap() ^= 1;
    for _ in 0..5 {
        let outcomes: Vec<_> = (0..5).map(|_| world.present(server, stranger(1), &altered).unwrap_err()).collect();
        let (seen, unseen) = (Discard::TokenNotAuthentic, Discard::StrangerBudget);
        assert_eq!(outcomes, [seen, seen, seen, unseen, unseen]);
        world.turn();
    }
}

#[test]
fn untaken_events_stop_admission_and_bound_memory() {
    const SLOTS: u32 = 2;
    let mut world = NetcodeWorld::perfect(5);
    let server = world.add_server(SLOTS);
    let now = world.now();
    let core = &mut world.servers[server].core;
    let mut admit_raw = 0;
    for id in 0..100 {
        match core.connect_loopback(id, [0; 256], now) {
            Ok(client) => {
                admit_raw += 1;
                core.disconnect(client);
            }
            Err(error) => assert_eq!(error, LoopbackSlotError::Full),
        }
    }
    assert_eq!(admit_raw, 2, "two events for each slot");
    // Over the network as well: the challenge is sent, the response is refused until the events are taken.
    let token = world.token(1000, &[server]);
    let mut raw_client = RawClient::new(&token);
    let request = raw_client.request();
    let core = &mut world.servers[server].core;
    core.handle(stranger(1), &mut request.clone(), now).unwrap();
    let mut outbox = VecOutbox::default();
    core.transmit(now, &mut outbox);
    let challenge = raw_client.challenge(&outbox.datagrams[0].1).unwrap();
    for _ in 0..3 {
        let mut response = raw_client.response(&challenge);
        assert_eq!(core.handle(stranger(1), &mut response, now), Err(Discard::EventsFull));
    }
    assert_eq!(core.connected_count(), 0);
    let mut events = 0;
    while core.poll_event().is_some() {
        events += 1;
    }
    assert_eq!(events, 2 * SLOTS);
    assert_eq!(core.handle(stranger(1), &mut raw_client.response(&challenge), now), Ok(None), "the token was not used");
    assert!(matches!(core.poll_event(), Some(NetcodeEvent::Connected { client_id: ClientId(1000), .. })));
}

#[test]
fn disconnects_are_reported_to_a_late_application() {
    let mut world = NetcodeWorld::perfect(6);
    let server = world.add_server(3);
    let mut raw_clients: Vec<_> = (0..3).map(|id| raw_client(&mut world, id, server)).collect();
    for (index, raw_client) in raw_clients.iter_mut().enumerate() {
        world.admit_raw(server, raw_client, stranger(index));
    }
    // All clients time out in one tick, and the application receives each event.
    world.run_for(6 * SECOND);
    let timed_out = DisconnectReason::TimedOut;
    assert_eq!(world.servers[server].disconnects(), [(0, timed_out), (1, timed_out), (2, timed_out)]);
}

#[test]
fn simultaneous_clients_are_admitted_within_a_few_turns() {
    let mut world = NetcodeWorld::perfect(7);
    let server = world.add_server(100);
    let crowd: Vec<_> = (0..100).map(|id| (world.add_client(), world.token(id, &[server]))).collect();
    for (client, token) in &crowd {
        world.connect(*client, token.clone());
    }
    world.run_until(SECOND / 5, |world| {
        world.clients.iter().all(|client| client.core.state() == ClientState::Connected)
    });
    let mut slots: Vec<_> = world.clients.iter().filter_map(|client| Some(client.core.slot_info()?.0.0)).collect();
    slots.sort_unstable();
    assert_eq!(slots, (0..100).collect::<Vec<u32>>());
    assert!(
        crowd.iter().all(|(client, _)| world.clients[*client].core.slot_info().map(|(_, slots)| slots) == Some(100))
    );
}

#[test]
fn megabyte_of_noise_is_counted_and_has_no_effect() {
    let mut world = NetcodeWorld::perfect(8);
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
    assert_eq!(
        (world.servers[server].core.connected_count(), world.servers[server].core.table_usage().pending),
        (1, 0)
    );
    assert_eq!(world.servers[server].core.table_usage().used_tokens, 1);
    assert_eq!(world.state(client), ClientState::Connected);
}
