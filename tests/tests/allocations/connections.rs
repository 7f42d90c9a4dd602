//! A stream on all kinds of channels does not allocate after warm-up, in connections alone and on top of netcode.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::Outbox;
use slipgate_netcode::address::Address;
use slipgate_netcode::client::{ClientState, NetcodeClient};
use slipgate_netcode::crypto::key::Seed;
use slipgate_netcode::server::{NetcodeServer, ServerConfig, TokenCutoff};
use slipgate_netcode::time::{Instant, Now, UnixMillis};
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::wire::{MAX_DATAGRAM_BYTES, MAX_PAYLOAD_BYTES};
use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout, SendOptions};
use slipgate_session::client::SessionClient;
use slipgate_session::congestion::{Algorithm, BytesPerSecond};
use slipgate_session::connection::{Connection, ConnectionConfig, Memory, Role, SessionMessage, Traffic};
use slipgate_session::reliability::Sink;
use slipgate_session::server::SessionServer;
use slipgate_tests::connection_memory::connection_memory;
use slipgate_tests::counting::{allocations, held};
use slipgate_tests::netcode_world::{NetcodeWorld, PROTOCOL_ID, START_TIME, TokenSpec, address};

const KINDS: [Kind; 4] = [Kind::Unreliable, Kind::Sequenced, Kind::ReliableUnordered, Kind::ReliableOrdered];
const TURN: Duration = Duration::from_millis(16);
/// Turns before the count, until everything that grows with round trip and losses has grown. Memory in flight grows by
/// doubling, when more packets in a row are lost than ever before: the longest row of some thousand turns comes late.
/// So does the deepest queue behind one of the tests for a policer, which hold the rate back each half minute.
const WARM_UP: u64 = 40_000;
const COUNTED: u64 = 4000;

/// Which datagrams are lost between server and client.
#[derive(Clone, Copy)]
enum Losses {
    /// One of three: queues are deeper than the rarest row of the usual losses makes them.
    Heavy,
    /// All of 4 turns in 64, in one direction after the other: acknowledgements are of more packets than usual.
    Outages,
    /// One of 11.
    Usual,
}

impl Losses {
    fn drop(self, turn: u64, index: usize) -> bool {
        let number = turn as usize * 5 + index;
        match self {
            Self::Heavy => number % 3 == 1,
            Self::Outages => turn % 64 < 4,
            Self::Usual => number % 11 == 7,
        }
    }
}

fn layout() -> Arc<Layout> {
    Arc::new(Layout::try_from(KINDS.map(ChannelConfig::from).to_vec()).unwrap())
}

/// Returns a fixed rate, with queues as deep as losses make them (deeper queues than ever before allocate), and the
/// default congestion avoidance.
fn configs() -> [ConnectionConfig; 2] {
    let mut fixed = ConnectionConfig::default();
    fixed.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(2e6));
    [fixed, ConnectionConfig::default()]
}

/// Sends the messages of a turn: small ones on every channel, and at intervals one that must be fragmented.
fn send_messages(turn: u64, mut send: impl FnMut(ChannelId, &[u8])) {
    let content = [turn as u8; 3000];
    for channel in (0..4).map(ChannelId) {
        send(channel, &content[..20 + usize::from(channel.0) * 100]);
        if turn % 8 == u64::from(channel.0) {
            send(channel, &content);
        }
    }
}

/// Returns options with a receipt for every second turn.
fn send_options(turn: u64) -> SendOptions {
    SendOptions { receipt: Some(turn).filter(|turn| turn.is_multiple_of(2)), ..SendOptions::default() }
}

// Connections alone -------------------------------------------------------------------------------------------------

/// A path that loses some datagrams and duplicates others, at its final size from the start.
struct Path {
    bufs: Vec<([u8; MAX_PAYLOAD_BYTES], usize)>,
    used: usize,
}

impl Sink for Path {
    fn remaining(&self) -> usize {
        self.bufs.len() - self.used
    }

    fn next_buf(&mut self) -> Option<&mut [u8]> {
        self.bufs.get_mut(self.used).map(|(bytes, _)| &mut bytes[..])
    }

    fn commit(&mut self, bytes: usize) {
        self.bufs[self.used].1 = bytes;
        self.used += 1;
    }
}

struct End {
    connection: Connection,
    scratch: Vec<u8>,
    arrived: u64,
}

impl End {
    fn receive(&mut self, path: &mut Path, turn: u64, now: Instant) {
        for (index, (buf, bytes)) in path.bufs[..path.used].iter().enumerate() {
            for _ in 0..[1, 1, 1, 2, 1, 0, 1, 1, 1][(turn as usize * 5 + index) % 9] {
                let datagram = &buf[..*bytes];
                let Ok(Some(mut incoming)) = self.connection.handle(datagram, Duration::ZERO, now) else { continue };
                while self.connection.next_message(datagram, &mut incoming, &mut self.scratch, now).is_some() {
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
            // A full queue must not allocate.
            send_messages(turn, |channel, message| {
                let _ = end.connection.send(channel, message, send_options(turn), now);
            });
            end.connection.transmit(now, path);
            while end.connection.channels.poll_event().is_some() {}
            std::hint::black_box((end.connection.budget(now), end.connection.stats(now)));
        }
        let ([a, b], [up_path, down_path]) = (&mut *ends, &mut *paths);
        b.receive(up_path, turn, now);
        a.receive(down_path, turn, now);
    }
}

#[test]
fn lossy_stream_on_all_channels_does_not_allocate() {
    for config in configs() {
        let end = || End {
            connection: Connection::new(&config, layout(), Role::Client, None).unwrap(),
            scratch: Vec::new(),
            arrived: 0,
        };
        let path = || Path { bufs: vec![([0; MAX_PAYLOAD_BYTES], 0); 256], used: 0 };
        let (mut ends, mut paths) = ([end(), end()], [path(), path()]);
        talk(&mut ends, &mut paths, 0..WARM_UP);
        let before: u64 = ends.iter().map(|end| end.arrived).sum();
        let allocation_count = allocations(|| talk(&mut ends, &mut paths, WARM_UP..WARM_UP + COUNTED));
        assert_eq!(allocation_count, 0, "{:?}", config.congestion.algorithm);
        let arrived = ends.iter().map(|end| end.arrived).sum::<u64>() - before;
        assert!(arrived > 8 * COUNTED, "only {arrived} messages: {:?}", config.congestion.algorithm);
        assert!(ends.iter().all(|end| end.connection.close_reason().is_none()));
    }
}

// Netcode below ------------------------------------------------------------------------------------------------------

/// Buffers for datagrams, allocated once.
struct Batch {
    bufs: Vec<[u8; MAX_DATAGRAM_BYTES]>,
    lengths: Vec<usize>,
}

impl Batch {
    fn new() -> Self {
        Self { bufs: vec![[0; MAX_DATAGRAM_BYTES]; 128], lengths: Vec::with_capacity(128) }
    }

    /// Returns the datagrams that arrive, with these losses.
    fn each(&mut self, turn: u64, losses: Losses) -> impl Iterator<Item = &mut [u8]> {
        let all = self.bufs.iter_mut().zip(self.lengths.drain(..)).map(|(buf, length)| &mut buf[..length]);
        all.enumerate().filter(move |(index, _)| !losses.drop(turn, *index)).map(|(_, datagram)| datagram)
    }
}

impl Outbox for Batch {
    fn remaining(&self) -> usize {
        self.bufs.len() - self.lengths.len()
    }

    fn next_buf(&mut self) -> Option<&mut [u8; MAX_DATAGRAM_BYTES]> {
        self.bufs.get_mut(self.lengths.len())
    }

    fn commit(&mut self, _: Address, bytes: usize) {
        self.lengths.push(bytes);
    }
}

struct Together {
    server: SessionServer,
    client: SessionClient,
    server_address: Address,
    away: Address,
    up: Batch,
    down: Batch,
    scratch: Vec<u8>,
    losses: Losses,
    turn: u64,
    arrived: u64,
}

impl Together {
    fn connected(config: ConnectionConfig) -> Self {
        let mut mint = NetcodeWorld::perfect(1);
        let (server_address, away) = (address("10.0.0.1:40000"), address("10.1.0.1:5000"));
        let mut settings = ServerConfig::new(PROTOCOL_ID, 8, &[server_address.socket_addr()]);
        settings.token_cutoff = TokenCutoff::None;
        let start = Now { monotonic: Instant::default(), unix: START_TIME };
        let keys = mint.private_key.clone().into();
        let netcode = NetcodeServer::new(settings, keys, &Seed::from([1; 32]), start).unwrap();
        let traffic = Traffic::Channels(layout(), config);
        let server = SessionServer::new(netcode, traffic.clone(), Memory::default()).unwrap();
        let mut client = SessionClient::new(NetcodeClient::new(TimeoutPolicy::Clamped), &Seed::from([9; 32]));
        client.set_traffic(traffic).unwrap();
        let spec =
            TokenSpec { client_id: 1, servers: vec![server_address], lifetime: 45, timeout: 5, user_data: [0; 256] };
        client.netcode.connect(mint.mint(&spec), start.monotonic, |_| true).unwrap();
        let (up, down, scratch) = (Batch::new(), Batch::new(), Vec::new());
        let losses = Losses::Usual;
        let mut together =
            Self { server, client, server_address, away, up, down, scratch, losses, turn: 0, arrived: 0 };
        (0..50).for_each(|_| together.turn(|_, _| {}));
        assert_eq!(together.client.netcode.state(), ClientState::Connected);
        together
    }

    /// Runs one turn of both; `speak` sends their messages.
    fn turn(&mut self, speak: impl Fn(&mut Self, Now)) {
        self.turn += 1;
        let unix = UnixMillis(START_TIME.0 + self.turn * TURN.as_millis() as u64);
        let now = Now { monotonic: Instant::from_start(TURN * self.turn as u32), unix };
        for datagram in self.up.each(self.turn, self.losses) {
            let Ok(Some(mut received)) = self.server.handle(self.away, datagram, &mut self.scratch, now) else {
                continue;
            };
            while self.server.next_message(datagram, &mut received, &mut self.scratch, now).is_some() {
                self.arrived += 1;
            }
        }
        // Other turns, so that outages do not hit both directions.
        for datagram in self.down.each(self.turn + 32, self.losses) {
            let (scratch, now) = (&mut self.scratch, now.monotonic);
            let Ok(Some(mut received)) = self.client.handle(self.server_address, datagram, scratch, now) else {
                continue;
            };
            while let Some(SessionMessage::Channel { .. }) =
                self.client.next_message(datagram, &mut received, scratch, now)
            {
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
        let handle = self.server.netcode.find(1).expect("a slot");
        send_messages(turn, |channel, message| {
            let _ = self
                .client
                .connection_mut()
                .map(|connection| connection.send(channel, message, send_options(turn), now.monotonic));
            let _ = self
                .server
                .connection_mut(handle)
                .map(|connection| connection.send(channel, message, send_options(turn), now.monotonic));
        });
    }
}

#[test]
fn stream_through_server_and_client_does_not_allocate() {
    for config in configs() {
        let algorithm = config.congestion.algorithm;
        let mut together = Together::connected(config);
        let run = |together: &mut Together, turns| (0..turns).for_each(|_| together.turn(Together::talk));
        for losses in [Losses::Heavy, Losses::Outages, Losses::Usual] {
            together.losses = losses;
            run(&mut together, WARM_UP / 3);
        }
        assert_eq!(allocations(|| run(&mut together, COUNTED)), 0, "{algorithm:?}");
        assert!(together.arrived > 8 * COUNTED, "only {} messages: {algorithm:?}", together.arrived);
    }
}

#[test]
fn idle_connections_do_not_allocate() {
    let mut together = Together::connected(ConnectionConfig::default());
    let mut run = || (0..WARM_UP).for_each(|_| together.turn(|_, _| {}));
    run();
    assert_eq!(allocations(run), 0);
    assert_eq!(together.client.netcode.state(), ClientState::Connected);
}

// Memory ------------------------------------------------------------------------------------------------------------

#[test]
fn idle_connection_holds_little_memory() {
    let layout = layout();
    let (connection, bytes) =
        held(|| Connection::new(&ConnectionConfig::default(), layout, Role::Client, None).unwrap());
    println!("{bytes} bytes, and {} inline", size_of_val(&connection));
    assert!(bytes as usize + size_of_val(&connection) <= 40 << 10, "{bytes} bytes");
}

// The memory of a connection ----------------------------------------------------------------------------------------

#[test]
fn connection_takes_16_kib_after_the_traffic_of_a_game() {
    for (kinds, idle) in [(&KINDS[..1], 6 << 10), (&KINDS[..], 8 << 10)] {
        let memory = connection_memory(kinds);
        assert!(memory.idle <= idle && memory.after_traffic <= 16 << 10, "{kinds:?}: {memory:?}");
    }
}
