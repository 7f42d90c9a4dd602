//! Clients: every state, every server that they try, and the end of each attempt.

use std::time::Duration;

use slipgate_netcode::PayloadError;
use slipgate_netcode::address::Address;
use slipgate_netcode::client::{ClientState, ConnectError, EndReason, NetcodeClient, NetcodeClientEvent};
use slipgate_netcode::crypto::packet::PacketCipher;
use slipgate_netcode::discard::Discard;
use slipgate_netcode::server::DisconnectReason;
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::wire::MAX_DATAGRAM_BYTES;
use slipgate_netcode::wire::packet::{KeepAlive, PacketHeader, PacketKind, REQUEST_PREFIX};
use slipgate_sim::Conditions;
use slipgate_tests::conditions;
use slipgate_tests::netcode_world::{ClientId, NetcodeWorld, PROTOCOL_ID, TURN, TokenSpec, VecOutbox, address};

const SECOND: Duration = Duration::from_secs(1);

fn states(world: &NetcodeWorld, client: ClientId) -> &[ClientState] {
    &world.clients[client].states
}

fn events(world: &NetcodeWorld, client: ClientId) -> Vec<NetcodeClientEvent> {
    world.clients[client].events.iter().map(|(_, event)| *event).collect()
}

fn ended(reason: EndReason) -> NetcodeClientEvent {
    NetcodeClientEvent::Ended { reason }
}

fn no_client(number: u8) -> Address {
    address(&format!("10.99.0.{number}:40000"))
}

/// Adds a client that connects with a token for these addresses.
fn on_its_way(world: &mut NetcodeWorld, spec: &TokenSpec) -> ClientId {
    let (client, token) = (world.add_client(), world.mint(spec));
    world.connect(client, token);
    client
}

fn without_server(addresses: &[Address], timeout: i32, lifetime: u32) -> TokenSpec {
    TokenSpec { client_id: 1, servers: addresses.to_vec(), lifetime, timeout, user_data: [0; 256] }
}

fn cut() -> Conditions {
    Conditions { loss: conditions::loss(100.0), ..Conditions::perfect() }
}

fn requests(world: &NetcodeWorld, client: ClientId) -> usize {
    let from = world.clients[client].address;
    let is_request = |datagram: &[u8]| datagram.first() == Some(&REQUEST_PREFIX);
    world.sent().iter().filter(|(at, _, datagram)| *at == from && is_request(datagram)).count()
}

// The ten states ----------------------------------------------------------------------------------------------------

#[test]
fn client_passes_all_states_of_a_connection() {
    let mut world = NetcodeWorld::perfect(1);
    let server = world.add_server(4);
    let (client, _) = world.connected_client(1, server);
    world.clients[client].core.disconnect();
    world.turn();
    use ClientState::{Connected, Disconnected, SendingRequest, SendingResponse};
    assert_eq!(states(&world, client), [Disconnected, SendingRequest, SendingResponse, Connected, Disconnected]);
    let expected = [NetcodeClientEvent::Connected { client_index: 0.into(), max_clients: 4 }, ended(EndReason::Left)];
    assert_eq!(events(&world, client), expected);
}

#[test]
fn client_without_a_reply_ends_in_request_timed_out() {
    let mut world = NetcodeWorld::perfect(2);
    let client = on_its_way(&mut world, &without_server(&[no_client(1), no_client(2), no_client(3)], 1, 30));
    world.run_for(SECOND * 29 / 10);
    assert_eq!(world.state(client), ClientState::SendingRequest);
    assert_eq!(world.clients[client].core.server(), Some(no_client(3)));
    world.run_for(SECOND / 5);
    assert_eq!(world.state(client), ClientState::RequestTimedOut);
    assert_eq!(events(&world, client), [ended(EndReason::RequestTimedOut)]);
}

#[test]
fn client_with_lost_responses_ends_in_response_timed_out() {
    let mut world = NetcodeWorld::perfect(3);
    let server = world.add_server(4);
    let spec = TokenSpec { timeout: 1, ..world.spec(1, &[server]) };
    let client = on_its_way(&mut world, &spec);
    world.run_until(SECOND, |world| world.state(client) == ClientState::SendingResponse);
    world.set_conditions(cut());
    world.run_for(SECOND * 11 / 10);
    assert_eq!(events(&world, client), [ended(EndReason::ResponseTimedOut)]);
    assert_eq!(world.state(client), ClientState::ResponseTimedOut);
}

#[test]
fn silent_connection_times_out_on_both_sides() {
    let mut world = NetcodeWorld::perfect(4);
    let server = world.add_server(4);
    let (client, _) = world.connected_client(1, server);
    world.set_conditions(cut());
    world.run_for(SECOND * 51 / 10);
    assert_eq!(world.state(client), ClientState::TimedOut);
    assert_eq!(events(&world, client).last(), Some(&ended(EndReason::TimedOut)));
    assert_eq!(world.servers[server].disconnects(), [(1, DisconnectReason::TimedOut)]);
    // The server says goodbye, in case that its packets still arrive. The client does not.
    let is_disconnect = |datagram: &[u8]| datagram.first().is_some_and(|prefix| prefix & 0x0f == 6);
    let goodbyes: Vec<_> = world.sent().iter().filter(|(.., datagram)| is_disconnect(datagram)).collect();
    assert!(goodbyes.len() == 10 && goodbyes.iter().all(|(from, ..)| *from == world.servers[server].address));
}

#[test]
fn client_that_the_server_timed_out_learns_of_it_at_once() {
    let mut world = NetcodeWorld::perfect(19);
    let server = world.add_server(4);
    let (client, _) = world.connected_client(1, server);
    // Only the path to the server is broken: what the client sends comes from an address without a program.
    let own_address = std::mem::replace(&mut world.clients[client].address, no_client(7));
    let mut since = world.monotonic();
    while world.servers[server].core.connected_count() == 1 {
        let packet = world.sent().len();
        world.turn();
        let to_client: Vec<_> =
            world.sent()[packet..].iter().filter(|(_, to, _)| *to == own_address).cloned().collect();
        for (from, _, mut datagram) in to_client {
            let now = world.monotonic();
            let _ = world.clients[client].core.handle(from, &mut datagram, now);
        }
        assert!(world.monotonic().since(since) < 6 * SECOND);
    }
    assert_eq!(world.servers[server].disconnects(), [(1, DisconnectReason::TimedOut)]);
    since = world.monotonic();
    assert_eq!(world.clients[client].core.end_reason(), Some(EndReason::DisconnectedByServer), "{since:?}");
}

#[test]
fn client_that_slept_learns_of_its_end_within_a_second() {
    // The client is stopped for 8 s. The server's packets of the first 5 s wait in its socket, but not the goodbye.
    for (waiting, ends_after) in [(true, 1), (false, 0)] {
        let mut world = NetcodeWorld::perfect(20);
        let server = world.add_server(4);
        let (client, handle) = world.connected_client(1, server);
        world.run_for(SECOND);
        let (at, now) = (world.servers[server].address, world.now());
        let mut outbox = VecOutbox::default();
        for number in 0..50_u8 {
            world.servers[server].core.send(handle, &[number; 9], now, &mut outbox).unwrap();
        }
        let awake = now.monotonic.after(8 * SECOND);
        let core = &mut world.clients[client].core;
        core.tick(now.monotonic);
        for (_, mut datagram) in outbox.datagrams.into_iter().filter(|_| waiting) {
            core.handle(at, &mut datagram, awake).unwrap();
        }
        let almost = awake.after(ends_after * SECOND - SECOND / 50 * ends_after);
        if ends_after > 0 {
            core.tick(almost);
            assert_eq!(core.state(), ClientState::Connected);
        }
        core.tick(awake.after(ends_after * SECOND));
        assert_eq!(core.end_reason(), Some(EndReason::TimedOut), "waiting: {waiting}");
    }
}

#[test]
fn goodbye_after_a_sleep_as_long_as_the_timeout_is_a_timeout() {
    use EndReason::{DisconnectedByServer, TimedOut};
    // A server has timed a client out that sent nothing for 5 s. The last packet left up to 0.1 s before the sleep.
    for (millis, reason) in [(4_800, DisconnectedByServer), (4_900, TimedOut), (60_000, TimedOut)] {
        let mut world = NetcodeWorld::perfect(23);
        let server = world.add_server(4);
        let (client, handle) = world.connected_client(1, server);
        world.run_for(SECOND);
        let (at, now) = (world.servers[server].address, world.now());
        assert!(world.servers[server].core.disconnect(handle));
        let mut outbox = VecOutbox::default();
        world.servers[server].core.transmit(now, &mut outbox);
        let core = &mut world.clients[client].core;
        core.tick(now.monotonic);
        let awake = now.monotonic.after(Duration::from_millis(millis));
        core.handle(at, &mut outbox.datagrams[0].1, awake).unwrap();
        assert_eq!(core.end_reason(), Some(reason), "{millis} ms");
    }
}

#[test]
fn client_was_asleep_after_more_than_a_second_without_a_tick() {
    for (millis, was_asleep) in [(1_000, false), (1_001, true)] {
        let mut world = NetcodeWorld::perfect(22);
        let server = world.add_server(4);
        let (client, handle) = world.connected_client(1, server);
        world.run_for(SECOND);
        let (at, now) = (world.servers[server].address, world.now());
        let mut outbox = VecOutbox::default();
        world.servers[server].core.send(handle, &[1; 9], now, &mut outbox).unwrap();
        let core = &mut world.clients[client].core;
        core.tick(now.monotonic);
        let awake = now.monotonic.after(Duration::from_millis(millis));
        core.handle(at, &mut outbox.datagrams[0].1, awake).unwrap();
        // A packet that may have waited in the sleep proves nothing about the time after it.
        for half_second in 0..=9 {
            core.tick(awake.after(half_second * SECOND / 2));
        }
        assert_eq!(core.end_reason().is_some(), was_asleep, "{millis} ms");
    }
}

#[test]
fn client_that_slept_stays_connected_while_the_server_sends() {
    let mut world = NetcodeWorld::perfect(21);
    let server = world.add_server(4);
    let (client, handle) = world.connected_client(1, server);
    world.run_for(SECOND);
    let (at, mut now) = (world.servers[server].address, world.now());
    world.clients[client].core.tick(now.monotonic);
    // Stopped for 4.9 s, and then for 20 s with a packet each half second.
    for step in [4900].into_iter().chain([500; 40]) {
        let mut outbox = VecOutbox::default();
        world.servers[server].core.send(handle, &[1; 9], now, &mut outbox).unwrap();
        now.monotonic = now.monotonic.after(Duration::from_millis(step));
        let core = &mut world.clients[client].core;
        for (_, datagram) in &mut outbox.datagrams {
            let _ = core.handle(at, datagram, now.monotonic);
        }
        core.tick(now.monotonic);
        assert_eq!(core.state(), ClientState::Connected);
    }
}

#[test]
fn client_asks_again_while_responding_and_takes_new_challenges() {
    let mut world = NetcodeWorld::perfect(22);
    let server = world.add_server_with(4, |config| {
        config.token_cutoff = slipgate_netcode::server::TokenCutoff::None;
        config.pending_clients = 1;
    });
    let (client, token) = (world.add_client(), world.token(1, &[server]));
    world.connect(client, token);
    world.run_until(SECOND, |world| world.state(client) == ClientState::SendingResponse);
    // The response is lost for more than a second, and another client takes the only pending entry.
    world.set_conditions(cut());
    let before = requests(&world, client);
    world.run_for(SECOND * 12 / 10);
    let asked = requests(&world, client) - before;
    assert!((3..=5).contains(&asked), "each third of 12 packets is a request: {asked}");
    let other = slipgate_tests::raw_client::RawClient::new(&world.token(2, &[server]));
    world.present(server, no_client(3), &other.request()).unwrap();
    assert_eq!(world.servers[server].core.table_usage().pending, 1);
    world.set_conditions(Conditions::perfect());
    world.run_until(SECOND * 3 / 2, |world| world.state(client) == ClientState::Connected);
    // A challenge again and again does not hold the client: it gives up after the timeout.
    let responding = ClientState::SendingResponse;
    assert_eq!(states(&world, client).iter().filter(|state| **state == responding).count(), 1);
}

#[test]
fn client_denied_by_all_servers_ends_in_denied() {
    let mut world = NetcodeWorld::perfect(5);
    let servers = [world.add_server(1), world.add_server(1)];
    for (id, server) in servers.into_iter().enumerate() {
        world.connected_client(100 + id as u64, server);
    }
    let spec = world.spec(1, &servers);
    let client = on_its_way(&mut world, &spec);
    world.run_for(SECOND / 2);
    assert_eq!(world.state(client), ClientState::Denied);
    assert_eq!(events(&world, client), [ended(EndReason::Denied)]);
    assert_eq!(requests(&world, client), 2, "one request to each server, at once");
}

#[test]
fn client_denied_by_a_full_server_tries_the_next_one() {
    let mut world = NetcodeWorld::perfect(6);
    let servers = [world.add_server(1), world.add_server(2)];
    world.connected_client(100, servers[0]);
    let spec = world.spec(1, &servers);
    let client = on_its_way(&mut world, &spec);
    world.run_until(SECOND / 2, |world| world.state(client) == ClientState::Connected);
    assert_eq!(world.clients[client].core.server(), Some(world.servers[servers[1]].address));
    assert_eq!(world.clients[client].core.slot_info().map(|(_, slots)| slots), Some(2));
}

#[test]
fn closed_server_denies_new_clients_and_keeps_the_connected() {
    let mut world = NetcodeWorld::perfect(7);
    let servers = [world.add_server(4), world.add_server(4)];
    let (before, _) = world.connected_client(100, servers[0]);
    world.servers[servers[0]].core.accept_new_clients(false);
    let spec = world.spec(1, &servers);
    let client = on_its_way(&mut world, &spec);
    world.run_until(SECOND / 2, |world| world.state(client) == ClientState::Connected);
    assert_eq!(world.clients[client].core.server(), Some(world.servers[servers[1]].address));
    world.run_for(10 * SECOND);
    assert_eq!(world.state(before), ClientState::Connected);
    world.servers[servers[0]].core.accept_new_clients(true);
    world.connected_client(101, servers[0]);
}

#[test]
fn pending_client_of_a_closed_server_tries_the_next_one() {
    let mut world = NetcodeWorld::perfect(8);
    let servers = [world.add_server(4), world.add_server(4)];
    let spec = world.spec(1, &servers);
    let client = on_its_way(&mut world, &spec);
    world.run_until(SECOND, |world| world.state(client) == ClientState::SendingResponse);
    world.servers[servers[0]].core.accept_new_clients(false);
    world.run_until(SECOND, |world| world.state(client) == ClientState::Connected);
    assert_eq!(world.clients[client].core.server(), Some(world.servers[servers[1]].address));
}

#[test]
fn token_lifetime_covers_the_attempts_at_all_servers() {
    let mut world = NetcodeWorld::perfect(9);
    let addresses = [no_client(1), no_client(2), no_client(3), no_client(4)];
    let client = on_its_way(&mut world, &without_server(&addresses, 2, 5));
    world.run_for(SECOND * 49 / 10);
    assert_eq!(world.clients[client].core.server(), Some(no_client(3)));
    world.run_for(SECOND / 5);
    assert_eq!(world.state(client), ClientState::TokenExpired);
    assert_eq!(events(&world, client), [ended(EndReason::TokenExpired)]);
    assert!(world.sent().iter().all(|(_, to, _)| *to != no_client(4)));
}

#[test]
fn token_expiry_does_not_affect_a_connected_client() {
    let mut world = NetcodeWorld::perfect(10);
    let server = world.add_server(4);
    let spec = TokenSpec { lifetime: 2, ..world.spec(1, &[server]) };
    let client = on_its_way(&mut world, &spec);
    world.run_for(10 * SECOND);
    assert_eq!(world.state(client), ClientState::Connected);
}

#[test]
fn unreachable_addresses_are_skipped_or_end_in_invalid_token() {
    let mut world = NetcodeWorld::perfect(11);
    let server = world.add_server(4);
    let undialable = [address("0.0.0.0:40000"), address("10.0.0.1:0"), address("[ff02::1]:5")];
    let (client, token) = (world.add_client(), world.mint(&without_server(&undialable, 5, 30)));
    let now = world.monotonic();
    assert_eq!(world.clients[client].core.connect(token, now, |_| true), Err(ConnectError::NoServer));
    assert_eq!(world.state(client), ClientState::InvalidToken);
    let mixed = [undialable[0], world.servers[server].address, undialable[1]];
    let spec = TokenSpec { servers: mixed.to_vec(), ..world.spec(1, &[server]) };
    let client = on_its_way(&mut world, &spec);
    world.run_until(SECOND, |world| world.state(client) == ClientState::Connected);
}

#[test]
fn client_states_have_standard_numbers_and_player_texts() {
    let codes: Vec<i8> = ClientState::ALL.iter().map(|state| *state as i8).collect();
    assert_eq!(codes, (-6..=3).collect::<Vec<i8>>());
    for state in ClientState::ALL {
        assert!(state.to_string().ends_with('.'), "{state:?}");
        assert_eq!(state.is_active(), state as i8 > 0);
    }
}

// The attempt ---------------------------------------------------------------------------------------------------------

#[test]
fn requests_are_sent_at_once_and_then_ten_per_second() {
    let mut world = NetcodeWorld::perfect(12);
    let client = on_its_way(&mut world, &without_server(&[no_client(1)], 5, 30));
    world.turn();
    assert_eq!(requests(&world, client), 1);
    world.run_for(SECOND);
    // A turn of 16 ms turns 100 ms into 112 ms.
    assert!((9..=11).contains(&requests(&world, client)), "{}", requests(&world, client));
}

#[test]
fn response_is_sent_in_the_turn_of_the_challenge() {
    let mut world = NetcodeWorld::perfect(13);
    let server = world.add_server(4);
    let spec = world.spec(1, &[server]);
    let client = on_its_way(&mut world, &spec);
    // Request, challenge, response, keep-alive: each is sent in one turn and arrives in the next.
    world.run_for(5 * TURN);
    assert_eq!(world.state(client), ClientState::Connected);
}

#[test]
fn next_server_is_tried_at_once_with_continued_sequence() {
    let mut world = NetcodeWorld::perfect(14);
    let full = world.add_server(1);
    let silent = world.add_server(1);
    world.connected_client(100, full);
    let spec = TokenSpec { timeout: 1, ..world.spec(1, &[full, silent]) };
    world.crash(silent);
    let client = on_its_way(&mut world, &spec);
    world.run_for(5 * TURN);
    assert_eq!(requests(&world, client), 2, "the second server in the turn of the denial");
    world.restart(silent, None, |_| {});
    world.run_until(SECOND, |world| world.state(client) == ClientState::Connected);
    let at = world.clients[client].address;
    let sealed = world.sent().iter().find(|(from, _, datagram)| *from == at && datagram[0] != REQUEST_PREFIX);
    let (.., response) = sealed.expect("a response");
    let header = PacketHeader::parse(response, PacketKind::TO_SERVER).unwrap();
    assert!(header.sequence >= 2, "requests use sequence numbers without showing them: {}", header.sequence);
}

#[test]
fn client_accepts_only_packets_of_its_current_server() {
    let mut world = NetcodeWorld::perfect(15);
    let servers = [world.add_server(4), world.add_server(4)];
    let token = world.token(1, &servers);
    let client = world.add_client();
    world.connect(client, token);
    world.run_until(SECOND, |world| world.state(client) == ClientState::Connected);
    world.run_for(SECOND / 10);
    let (second, client_at) = (world.servers[servers[1]].address, world.clients[client].address);
    let from_first = world.sent().iter().rfind(|(_, to, _)| *to == client_at).cloned().unwrap().2;
    world.inject(second, client_at, &from_first);
    world.inject(no_client(9), client_at, &[0x16; 18]);
    world.turn();
    assert_eq!(world.clients[client].core.discards()[Discard::UnknownSender], 2);
}

#[test]
fn client_refuses_a_slot_at_or_above_the_number_of_slots() {
    for (client_index, max_clients, connects) in
        [(0, 0, false), (4, 4, false), (7, 4, false), (u32::MAX, u32::MAX, false), (3, 4, true), (0, 1, true)]
    {
        let mut world = NetcodeWorld::perfect(18);
        let client = world.add_client();
        let (hostile, token) = (no_client(1), world.mint(&without_server(&[no_client(1)], 5, 30)));
        let key = token.keys().server_to_client;
        let cipher = PacketCipher::new(PROTOCOL_ID);
        world.connect(client, token);
        world.turn();
        let mut from_server = |kind, sequence, content: &[u8]| {
            let mut datagram = [0; MAX_DATAGRAM_BYTES];
            let bytes = cipher.seal(&key, kind, sequence, content, &mut datagram).unwrap();
            let now = world.monotonic();
            world.clients[client].core.handle(hostile, &mut datagram[..bytes], now).map(|_| ())
        };
        assert_eq!(from_server(PacketKind::Challenge, 1 << 63, &[7; 308]), Ok(()));
        let slot = KeepAlive { client_index: client_index.into(), max_clients };
        let handled = from_server(PacketKind::KeepAlive, 0, &slot.to_bytes());
        assert_eq!(handled, if connects { Ok(()) } else { Err(Discard::SlotOutOfRange) }, "{slot:?}");
        assert_eq!(world.state(client) == ClientState::Connected, connects, "{slot:?}");
    }
}

#[test]
fn client_refuses_requests_junk_and_early_packets() {
    let mut world = NetcodeWorld::perfect(16);
    let server = world.add_server(4);
    let (client, handle) = world.connected_client(1, server);
    let (server_at, client_at) = (world.servers[server].address, world.clients[client].address);
    let request = world.sent()[0].2.clone();
    let challenge = world.sent().iter().find(|(from, ..)| *from == server_at).unwrap().2.clone();
    let count = |world: &NetcodeWorld, reason| world.clients[client].core.discards()[reason];
    for (datagram, reason) in [
        (Vec::new(), Discard::Empty),
        (request, Discard::UnexpectedType),
        (vec![0x14; 17], Discard::TooShort),
        (vec![0x17; 60], Discard::UnknownType),
        (vec![0x13; 326], Discard::UnexpectedType),
        (vec![0x95; 60], Discard::SequenceLength),
        (vec![0x15; 1226], Discard::TooLong),
        (challenge, Discard::Replayed),
    ] {
        let before = count(&world, reason);
        world.inject(server_at, client_at, &datagram);
        world.turn();
        assert_eq!(count(&world, reason), before + 1, "{reason}");
    }
    assert_eq!(world.state(client), ClientState::Connected);
    // A payload that overtakes the first keep-alive is lost, not delivered early.
    world.servers[server].core.disconnect(handle);
    world.run_for(SECOND / 10);
    world.inject(server_at, client_at, &[0x15; 60]);
    world.turn();
    assert_eq!(count(&world, Discard::NotRunning), 10, "nine more disconnect packets, and this one");
}

#[test]
fn invalid_client_call_is_an_error_without_effect() {
    let mut world = NetcodeWorld::perfect(17);
    let server = world.add_server(4);
    let (client, _) = world.connected_client(1, server);
    let (now, token) = (world.monotonic(), world.token(2, &[server]));
    assert_eq!(world.clients[client].core.connect(token, now, |_| true), Err(ConnectError::Busy));
    assert_eq!(world.clients[client].core.connect_loopback(0, 1), Err(ConnectError::Busy));
    assert_eq!(world.client_sends(client, &[]), Err(PayloadError::Empty));
    assert_eq!(world.client_sends(client, &[0; 1201]), Err(PayloadError::TooLarge { bytes: 1201 }));
    let largest = world.payload(1200);
    assert_eq!(world.client_sends(client, &largest), Ok(()));
    assert_eq!(world.state(client), ClientState::Connected);
    let idle = world.add_client();
    assert_eq!(world.client_sends(idle, &[1]), Err(PayloadError::Gone));
}

#[test]
fn client_reports_its_next_deadline() {
    let mut client = NetcodeClient::new(TimeoutPolicy::Clamped);
    assert_eq!(client.next_deadline(), None);
    let mut world = NetcodeWorld::perfect(18);
    let token = world.mint(&without_server(&[no_client(1)], 1, 30));
    let start = world.monotonic();
    client.connect(token, start, |_| true).unwrap();
    let (mut now, mut wakes) = (start, 0);
    while client.state().is_active() {
        now = client.next_deadline().expect("an active client has a deadline");
        client.tick(now);
        client.transmit(now, &mut VecOutbox::default());
        wakes += 1;
    }
    assert_eq!(client.state(), ClientState::RequestTimedOut);
    assert_eq!(now, start.after(SECOND), "woken exactly at the timeout");
    assert_eq!(wakes, 11, "ten requests and the end, and no extra wake-up");
}

#[test]
fn kick_and_leave_have_different_reasons_on_the_client() {
    let mut world = NetcodeWorld::perfect(90);
    let server = world.add_server(4);
    let (kicked, handle) = world.connected_client(1, server);
    let (leaving, _) = world.connected_client(2, server);
    assert!(world.servers[server].core.disconnect(handle));
    world.clients[leaving].core.disconnect();
    world.run_for(SECOND);
    for (client, reason) in [(kicked, EndReason::DisconnectedByServer), (leaving, EndReason::Left)] {
        assert_eq!(world.state(client), ClientState::Disconnected);
        assert_eq!(world.clients[client].core.end_reason(), Some(reason));
        assert_eq!(events(&world, client).last(), Some(&ended(reason)));
    }
}
