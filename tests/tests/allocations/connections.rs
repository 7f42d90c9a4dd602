//! After warm-up a stream on all kinds of channels asks for no memory, in connections alone and put together with netcode.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::Outbox;
use slipgate_netcode::address::Address;
use slipgate_netcode::client::{Client as NetcodeClient, ClientState};
use slipgate_netcode::crypto::key::Seed;
use slipgate_netcode::server::{Config as NetcodeConfig, Fence, Server as NetcodeServer};
use slipgate_netcode::time::{Instant, Now, UnixMillis};
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::wire::{MAX_DATAGRAM_BYTES, MAX_PAYLOAD_BYTES};
use slipgate_session::channel::{Arrival, ChannelConfig, ChannelId, Kind, Layout, SendOptions};
use slipgate_session::client::{self, Client};
use slipgate_session::congestion::{Algorithm, BytesPerSecond};
use slipgate_session::reliability::Sink;
use slipgate_session::server::Server;
use slipgate_session::session::{Config, Connection, Memory, Traffic};
use slipgate_tests::counting::{allocations, held};
use slipgate_tests::world::{BEGINNING, PROTOCOL_ID, TokenSpec, World, address};

const KINDS: [Kind; 4] = [Kind::Unreliable, Kind::Sequenced, Kind::ReliableUnordered, Kind::ReliableOrdered];
const TURN: Duration = Duration::from_millis(16);
/// Turns before counting: until all that grows with the path's round trip and losses has grown. What is under way grows by
/// doubling, when more is lost in a row than ever before: the longest row of some thousand turns comes late.
const WARM_UP: u64 = 24_000;
const COUNTED: u64 = 4000;

fn layout() -> Arc<Layout> {
    Arc::new(Layout::new(KINDS.map(ChannelConfig::new).to_vec()).unwrap())
}

/// With a rate at which queues stay as deep as losses make them (memory is taken when they get deeper than ever), and with
/// the congestion avoidance that everybody has.
fn configs() -> [Config; 2] {
    let mut fixed = Config::default();
    fixed.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(2e6));
    [fixed, Config::default()]
}

/// The messages of a turn: small ones on every channel, and now and then one that must be cut.
fn say(turn: u64, mut send: impl FnMut(ChannelId, &[u8])) {
    let content = [turn as u8; 3000];
    for channel in (0..4).map(ChannelId) {
        send(channel, &content[..20 + usize::from(channel.0) * 100]);
        if turn % 8 == u64::from(channel.0) {
            send(channel, &content);
        }
    }
}

/// Every other turn's messages ask what becomes of them.
fn asking(turn: u64) -> SendOptions {
    SendOptions { receipt: Some(turn).filter(|turn| turn.is_multiple_of(2)), ..SendOptions::default() }
}

// Connections alone -------------------------------------------------------------------------------------------------

/// A path that loses some datagrams and repeats others, and is as large as it will ever be from the start.
struct Path {
    rooms: Vec<([u8; MAX_PAYLOAD_BYTES], usize)>,
    used: usize,
}

impl Sink for Path {
    fn rooms(&self) -> usize {
        self.rooms.len() - self.used
    }

    fn room(&mut self) -> Option<&mut [u8]> {
        self.rooms.get_mut(self.used).map(|(bytes, _)| &mut bytes[..])
    }

    fn commit(&mut self, bytes: usize) {
        self.rooms[self.used].1 = bytes;
        self.used += 1;
    }
}

struct End {
    connection: Connection,
    scratch: Vec<u8>,
    arrived: u64,
}

impl End {
    fn hear(&mut self, path: &mut Path, turn: u64, now: Instant) {
        for (place, (room, bytes)) in path.rooms[..path.used].iter().enumerate() {
            for _ in 0..[1, 1, 1, 2, 1, 0, 1, 1, 1][(turn as usize * 5 + place) % 9] {
                let datagram = &room[..*bytes];
                let Ok(Some(mut incoming)) = self.connection.handle(datagram, now) else { continue };
                while let Some(Arrival::Message { .. }) =
                    self.connection.next(datagram, &mut incoming, &mut self.scratch, now)
                {
                    self.arrived += 1;
                }
            }
        }
        path.used = 0;
    }
}

fn talk(ends: &mut [End; 2], paths: &mut [Path; 2], turns: std::ops::Range<u64>) {
    for turn in turns {
        let now = Instant::from_start(TURN * turn as u32);
        for (end, path) in ends.iter_mut().zip(&mut *paths) {
            end.connection.tick(now);
            // A queue that is full is no reason to ask for memory.
            say(turn, |channel, message| {
                let _ = end.connection.send(channel, message, asking(turn), now);
            });
            end.connection.transmit(now, path);
            while end.connection.poll_event().is_some() {}
            std::hint::black_box((end.connection.budget(now), end.connection.stats(now)));
        }
        let ([a, b], [there, back]) = (&mut *ends, &mut *paths);
        b.hear(there, turn, now);
        a.hear(back, turn, now);
    }
}

#[test]
fn a_stream_on_all_channels_asks_for_no_memory_although_packets_get_lost() {
    for config in configs() {
        let end =
            || End { connection: Connection::new(&config, layout(), None).unwrap(), scratch: Vec::new(), arrived: 0 };
        let path = || Path { rooms: vec![([0; MAX_PAYLOAD_BYTES], 0); 256], used: 0 };
        let (mut ends, mut paths) = ([end(), end()], [path(), path()]);
        talk(&mut ends, &mut paths, 0..WARM_UP);
        let before: u64 = ends.iter().map(|end| end.arrived).sum();
        let asked = allocations(|| talk(&mut ends, &mut paths, WARM_UP..WARM_UP + COUNTED));
        assert_eq!(asked, 0, "{:?}", config.congestion.algorithm);
        let arrived = ends.iter().map(|end| end.arrived).sum::<u64>() - before;
        assert!(arrived > 8 * COUNTED, "only {arrived} messages: {:?}", config.congestion.algorithm);
        assert!(ends.iter().all(|end| end.connection.end().is_none()));
    }
}

// Put together with netcode -----------------------------------------------------------------------------------------

/// Room for datagrams, all of it asked for once.
struct Batch {
    rooms: Vec<[u8; MAX_DATAGRAM_BYTES]>,
    lengths: Vec<usize>,
}

impl Batch {
    fn new() -> Self {
        Self { rooms: vec![[0; MAX_DATAGRAM_BYTES]; 128], lengths: Vec::with_capacity(128) }
    }

    /// Those of the datagrams that arrive.
    fn each(&mut self, turn: u64) -> impl Iterator<Item = &mut [u8]> {
        let all = self.rooms.iter_mut().zip(self.lengths.drain(..)).map(|(room, length)| &mut room[..length]);
        all.enumerate().filter(move |(place, _)| (turn as usize * 5 + place) % 11 != 7).map(|(_, datagram)| datagram)
    }
}

impl Outbox for Batch {
    fn rooms(&self) -> usize {
        self.rooms.len() - self.lengths.len()
    }

    fn room(&mut self) -> Option<&mut [u8; MAX_DATAGRAM_BYTES]> {
        self.rooms.get_mut(self.lengths.len())
    }

    fn commit(&mut self, _: Address, bytes: usize) {
        self.lengths.push(bytes);
    }
}

struct Together {
    server: Server,
    client: Client,
    home: Address,
    away: Address,
    up: Batch,
    down: Batch,
    scratch: Vec<u8>,
    turn: u64,
    arrived: u64,
}

impl Together {
    fn connected(config: Config) -> Self {
        let mut mint = World::perfect(1);
        let (home, away) = (address("10.0.0.1:40000"), address("10.1.0.1:5000"));
        let mut settings = NetcodeConfig::new(PROTOCOL_ID, 8, vec![home]);
        settings.fence = Fence::Open;
        let start = Now { monotonic: Instant::default(), unix: BEGINNING };
        let keys = mint.private_key.clone().into();
        let netcode = NetcodeServer::new(settings, keys, &Seed::from_bytes([1; 32]), start).unwrap();
        let traffic = Traffic::Channels(layout(), config);
        let server = Server::new(netcode, traffic.clone(), Memory::default()).unwrap();
        let mut client = Client::new(NetcodeClient::new(TimeoutPolicy::Clamped));
        client.set_traffic(traffic).unwrap();
        let spec = TokenSpec { client_id: 1, servers: vec![home], lifetime: 45, timeout: 5, user_data: [0; 256] };
        client.netcode_mut().connect(mint.mint(&spec), start.monotonic).unwrap();
        let (up, down, scratch) = (Batch::new(), Batch::new(), Vec::new());
        let mut together = Self { server, client, home, away, up, down, scratch, turn: 0, arrived: 0 };
        (0..50).for_each(|_| together.turn(|_, _| {}));
        assert_eq!(together.client.netcode().state(), ClientState::Connected);
        together
    }

    /// One turn of both; what they say is `speak`'s affair.
    fn turn(&mut self, speak: impl Fn(&mut Self, Now)) {
        self.turn += 1;
        let unix = UnixMillis(BEGINNING.0 + self.turn * TURN.as_millis() as u64);
        let now = Now { monotonic: Instant::from_start(TURN * self.turn as u32), unix };
        for datagram in self.up.each(self.turn) {
            let Ok(Some(mut received)) = self.server.handle(self.away, datagram, &mut self.scratch, now) else {
                continue;
            };
            while self.server.next(datagram, &mut received, &mut self.scratch, now).is_some() {
                self.arrived += 1;
            }
        }
        for datagram in self.down.each(self.turn) {
            let (scratch, now) = (&mut self.scratch, now.monotonic);
            let Ok(Some(mut received)) = self.client.handle(self.home, datagram, scratch, now) else { continue };
            while let Some(client::Message::Channel { .. }) = self.client.next(datagram, &mut received, scratch, now) {
                self.arrived += 1;
            }
        }
        while self.server.poll_event().is_some() {}
        while self.client.poll_event().is_some() {}
        speak(self, now);
        self.server.tick(now);
        self.client.tick(now.monotonic);
        self.server.transmit(now, &mut self.down);
        self.client.transmit(now.monotonic, &mut self.up);
    }

    fn talk(&mut self, now: Now) {
        let turn = self.turn;
        let handle = self.server.netcode().find(1).expect("a slot");
        say(turn, |channel, message| {
            let _ = self.client.send_message(channel, message, asking(turn), now.monotonic);
            let _ = self.server.send_message(handle, channel, message, asking(turn), now);
        });
    }
}

#[test]
fn a_stream_through_server_and_client_asks_for_no_memory() {
    for config in configs() {
        let algorithm = config.congestion.algorithm;
        let mut together = Together::connected(config);
        let mut run = |turns| (0..turns).for_each(|_| together.turn(Together::talk));
        run(WARM_UP);
        assert_eq!(allocations(|| run(COUNTED)), 0, "{algorithm:?}");
        assert!(together.arrived > 8 * COUNTED, "only {} messages: {algorithm:?}", together.arrived);
    }
}

#[test]
fn silence_asks_for_no_memory_either() {
    let mut together = Together::connected(Config::default());
    let mut run = || (0..WARM_UP).for_each(|_| together.turn(|_, _| {}));
    run();
    assert_eq!(allocations(run), 0);
    assert_eq!(together.client.netcode().state(), ClientState::Connected);
}

// What they hold ----------------------------------------------------------------------------------------------------

#[test]
fn an_idle_connection_holds_little() {
    let layout = layout();
    let (connection, bytes) = held(|| Connection::new(&Config::default(), layout, None).unwrap());
    println!("{bytes} bytes, and {} in place", size_of_val(&connection));
    assert!(bytes as usize + size_of_val(&connection) <= 40 << 10, "{bytes} bytes");
}
