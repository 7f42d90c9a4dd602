//! Stories of connections: what keeps them alive, how they begin and end, and how many there may be.

use std::time::Duration;

use slipgate_netcode::PayloadError;
use slipgate_netcode::address::Address;
use slipgate_netcode::client::{self, Client, ClientState};
use slipgate_netcode::crypto::key::{Key, Seed};
use slipgate_netcode::discard::Discard;
use slipgate_netcode::loopback::QUEUE_PAYLOADS;
use slipgate_netcode::server::{
    ClientHandle, Config, ConfigError, DisconnectReason, Event, Fence, LoopbackError, Server,
};
use slipgate_netcode::time::Now;
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_netcode::wire::packet::{Header, PacketKind};
use slipgate_tests::holder::{Holder, Opened};
use slipgate_tests::world::{Collected, Conditions, PROTOCOL_ID, ServerId, TokenSpec, World, address};

const SECOND: Duration = Duration::from_secs(1);

fn stranger(number: usize) -> Address {
    address(&format!("10.200.{}.{}:9000", number / 250, number % 250 + 1))
}

fn holder(world: &mut World, client_id: u64, server: ServerId) -> Holder {
    Holder::of(&world.token(client_id, &[server]))
}

fn holder_with_timeout(world: &mut World, client_id: u64, server: ServerId, timeout: i32) -> Holder {
    let spec = TokenSpec { timeout, ..world.spec(client_id, &[server]) };
    Holder::of(&world.mint(&spec))
}

/// What the server sends to a holder within two turns, opened.
fn heard(world: &mut World, holder: &Holder, at: Address) -> Vec<Opened> {
    let replies = world.replies_to(at);
    replies.iter().map(|reply| holder.open(reply).expect("under its own key")).collect()
}

fn kinds(opened: &[Opened]) -> Vec<PacketKind> {
    opened.iter().map(|opened| opened.kind).collect()
}

// Time-outs ---------------------------------------------------------------------------------------------------------

#[test]
fn junk_and_packets_that_do_not_open_keep_no_connection_alive() {
    let mut world = World::perfect(1);
    let server = world.add_server(4);
    let mut token = holder(&mut world, 1, server);
    world.admitted(server, &mut token, stranger(1));
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
    assert_eq!(world.servers[server].ends(), [(1, DisconnectReason::TimedOut)]);
}

#[test]
fn an_authentic_packet_keeps_a_connection_alive() {
    let mut world = World::perfect(2);
    let server = world.add_server(4);
    let mut token = holder(&mut world, 1, server);
    world.admitted(server, &mut token, stranger(1));
    for _ in 0..5 {
        world.run_for(SECOND * 9 / 2);
        let keep_alive = token.keep_alive();
        world.present(server, stranger(1), &keep_alive).unwrap();
    }
    assert_eq!(world.servers[server].core.connected(), 1);
}

#[test]
fn junk_keeps_no_client_alive() {
    let mut world = World::perfect(3);
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
fn time_outs_of_tokens_are_clamped_on_the_server_unless_development_lets_negative_ones_switch_them_off() {
    const CLAMPED: TimeoutPolicy = TimeoutPolicy::Clamped;
    const DEVELOPMENT: TimeoutPolicy = TimeoutPolicy::Development;
    for (policy, asked, seconds) in [
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
        let mut world = World::perfect(4);
        let server = world.add_server_with(4, |config| {
            config.fence = Fence::Open;
            config.timeouts = policy;
        });
        let mut token = holder_with_timeout(&mut world, 1, server, asked);
        world.admitted(server, &mut token, stranger(1));
        let connected = |world: &World| world.servers[server].core.connected();
        let limit = Duration::from_secs(seconds.unwrap_or(120));
        world.run_for(limit - SECOND / 10);
        assert_eq!(connected(&world), 1, "{policy:?} {asked}: before {limit:?}");
        world.run_for(SECOND / 5);
        assert_eq!(connected(&world), u32::from(seconds.is_none()), "{policy:?} {asked}: after {limit:?}");
    }
}

#[test]
fn a_server_that_read_nothing_takes_nobody_for_silent_and_gives_everybody_the_time_anew() {
    let mut world = World::perfect(4);
    let server = world.add_server_with(4, |config| {
        config.fence = Fence::Open;
        config.takeover_after = Some(SECOND);
    });
    let mut token = holder_with_timeout(&mut world, 1, server, 3);
    world.admitted(server, &mut token, stranger(1));
    // Nothing is read for three time-outs; then the server ticks, before it reads.
    world.servers[server].running = false;
    world.run_for(9 * SECOND);
    world.servers[server].running = true;
    let now = world.now();
    world.servers[server].core.tick_unread(now);
    assert_eq!(world.servers[server].core.connected(), 1);
    let newer = holder(&mut world, 1, server);
    assert_eq!(world.present(server, stranger(2), &newer.request()), Err(Discard::ClientIdConnected));
    world.run_for(SECOND + SECOND / 10);
    assert_eq!(world.present(server, stranger(2), &newer.request()), Ok(None), "silent for the grace of a takeover");
    world.run_for(2 * SECOND - SECOND / 5);
    assert_eq!(world.servers[server].ends(), [], "not for the time-out");
    world.run_for(SECOND / 5);
    assert_eq!(world.servers[server].ends(), [(1, DisconnectReason::TimedOut)]);
}

#[test]
fn time_outs_of_tokens_are_clamped_in_the_client_unless_development_lets_negative_ones_switch_them_off() {
    for (policy, asked, seconds) in [
        (TimeoutPolicy::Clamped, 0, Some(1)),
        (TimeoutPolicy::Clamped, 3, Some(3)),
        (TimeoutPolicy::Clamped, i32::MAX, Some(60)),
        (TimeoutPolicy::Clamped, -1, Some(60)),
        (TimeoutPolicy::Development, -1, None),
    ] {
        let mut world = World::perfect(5);
        let server = world.add_server_with(4, |config| {
            config.fence = Fence::Open;
            config.timeouts = TimeoutPolicy::Development;
        });
        let client = world.add_client();
        world.clients[client].core = Client::new(policy);
        let spec = TokenSpec { timeout: asked, ..world.spec(1, &[server]) };
        let token = world.mint(&spec);
        world.connect(client, token);
        world.run_until(SECOND, |world| world.state(client) == ClientState::Connected);
        world.turn();
        world.set_conditions(Conditions { loss_percent: 100.0, ..Conditions::perfect() });
        let limit = Duration::from_secs(seconds.unwrap_or(120));
        world.run_for(limit - SECOND / 5);
        assert_eq!(world.state(client), ClientState::Connected, "{policy:?} {asked}: before {limit:?}");
        world.run_for(SECOND * 3 / 10);
        let expected = if seconds.is_some() { ClientState::TimedOut } else { ClientState::Connected };
        assert_eq!(world.state(client), expected, "{policy:?} {asked}: after {limit:?}");
    }
}

#[test]
fn silence_is_filled_with_ten_keep_alives_a_second_each_way_and_payloads_replace_them() {
    let mut world = World::perfect(6);
    let server = world.add_server(4);
    let (client, handle) = world.connected_client(1, server);
    world.servers[server].echoes = false;
    world.run_for(SECOND / 2);
    let count = |world: &World, from: Address, kind: PacketKind| {
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
fn until_something_came_from_a_client_each_payload_to_it_is_preceded_by_a_keep_alive() {
    let mut world = World::perfect(7);
    let server = world.add_server(4);
    let mut token = holder(&mut world, 1, server);
    let handle = world.admitted(server, &mut token, stranger(1));
    for _ in 0..3 {
        let payload = world.payload(30);
        world.server_sends(server, handle, &payload).unwrap();
    }
    use PacketKind::{KeepAlive, Payload};
    let opened = heard(&mut world, &token, stranger(1));
    assert_eq!(kinds(&opened), [KeepAlive, Payload, KeepAlive, Payload, KeepAlive, Payload, KeepAlive]);
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
    assert_eq!(kinds(&heard(&mut world, &token, stranger(1))), [Payload, Payload, Payload]);
}

#[test]
fn only_what_opens_confirms_a_client() {
    let mut world = World::perfect(8);
    let server = world.add_server(4);
    let mut token = holder(&mut world, 1, server);
    let handle = world.admitted(server, &mut token, stranger(1));
    for junk in [Vec::new(), vec![0x14; 26], token.request(), token.seal(PacketKind::Response, &[0; 308])] {
        world.present(server, stranger(1), &junk).unwrap_err();
    }
    assert_eq!(world.servers[server].core.client(handle).map(|info| info.confirmed), Some(false));
}

#[test]
fn a_client_whose_first_keep_alive_was_lost_still_connects_and_reads_the_payload_behind_the_second() {
    let mut world = World::perfect(9);
    let server = world.add_server(4);
    let (client, token) = (world.add_client(), world.token(1, &[server]));
    world.connect(client, token);
    world.run_until(SECOND, |world| world.servers[server].core.connected() == 0 && world.state(client).code() == 2);
    world.turn();
    world.set_conditions(Conditions { loss_percent: 100.0, ..Conditions::perfect() });
    // The keep-alive is on its way already: take it off by letting it arrive at nobody.
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
fn a_kicked_client_is_sent_ten_disconnects_with_numbers_in_a_row() {
    let mut world = World::perfect(10);
    let server = world.add_server(4);
    let mut token = holder(&mut world, 1, server);
    let handle = world.admitted(server, &mut token, stranger(1));
    let before = heard(&mut world, &token, stranger(1)).len() as u64;
    assert!(world.servers[server].core.disconnect(handle));
    assert!(!world.servers[server].core.disconnect(handle), "it is gone");
    let opened = heard(&mut world, &token, stranger(1));
    assert_eq!(kinds(&opened), [PacketKind::Disconnect; 10]);
    let sequences: Vec<u64> = opened.iter().map(|opened| opened.sequence).collect();
    assert_eq!(sequences, (before..before + 10).collect::<Vec<u64>>());
    assert_eq!(world.servers[server].ends(), [(1, DisconnectReason::Kicked)]);
    world.run_for(SECOND);
    assert_eq!(world.replies_to(stranger(1)), Vec::<Vec<u8>>::new(), "and then nothing");
}

#[test]
fn a_client_that_is_kicked_at_the_door_is_told_of_its_slot_before_it_is_told_to_leave() {
    let mut world = World::perfect(11);
    let server = world.add_server(4);
    let mut token = holder(&mut world, 1, server);
    let handle = world.admitted(server, &mut token, stranger(1));
    world.servers[server].core.disconnect(handle);
    let opened = heard(&mut world, &token, stranger(1));
    assert_eq!(kinds(&opened[..1]), [PacketKind::KeepAlive]);
    assert_eq!(kinds(&opened[1..]), [PacketKind::Disconnect; 10]);
}

#[test]
fn a_leaving_client_sends_ten_disconnects_with_numbers_in_a_row_and_one_is_enough() {
    for lost in [0.0, 50.0] {
        let mut world = World::perfect(12);
        let server = world.add_server(4);
        let (client, _) = world.connected_client(1, server);
        world.run_for(SECOND / 10);
        world.set_conditions(Conditions { loss_percent: lost, ..Conditions::perfect() });
        let before = world.sent().len();
        world.clients[client].core.disconnect();
        assert!(world.clients[client].core.owes());
        world.run_for(SECOND / 10);
        assert!(!world.clients[client].core.owes());
        let from = world.clients[client].address;
        let sent = world.sent()[before..].iter().filter(|(at, ..)| *at == from);
        let headers: Vec<_> =
            sent.map(|(.., datagram)| Header::parse(datagram, PacketKind::TO_SERVER).unwrap()).collect();
        assert_eq!(headers.len(), 10);
        assert!(headers.iter().all(|header| header.kind == PacketKind::Disconnect));
        assert!(headers.windows(2).all(|pair| pair[1].sequence == pair[0].sequence + 1));
        assert_eq!(world.servers[server].ends(), [(1, DisconnectReason::Left)], "{lost} % lost");
        assert_eq!(world.servers[server].core.stats().disconnects, 1);
    }
}

#[test]
fn a_stopped_server_tells_everyone_and_admits_nobody() {
    let mut world = World::perfect(13);
    let server = world.add_server(4);
    let clients: Vec<_> = (1..=3).map(|id| world.connected_client(id, server).0).collect();
    world.servers[server].core.stop();
    assert!(world.servers[server].core.owes());
    world.run_for(SECOND / 10);
    assert!(!world.servers[server].core.owes());
    for client in clients {
        assert_eq!(world.state(client), ClientState::Disconnected);
    }
    let stopped = DisconnectReason::ServerStopped;
    assert_eq!(world.servers[server].ends(), [(1, stopped), (2, stopped), (3, stopped)]);
    let late = holder(&mut world, 9, server);
    world.present(server, stranger(9), &late.request()).unwrap();
    assert_eq!(kinds(&heard(&mut world, &late, stranger(9))), [PacketKind::Denied]);
}

#[test]
fn farewells_wait_for_an_outbox_with_room_and_their_slot_with_them() {
    let mut world = World::perfect(14);
    let server = world.add_server(1);
    let (client, handle) = world.connected_client(1, server);
    world.servers[server].core.disconnect(handle);
    let now = world.now();
    let mut sent = 0;
    for room in [0, 3, 3, 0, 3] {
        let mut outbox = Collected::with_room_for(room);
        world.servers[server].core.transmit(now, &mut outbox);
        assert_eq!(outbox.datagrams.len(), room);
        sent += room;
        // The slot is not free yet.
        let full = world.servers[server].core.connect_loopback(9, [0; 256], now);
        assert_eq!(full, Err(LoopbackError::Full));
    }
    let mut outbox = Collected::with_room_for(9);
    world.servers[server].core.transmit(now, &mut outbox);
    assert_eq!((sent, outbox.datagrams.len()), (9, 1));
    assert!(world.servers[server].core.connect_loopback(9, [0; 256], now).is_ok());

    // The client's farewell waits likewise.
    let mut core = std::mem::replace(&mut world.clients[client].core, Client::new(TimeoutPolicy::Clamped));
    core.disconnect();
    let mut sent = Vec::new();
    for room in [4, 0, 4, 4] {
        let mut outbox = Collected::with_room_for(room);
        core.transmit(now.monotonic, &mut outbox);
        sent.push(outbox.datagrams.len());
    }
    assert_eq!((sent, core.owes()), (vec![4, 0, 4, 2], false));
}

#[test]
fn a_stale_handle_reaches_nobody_not_even_the_next_client_of_its_slot() {
    let mut world = World::perfect(15);
    let server = world.add_server(1);
    let (first, stale) = world.connected_client(1, server);
    world.clients[first].core.disconnect();
    world.run_for(SECOND / 5);
    assert_eq!(world.server_sends(server, stale, &[1]), Err(PayloadError::Gone), "the slot is free");
    let (second, current) = world.connected_client(2, server);
    assert_eq!((stale.slot(), current.slot()), (0, 0));
    assert_eq!(world.server_sends(server, stale, &[1]), Err(PayloadError::Gone), "the slot is another's");
    assert!(world.servers[server].core.client(stale).is_none());
    assert!(!world.servers[server].core.disconnect(stale));
    assert_eq!(world.servers[server].core.clients().collect::<Vec<_>>(), [current]);
    world.run_for(SECOND);
    assert_eq!(world.state(second), ClientState::Connected);
    assert_eq!(world.clients[second].received, Vec::<Vec<u8>>::new());
}

#[test]
fn payloads_of_one_to_1200_bytes_go_and_others_are_refused_at_the_call() {
    let mut world = World::perfect(16);
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
    for (payload, refused) in [(&[][..], PayloadError::Empty), (&[0; 1201], PayloadError::TooLarge)] {
        assert_eq!(world.server_sends(server, handle, payload), Err(refused));
    }
}

// Slots -------------------------------------------------------------------------------------------------------------

#[test]
fn the_lowest_free_slot_is_given_first() {
    let mut world = World::perfect(17);
    let server = world.add_server(4);
    let mut holders: Vec<_> = (0..4).map(|id| holder(&mut world, id, server)).collect();
    for (place, holder) in holders.iter_mut().enumerate() {
        assert_eq!(world.admitted(server, holder, stranger(place)).slot(), place as u32);
    }
    for place in [2, 0, 3] {
        let farewell = holders[place].seal(PacketKind::Disconnect, &[]);
        world.present(server, stranger(place), &farewell).unwrap();
    }
    for (id, slot) in [(10, 0), (11, 2), (12, 3)] {
        let mut holder = holder(&mut world, id, server);
        assert_eq!(world.admitted(server, &mut holder, stranger(id as usize)).slot(), slot);
    }
}

#[test]
fn a_server_of_4096_slots_fills_and_serves_the_last_as_the_first() {
    const SLOTS: u32 = 4096;
    let (mut core, mut holders, now) = filled(SLOTS, SLOTS);
    assert_eq!((core.connected(), core.clients().last().map(ClientHandle::slot)), (SLOTS, Some(SLOTS - 1)));
    let late = holders.pop().expect("one more");
    core.handle(stranger(SLOTS as usize), &mut late.request(), now).unwrap();
    let reply = sent(&mut core, now).remove(0);
    assert_eq!(late.open(&reply).map(|opened| opened.kind), Some(PacketKind::Denied));
    for place in [0, SLOTS as usize - 1] {
        let mut datagram = holders[place].seal(PacketKind::Payload, &[7; 30]);
        let (client, payload) = core.handle(stranger(place), &mut datagram, now).unwrap().expect("a payload");
        assert_eq!((core.find(place as u64), payload.bytes), (Some(client), &[7; 30][..]));
    }
}

#[test]
fn a_server_has_up_to_65536_slots() {
    let (core, ..) = filled(65_536, 64);
    assert_eq!((core.connected(), core.config().slots), (64, 65_536));
    for slots in [0, 65_537] {
        let config = Config::new(PROTOCOL_ID, slots, vec![stranger(0)]);
        let started = Server::new(config, Key::from_bytes([1; 32]).into(), &Seed::from_bytes([1; 32]), Now::default());
        assert_eq!(started.err(), Some(ConfigError::Slots));
    }
}

/// A server of so many slots, so many clients in them, and one holder more who has not asked yet.
fn filled(slots: u32, clients: u32) -> (Server, Vec<Holder>, Now) {
    let mut world = World::perfect(18);
    let home = address("10.0.0.1:40000");
    let (keys, seed, now) = (world.private_key.clone().into(), Seed::from_bytes([1; 32]), world.now());
    let mut config = Config::new(PROTOCOL_ID, slots, vec![home]);
    let budgets = &mut config.budgets;
    (budgets.decrypts, budgets.strangers_per_turn, budgets.responses_per_turn) = (u32::MAX, u32::MAX, u32::MAX);
    let mut core = Server::new(config, keys, &seed, now).unwrap();
    let mut holders: Vec<_> = (0..=clients).map(|id| Holder::of(&world.mint(&to(home, u64::from(id))))).collect();
    for (place, holder) in holders.iter_mut().enumerate().take(clients as usize) {
        core.handle(stranger(place), &mut holder.request(), now).unwrap();
        let challenge = holder.challenge(&sent(&mut core, now)[0]).expect("a challenge");
        core.handle(stranger(place), &mut holder.response(&challenge), now).unwrap();
        sent(&mut core, now);
        assert!(matches!(core.poll_event(), Some(Event::Connected { client_id, .. }) if client_id == place as u64));
    }
    (core, holders, now)
}

fn to(server: Address, client_id: u64) -> TokenSpec {
    TokenSpec { client_id, servers: vec![server], lifetime: 30, timeout: 5, user_data: [0; 256] }
}

fn sent(core: &mut Server, now: Now) -> Vec<Vec<u8>> {
    let mut outbox = Collected::default();
    core.transmit(now, &mut outbox);
    outbox.datagrams.into_iter().map(|(_, datagram)| datagram).collect()
}

#[test]
fn servers_and_clients_talk_over_ipv6_whatever_scope_an_address_comes_with() {
    let mut world = World::perfect(19);
    let home = address("[2001:db8::7]:40000");
    let server = world.add_server_with(4, |config| {
        config.fence = Fence::Open;
        config.advertised = vec![home];
    });
    world.servers[server].address = home;
    let client = world.add_client_at(address("[2001:db8:1::9]:5000"));
    let token = world.token(1, &[server]);
    world.connect(client, token);
    world.run_until(SECOND, |world| world.state(client) == ClientState::Connected);
    let payload = world.payload(100);
    world.client_sends(client, &payload).unwrap();
    world.run_for(SECOND / 10);
    assert_eq!(world.clients[client].received, [payload]);

    let mut local = holder(&mut world, 2, server);
    world.admitted(server, &mut local, address("[fe80::1%3]:5000"));
    let keep_alive = local.keep_alive();
    assert_eq!(world.present(server, address("[fe80::1%8]:5000"), &keep_alive), Ok(None));
}

// Clients in the same program ---------------------------------------------------------------------------------------

#[test]
fn a_client_in_the_same_program_holds_a_slot_like_others_without_packets_or_time_outs() {
    let mut world = World::perfect(20);
    let server = world.add_server(2);
    let now = world.now();
    let host = world.servers[server].core.connect_loopback(77, [5; 256], now).unwrap();
    let mut client = Client::new(TimeoutPolicy::Clamped);
    client.connect_loopback(host.slot(), 2).unwrap();
    assert_eq!(client.poll_event(), Some(client::Event::Connected { client_index: 0, max_clients: 2 }));
    assert_eq!(world.servers[server].core.poll_event(), Some(Event::Connected { client: host, client_id: 77 }));
    let info = world.servers[server].core.client(host).unwrap();
    assert_eq!((info.client_id, info.address, *info.user_data), (77, None, [5; 256]));

    let (guest, _) = world.connected_client(1, server);
    let late = holder(&mut world, 2, server);
    world.present(server, stranger(2), &late.request()).unwrap();
    assert_eq!(kinds(&heard(&mut world, &late, stranger(2))), [PacketKind::Denied], "two slots, two clients");

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
    assert_eq!(world.servers[server].ends(), [(77, DisconnectReason::Kicked)]);
    assert_eq!(world.servers[server].core.loopback_send(host, &[1]), Err(PayloadError::Gone));
    assert_eq!(world.servers[server].core.poll_loopback(&mut buffer), None);
    client.disconnect();
    let ended = client::Event::Ended { reason: client::EndReason::Left };
    assert_eq!((client.poll_event(), client.state()), (Some(ended), ClientState::Disconnected));
}

#[test]
fn a_client_in_the_same_program_is_refused_where_others_would_be() {
    let mut world = World::perfect(21);
    let server = world.add_server(2);
    let now = world.now();
    let (_, networked) = world.connected_client(1, server);
    let connect = |world: &mut World, id| world.servers[server].core.connect_loopback(id, [0; 256], now);
    assert_eq!(connect(&mut world, 1), Err(LoopbackError::ClientIdConnected));
    let host = connect(&mut world, 2).unwrap();
    assert_eq!(connect(&mut world, 2), Err(LoopbackError::ClientIdConnected));
    assert_eq!(connect(&mut world, 3), Err(LoopbackError::Full));
    let same_id = holder(&mut world, 2, server);
    assert_eq!(world.present(server, stranger(2), &same_id.request()), Err(Discard::ClientIdConnected));
    assert_eq!(world.servers[server].core.loopback_send(networked, &[1]), Err(PayloadError::Gone));
    world.servers[server].core.disconnect(host);
    world.servers[server].core.set_admitting(false);
    assert_eq!(connect(&mut world, 3), Err(LoopbackError::Full));
}

#[test]
fn a_pending_client_of_the_same_name_gives_way_to_one_in_the_same_program() {
    let mut world = World::perfect(22);
    let server = world.add_server(2);
    let mut pending = holder(&mut world, 1, server);
    let challenge = world.challenged(server, &pending, stranger(1));
    let now = world.now();
    world.servers[server].core.connect_loopback(1, [0; 256], now).unwrap();
    assert_eq!(world.present(server, stranger(1), &pending.response(&challenge)), Err(Discard::UnknownSender));
    assert_eq!(world.servers[server].core.connected(), 1);
}

#[test]
fn queues_in_the_same_program_are_bounded_and_a_client_that_is_gone_can_take_what_it_was_sent() {
    let mut world = World::perfect(23);
    let server = world.add_server(1);
    let now = world.now();
    let mut buffer = [0; MAX_PAYLOAD_BYTES];
    let core = &mut world.servers[server].core;
    let mut before = None;
    for round in 0..3 {
        let host = core.connect_loopback(round, [0; 256], now).unwrap();
        for _ in 0..QUEUE_PAYLOADS {
            core.loopback_send(host, &[round as u8; 40]).unwrap();
            core.send(host, &[round as u8; 40], now, &mut Collected::default()).unwrap();
        }
        assert_eq!(core.loopback_send(host, &[1]), Err(PayloadError::Backlogged));
        assert_eq!(core.send(host, &[1], now, &mut Collected::default()), Err(PayloadError::Backlogged));
        core.disconnect(host);
        while core.poll_event().is_some() {}
        if let Some(before) = before.replace(host) {
            assert_eq!(core.loopback_receive(before, &mut buffer), None, "another one has ended in its slot since");
        }
        if round > 0 {
            let taken = std::iter::from_fn(|| core.loopback_receive(host, &mut buffer)).count();
            assert_eq!(taken, QUEUE_PAYLOADS, "what it was sent before it was disconnected");
        }
        assert_eq!(core.poll_loopback(&mut buffer), None, "what a client sent before it left is gone with it");
    }
    // The next one in the slot does not speak for the one before.
    let gone = core.connect_loopback(7, [0; 256], now).unwrap();
    core.loopback_send(gone, &[7; 7]).unwrap();
    core.disconnect(gone);
    while core.poll_event().is_some() {}
    let next = core.connect_loopback(8, [0; 256], now).unwrap();
    core.loopback_send(next, &[8; 8]).unwrap();
    assert_eq!(core.poll_loopback(&mut buffer), Some((next, 8)));
    assert_eq!(core.poll_loopback(&mut buffer), None);
}
