mod forgeries;
mod intake;
mod kernel_blocks;

use std::net::{SocketAddr, UdpSocket};
use std::thread;

use rand::SeedableRng;
use rand::rngs::StdRng;
use slipgate_client::{Client, ConnectToken};
use slipgate_netcode::crypto::key::{Key, Seed};
use slipgate_netcode::server::{self as netcode, ServerConfig, TokenCutoff, TokenStorage};
use slipgate_netcode::time::{Instant, UnixMillis, UnixSeconds};
use slipgate_netcode::token::history::KeptTokens;
use slipgate_netcode::token::issue::{Claims, issue};
use slipgate_netcode::wire::USER_DATA_BYTES;
use slipgate_netcode::wire::token::Servers;
use slipgate_os::clock::Clock;
use slipgate_session::channel::transfer::Transfer;
use slipgate_session::channel::{ChannelConfig, Kind, Layout};
use slipgate_session::congestion::BytesPerSecond;
use slipgate_session::connection::{CloseKind, Memory};
use slipgate_udp::time_slice;

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::*;
use crate::Inbox;
use crate::journal::tests::SlowDisk;
use crate::test_log::{count_lines, count_warnings};

/// A log that panics at every line.
struct BrokenLog;

impl Subscriber for BrokenLog {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        panic!("the log is broken");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn at(seconds: u64) -> Now {
    Now { monotonic: Instant::from_start(Duration::from_secs(seconds)), unix: slipgate_os::clock::wall_clock() }
}

/// Returns a server on a free port, and its address.
fn server() -> (Server, SocketAddr) {
    let sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
    let to = sockets.local_addresses()[0];
    let config = ServerConfig::new(7, 4, &[to]);
    let mut server = Server::new(sockets, config, Key::from([7; 32]).into(), at(0)).unwrap();
    // A kernel filter would drop the junk.
    let _ = server.set_kernel_filter(false);
    (server, to)
}

/// Returns a server that has dropped a datagram, in a turn that ends with a summary.
fn before_a_log_line() -> Server {
    let (mut server, to) = server();
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"junk", to).unwrap();
    server.wait(Duration::from_secs(5)).unwrap();
    server.begin_turn(at(3600));
    let mut inbox = Inbox::default();
    while inbox.next(&mut server).is_some() {}
    assert_eq!(server.discards().total(), 1);
    server
}

/// Returns the message of a thread that panics with a server and a broken log.
fn panic_of(game: impl FnOnce(Server) + Send + 'static) -> &'static str {
    let game = || tracing::subscriber::with_default(BrokenLog, || game(before_a_log_line()));
    let panic = thread::spawn(game).join().unwrap_err();
    panic.downcast_ref::<&str>().unwrap()
}

#[test]
fn first_wait_shortens_the_time_slice_of_its_thread() {
    let slices = thread::spawn(|| {
        let (mut server, _) = server();
        let before = time_slice();
        server.wait(Duration::ZERO).unwrap();
        (before, time_slice())
    });
    let (before, after) = slices.join().unwrap();
    // Kernels before 6.12 report no slice.
    assert!(before.is_none() || after < before, "{before:?}, {after:?}");
}

#[test]
fn a_panic_while_a_game_panics_does_not_abort() {
    assert_eq!(panic_of(drop), "the log is broken", "dropping a server in order panics too");
    let game = |server: Server| {
        let _server = server;
        panic!("of the game");
    };
    assert_eq!(panic_of(game), "of the game");
}

#[test]
fn a_still_turn_keeps_its_time_and_its_read_limits() {
    let (mut server, to) = server();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    (0..200).for_each(|_| assert_eq!(stranger.send_to(b"junk", to).unwrap(), 4));
    // The loopback interface keeps the order: all of them have arrived before this one.
    stranger.send_to(b"last", stranger.local_addr().unwrap()).unwrap();
    stranger.recv(&mut [0; 4]).unwrap();
    server.wait(Duration::from_secs(5)).unwrap();
    server.set_read_limits(ReadLimits { max_time: Duration::ZERO, ..ReadLimits::default() });
    server.begin_still_turn(at(60));
    let mut inbox = Inbox::default();
    while inbox.next(&mut server).is_some() {}
    assert!((1..200).contains(&server.discards().total()), "{:?}", server.discards());
    assert_eq!(server.totals().turns_cut_short, 1);
    thread::sleep(Duration::from_millis(5));
    server.end_turn();
    assert_eq!(server.now.monotonic, at(60).monotonic);
    server.begin_turn(at(60));
    thread::sleep(Duration::from_millis(5));
    server.end_turn();
    assert!(server.now.monotonic >= at(60).monotonic.after(Duration::from_millis(5)));
}

/// Mints a token for a server with the protocol id 7.
pub(crate) fn token(client_id: u64, server: SocketAddr, now: Now) -> ConnectToken {
    let claims = Claims {
        protocol_id: 7,
        client_id: client_id.into(),
        servers: &Servers::new(&[server]).unwrap(),
        internal_servers: None,
        lifetime_seconds: 30,
        timeout_seconds: 5,
        user_data: &[client_id as u8; USER_DATA_BYTES],
    };
    issue(&claims, &Key::from([7; 32]), now.unix, &mut StdRng::seed_from_u64(client_id)).unwrap()
}

/// A client with a socket of its own, and the number of its echoes.
pub(crate) struct Player {
    client: Client,
    inbox: slipgate_client::Inbox,
    echoes: usize,
}

impl Player {
    fn connecting(client_id: u64, to: SocketAddr, now: Now) -> Self {
        Self::with_traffic(Traffic::Payloads, client_id, to, now)
    }

    fn with_traffic(traffic: Traffic, client_id: u64, to: SocketAddr, now: Now) -> Self {
        let token = token(client_id, to, now);
        let mut client = Client::new().unwrap().with_traffic(traffic).unwrap();
        client.connect(token, now).unwrap();
        Self { client, inbox: slipgate_client::Inbox::default(), echoes: 0 }
    }

    /// Takes all events, and sends a payload once connected.
    fn turn(&mut self, now: Now) {
        self.client.begin_turn(now);
        while let Some(event) = self.inbox.next(&mut self.client) {
            self.echoes += usize::from(matches!(event, slipgate_client::Event::Payload { .. }));
        }
        if self.client.state().is_connected() {
            self.client.send(b"moves").unwrap();
        }
        self.client.end_turn();
    }
}

/// Runs one turn of an echo server, and returns the clients that connected in it.
pub(crate) fn echo_turn(server: &mut Server, now: Now) -> Vec<u64> {
    let (mut inbox, mut new_clients, mut payloads) = (Inbox::default(), Vec::new(), Vec::new());
    server.begin_turn(now);
    while let Some(event) = inbox.next(server) {
        match event {
            crate::Event::Connected { client, client_id } => {
                assert_eq!(server.send(client, b"welcome"), Ok(()), "a connected client can be sent to");
                new_clients.push(client_id.0);
            }
            crate::Event::Payload { client, bytes, .. } => payloads.push((client, bytes.to_vec())),
            _ => {}
        }
    }
    payloads.iter().for_each(|(client, bytes)| server.send(*client, bytes).unwrap());
    server.end_turn();
    new_clients
}

#[test]
fn only_a_new_client_waits_for_a_slow_flush() {
    let sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
    let to = sockets.local_addresses()[0];
    let mut config = ServerConfig::new(7, 4, &[to]);
    config.token_cutoff = TokenCutoff::None;
    let (journal, attempts) = SlowDisk::journal();
    let kept = KeptTokens { names: [1; 32], used: Vec::new(), dropped_until: UnixSeconds(0) };
    let storage = TokenStorage { kept, journal: Box::new(journal) };
    let seed = Seed::from([3; 32]);
    let netcode =
        netcode::NetcodeServer::with_storage(config, Key::from([7; 32]).into(), &seed, at(0), storage).unwrap();
    let mut server = Server::around(netcode, sockets, at(0), Memory::default()).unwrap();

    let clock = Clock::start();
    let mut players = vec![Player::connecting(1, to, clock.now())];
    let mut new_clients = Vec::new();
    let mut play = |players: &mut [Player], done: &mut dyn FnMut(&[Player], &[u64]) -> bool| {
        for _ in 0..5_000 {
            players.iter_mut().for_each(|player| player.turn(clock.now()));
            new_clients.extend(echo_turn(&mut server, clock.now()));
            if done(players, &new_clients) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("it does not happen in 5 s");
    };

    play(&mut players, &mut |_, _| {
        attempts.try_recv().is_ok_and(|attempt| {
            attempt.end(Ok(()));
            true
        })
    });
    play(&mut players, &mut |players, _| players[0].echoes >= 1);
    players.push(Player::connecting(2, to, clock.now()));
    let mut end = None;
    play(&mut players, &mut |_, _| {
        end = attempts.try_recv().ok();
        end.is_some()
    });
    // The disk is flushing meanwhile.
    let before = players[0].echoes;
    play(&mut players, &mut |players, new_clients| {
        assert!(new_clients == [1] && !players[1].client.state().is_connected());
        players[0].echoes >= before + 100
    });
    end.unwrap().end(Ok(()));
    play(&mut players, &mut |players, new_clients| players[1].echoes >= 1 && new_clients == [1, 2]);
}

/// Returns a server with channels and a client, of which the `Connected` event was just taken.
pub(crate) fn with_connected_client() -> (Server, Player, crate::Event<'static>, ClientHandle) {
    let kinds = [Kind::ReliableOrdered, Kind::Transfers].map(ChannelConfig::from);
    let layout = Layout::try_from(kinds.to_vec()).unwrap();
    let traffic = Traffic::channels(layout);
    let (server, to) = server();
    let (mut server, clock, mut inbox) =
        (server.with_traffic(traffic.clone()).unwrap(), Clock::start(), Inbox::default());
    let mut player = Player::with_traffic(traffic, 9, to, clock.now());
    for _ in 0..5_000 {
        player.client.begin_turn(clock.now());
        while player.inbox.next(&mut player.client).is_some() {}
        player.client.end_turn();
        server.begin_turn(clock.now());
        while let Some(event) = inbox.next(&mut server) {
            if let crate::Event::Connected { client, client_id } = event {
                return (server, player, crate::Event::Connected { client, client_id }, client);
            }
        }
        server.end_turn();
        thread::sleep(Duration::from_millis(1));
    }
    panic!("the client did not connect in 5 s");
}

/// Stops a server and waits, while its client runs or stands still. Returns the kinds of ends that both sides report.
fn ends_of_stop(client_runs: bool) -> (Vec<CloseKind>, Option<CloseKind>) {
    let (mut server, mut player, ..) = with_connected_client();
    let (clock, mut inbox, mut ends) = (Clock::start(), Inbox::default(), Vec::new());
    thread::scope(|scope| {
        let end = scope.spawn(|| {
            for _ in 0..if client_runs { 5_000 } else { 0 } {
                player.client.begin_turn(clock.now());
                while player.inbox.next(&mut player.client).is_some() {}
                player.client.end_turn();
                if let Some(reason) = player.client.close_reason() {
                    return Some(reason.kind);
                }
                thread::sleep(Duration::from_millis(1));
            }
            None
        });
        server.stop_and_wait("until tomorrow", clock, &mut inbox, |event| {
            if let crate::Event::Disconnected { reason, .. } = event {
                ends.push(reason.kind);
            }
        });
        assert_eq!(server.connected_count(), 0);
        (ends, end.join().unwrap())
    })
}

#[test]
fn stop_waits_for_clients_but_not_for_silent_ones() {
    let stopped = CloseKind::ServerStopped;
    assert_eq!(ends_of_stop(true), (vec![stopped], Some(stopped)));
    assert_eq!(ends_of_stop(false), (vec![stopped], None));
}

#[test]
fn a_kicked_client_is_known_until_its_slot_is_free() {
    const CHAT: ChannelId = ChannelId(0);
    let (mut server, _player, _, handle) = with_connected_client();
    server.kick(handle, "that is enough").unwrap();
    assert_eq!((server.clients().count(), server.find(9), server.connected_count()), (0, None, 1));
    let mut client = server.client(handle).expect("it has its slot");
    assert_eq!((client.client_id(), client.user_data()), (ClientId(9), [9; USER_DATA_BYTES]));
    assert!(client.address().is_some() && client.path().is_some());
    assert_eq!(client.send_message(CHAT, b"one more"), Err(SendError::Gone));
    assert_eq!(
        (client.send(b"one more"), client.send_packet(b"one more").err()),
        (Err(SendError::WrongTraffic), Some(SendError::WrongTraffic))
    );
    assert_eq!(server.kick(handle, "again"), Err(SendError::Gone));
    server.client(handle).unwrap().disconnect().unwrap();
    assert_eq!(server.connected_count(), 0, "the slot is free at once");
    assert!(server.client(handle).is_none());
}

/// Sends 300 datagrams that look encrypted from this address. Returns how many senders are blocked then.
fn send_junk(server: &mut Server, from: Address) -> usize {
    let mut scratch = Vec::new();
    (0..300).for_each(|_| assert!(server.handle(from, &mut [0x15; 40], &mut scratch).is_none()));
    server.flood_guard.blocked().len()
}

#[test]
fn violation_is_held_against_the_address_of_its_client() {
    let (mut server, _player, _, handle) = with_connected_client();
    let hostile = server.client(handle).unwrap().address().unwrap().into();
    let stranger = Address::from(SocketAddr::from(([192, 0, 2, 9], 9)));
    server.set_intake(handle, Intake::Flooded);
    // Another datagram is handled before the event is taken.
    assert!(server.handle(stranger, &mut [0x15; 40], &mut Vec::new()).is_none());
    assert!(matches!(server.poll_event(), Some(SessionEvent::Disconnected { .. })));
    server.client(handle).unwrap().disconnect().unwrap();
    assert_eq!(send_junk(&mut server, stranger), 0);
    // Its connection has just ended, so its packets are not those of an unknown sender.
    assert_eq!(send_junk(&mut server, hostile), 1);
    assert!(server.discards()[Discard::ConnectionEnded] >= 256);
}

#[test]
fn packets_of_a_client_that_left_do_not_block_it() {
    let (mut server, _player, _, handle) = with_connected_client();
    let address = server.client(handle).unwrap().address().unwrap().into();
    server.client(handle).unwrap().disconnect().unwrap();
    assert_eq!(send_junk(&mut server, address), 0);
    assert!(server.discards()[Discard::ConnectionEnded] >= 256);
}

#[test]
fn forged_packets_of_an_address_are_sampled() {
    let (mut server, _player, _, handle) = with_connected_client();
    let client = server.client(handle).unwrap().address().unwrap().into();
    let stranger = Address::from(SocketAddr::from(([192, 0, 2, 9], 9)));
    for (from, sampled) in [(client, 1), (stranger, 2)] {
        // The type of a payload, with a packet number of 8 bytes.
        let mut send = |packets| {
            for _ in 0..packets {
                assert!(server.handle(from, &mut [0x85; 60], &mut Vec::new()).is_none());
            }
            server.flood_guard.blocked().len()
        };
        assert_eq!((send(1023), send(1)), (sampled - 1, sampled));
    }
    assert!(server.discards()[Discard::NotAuthentic] >= 1023 && server.client(handle).is_some());
}

#[test]
fn transfers_without_an_uplink_limit_warn_every_five_minutes() {
    const MAP: ChannelId = ChannelId(1);
    // The transfers start after 0, 200, 400 and 600 s.
    for (limit, expected) in [(None, 2), (Some(BytesPerSecond(1e6)), 0)] {
        let (mut server, _player, _, handle) = with_connected_client();
        server.set_uplink(limit);
        let (_, warnings) = count_warnings("uplink", || {
            let start = server.now;
            for label in 0..4 {
                let monotonic = start.monotonic.after(Duration::from_secs(200 * label));
                server.begin_still_turn(Now { monotonic, ..start });
                let map = Transfer::new(vec![7; 1000]).unwrap();
                server.client(handle).unwrap().send_transfer(MAP, map, label).unwrap();
            }
        });
        assert_eq!(warnings, expected, "{limit:?}");
    }
}

/// Returns the number of warnings in a minute of turns of 100 ms, of which one in `turns_per_end` is ended.
fn warnings_of_loop(turns_per_end: u64) -> usize {
    let (mut server, _) = server();
    let (_, warnings) = count_warnings("without `end_turn`", || {
        for turn in 1..=600 {
            let monotonic = Instant::from_start(Duration::from_millis(100 * turn));
            server.begin_still_turn(Now { monotonic, ..at(0) });
            if turn % turns_per_end == 0 { server.end_turn() } else { server.flush() }
        }
    });
    warnings
}

#[test]
fn loop_that_never_ends_its_turns_is_warned_of_once() {
    assert_eq!([1, 2, 49].map(warnings_of_loop), [0; 3]);
    assert_eq!([70, 1000].map(warnings_of_loop), [1; 2]);
}

#[test]
fn pause_of_a_program_is_no_loop_without_ends() {
    let (mut server, _) = server();
    let (_, warnings) = count_warnings("without `end_turn`", || {
        for turn in 1..=4 {
            server.begin_still_turn(at(60 * turn));
            server.flush();
        }
    });
    assert_eq!(warnings, 0);
}

#[test]
fn clock_that_is_set_back_is_named_with_the_totals() {
    let ((mut server, _), UnixMillis(start)) = (server(), at(0).unix);
    let mut turn = |seconds: u64, unix: u64| {
        let monotonic = Instant::from_start(Duration::from_secs(seconds));
        server.begin_still_turn(Now { monotonic, unix: UnixMillis(unix) });
        server.end_turn();
    };
    let steps = || {
        turn(1, start + 61_000);
        turn(2, start + 3_662_000);
        turn(3, start + 63_000);
    };
    assert_eq!(count_lines(Level::WARN, "the wall clock was stepped", steps).1, 1, "the others wait");
    assert_eq!(count_lines(Level::WARN, "back_seconds=3600.0", || server.log_totals()).1, 1);
}
