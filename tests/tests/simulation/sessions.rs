//! Connections: keep-alives, timeouts, start and end, and slots.

use std::time::Duration;

use slipgate_netcode::PayloadError;
use slipgate_netcode::address::Address;
use slipgate_netcode::client::{self, ClientState, NetcodeClient};
use slipgate_netcode::crypto::key::{Key, Seed};
use slipgate_netcode::discard::Discard;
use slipgate_netcode::loopback::QUEUE_PAYLOADS;
use slipgate_netcode::server::{
    DisconnectReason, LoopbackSlotError, NetcodeEvent, NetcodeServer, ServerConfig, ServerConfigError, TokenCutoff,
};
use slipgate_netcode::time::Now;
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_netcode::wire::packet::{PacketHeader, PacketKind};
use slipgate_sim::Conditions;
use slipgate_tests::conditions;
use slipgate_tests::netcode_world::{NetcodeWorld, PROTOCOL_ID, ServerId, TokenSpec, VecOutbox, address};
use slipgate_tests::raw_client::{Opened, RawClient};

const SECOND: Duration = Duration::from_secs(1);

fn stranger(number: usize) -> Address {
    address(&format!("10.200.{}.{}:9000", number / 250, number % 250 + 1))
}

fn raw_client(world: &mut NetcodeWorld, client_id: u64, server: ServerId) -> RawClient {
    RawClient::new(&world.token(client_id, &[server]))
}

fn raw_client_with_timeout(world: &mut NetcodeWorld, client_id: u64, server: ServerId, timeout: i32) -> RawClient {
    let spec = TokenSpec { timeout, ..world.spec(client_id, &[server]) };
    RawClient::new(&world.mint(&spec))
}

/// Returns the packets that the server sends to a raw client within two turns, opened.
fn received_packets(world: &mut NetcodeWorld, raw_client: &RawClient, at: Address) -> Vec<Opened> {
    let replies = world.replies_to(at);
    replies.iter().map(|reply| raw_client.open(reply).expect("sealed under its own key")).collect()
}

fn kinds(opened: &[Opened]) -> Vec<PacketKind> {
    opened.iter().map(|opened| opened.kind).collect()
}

// Timeouts ----------------------------------------------------------------------------------------------------------

#[test]
fn unauthenticated_packets_do_not_keep_a_slot_alive() {
    let mut world = NetcodeWorld::perfect(1);
    let server = world.add_server(4);
    let mut token = raw_client(&mut world, 1, server);
    world.admit_raw(server, &mut token, stranger(1));
    let replayed = token.keep_alive();
    world.present(server, stranger(1), &replayed).unwrap();
    let mut altered = token.keep_alive();
    *altered.last_mut().unwrap() ^= 1;
    let response = token.seal(PacketKind::Response, &[0; 308]);
    let junk =
        [Vec::new(), vec![0x14; 26], vec![0x17; 40], vec![0xff; 1300], replayed, altered, token.request(), response];
    for _ in 0..49 {
        world.run_for(SECOND / 10);
        for datagram in &junk {
            world.present(server, stranger(1), datagram).unwrap_err();
        }
    }
    world.run_for(SECOND / 5);
    assert_eq!(world.servers[server].disconnects(), [(1, DisconnectReason::TimedOut)]);
}

#[test]
fn authentic_packet_keeps_a_slot_alive() {
    let mut world = NetcodeWorld::perfect(2);
    let server = world.add_server(4);
    let mut token = raw_client(&mut world, 1, server);
    world.admit_raw(server, &mut token, stranger(1));
    for _ in 0..5 {
        world.run_for(SECOND * 9 / 2);
        let keep_alive = token.keep_alive();
        world.present(server, stranger(1), &keep_alive).unwrap();
    }
    assert_eq!(world.servers[server].core.connected_count(), 1);
}

#[test]
fn junk_does_not_keep_a_client_alive() {
    let mut world = NetcodeWorld::perfect(3);
    let server = world.add_server(4);
    let (client, _) = world.connected_client(1, server);
    world.run_for(SECOND / 5);
    let (server_at, client_at) = (world.servers[server].address, world.clients[client].address);
    let replayed = world.sent().iter().rfind(|(from, ..)| *from == server_at).unwrap().2.clone();
    world.crash(server);
    for _ in 0..49 {
        world.inject(server_at, client_at, &replayed);
        world.inject(server_at, client_at, &[0x14; 26]);
        world.run_for(SECOND / 10);
    }
    world.run_for(SECOND / 5);
    assert_eq!(world.state(client), ClientState::TimedOut);
}

#[test]
fn server_clamps_token_timeouts_except_in_development() {
    const CLAMPED: TimeoutPolicy = TimeoutPolicy::Clamped;
    const DEVELOPMENT: TimeoutPolicy = TimeoutPolicy::Development;
    for (policy, allocation_count, seconds) in [
        (CLAMPED, 0, Some(1)),
        (CLAMPED, 3, Some(3)),
        (CLAMPED, 61, Some(60)),
        (CLAMPED, i32::MAX, Some(60)),
        (CLAMPED, -1, Some(60)),
        (CLAMPED, i32::MIN, Some(60)),
        (DEVELOPMENT, 0, Some(1)),
        (DEVELOPMENT, i32::MAX, Some(60)),
        (DEVELOPMENT, -1, None),
    ] {
        let mut world = NetcodeWorld::perfect(4);
        let server = world.add_server_with(4, |config| {
            config.token_cutoff = TokenCutoff::None;
            config.timeouts = policy;
        });
        let mut token = raw_client_with_timeout(&mut world, 1, server, allocation_count);
        world.admit_raw(server, &mut token, stranger(1));
        let connected = |world: &NetcodeWorld| world.servers[server].core.connected_count();
        let limit = Duration::from_secs(seconds.unwrap_or(120));
        world.run_for(limit - SECOND / 10);
        assert_eq!(connected(&world), 1, "{policy:?} {allocation_count}: before {limit:?}");
        world.run_for(SECOND / 5);
        assert_eq!(connected(&world), u32::from(seconds.is_none()), "{policy:?} {allocation_count}: after {limit:?}");
    }
}

#[test]
fn unread_sockets_restart_all_client_timeouts() {
    let mut world = NetcodeWorld::perfect(4);
    let server = world.add_server_with(4, |config| {
        config.token_cutoff = TokenCutoff::None;
        config.takeover_after = Some(SECOND);
    });
    let mut token = raw_client_with_timeout(&mut world, 1, server, 3);
    world.admit_raw(server, &mut token, stranger(1));
    // The game ticks, but reads nothing for three timeouts.
    world.servers[server].running = false;
    for _ in 0..18 {
        world.run_for(SECOND / 2);
        let now = world.now();
        world.servers[server].core.tick_with_backlog(now);
    }
    world.servers[server].running = true;
    assert_eq!(world.servers[server].core.connected_count(), 1);
    let newer = raw_client(&mut world, 1, server);
    assert_eq!(world.present(server, stranger(2), &newer.request()), Err(Discard::ClientIdConnected));
    world.run_for(SECOND + SECOND / 10);
    assert_eq!(
        world.present(server, stranger(2), &newer.request()),
        Ok(None),
        "silent for the grace period of a takeover"
    );
    world.run_for(2 * SECOND - SECOND / 5);
    assert_eq!(world.servers[server].disconnects(), [], "not for the timeout");
    world.run_for(SECOND / 5);
    assert_eq!(world.servers[server].disconnects(), [(1, DisconnectReason::TimedOut)]);
}

/// Admits three raw clients, lets the server sleep for 8 s, and returns both.
fn after_a_sleep(seed: u64) -> (NetcodeWorld, ServerId, Vec<RawClient>) {
    let mut world = NetcodeWorld::perfect(seed);
    let server = world.add_server(4);
    let mut clients: Vec<_> = (0..3).map(|id| raw_client(&mut world, id, server)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        world.admit_raw(server, client, stranger(number));
    }
    world.run_for(SECOND / 2);
    world.servers[server].running = false;
    world.run_for(8 * SECOND);
    world.servers[server].running = true;
    (world, server, clients)
}

#[test]
fn sleep_of_the_server_ends_no_client_that_is_still_there() {
    let (mut world, server, mut clients) = after_a_sleep(31);
    // One client's packets waited in the socket, those of the others were dropped by the system.
    world.present(server, stranger(0), &clients[0].keep_alive()).unwrap();
    world.run_for(SECOND * 9 / 10);
    assert_eq!(world.servers[server].disconnects(), []);
    // The server receives all of them within the second, and they live on as usual.
    for (number, client) in clients.iter_mut().enumerate() {
        world.present(server, stranger(number), &client.keep_alive()).unwrap();
    }
    world.run_for(SECOND * 49 / 10);
    assert_eq!(world.servers[server].disconnects(), []);
    world.run_for(SECOND / 5);
    assert_eq!(world.servers[server].disconnects().len(), 3);
}

#[test]
fn packets_that_waited_in_the_sleep_do_not_count_as_fresh() {
    let (mut world, server, mut clients) = after_a_sleep(32);
    // All clients died in the sleep. Their last packets are read now, and end after a second, not after five.
    for (number, client) in clients.iter_mut().enumerate() {
        for _ in 0..20 {
            world.present(server, stranger(number), &client.keep_alive()).unwrap();
        }
    }
    world.run_for(SECOND * 9 / 10);
    assert_eq!(world.servers[server].disconnects(), []);
    // Meanwhile the silence of a takeover counts from the end of the sleep.
    let newer = raw_client(&mut world, 0, server);
    assert_eq!(world.present(server, stranger(9), &newer.request()), Err(Discard::ClientIdConnected));
    world.run_for(SECOND / 5);
    assert_eq!(world.servers[server].disconnects().len(), 3);
    let mut newer = newer;
    world.admit_raw(server, &mut newer, stranger(9));
}

#[test]
fn sleep_shows_although_a_turn_handles_no_packet() {
    let (mut world, server, mut clients) = after_a_sleep(36);
    // The first turn after the sleep reads as much as it may of junk, and the next one reads the clients' last packets.
    let now = world.now();
    world.servers[server].core.tick_with_backlog(now);
    for (number, client) in clients.iter_mut().enumerate() {
        world.present(server, stranger(number), &client.keep_alive()).unwrap();
    }
    world.run_for(SECOND * 9 / 10);
    assert_eq!(world.servers[server].disconnects(), []);
    world.run_for(SECOND / 5);
    assert_eq!(world.servers[server].disconnects().len(), 3);
}

#[test]
fn short_sleep_of_the_server_changes_no_timeout() {
    let mut world = NetcodeWorld::perfect(33);
    let server = world.add_server(4);
    let mut client = raw_client(&mut world, 1, server);
    world.admit_raw(server, &mut client, stranger(1));
    world.servers[server].running = false;
    world.run_for(SECOND * 9 / 10);
    world.servers[server].running = true;
    world.present(server, stranger(1), &client.keep_alive()).unwrap();
    world.run_for(SECOND * 49 / 10);
    assert_eq!(world.servers[server].disconnects(), []);
    world.run_for(SECOND / 5);
    assert_eq!(world.servers[server].disconnects(), [(1, DisconnectReason::TimedOut)]);
}

#[test]
fn server_was_asleep_after_more_than_a_second_without_a_tick() {
    for (millis, was_asleep) in [(950, false), (1_050, true)] {
        let mut world = NetcodeWorld::perfect(35);
        let server = world.add_server(4);
        let mut client = raw_client(&mut world, 1, server);
        world.admit_raw(server, &mut client, stranger(1));
        world.present(server, stranger(1), &client.keep_alive()).unwrap();
        world.run_for(SECOND * 46 / 10);
        world.servers[server].running = false;
        world.run_for(Duration::from_millis(millis));
        world.servers[server].running = true;
        // More than 5 s of silence, the last part of them in the sleep.
        world.run_for(SECOND / 10);
        assert_eq!(world.servers[server].disconnects().is_empty(), was_asleep, "{millis} ms");
        world.run_for(SECOND);
        assert_eq!(world.servers[server].disconnects().len(), 1, "{millis} ms");
    }
}

#[test]
fn packets_after_the_end_are_counted_apart_for_five_seconds() {
    let mut world = NetcodeWorld::perfect(34);
    let server = world.add_server(4);
    let (client, _) = world.connected_client(1, server);
    let left = world.clients[client].address;
    world.run_for(SECOND);
    let before = world.servers[server].core.discards().total();
    world.clients[client].core.disconnect();
    world.run_for(SECOND / 10);
    assert_eq!(world.servers[server].disconnects(), [(1, DisconnectReason::Left)]);
    assert_eq!(world.discard_count(server, Discard::ConnectionEnded), 9, "ten disconnect packets, and one counts");
    assert_eq!(world.servers[server].core.discards().total() - before, 9);
    // Strangers are counted as before, also from this address later on.
    assert_eq!(world.present(server, stranger(1), &[0x16; 18]), Err(Discard::UnknownSender));
    assert_eq!(world.present(server, left, &[0x16; 18]), Err(Discard::ConnectionEnded));
    world.run_for(5 * SECOND);
    assert_eq!(world.present(server, left, &[0x16; 18]), Err(Discard::UnknownSender));
}

#[test]
fn client_clamps_token_timeouts_except_in_development() {
    for (policy, allocation_count, seconds) in [
        (TimeoutPolicy::Clamped, 0, Some(1)),
        (TimeoutPolicy::Clamped, 3, Some(3)),
        (TimeoutPolicy::Clamped, i32::MAX, Some(60)),
        (TimeoutPolicy::Clamped, -1, Some(60)),
        (TimeoutPolicy::Development, -1, None),
    ] {
        let mut world = NetcodeWorld::perfect(5);
        let server = world.add_server_with(4, |config| {
            config.token_cutoff = TokenCutoff::None;
            config.timeouts = TimeoutPolicy::Development;
        });
        let client = world.add_client();
        world.clients[client].core = NetcodeClient::new(policy);
        let spec = TokenSpec { timeout: allocation_count, ..world.spec(1, &[server]) };
        let token = world.mint(&spec);
        world.connect(client, token);
        world.run_until(SECOND, |world| world.state(client) == ClientState::Connected);
        world.turn();
        world.set_conditions(Conditions { loss: conditions::loss(100.0), ..Conditions::perfect() });
        let limit = Duration::from_secs(seconds.unwrap_or(120));
        world.run_for(limit - SECOND / 5);
        assert_eq!(world.state(client), ClientState::Connected, "{policy:?} {allocation_count}: before {limit:?}");
        world.run_for(SECOND * 3 / 10);
        let expected = if seconds.is_some() { ClientState::TimedOut } else { ClientState::Connected };
        assert_eq!(world.state(client), expected, "{policy:?} {allocation_count}: after {limit:?}");
    }
}

#[test]
fn ten_keep_alives_per_second_fill_silence_in_both_directions() {
    let mut world = NetcodeWorld::perfect(6);
    let server = world.add_server(4);
    let (client, handle) = world.connected_client(1, server);
    world.servers[server].echoes = false;
    world.run_for(SECOND / 2);
    let count = |world: &NetcodeWorld, from: Address, kind: PacketKind| {
        let is_kind = |datagram: &[u8]| datagram[0] & 0x0f == kind as u8;
        world.sent().iter().filter(|(at, _, datagram)| *at == from && is_kind(datagram)).count()
    };
    let ends = [world.servers[server].address, world.clients[client].address];
    let idle = ends.map(|end| count(&world, end, PacketKind::KeepAlive));
    world.run_for(SECOND);
    for (end, idle) in ends.into_iter().zip(idle) {
        assert!((9..=10).contains(&(count(&world, end, PacketKind::KeepAlive) - idle)));
    }
    let idle = ends.map(|end| count(&world, end, PacketKind::KeepAlive));
    for _ in 0..60 {
        let (up, down) = (world.payload(9), world.payload(9));
        world.client_sends(client, &up).unwrap();
        world.server_sends(server, handle, &down).unwrap();
        world.turn();
    }
    assert_eq!(ends.map(|end| count(&world, end, PacketKind::KeepAlive)), idle);
}

// The confirmed flag ------------------------------------------------------------------------------------------------

#[test]
fn payload_to_an_unconfirmed_client_follows_a_keep_alive() {
    let mut world = NetcodeWorld::perfect(7);
    let server = world.add_server(4);
    let mut token = raw_client(&mut world, 1, server);
    let handle = world.admit_raw(server, &mut token, stranger(1));
    for _ in 0..3 {
        let payload = world.payload(30);
        world.server_sends(server, handle, &payload).unwrap();
    }
    use PacketKind::{KeepAlive, Payload};
    let opened = received_packets(&mut world, &token, stranger(1));
    // The keep-alive that accepts the client, then each payload behind a keep-alive of its own.
    assert_eq!(kinds(&opened), [KeepAlive, KeepAlive, Payload, KeepAlive, Payload, KeepAlive, Payload]);
    let sequences: Vec<u64> = opened.iter().map(|opened| opened.sequence).collect();
    assert_eq!(sequences, [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(world.servers[server].core.client(handle).map(|info| info.confirmed), Some(false));

    let keep_alive = token.keep_alive();
    world.present(server, stranger(1), &keep_alive).unwrap();
    assert_eq!(world.servers[server].core.client(handle).map(|info| info.confirmed), Some(true));
    for _ in 0..3 {
        let payload = world.payload(30);
        world.server_sends(server, handle, &payload).unwrap();
    }
    assert_eq!(kinds(&received_packets(&mut world, &token, stranger(1))), [Payload, Payload, Payload]);
}

#[test]
fn lost_acceptance_costs_no_payload_of_its_turn() {
    // The game greets a client three times in the turn in which it is admitted, and one datagram is lost.
    for (lost, greetings) in [(0, 3), (1, 3), (2, 2), (3, 3), (4, 2), (5, 3), (6, 2), (7, 3)] {
        let mut world = NetcodeWorld::perfect(7);
        let server = world.add_server(4);
        let (token, now) = (world.token(1, &[server]), world.now());
        let (server_at, core) = (world.servers[server].address, &mut world.servers[server].core);
        let mut client = NetcodeClient::new(TimeoutPolicy::Clamped);
        client.connect(token, now.monotonic, |_| true).unwrap();
        for _ in 0..2 {
            let (mut up, mut down) = (VecOutbox::default(), VecOutbox::default());
            client.transmit(now.monotonic, &mut up);
            for (_, mut datagram) in up.datagrams {
                core.handle(stranger(1), &mut datagram, now).unwrap();
            }
            if let Some(handle) = core.find(1) {
                (0..3_u8).for_each(|number| core.send(handle, &[number; 8], now, &mut down).unwrap());
            }
            core.transmit(now, &mut down);
            if client.state() == ClientState::SendingResponse {
                down.datagrams.remove(lost);
            }
            let mut received = 0;
            for (_, mut datagram) in down.datagrams {
                let handled = client.handle(server_at, &mut datagram, now.monotonic);
                received += usize::from(handled.is_ok_and(|payload| payload.is_some()));
            }
            assert_eq!(received, if core.connected_count() == 1 { greetings } else { 0 }, "datagram {lost} is lost");
        }
        assert_eq!(client.state(), ClientState::Connected);
    }
}

#[test]
fn only_authentic_packet_confirms_a_client() {
    let mut world = NetcodeWorld::perfect(8);
    let server = world.add_server(4);
    let mut token = raw_client(&mut world, 1, server);
    let handle = world.admit_raw(server, &mut token, stranger(1));
    for junk in [Vec::new(), vec![0x14; 26], token.request(), token.seal(PacketKind::Response, &[0; 308])] {
        world.present(server, stranger(1), &junk).unwrap_err();
    }
    assert_eq!(world.servers[server].core.client(handle).map(|info| info.confirmed), Some(false));
}

#[test]
fn client_connects_when_the_first_keep_alive_is_lost() {
    let mut world = NetcodeWorld::perfect(9);
    let server = world.add_server(4);
    let (client, token) = (world.add_client(), world.token(1, &[server]));
    world.connect(client, token);
    world
        .run_until(SECOND, |world| world.servers[server].core.connected_count() == 0 && world.state(client) as i8 == 2);
    world.turn();
    world.set_conditions(Conditions { loss: conditions::loss(100.0), ..Conditions::perfect() });
    // The keep-alive is in flight: move the client to another address, so that it does not arrive.
    let at = world.clients[client].address;
    world.clients[client].address = stranger(0);
    world.turn();
    (world.clients[client].address, world.clients[client].received) = (at, Vec::new());
    world.set_conditions(Conditions::perfect());
    assert_eq!(world.state(client), ClientState::SendingResponse);
    let (handle, payload) = (world.servers[server].core.find(1).expect("a slot"), world.payload(50));
    world.server_sends(server, handle, &payload).unwrap();
    world.turn();
    assert_eq!(world.state(client), ClientState::Connected);
    assert_eq!(world.clients[client].received, [payload]);
}

// Ends --------------------------------------------------------------------------------------------------------------

#[test]
fn kick_sends_ten_consecutive_disconnect_packets() {
    let mut world = NetcodeWorld::perfect(10);
    let server = world.add_server(4);
    let mut token = raw_client(&mut world, 1, server);
    let handle = world.admit_raw(server, &mut token, stranger(1));
    let before = received_packets(&mut world, &token, stranger(1)).len() as u64;
    assert!(world.servers[server].core.disconnect(handle));
    assert!(!world.servers[server].core.disconnect(handle), "the client is gone");
    let opened = received_packets(&mut world, &token, stranger(1));
    assert_eq!(kinds(&opened), [PacketKind::Disconnect; 10]);
    let sequences: Vec<u64> = opened.iter().map(|opened| opened.sequence).collect();
    assert_eq!(sequences, (before..before + 10).collect::<Vec<u64>>());
    assert_eq!(world.servers[server].disconnects(), [(1, DisconnectReason::Kicked)]);
    world.run_for(SECOND);
    assert_eq!(world.replies_to(stranger(1)), Vec::<Vec<u8>>::new(), "no further packet");
}

#[test]
fn client_kicked_on_arrival_learns_its_slot_first() {
    let mut world = NetcodeWorld::perfect(11);
    let server = world.add_server(4);
    let mut token = raw_client(&mut world, 1, server);
    let handle = world.admit_raw(server, &mut token, stranger(1));
    world.servers[server].core.disconnect(handle);
    let opened = received_packets(&mut world, &token, stranger(1));
    assert_eq!(kinds(&opened[..1]), [PacketKind::KeepAlive]);
    assert_eq!(kinds(&opened[1..]), [PacketKind::Disconnect; 10]);
}

#[test]
fn leaving_client_sends_ten_disconnects_and_one_suffices() {
    for lost in [0.0, 50.0] {
        let mut world = NetcodeWorld::perfect(12);
        let server = world.add_server(4);
        let (client, _) = world.connected_client(1, server);
        world.run_for(SECOND / 10);
        world.set_conditions(Conditions { loss: conditions::loss(lost), ..Conditions::perfect() });
        let before = world.sent().len();
        world.clients[client].core.disconnect();
        assert!(world.clients[client].core.has_unsent_packets());
        world.run_for(SECOND / 10);
        assert!(!world.clients[client].core.has_unsent_packets());
        let from = world.clients[client].address;
        let sent = world.sent()[before..].iter().filter(|(at, ..)| *at == from);
        let headers: Vec<_> =
            sent.map(|(.., datagram)| PacketHeader::parse(datagram, PacketKind::TO_SERVER).unwrap()).collect();
        assert_eq!(headers.len(), 10);
        assert!(headers.iter().all(|header| header.kind == PacketKind::Disconnect));
        assert!(headers.windows(2).all(|pair| pair[1].sequence == pair[0].sequence + 1));
        assert_eq!(world.servers[server].disconnects(), [(1, DisconnectReason::Left)], "{lost} % lost");
        assert_eq!(world.servers[server].core.stats().disconnects, 1);
    }
}

#[test]
fn stopped_server_disconnects_all_and_admits_no_client() {
    let mut world = NetcodeWorld::perfect(13);
    let server = world.add_server(4);
    let clients: Vec<_> = (1..=3).map(|id| world.connected_client(id, server).0).collect();
    world.servers[server].core.stop();
    assert!(world.servers[server].core.table_usage().has_due_packets);
    world.run_for(SECOND / 10);
    assert!(!world.servers[server].core.table_usage().has_due_packets);
    for client in clients {
        assert_eq!(world.state(client), ClientState::Disconnected);
    }
    let stopped = DisconnectReason::ServerStopped;
    assert_eq!(world.servers[server].disconnects(), [(1, stopped), (2, stopped), (3, stopped)]);
    let late = raw_client(&mut world, 9, server);
    world.present(server, stranger(9), &late.request()).unwrap();
    assert_eq!(kinds(&received_packets(&mut world, &late, stranger(9))), [PacketKind::Denied]);
}

#[test]
fn disconnects_and_their_slots_wait_for_outbox_space() {
    let mut world = NetcodeWorld::perfect(14);
    let server = world.add_server(1);
    let (client, handle) = world.connected_client(1, server);
    world.servers[server].core.disconnect(handle);
    let now = world.now();
    let mut sent = 0;
    for buf in [0, 3, 3, 0, 3] {
        let mut outbox = VecOutbox::with_limit(buf);
        world.servers[server].core.transmit(now, &mut outbox);
        assert_eq!(outbox.datagrams.len(), buf);
        sent += buf;
        // The slot is not free yet.
        let full = world.servers[server].core.connect_loopback(9, [0; 256], now);
        assert_eq!(full, Err(LoopbackSlotError::Full));
    }
    let mut outbox = VecOutbox::with_limit(9);
    world.servers[server].core.transmit(now, &mut outbox);
    assert_eq!((sent, outbox.datagrams.len()), (9, 1));
    assert!(world.servers[server].core.connect_loopback(9, [0; 256], now).is_ok());

    // The disconnect packets of the client wait as well.
    let mut core = std::mem::replace(&mut world.clients[client].core, NetcodeClient::new(TimeoutPolicy::Clamped));
    core.disconnect();
    let mut sent = Vec::new();
    for buf in [4, 0, 4, 4] {
        let mut outbox = VecOutbox::with_limit(buf);
        core.transmit(now.monotonic, &mut outbox);
        sent.push(outbox.datagrams.len());
    }
    assert_eq!((sent, core.has_unsent_packets()), (vec![4, 0, 4, 2], false));
}

#[test]
fn stale_handle_reaches_no_client() {
    let mut world = NetcodeWorld::perfect(15);
    let server = world.add_server(1);
    let (first, stale) = world.connected_client(1, server);
    world.clients[first].core.disconnect();
    world.run_for(SECOND / 5);
    assert_eq!(world.server_sends(server, stale, &[1]), Err(PayloadError::Gone), "the slot is free");
    let (second, current) = world.connected_client(2, server);
    assert_eq!((stale.slot().0, current.slot().0), (0, 0));
    assert_eq!(world.server_sends(server, stale, &[1]), Err(PayloadError::Gone), "the slot belongs to another client");
    assert!(world.servers[server].core.client(stale).is_none());
    assert!(!world.servers[server].core.disconnect(stale));
    assert_eq!(world.servers[server].core.clients().collect::<Vec<_>>(), [current]);
    world.run_for(SECOND);
    assert_eq!(world.state(second), ClientState::Connected);
    assert_eq!(world.clients[second].received, Vec::<Vec<u8>>::new());
}

#[test]
fn payloads_outside_1_to_1200_bytes_are_refused() {
    let mut world = NetcodeWorld::perfect(16);
    let server = world.add_server(4);
    let (client, handle) = world.connected_client(1, server);
    for bytes in [8, 9, 600, 1199, 1200] {
        let payload = world.payload(bytes);
        world.client_sends(client, &payload).unwrap();
        world.run_for(SECOND / 10);
        assert_eq!(world.clients[client].received.last(), Some(&payload), "{bytes} bytes and their echo");
    }
    world.servers[server].echoes = false;
    assert_eq!(world.client_sends(client, &[7]), Ok(()), "one byte");
    world.run_for(SECOND / 10);
    assert_eq!(world.servers[server].received.last(), Some(&(1, vec![7])));
    for (payload, refused) in [(&[][..], PayloadError::Empty), (&[0; 1201], PayloadError::TooLarge { bytes: 1201 })] {
        assert_eq!(world.server_sends(server, handle, payload), Err(refused));
    }
}

// Slots -------------------------------------------------------------------------------------------------------------

#[test]
fn lowest_free_slot_is_assigned_first() {
    let mut world = NetcodeWorld::perfect(17);
    let server = world.add_server(4);
    let mut raw_clients: Vec<_> = (0..4).map(|id| raw_client(&mut world, id, server)).collect();
    for (index, raw_client) in raw_clients.iter_mut().enumerate() {
        assert_eq!(world.admit_raw(server, raw_client, stranger(index)).slot().0, index as u32);
    }
    for index in [2, 0, 3] {
        let disconnect = raw_clients[index].seal(PacketKind::Disconnect, &[]);
        world.present(server, stranger(index), &disconnect).unwrap();
    }
    for (id, slot) in [(10, 0), (11, 2), (12, 3)] {
        let mut raw_client = raw_client(&mut world, id, server);
        assert_eq!(world.admit_raw(server, &mut raw_client, stranger(id as usize)).slot().0, slot);
    }
}

#[test]
fn server_fills_4096_slots_and_serves_the_last_one() {
    const SLOTS: u32 = 4096;
    let (mut core, mut raw_clients, now) = filled(SLOTS, SLOTS);
    assert_eq!((core.connected_count(), core.clients().last().map(|client| client.slot().0)), (SLOTS, Some(SLOTS - 1)));
    let late = raw_clients.pop().expect("one more");
    core.handle(stranger(SLOTS as usize), &mut late.request(), now).unwrap();
    let reply = sent(&mut core, now).remove(0);
    assert_eq!(late.open(&reply).map(|opened| opened.kind), Some(PacketKind::Denied));
    for index in [0, SLOTS as usize - 1] {
        let mut datagram = raw_clients[index].seal(PacketKind::Payload, &[7; 30]);
        let (client, payload) = core.handle(stranger(index), &mut datagram, now).unwrap().expect("a payload");
        assert_eq!((core.find(index as u64), payload.bytes), (Some(client), &[7; 30][..]));
        assert_eq!(core.find_at(stranger(index)), Some(client));
    }
}

#[test]
fn server_supports_65536_slots() {
    let (core, ..) = filled(65_536, 64);
    assert_eq!((core.connected_count(), core.config().slots), (64, 65_536));
    for slots in [0, 65_537] {
        let config = ServerConfig::new(PROTOCOL_ID, slots, &[stranger(0).socket_addr()]);
        let started = NetcodeServer::new(config, Key::from([1; 32]).into(), &Seed::from([1; 32]), Now::default());
        assert_eq!(started.err(), Some(ServerConfigError::Slots));
    }
}

/// Creates a full server with `clients` clients, and one more raw client that has not sent a request yet.
fn filled(slots: u32, clients: u32) -> (NetcodeServer, Vec<RawClient>, Now) {
    let mut world = NetcodeWorld::perfect(18);
    let server_address = address("10.0.0.1:40000");
    let (keys, seed, now) = (world.private_key.clone().into(), Seed::from([1; 32]), world.now());
    let mut config = ServerConfig::new(PROTOCOL_ID, slots, &[server_address.socket_addr()]);
    let budgets = &mut config.budgets;
    (budgets.decrypts, budgets.strangers_per_turn, budgets.responses_per_turn) = (u32::MAX, u32::MAX, u32::MAX);
    let mut core = NetcodeServer::new(config, keys, &seed, now).unwrap();
    let mut raw_clients: Vec<_> =
        (0..=clients).map(|id| RawClient::new(&world.mint(&to(server_address, u64::from(id))))).collect();
    for (index, raw_client) in raw_clients.iter_mut().enumerate().take(clients as usize) {
        core.handle(stranger(index), &mut raw_client.request(), now).unwrap();
        let challenge = raw_client.challenge(&sent(&mut core, now)[0]).expect("a challenge");
        core.handle(stranger(index), &mut raw_client.response(&challenge), now).unwrap();
        sent(&mut core, now);
        assert!(
            matches!(core.poll_event(), Some(NetcodeEvent::Connected { client_id, .. }) if client_id.0 == index as u64)
        );
    }
    (core, raw_clients, now)
}

fn to(server: Address, client_id: u64) -> TokenSpec {
    TokenSpec { client_id, servers: vec![server], lifetime: 30, timeout: 5, user_data: [0; 256] }
}

fn sent(core: &mut NetcodeServer, now: Now) -> Vec<Vec<u8>> {
    let mut outbox = VecOutbox::default();
    core.transmit(now, &mut outbox);
    outbox.datagrams.into_iter().map(|(_, datagram)| datagram).collect()
}

#[test]
fn ipv6_connection_ignores_the_address_scope() {
    let mut world = NetcodeWorld::perfect(19);
    let server_address = address("[2001:db8::7]:40000");
    let server = world.add_server_with(4, |config| {
        config.token_cutoff = TokenCutoff::None;
        config.advertised = vec![server_address.socket_addr()];
    });
    world.servers[server].address = server_address;
    let client = world.add_client_at(address("[2001:db8:1::9]:5000"));
    let token = world.token(1, &[server]);
    world.connect(client, token);
    world.run_until(SECOND, |world| world.state(client) == ClientState::Connected);
    let payload = world.payload(100);
    world.client_sends(client, &payload).unwrap();
    world.run_for(SECOND / 10);
    assert_eq!(world.clients[client].received, [payload]);

    let mut local = raw_client(&mut world, 2, server);
    world.admit_raw(server, &mut local, address("[fe80::1%3]:5000"));
    let keep_alive = local.keep_alive();
    assert_eq!(world.present(server, address("[fe80::1%8]:5000"), &keep_alive), Ok(None));
}

// Clients in the same process --------------------------------------------------------------------------------------

#[test]
fn in_process_client_holds_a_slot_without_packets() {
    let mut world = NetcodeWorld::perfect(20);
    let server = world.add_server(2);
    let now = world.now();
    let host = world.servers[server].core.connect_loopback(77, [5; 256], now).unwrap();
    let mut client = NetcodeClient::new(TimeoutPolicy::Clamped);
    client.connect_loopback(host.slot().0, 2).unwrap();
    assert_eq!(
        client.poll_event(),
        Some(client::NetcodeClientEvent::Connected { client_index: 0.into(), max_clients: 2 })
    );
    assert_eq!(
        world.servers[server].core.poll_event(),
        Some(NetcodeEvent::Connected { client: host, client_id: 77.into() })
    );
    let info = world.servers[server].core.client(host).unwrap();
    assert_eq!((info.client_id.0, info.address, *info.user_data), (77, None, [5; 256]));

    let (guest, _) = world.connected_client(1, server);
    let late = raw_client(&mut world, 2, server);
    world.present(server, stranger(2), &late.request()).unwrap();
    assert_eq!(
        kinds(&received_packets(&mut world, &late, stranger(2))),
        [PacketKind::Denied],
        "two slots, two clients"
    );

    let mut buffer = [0; MAX_PAYLOAD_BYTES];
    world.servers[server].core.loopback_send(host, b"from the host").unwrap();
    assert_eq!(world.servers[server].core.poll_loopback(&mut buffer), Some((host, 13)));
    assert_eq!(&buffer[..13], b"from the host");
    world.server_sends(server, host, b"to the host").unwrap();
    assert_eq!(world.servers[server].core.loopback_receive(host, &mut buffer), Some(11));
    assert_eq!(&buffer[..11], b"to the host");
    assert_eq!(world.servers[server].core.loopback_receive(host, &mut buffer), None);

    world.run_for(120 * SECOND);
    assert!(world.servers[server].core.client(host).is_some(), "it never times out");
    assert_eq!(world.state(guest), ClientState::Connected);
    assert!(world.servers[server].core.disconnect(host));
    world.turn();
    assert_eq!(world.servers[server].disconnects(), [(77, DisconnectReason::Kicked)]);
    assert_eq!(world.servers[server].core.loopback_send(host, &[1]), Err(PayloadError::Gone));
    assert_eq!(world.servers[server].core.poll_loopback(&mut buffer), None);
    client.disconnect();
    let ended = client::NetcodeClientEvent::Ended { reason: client::EndReason::Left };
    assert_eq!((client.poll_event(), client.state()), (Some(ended), ClientState::Disconnected));
}

#[test]
fn in_process_client_is_refused_like_a_remote_one() {
    let mut world = NetcodeWorld::perfect(21);
    let server = world.add_server(2);
    let now = world.now();
    let (_, networked) = world.connected_client(1, server);
    let connect = |world: &mut NetcodeWorld, id| world.servers[server].core.connect_loopback(id, [0; 256], now);
    assert_eq!(connect(&mut world, 1), Err(LoopbackSlotError::ClientIdConnected));
    let host = connect(&mut world, 2).unwrap();
    assert_eq!(connect(&mut world, 2), Err(LoopbackSlotError::ClientIdConnected));
    assert_eq!(connect(&mut world, 3), Err(LoopbackSlotError::Full));
    let same_id = raw_client(&mut world, 2, server);
    assert_eq!(world.present(server, stranger(2), &same_id.request()), Err(Discard::ClientIdConnected));
    assert_eq!(world.servers[server].core.loopback_send(networked, &[1]), Err(PayloadError::Gone));
    world.servers[server].core.disconnect(host);
    world.servers[server].core.accept_new_clients(false);
    assert_eq!(connect(&mut world, 3), Err(LoopbackSlotError::Full));
}

#[test]
fn in_process_client_replaces_a_pending_one_of_its_id() {
    let mut world = NetcodeWorld::perfect(22);
    let server = world.add_server(2);
    let mut pending = raw_client(&mut world, 1, server);
    let challenge = world.request_challenge(server, &pending, stranger(1));
    let now = world.now();
    world.servers[server].core.connect_loopback(1, [0; 256], now).unwrap();
    assert_eq!(world.present(server, stranger(1), &pending.response(&challenge)), Err(Discard::UnknownSender));
    assert_eq!(world.servers[server].core.connected_count(), 1);
}

#[test]
fn in_process_queues_are_bounded_and_readable_after_the_end() {
    let mut world = NetcodeWorld::perfect(23);
    let server = world.add_server(1);
    let now = world.now();
    let mut buffer = [0; MAX_PAYLOAD_BYTES];
    let core = &mut world.servers[server].core;
    let mut before = None;
    for round in 0..3 {
        let host = core.connect_loopback(round, [0; 256], now).unwrap();
        for _ in 0..QUEUE_PAYLOADS {
            core.loopback_send(host, &[round as u8; 40]).unwrap();
            core.send(host, &[round as u8; 40], now, &mut VecOutbox::default()).unwrap();
        }
        assert_eq!(core.loopback_send(host, &[1]), Err(PayloadError::Backlogged));
        assert_eq!(core.send(host, &[1], now, &mut VecOutbox::default()), Err(PayloadError::Backlogged));
        core.disconnect(host);
        while core.poll_event().is_some() {}
        if let Some(before) = before.replace(host) {
            assert_eq!(core.loopback_receive(before, &mut buffer), None, "another client has used its slot since");
        }
        if round > 0 {
            let taken = std::iter::from_fn(|| core.loopback_receive(host, &mut buffer)).count();
            assert_eq!(taken, QUEUE_PAYLOADS, "the payloads sent before its disconnect");
        }
        assert_eq!(core.poll_loopback(&mut buffer), None, "payloads of a disconnected client are dropped");
    }
    // The next client in the slot does not send for the one before.
    let gone = core.connect_loopback(7, [0; 256], now).unwrap();
    core.loopback_send(gone, &[7; 7]).unwrap();
    core.disconnect(gone);
    while core.poll_event().is_some() {}
    let next = core.connect_loopback(8, [0; 256], now).unwrap();
    core.loopback_send(next, &[8; 8]).unwrap();
    assert_eq!(core.poll_loopback(&mut buffer), Some((next, 8)));
    assert_eq!(core.poll_loopback(&mut buffer), None);
}
