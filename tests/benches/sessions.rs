//! Measures a server's sessions in memory: `cargo bench -p slipgate-tests --bench sessions`. Clients are in the same
//! process, so there are no sockets and no encryption: only the session layer.
//!
//! `-- echo`, `-- payload`, `-- idle` and `-- memory` run one measure, for a profiler: the function `server_turn` has
//! all work of the server, and nothing else. A number is that of the turns of an echo: the difference of two runs under
//! Callgrind (`--toggle-collect='*server_turn*'`) is the cost of the turns in between, without the first ones.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a program for developers"
)]

use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use slipgate_netcode::crypto::key::{Key, Seed};
use slipgate_netcode::server::{ClientHandle, NetcodeServer, ServerConfig};
use slipgate_netcode::time::{Instant, Now, UnixMillis};
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout, SendOptions};
use slipgate_session::connection::{Connection, ConnectionConfig, Memory, Role, SessionMessage, Traffic};
use slipgate_session::server::SessionServer;
use slipgate_tests::connection_memory::{ConnectionMemory, connection_memory};
use slipgate_tests::counting::Counting;
use slipgate_tests::netcode_world::{VecOutbox, address};
use slipgate_tests::sinks::ToServer;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const TURN: Duration = Duration::from_micros(16_667);
const MESSAGE: [u8; 100] = [7; 100];
const CHANNEL: ChannelId = ChannelId(0);

/// A client in the same process.
struct Player {
    handle: ClientHandle,
    /// `None` for bare payloads.
    connection: Option<Connection>,
}

struct World {
    server: SessionServer,
    players: Vec<Player>,
    /// The payloads that arrive at the server in a turn.
    arrivals: Vec<(ClientHandle, Vec<u8>)>,
    scratch: Vec<u8>,
    outbox: VecOutbox,
    now: Duration,
}

impl World {
    fn new(players: u32, layout: Option<&Arc<Layout>>) -> Self {
        let now = Duration::from_secs(1000);
        let settings = ServerConfig::new(7, players, &[address("10.0.0.1:40000").socket_addr()]);
        let keys = Key::from([1; 32]).into();
        let netcode = NetcodeServer::new(settings, keys, &Seed::from([2; 32]), moment(now)).unwrap();
        let config = ConnectionConfig::default();
        let traffic = layout.map_or(Traffic::Payloads, |layout| Traffic::Channels(Arc::clone(layout), config.clone()));
        let mut server = SessionServer::new(netcode, traffic, Memory::default()).unwrap();
        let players = (0..players).map(|id| {
            let handle = server.connect_loopback(u64::from(id).into(), [0; 256], moment(now)).unwrap();
            let connection =
                |layout: &Arc<Layout>| Connection::new(&config, Arc::clone(layout), Role::Client, None).unwrap();
            Player { handle, connection: layout.map(connection) }
        });
        let players = players.collect();
        let (arrivals, scratch) = (Vec::new(), Vec::new());
        Self { server, players, arrivals, scratch, outbox: VecOutbox::default(), now }
    }

    /// Every client sends a message, and the server returns it. Returns the time of the server.
    fn echo(&mut self) -> Duration {
        self.now += TURN;
        let now = moment(self.now);
        for Player { handle, connection } in &mut self.players {
            let netcode = &mut self.server.netcode;
            match connection {
                Some(connection) => {
                    connection.tick(now.monotonic);
                    connection.send(CHANNEL, &MESSAGE, SendOptions::default(), now.monotonic).unwrap();
                    let mut sink = ToServer::new(netcode, *handle);
                    connection.transmit(now.monotonic, &mut sink);
                }
                None => netcode.loopback_send(*handle, &MESSAGE).unwrap(),
            }
        }
        let mut buf = [0; MAX_PAYLOAD_BYTES];
        while let Some((client, bytes)) = self.server.netcode.poll_loopback(&mut buf) {
            self.arrivals.push((client, buf[..bytes].to_vec()));
        }
        let start = Clock::now();
        self.server_turn(now);
        let cost = start.elapsed();
        // The payloads belong to the clients' side of the benchmark: the server's turn does not free them.
        self.arrivals.clear();
        self.receive(now);
        cost
    }

    /// Delivers what the server sent. Returns the number of messages.
    fn receive(&mut self, now: Now) -> usize {
        let (mut buf, mut count) = ([0; MAX_PAYLOAD_BYTES], 0);
        for Player { handle, connection } in &mut self.players {
            while let Some(bytes) = self.server.netcode.loopback_receive(*handle, &mut buf) {
                let datagram = &buf[..bytes];
                let Some(connection) = connection else {
                    count += 1;
                    continue;
                };
                let Ok(Some(mut cursor)) = connection.handle(datagram, Duration::ZERO, now.monotonic) else { continue };
                while connection.next_message(datagram, &mut cursor, &mut self.scratch, now.monotonic).is_some() {
                    count += 1;
                }
            }
        }
        count
    }

    /// One turn of the server: everything that arrived, and a tick.
    #[inline(never)]
    fn server_turn(&mut self, now: Now) {
        let Self { server, arrivals, scratch, outbox, .. } = self;
        server.tick(now);
        for (client, payload) in arrivals.iter() {
            let Some(mut received) = server.handle_loopback(*client, payload, scratch, now) else { continue };
            while let Some(message) = server.next_message(payload, &mut received, scratch, now) {
                match message {
                    SessionMessage::Channel { channel, span, .. } => {
                        let bytes = span.bytes(payload, scratch);
                        let connection = server.connection_mut(*client).unwrap();
                        connection.send(channel, bytes, SendOptions::default(), now.monotonic).unwrap();
                    }
                    SessionMessage::Payload { span, .. } => {
                        server.send_payload(*client, span.bytes(payload, scratch), now, outbox).unwrap();
                    }
                    SessionMessage::Packet { .. } => {}
                }
            }
        }
        while server.poll_event().is_some() {}
        server.transmit(now, outbox);
    }

    /// A turn without arrivals, 1 ms after the last one.
    fn idle(&mut self) -> Duration {
        self.now += Duration::from_millis(1);
        let start = Clock::now();
        self.server_turn(moment(self.now));
        start.elapsed()
    }
}

fn moment(since_start: Duration) -> Now {
    Now {
        monotonic: Instant::from_start(since_start),
        unix: UnixMillis(1_700_000_000_000 + since_start.as_millis() as u64),
    }
}

fn layout(kinds: &[Kind]) -> Arc<Layout> {
    Arc::new(Layout::try_from(kinds.iter().map(|kind| ChannelConfig::from(*kind)).collect::<Vec<_>>()).unwrap())
}

fn say(line: &str) {
    if std::env::args().any(|argument| argument == "--json") {
        eprintln!("{line}");
    } else {
        println!("{line}");
    }
}

fn nanoseconds(times: impl Iterator<Item = Duration>, events: u32) -> f64 {
    let mut costs: Vec<f64> = times.map(|cost| cost.as_secs_f64() * 1e9 / f64::from(events)).collect();
    costs.sort_by(f64::total_cmp);
    costs[costs.len() / 2]
}

fn measure_echo(what: &str, kind: Option<Kind>, clients: u32, turns: Option<u32>) {
    let layout = kind.map(|kind| layout(&[kind]));
    let mut world = World::new(clients, layout.as_ref());
    let turns = turns.unwrap_or(40_000 / clients).max(20);
    let cost = nanoseconds((0..turns).map(|_| world.echo()), clients);
    say(&format!("{what:<60} {cost:>9.1} ns  ({turns} turns of {clients} clients)"));
}

fn measure_idle(clients: u32) {
    let mut world = World::new(clients, Some(&layout(&[Kind::Unreliable])));
    for _ in 0..30 {
        world.echo();
    }
    let rounds = (0..5).map(|_| {
        world.echo();
        (0..40).map(|_| world.idle()).sum::<Duration>() / 40
    });
    let cost = nanoseconds(rounds, 1);
    world.receive(moment(world.now));
    say(&format!("{:<60} {:>9.1} us", format!("an idle turn, {clients} clients"), cost / 1000.0));
}

fn measure_memory() {
    for (what, kinds) in [
        ("one unreliable channel", &[Kind::Unreliable][..]),
        ("four kinds", &[Kind::Unreliable, Kind::Sequenced, Kind::ReliableUnordered, Kind::ReliableOrdered]),
    ] {
        let ConnectionMemory { idle, after_traffic } = connection_memory(kinds);
        let what = format!("memory of a connection, {what}");
        say(&format!("{what:<60} {idle:>9} bytes, {after_traffic} after traffic"));
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let turns = arguments.iter().find_map(|argument| argument.parse().ok());
    let includes = |name: &str| arguments.is_empty() || arguments.iter().any(|argument| argument == name);
    for (name, what, kind) in [
        ("payload", "an echo of a bare payload, in memory", None),
        ("echo", "an echo on an unreliable channel, in memory", Some(Kind::Unreliable)),
        ("reliable", "an echo on a reliable ordered channel, in memory", Some(Kind::ReliableOrdered)),
    ] {
        if includes(name) {
            measure_echo(what, kind, 256, turns);
        }
    }
    if includes("idle") {
        measure_idle(10_000);
    }
    if includes("memory") {
        measure_memory();
    }
}
