//! Stories of a client: every state it comes to, every server it tries, and how each attempt ends.

use std::time::Duration;

use slipgate_netcode::PayloadError;
use slipgate_netcode::address::Address;
use slipgate_netcode::client::{Client, ClientState, ConnectError, EndReason, Event};
use slipgate_netcode::discard::Discard;
use slipgate_netcode::server::DisconnectReason;
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::wire::packet::{Header, PacketKind, REQUEST_PREFIX};
use slipgate_tests::world::{ClientId, Collected, Conditions, TURN, TokenSpec, World, address};

const SECOND: Duration = Duration::from_secs(1);

fn states(world: &World, client: ClientId) -> &[ClientState] {
    &world.clients[client].states
}

fn events(world: &World, client: ClientId) -> Vec<Event> {
    world.clients[client].events.iter().map(|(_, event)| *event).collect()
}

fn ended(reason: EndReason) -> Event {
    Event::Ended { reason }
}

fn nobody(number: u8) -> Address {
    address(&format!("10.99.0.{number}:40000"))
}

/// A client on its way with a token for these addresses.
fn on_its_way(world: &mut World, spec: &TokenSpec) -> ClientId {
    let (client, token) = (world.add_client(), world.mint(spec));
    world.connect(client, token);
    client
}

fn to_nobody(addresses: &[Address], timeout: i32, lifetime: u32) -> TokenSpec {
    TokenSpec { client_id: 1, servers: addresses.to_vec(), lifetime, timeout, user_data: [0; 256] }
}

fn cut() -> Conditions {
    Conditions { loss_percent: 100.0, ..Conditions::perfect() }
}

fn requests(world: &World, client: ClientId) -> usize {
    let from = world.clients[client].address;
    let is_request = |datagram: &[u8]| datagram.first() == Some(&REQUEST_PREFIX);
    world.sent().iter().filter(|(at, _, datagram)| *at == from && is_request(datagram)).count()
}

// The ten states ----------------------------------------------------------------------------------------------------

#[test]
fn a_client_goes_from_disconnected_over_request_and_response_to_connected_and_back() {
    let mut world = World::perfect(1);
    let server = world.add_server(4);
    let (client, _) = world.connected_client(1, server);
    world.clients[client].core.disconnect();
    world.turn();
    use ClientState::{Connected, Disconnected, SendingRequest, SendingResponse};
    assert_eq!(states(&world, client), [Disconnected, SendingRequest, SendingResponse, Connected, Disconnected]);
    let expected = [Event::Connected { client_index: 0, max_clients: 4 }, ended(EndReason::Left)];
    assert_eq!(events(&world, client), expected);
}

#[test]
fn a_client_that_no_server_answers_ends_in_request_timed_out() {
    let mut world = World::perfect(2);
    let client = on_its_way(&mut world, &to_nobody(&[nobody(1), nobody(2), nobody(3)], 1, 30));
    world.run_for(SECOND * 29 / 10);
    assert_eq!(world.state(client), ClientState::SendingRequest);
    assert_eq!(world.clients[client].core.server(), Some(nobody(3)));
    world.run_for(SECOND / 5);
    assert_eq!(world.state(client), ClientState::RequestTimedOut);
    assert_eq!(events(&world, client), [ended(EndReason::RequestTimedOut)]);
}

#[test]
fn a_client_whose_responses_are_lost_ends_in_response_timed_out() {
    let mut world = World::perfect(3);
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
fn a_connected_client_that_hears_nothing_ends_in_timed_out_and_so_does_its_slot() {
    let mut world = World::perfect(4);
    let server = world.add_server(4);
    let (client, _) = world.connected_client(1, server);
    world.set_conditions(cut());
    world.run_for(SECOND * 51 / 10);
    assert_eq!(world.state(client), ClientState::TimedOut);
    assert_eq!(events(&world, client).last(), Some(&ended(EndReason::TimedOut)));
    assert_eq!(world.servers[server].ends(), [(1, DisconnectReason::TimedOut)]);
    // No disconnect packets on a time-out, from neither side.
    let is_disconnect = |datagram: &[u8]| datagram.first().is_some_and(|prefix| prefix & 0x0f == 6);
    assert!(!world.sent().iter().any(|(.., datagram)| is_disconnect(datagram)));
}

#[test]
fn a_client_denied_by_all_servers_of_its_token_ends_in_denied() {
    let mut world = World::perfect(5);
    let servers = [world.add_server(1), world.add_server(1)];
    for (id, server) in servers.into_iter().enumerate() {
        world.connected_client(100 + id as u64, server);
    }
    let spec = world.spec(1, &servers);
    let client = on_its_way(&mut world, &spec);
    world.run_for(SECOND / 2);
    assert_eq!(world.state(client), ClientState::Denied);
    assert_eq!(events(&world, client), [ended(EndReason::Denied)]);
    assert_eq!(requests(&world, client), 2, "one to each, at once");
}

#[test]
fn a_client_denied_by_a_full_server_connects_to_the_next_one() {
    let mut world = World::perfect(6);
    let servers = [world.add_server(1), world.add_server(2)];
    world.connected_client(100, servers[0]);
    let spec = world.spec(1, &servers);
    let client = on_its_way(&mut world, &spec);
    world.run_until(SECOND / 2, |world| world.state(client) == ClientState::Connected);
    assert_eq!(world.clients[client].core.server(), Some(world.servers[servers[1]].address));
    assert_eq!(world.clients[client].core.max_clients(), Some(2));
}

#[test]
fn a_server_that_admits_nobody_any_more_denies_at_once_and_keeps_whom_it_has() {
    let mut world = World::perfect(7);
    let servers = [world.add_server(4), world.add_server(4)];
    let (before, _) = world.connected_client(100, servers[0]);
    world.servers[servers[0]].core.set_admitting(false);
    let spec = world.spec(1, &servers);
    let client = on_its_way(&mut world, &spec);
    world.run_until(SECOND / 2, |world| world.state(client) == ClientState::Connected);
    assert_eq!(world.clients[client].core.server(), Some(world.servers[servers[1]].address));
    world.run_for(10 * SECOND);
    assert_eq!(world.state(before), ClientState::Connected);
    world.servers[servers[0]].core.set_admitting(true);
    world.connected_client(101, servers[0]);
}

#[test]
fn a_client_between_request_and_response_when_a_server_stops_admitting_goes_on_to_the_next() {
    let mut world = World::perfect(8);
    let servers = [world.add_server(4), world.add_server(4)];
    let spec = world.spec(1, &servers);
    let client = on_its_way(&mut world, &spec);
    world.run_until(SECOND, |world| world.state(client) == ClientState::SendingResponse);
    world.servers[servers[0]].core.set_admitting(false);
    world.run_until(SECOND, |world| world.state(client) == ClientState::Connected);
    assert_eq!(world.clients[client].core.server(), Some(world.servers[servers[1]].address));
}

#[test]
fn a_tokens_lifetime_counts_over_the_whole_attempt_and_all_its_servers() {
    let mut world = World::perfect(9);
    let addresses = [nobody(1), nobody(2), nobody(3), nobody(4)];
    let client = on_its_way(&mut world, &to_nobody(&addresses, 2, 5));
    world.run_for(SECOND * 49 / 10);
    assert_eq!(world.clients[client].core.server(), Some(nobody(3)));
    world.run_for(SECOND / 5);
    assert_eq!(world.state(client), ClientState::TokenExpired);
    assert_eq!(events(&world, client), [ended(EndReason::TokenExpired)]);
    assert!(world.sent().iter().all(|(_, to, _)| *to != nobody(4)));
}

#[test]
fn a_tokens_lifetime_means_nothing_to_a_client_that_is_connected() {
    let mut world = World::perfect(10);
    let server = world.add_server(4);
    let spec = TokenSpec { lifetime: 2, ..world.spec(1, &[server]) };
    let client = on_its_way(&mut world, &spec);
    world.run_for(10 * SECOND);
    assert_eq!(world.state(client), ClientState::Connected);
}

#[test]
fn a_token_without_an_address_that_can_be_dialled_ends_in_invalid_token_and_others_are_skipped() {
    let mut world = World::perfect(11);
    let server = world.add_server(4);
    let undialable = [address("0.0.0.0:40000"), address("10.0.0.1:0"), address("[ff02::1]:5")];
    let (client, token) = (world.add_client(), world.mint(&to_nobody(&undialable, 5, 30)));
    let now = world.monotonic();
    assert_eq!(world.clients[client].core.connect(token, now), Err(ConnectError::NoServer));
    assert_eq!(world.state(client), ClientState::InvalidToken);
    let mixed = [undialable[0], world.servers[server].address, undialable[1]];
    let spec = TokenSpec { servers: mixed.to_vec(), ..world.spec(1, &[server]) };
    let client = on_its_way(&mut world, &spec);
    world.run_until(SECOND, |world| world.state(client) == ClientState::Connected);
}

#[test]
fn all_ten_states_have_the_standards_numbers_and_a_sentence_for_the_player() {
    let codes: Vec<i8> = ClientState::ALL.iter().map(|state| state.code()).collect();
    assert_eq!(codes, (-6..=3).collect::<Vec<i8>>());
    for state in ClientState::ALL {
        assert!(state.sentence().ends_with('.'), "{state:?}");
        assert_eq!((state.is_active(), state.is_error()), (state.code() > 0, state.code() < 0));
    }
}

// The attempt -------------------------------------------------------------------------------------------------------

#[test]
fn the_first_request_leaves_at_once_and_then_ten_leave_in_a_second() {
    let mut world = World::perfect(12);
    let client = on_its_way(&mut world, &to_nobody(&[nobody(1)], 5, 30));
    world.turn();
    assert_eq!(requests(&world, client), 1);
    world.run_for(SECOND);
    // A turn of 16 ms makes 100 ms into 112.
    assert!((9..=11).contains(&requests(&world, client)), "{}", requests(&world, client));
}

#[test]
fn the_response_leaves_in_the_turn_in_which_the_challenge_came() {
    let mut world = World::perfect(13);
    let server = world.add_server(4);
    let spec = world.spec(1, &[server]);
    let client = on_its_way(&mut world, &spec);
    // Request, challenge, response, keep-alive: each leaves in one turn and arrives in the next.
    world.run_for(5 * TURN);
    assert_eq!(world.state(client), ClientState::Connected);
}

#[test]
fn the_next_server_is_tried_at_once_and_the_sequence_goes_on() {
    let mut world = World::perfect(14);
    let full = world.add_server(1);
    let silent = world.add_server(1);
    world.connected_client(100, full);
    let spec = TokenSpec { timeout: 1, ..world.spec(1, &[full, silent]) };
    world.crash(silent);
    let client = on_its_way(&mut world, &spec);
    world.run_for(5 * TURN);
    assert_eq!(requests(&world, client), 2, "to the second server in the turn of the denial");
    world.restart(silent, None, |_| {});
    world.run_until(SECOND, |world| world.state(client) == ClientState::Connected);
    let at = world.clients[client].address;
    let sealed = world.sent().iter().find(|(from, _, datagram)| *from == at && datagram[0] != REQUEST_PREFIX);
    let (.., response) = sealed.expect("a response");
    let header = Header::parse(response, PacketKind::TO_SERVER).unwrap();
    assert!(header.sequence >= 2, "requests use up numbers without showing them: {}", header.sequence);
}

#[test]
fn a_client_listens_to_the_server_that_it_tries_and_to_nobody_else() {
    let mut world = World::perfect(15);
    let servers = [world.add_server(4), world.add_server(4)];
    let token = world.token(1, &servers);
    let client = world.add_client();
    world.connect(client, token);
    world.run_until(SECOND, |world| world.state(client) == ClientState::Connected);
    world.run_for(SECOND / 10);
    let (second, client_at) = (world.servers[servers[1]].address, world.clients[client].address);
    let from_first = world.sent().iter().rfind(|(_, to, _)| *to == client_at).cloned().unwrap().2;
    world.inject(second, client_at, &from_first);
    world.inject(nobody(9), client_at, &[0x16; 18]);
    world.turn();
    assert_eq!(world.clients[client].core.discards().count(Discard::UnknownSender), 2);
}

#[test]
fn a_client_takes_no_requests_no_junk_and_nothing_before_its_time() {
    let mut world = World::perfect(16);
    let server = world.add_server(4);
    let (client, handle) = world.connected_client(1, server);
    let (server_at, client_at) = (world.servers[server].address, world.clients[client].address);
    let request = world.sent()[0].2.clone();
    let challenge = world.sent().iter().find(|(from, ..)| *from == server_at).unwrap().2.clone();
    let count = |world: &World, reason| world.clients[client].core.discards().count(reason);
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
    assert_eq!(count(&world, Discard::NotRunning), 10, "nine more farewells, and this");
}

#[test]
fn what_a_client_may_not_do_is_an_error_and_changes_nothing() {
    let mut world = World::perfect(17);
    let server = world.add_server(4);
    let (client, _) = world.connected_client(1, server);
    let (now, token) = (world.monotonic(), world.token(2, &[server]));
    assert_eq!(world.clients[client].core.connect(token, now), Err(ConnectError::Busy));
    assert_eq!(world.clients[client].core.connect_loopback(0, 1), Err(ConnectError::Busy));
    assert_eq!(world.client_sends(client, &[]), Err(PayloadError::Empty));
    assert_eq!(world.client_sends(client, &[0; 1201]), Err(PayloadError::TooLarge));
    let largest = world.payload(1200);
    assert_eq!(world.client_sends(client, &largest), Ok(()));
    assert_eq!(world.state(client), ClientState::Connected);
    let idle = world.add_client();
    assert_eq!(world.client_sends(idle, &[1]), Err(PayloadError::Gone));
}

#[test]
fn a_client_says_when_it_must_be_woken_though_nothing_arrives() {
    let mut client = Client::new(TimeoutPolicy::Clamped);
    assert_eq!(client.next_deadline(), None);
    let mut world = World::perfect(18);
    let token = world.mint(&to_nobody(&[nobody(1)], 1, 30));
    let start = world.monotonic();
    client.connect(token, start).unwrap();
    let (mut now, mut wakes) = (start, 0);
    while client.state().is_active() {
        now = client.next_deadline().expect("a deadline while active");
        client.tick(now);
        client.transmit(now, &mut Collected::default());
        wakes += 1;
    }
    assert_eq!(client.state(), ClientState::RequestTimedOut);
    assert_eq!(now, start.after(SECOND), "woken exactly when the time-out is over");
    assert_eq!(wakes, 11, "ten requests and the end, and never in vain");
}

#[test]
fn a_kicked_client_knows_that_the_server_ended_it_and_one_that_left_that_it_did() {
    let mut world = World::perfect(90);
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
