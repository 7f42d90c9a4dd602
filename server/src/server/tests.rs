use std::net::{SocketAddr, UdpSocket};
use std::thread;

use slipgate_protocol::crypto::key::Key;
use slipgate_protocol::netcode::server::Config;
use slipgate_protocol::time::Instant;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::*;
use crate::Inbox;

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
    Now { monotonic: Instant::from_start(Duration::from_secs(seconds)), unix: slipgate_edge::clock::wall_clock() }
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
