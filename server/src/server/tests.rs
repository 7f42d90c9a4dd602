use std::net::{SocketAddr, UdpSocket};
use std::thread;

use rand::SeedableRng;
use rand::rngs::StdRng;
use slipgate_client::Client;
use slipgate_netcode::crypto::key::{Key, Seed};
use slipgate_netcode::server::{self as netcode, Config, Fence, Storage};
use slipgate_netcode::time::Instant;
use slipgate_netcode::token::issue::{Claims, issue};
use slipgate_netcode::wire::USER_DATA_BYTES;
use slipgate_netcode::wire::token::Servers;
use slipgate_os::clock::Clock;
use slipgate_session::session::Memory;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::*;
use crate::Inbox;
use crate::journal::tests::SlowDisk;

/// A log that breaks whenever something is said.
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

/// A server on a port of its own, and where it is.
fn server() -> (Server, SocketAddr) {
    let sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
    let to = sockets.local_addresses()[0];
    let config = Config::new(7, 4, vec![to.into()]);
    let mut server = Server::new(sockets, config, Key::from_bytes([7; 32]).into(), at(0)).unwrap();
    // Where there is a filter, junk would not come so far.
    let _ = server.set_kernel_filter(false);
    (server, to)
}

/// A server that has dropped a datagram, in the middle of a turn so late that its end says so in the log.
fn about_to_speak() -> Server {
    let (mut server, to) = server();
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"junk", to).unwrap();
    server.wait(Duration::from_secs(5)).unwrap();
    server.begin_turn(at(3600));
    let mut inbox = Inbox::default();
    while inbox.next(&mut server).is_some() {}
    assert_eq!(server.discards().total(), 1);
    server
}

/// What a thread says that panics with a server and a broken log.
fn panic_of(game: impl FnOnce(Server) + Send + 'static) -> &'static str {
    let game = || tracing::subscriber::with_default(BrokenLog, || game(about_to_speak()));
    let panic = thread::spawn(game).join().unwrap_err();
    panic.downcast_ref::<&str>().unwrap()
}

#[test]
fn a_goodbye_that_panics_while_a_game_panics_does_not_end_the_process() {
    assert_eq!(panic_of(drop), "the log is broken", "so does the goodbye of a server that is dropped in order");
    let game = |server: Server| {
        let _server = server;
        panic!("of the game");
    };
    assert_eq!(panic_of(game), "of the game");
}

#[test]
fn in_a_still_turn_no_time_passes_but_it_reads_no_longer_than_another() {
    let (mut server, to) = server();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    (0..200).for_each(|_| assert_eq!(stranger.send_to(b"junk", to).unwrap(), 4));
    server.wait(Duration::from_secs(5)).unwrap();
    server.set_time_per_turn(Duration::ZERO);
    server.begin_still_turn(at(60));
    let mut inbox = Inbox::default();
    while inbox.next(&mut server).is_some() {}
    assert!((1..200).contains(&server.discards().total()), "{:?}", server.discards());
    assert_eq!(server.turns_cut_short(), 1);
    thread::sleep(Duration::from_millis(5));
    server.end_turn();
    assert_eq!(server.now.monotonic, at(60).monotonic);
    server.begin_turn(at(60));
    thread::sleep(Duration::from_millis(5));
    server.end_turn();
    assert!(server.now.monotonic >= at(60).monotonic.after(Duration::from_millis(5)));
}

/// A client on a socket of its own, with a token for the server at this address, and what it has heard.
struct Player {
    client: Client,
    inbox: slipgate_client::Inbox,
    echoes: usize,
}

impl Player {
    fn connecting(client_id: u64, to: SocketAddr, now: Now) -> Self {
        let claims = Claims {
            protocol_id: 7,
            client_id,
            servers: &Servers::new(&[to]).unwrap(),
            internal_servers: None,
            lifetime_seconds: 30,
            timeout_seconds: 5,
            user_data: &[0; USER_DATA_BYTES],
        };
        let mut random = StdRng::seed_from_u64(client_id);
        let token = issue(&claims, &Key::from_bytes([7; 32]), now.unix, &mut random).unwrap();
        let mut client = Client::new().unwrap();
        client.connect(token, now).unwrap();
        Self { client, inbox: slipgate_client::Inbox::default(), echoes: 0 }
    }

    /// Hears what there is, and sends something once it is connected.
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

/// A turn of an echo; who has come in it.
fn echo_turn(server: &mut Server, now: Now) -> Vec<u64> {
    let (mut inbox, mut newcomers, mut payloads) = (Inbox::default(), Vec::new(), Vec::new());
    server.begin_turn(now);
    while let Some(event) = inbox.next(server) {
        match event {
            crate::Event::Connected { client, client_id } => {
                assert_eq!(server.send(client, b"welcome"), Ok(()), "who is told of can be sent to");
                newcomers.push(client_id);
            }
            crate::Event::Payload { client, bytes, .. } => payloads.push((client, bytes.to_vec())),
            _ => {}
        }
    }
    payloads.iter().for_each(|(client, bytes)| server.send(*client, bytes).unwrap());
    server.end_turn();
    newcomers
}

#[test]
fn while_a_disk_flushes_players_play_on_and_a_newcomer_waits_for_it_alone() {
    let sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
    let to = sockets.local_addresses()[0];
    let mut config = Config::new(7, 4, vec![to.into()]);
    config.fence = Fence::Open;
    let (journal, flushes) = SlowDisk::journal();
    let storage = Storage { names: [1; 32], used: Vec::new(), journal: Box::new(journal) };
    let seed = Seed::from_bytes([3; 32]);
    let netcode =
        netcode::Server::with_storage(config, Key::from_bytes([7; 32]).into(), &seed, at(0), storage).unwrap();
    let mut server = Server::around(netcode, sockets, at(0), Memory::default()).unwrap();

    let clock = Clock::start();
    let mut players = vec![Player::connecting(1, to, clock.now())];
    let mut newcomers = Vec::new();
    let mut play = |players: &mut [Player], done: &mut dyn FnMut(&[Player], &[u64]) -> bool| {
        for _ in 0..5_000 {
            players.iter_mut().for_each(|player| player.turn(clock.now()));
            newcomers.extend(echo_turn(&mut server, clock.now()));
            if done(players, &newcomers) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("it does not come so far");
    };

    play(&mut players, &mut |_, _| flushes.try_recv().is_ok_and(|end| end.send(Ok(())).is_ok()));
    play(&mut players, &mut |players, _| players[0].echoes >= 1);
    players.push(Player::connecting(2, to, clock.now()));
    let mut end = None;
    play(&mut players, &mut |_, _| {
        end = flushes.try_recv().ok();
        end.is_some()
    });
    // The disk is at it, and a hundred echoes go there and back.
    let before = players[0].echoes;
    play(&mut players, &mut |players, newcomers| {
        assert!(newcomers == [1] && !players[1].client.state().is_connected());
        players[0].echoes >= before + 100
    });
    end.unwrap().send(Ok(())).unwrap();
    play(&mut players, &mut |players, newcomers| players[1].echoes >= 1 && newcomers == [1, 2]);
}
