//! Eight clients beside a flooding one on real sockets: their round trips, and how many of their messages arrive.
//!
//! Rounds without and with the flood alternate. A round without it has a thread that keeps one core busy instead, as
//! the flooding program would, so that the difference is what the server does.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use slipgate_client::{Client, ClientState, Inbox as ClientInbox};
use slipgate_netcode::Outbox;
use slipgate_netcode::address::Address;
use slipgate_netcode::client::NetcodeClient;
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::wire::MAX_DATAGRAM_BYTES;
use slipgate_os::pace::Pace;
use slipgate_server::keys::Key;
use slipgate_server::sharded::{ShardedServer, ShardedServerConfig};
use slipgate_server::{ChannelId, Clock, Event, Inbox, Server, ServerConfig, Sockets, Traffic};
use slipgate_session::connection::ConnectionConfig;
use slipgate_session::wire::reliable::ReliableHeader;
use slipgate_tests::hostile::{FloodMix, FloodWriter, ORDERED, UNRELIABLE, flood_layout};
use slipgate_tests::live::{IPV4, PRIVATE_KEY, PROTOCOL_ID, TokenOrder};
use slipgate_udp::{ReceiveBatch, SendBatch};

const INNOCENTS: u64 = 8;
const FLOODER: u64 = 99;
const TICK: Duration = Duration::from_millis(16);
/// The game loop of the sharded server.
const GAME_TICK: Duration = Duration::from_millis(4);
/// How often each innocent client sends, and for how long: 4,000 round trips in a round.
const SEND_INTERVAL: Duration = Duration::from_millis(8);
const ROUND: Duration = Duration::from_secs(2);
/// The application's work for each message.
const WORK: Duration = Duration::from_micros(1);
/// How often the server sends a message to each flooder.
const MESSAGE_INTERVAL: Duration = Duration::from_millis(1);
/// The goal: the p99 beside a flood in relation to the p99 without it.
const MAX_RATIO: f64 = 2.0;

/// The server under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Single,
    Sharded,
}

/// What flooding clients send, and how fast each of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Attack {
    pub(crate) content: Content,
    pub(crate) pace: AttackPace,
    /// The clients that flood at the same time, all by one thread.
    pub(crate) flooders: u32,
}

/// The datagrams of a flood.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Authentic packets.
    Packets(FloodMix),
    /// One authentic packet again and again, with the same packet number.
    Replayed,
    /// Datagrams of this number of bytes with ever new packet numbers that do not open.
    Forged(usize),
}

impl Content {
    /// All contents.
    pub(crate) fn every() -> Vec<Self> {
        let packets = FloodMix::EVERY.map(Self::Packets);
        packets.into_iter().chain([Self::Replayed, Self::Forged(60), Self::Forged(1200)]).collect()
    }
}

/// The word that chooses it.
impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(mix) => write!(f, "{mix:?}"),
            Self::Replayed => f.write_str("Replayed"),
            Self::Forged(bytes) => write!(f, "Forged{bytes}"),
        }
    }
}

/// How fast a flooding client sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AttackPace {
    /// As fast as one core can.
    Full,
    /// This number of packets a second.
    PerSecond(u32),
    /// Bursts of this number of packets, and the time from one to the next in milliseconds.
    Bursts(u32, u32),
}

/// What the server reports after a round.
#[derive(Default, Debug)]
struct Report {
    /// The reason of the last flooder's disconnect, and after how long.
    ended: Option<(String, Duration)>,
    flood_messages: u64,
    longest_turn: Duration,
    pauses: u64,
    overflow: Option<u64>,
    cut_short: u64,
}

fn traffic() -> Traffic {
    Traffic::Channels(flood_layout(), ConnectionConfig::default())
}

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {}
}

struct Game {
    work: Duration,
    start: Instant,
    flooders: Vec<slipgate_server::ClientHandle>,
    /// When the flooders are sent the next message, so that they have packets to acknowledge.
    next_message: Instant,
    report: Report,
}

impl Game {
    /// Returns the flooders that are sent a message now.
    fn receivers(&mut self) -> Vec<slipgate_server::ClientHandle> {
        if Instant::now() < self.next_message {
            return Vec::new();
        }
        self.next_message = Instant::now() + MESSAGE_INTERVAL;
        self.flooders.clone()
    }

    /// Does the work of an event. Returns whether its message is echoed.
    fn on_event(&mut self, event: &Event<'_>) -> bool {
        match event {
            Event::Connected { client, client_id } if client_id.0 >= FLOODER => self.flooders.push(*client),
            Event::Disconnected { client_id, reason, .. } if client_id.0 >= FLOODER => {
                self.report.ended = Some((format!("{:?}", reason.kind), self.start.elapsed()));
            }
            Event::Message { client, .. } => {
                if !self.work.is_zero() {
                    spin(self.work);
                }
                let floods = self.flooders.contains(client);
                self.report.flood_messages += u64::from(floods);
                return !floods;
            }
            _ => {}
        }
        false
    }
}

fn servers(count: u16) -> (Vec<Server>, Clock, SocketAddr) {
    let sockets = Sockets::bind_shards(&[(IPV4, 0).into()], count).expect("a free port");
    let address = sockets[0].local_addresses()[0];
    let config = ServerConfig::new(PROTOCOL_ID, 32, &[address]);
    let clock = Clock::start();
    let servers = Server::shards(sockets, config, Key::from(PRIVATE_KEY).into(), clock.now(), None).expect("valid");
    (servers.into_iter().map(|server| server.with_traffic(traffic()).expect("valid")).collect(), clock, address)
}

fn serve(kind: Kind, work: Duration, stop: &Arc<AtomicBool>) -> (SocketAddr, thread::JoinHandle<Report>) {
    let (servers, clock, address) = servers(1);
    let (stop, start) = (Arc::clone(stop), Instant::now());
    let game = Game { work, start, flooders: Vec::new(), next_message: start, report: Report::default() };
    let thread = thread::spawn(move || match kind {
        Kind::Single => serve_single(servers, clock, game, &stop),
        Kind::Sharded => serve_sharded(servers, clock, game, &stop),
    });
    (address, thread)
}

fn serve_sharded(servers: Vec<Server>, clock: Clock, mut game: Game, stop: &AtomicBool) -> Report {
    let config = ShardedServerConfig::default();
    let mut server = ShardedServer::start(servers, clock, TICK, config).expect("valid settings");
    let mut echoes = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        while let Some(event) = server.next_event() {
            if game.on_event(&event)
                && let Event::Message { client, channel, bytes, .. } = event
            {
                echoes.push((client, channel, bytes.to_vec()));
            }
        }
        for client in game.receivers() {
            let _ = server.send_message(client, ChannelId(UNRELIABLE), &[0; 8]);
        }
        for (client, channel, bytes) in echoes.drain(..) {
            let _ = server.send_message(client, channel, &bytes);
        }
        server.flush();
        game.report.longest_turn = game.report.longest_turn.max(start.elapsed());
        thread::sleep(GAME_TICK);
    }
    let shard = slipgate_server::sharded::ShardId(0);
    game.report.pauses = server.counts(shard).pauses;
    let totals = server.totals();
    game.report.overflow = totals[0].sockets.dropped_by_system;
    game.report.cut_short = totals[0].turns_cut_short;
    game.report
}

fn serve_single(mut servers: Vec<Server>, clock: Clock, mut game: Game, stop: &AtomicBool) -> Report {
    let (mut server, mut inbox, mut pace) = (servers.remove(0), Inbox::default(), Pace::new(clock, TICK));
    while !stop.load(Ordering::Relaxed) {
        let (start, now) = (Instant::now(), clock.now());
        server.begin_turn(now);
        while let Some(event) = inbox.next(&mut server) {
            if game.on_event(&event)
                && let Event::Message { client, channel, bytes, .. } = event
            {
                let _ = server.send_message(client, channel, bytes);
            }
        }
        for client in game.receivers() {
            let _ = server.send_message(client, ChannelId(UNRELIABLE), &[0; 8]);
        }
        if pace.is_tick(now.monotonic) {
            server.end_turn();
        } else {
            server.flush();
        }
        game.report.longest_turn = game.report.longest_turn.max(start.elapsed());
        pace.rest(&mut server);
    }
    let totals = server.totals();
    game.report.overflow = totals.sockets.dropped_by_system;
    game.report.cut_short = totals.turns_cut_short;
    game.report
}

/// The round trips of the innocent clients, and how many messages were answered.
struct RoundTrips {
    sorted: Vec<Duration>,
    sent: u64,
}

impl RoundTrips {
    fn at(&self, percent: usize) -> Duration {
        let index = (self.sorted.len() * percent / 100).min(self.sorted.len().saturating_sub(1));
        self.sorted.get(index).copied().unwrap_or(Duration::MAX)
    }

    fn answered(&self) -> f64 {
        100.0 * self.sorted.len() as f64 / self.sent.max(1) as f64
    }
}

/// Runs the innocent clients for a round, after `ready` they measure.
fn innocents(address: SocketAddr, is_flooding: &AtomicBool) -> RoundTrips {
    let clock = Clock::start();
    let mut clients: Vec<_> = (0..INNOCENTS)
        .map(|id| {
            let mut client = Client::new().expect("a socket").with_traffic(traffic()).expect("valid");
            let ticket = TokenOrder::new(id, &[address]).mint();
            client.connect(ticket.token, clock.now()).expect("a fresh token");
            (client, ClientInbox::default())
        })
        .collect();
    let start = Instant::now();
    let (mut sent, mut trips, mut next_send) = (0, Vec::new(), Instant::now());
    let mut measuring: Option<Instant> = None;
    loop {
        let since = measuring.map_or(Duration::ZERO, |since: Instant| since.elapsed());
        if since > ROUND + Duration::from_millis(300) {
            break;
        }
        let all_in = clients.iter().all(|(client, _)| client.state() == ClientState::Connected);
        if all_in && measuring.is_none() && start.elapsed() > Duration::from_millis(300) {
            is_flooding.store(true, Ordering::Relaxed);
            measuring = Some(Instant::now());
        }
        let sends = measuring.is_some() && since < ROUND && Instant::now() >= next_send;
        if sends {
            next_send = (next_send + SEND_INTERVAL).max(Instant::now());
        }
        for (client, inbox) in &mut clients {
            client.begin_turn(clock.now());
            while let Some(event) = inbox.next(client) {
                if let slipgate_client::Event::Message { bytes, .. } = event
                    && let Ok(stamp) = bytes.try_into()
                {
                    let sent_at = Duration::from_nanos(u64::from_le_bytes(stamp));
                    let trip = start.elapsed().saturating_sub(sent_at);
                    trips.push(trip);
                }
            }
            if sends {
                let stamp = (start.elapsed().as_nanos() as u64).to_le_bytes();
                for channel in [ORDERED, UNRELIABLE] {
                    sent += u64::from(client.send_message(ChannelId(channel), &stamp).is_ok());
                }
            }
            client.end_turn();
        }
        thread::sleep(Duration::from_micros(500));
    }
    trips.sort_unstable();
    RoundTrips { sorted: trips, sent }
}

/// The last datagram that was sealed.
struct Sealed {
    buf: [u8; MAX_DATAGRAM_BYTES],
    bytes: usize,
}

impl Outbox for Sealed {
    fn remaining(&self) -> usize {
        1
    }

    fn next_buf(&mut self) -> Option<&mut [u8; MAX_DATAGRAM_BYTES]> {
        Some(&mut self.buf)
    }

    fn commit(&mut self, _to: Address, bytes: usize) {
        self.bytes = bytes;
    }
}

/// A client with a valid token that floods.
struct Flooder {
    sockets: Sockets,
    outbox: SendBatch,
    netcode: NetcodeClient,
    content: Content,
    writer: FloodWriter,
    sealed: Sealed,
    /// The packet number of the next forged datagram.
    forged: u64,
}

impl Flooder {
    fn new(id: u64, address: SocketAddr, content: Content, clock: Clock) -> Self {
        let mut netcode = NetcodeClient::new(TimeoutPolicy::Clamped);
        netcode
            .connect(TokenOrder::new(id, &[address]).mint().token, clock.now().monotonic, |_| true)
            .expect("a fresh token");
        let sockets = Sockets::bind(&[(IPV4, 0).into()]).expect("a socket");
        let mix = if let Content::Packets(mix) = content { mix } else { FloodMix::Headers };
        let sealed = Sealed { buf: [7; MAX_DATAGRAM_BYTES], bytes: 0 };
        let writer = FloodWriter::new(mix, &flood_layout());
        Self { sockets, outbox: SendBatch::default(), netcode, content, writer, sealed, forged: 1 << 20 }
    }

    fn acknowledges(&self) -> bool {
        self.content == Content::Packets(FloodMix::Acks)
    }

    /// Receives, acknowledges and sends what is due.
    fn turn(&mut self, address: SocketAddr, batch: &mut ReceiveBatch, clock: Clock) {
        let now = clock.now().monotonic;
        self.netcode.tick(now);
        self.netcode.transmit(now, &mut self.outbox);
        self.sockets.send(&mut self.outbox);
        self.acknowledge(address, batch, clock);
        while self.netcode.poll_event().is_some() {}
        if self.acknowledges() {
            self.send(1, address, clock);
        }
    }

    /// Receives datagrams. All later packets acknowledge the newest packet of the server.
    fn acknowledge(&mut self, address: SocketAddr, batch: &mut ReceiveBatch, clock: Clock) {
        let now = clock.now().monotonic;
        batch.clear();
        self.sockets.receive(batch);
        for index in 0..batch.len() {
            let Some(arrived) = batch.get(index) else { continue };
            if let Ok(Some(payload)) = self.netcode.handle(Address::from(address), arrived.datagram, now)
                && let Ok((header, _)) = ReliableHeader::parse(payload.bytes)
            {
                self.writer.acknowledge(header.sequence);
            }
        }
    }

    fn send(&mut self, packets: u32, address: SocketAddr, clock: Clock) {
        let now = clock.now().monotonic;
        for _ in 0..packets {
            if self.outbox.is_full() {
                self.sockets.send(&mut self.outbox);
            }
            match self.content {
                Content::Packets(_) => {
                    let payload = self.writer.next_payload();
                    let _ = self.netcode.send(&payload, now, &mut self.outbox);
                }
                Content::Replayed => {
                    if self.sealed.bytes == 0 {
                        let _ = self.netcode.send(&self.writer.next_payload(), now, &mut self.sealed);
                    }
                    self.send_sealed(address);
                }
                Content::Forged(bytes) => {
                    // The type of a payload, and 8 bytes of the packet number.
                    self.sealed.buf[0] = 0x85;
                    self.sealed.buf[1..9].copy_from_slice(&self.forged.to_le_bytes());
                    (self.forged, self.sealed.bytes) = (self.forged + 1, bytes);
                    self.send_sealed(address);
                }
            }
        }
        self.sockets.send(&mut self.outbox);
    }

    fn send_sealed(&mut self, address: SocketAddr) {
        if let Some(buf) = self.outbox.next_buf() {
            *buf = self.sealed.buf;
            self.outbox.commit(Address::from(address), self.sealed.bytes);
        }
    }
}

/// Connects with valid tokens, and floods until `stop`. The pace is that of each flooder.
fn flood(address: SocketAddr, attack: Attack, is_flooding: &AtomicBool, stop: &AtomicBool, sent: &AtomicU64) {
    let clock = Clock::start();
    let new = |number| Flooder::new(FLOODER + u64::from(number), address, attack.content, clock);
    let mut flooders: Vec<_> = (0..attack.flooders).map(new).collect();
    let mut batch = ReceiveBatch::default();
    let are_connected =
        |flooders: &[Flooder]| flooders.iter().all(|flooder| flooder.netcode.state() == ClientState::Connected);
    while !are_connected(&flooders) || !is_flooding.load(Ordering::Relaxed) {
        flooders.iter_mut().for_each(|flooder| flooder.turn(address, &mut batch, clock));
        thread::sleep(Duration::from_millis(1));
    }
    let start = Instant::now();
    let (mut packets, mut batches) = (0_u32, 0_u32);
    // It does not notice that its session has ended, and reads only what it acknowledges.
    while !stop.load(Ordering::Relaxed) {
        let (count, pause_until) = match attack.pace {
            AttackPace::Full => (32, None),
            AttackPace::PerSecond(rate) => {
                let due = (start.elapsed().as_secs_f64() * f64::from(rate)) as u32;
                (due.saturating_sub(packets).min(64), Some(Instant::now() + Duration::from_micros(200)))
            }
            AttackPace::Bursts(count, pause) => (count, Some(Instant::now() + Duration::from_millis(u64::from(pause)))),
        };
        for flooder in &mut flooders {
            flooder.send(count, address, clock);
            batches += 1;
            if flooder.acknowledges() && batches.is_multiple_of(16) {
                flooder.acknowledge(address, &mut batch, clock);
            }
        }
        packets = packets.wrapping_add(count);
        sent.fetch_add(u64::from(count * attack.flooders), Ordering::Relaxed);
        // A busy wait: the rounds without a flood have a busy core, too.
        while pause_until.is_some_and(|until| Instant::now() < until) && !stop.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    }
}

/// Runs one round; without an attack it has a busy thread.
fn round(kind: Kind, attack: Option<Attack>) -> (RoundTrips, Report, f64) {
    let (stop, is_flooding, sent) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false), AtomicU64::new(0));
    let (address, server) = serve(kind, WORK, &stop);
    let trips = thread::scope(|scope| {
        scope.spawn(|| match attack {
            Some(attack) => flood(address, attack, &is_flooding, &stop, &sent),
            None => {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }
        });
        let trips = innocents(address, &is_flooding);
        stop.store(true, Ordering::Relaxed);
        trips
    });
    let rate = sent.load(Ordering::Relaxed) as f64 / ROUND.as_secs_f64();
    (trips, server.join().expect("the server ends in order"), rate)
}

/// A round without the flood, and one with it.
struct Pair {
    quiet: RoundTrips,
    trips: RoundTrips,
    rate: f64,
    report: Report,
}

impl Pair {
    fn run(kind: Kind, attack: Attack) -> Self {
        let (quiet, ..) = round(kind, None);
        let (trips, report, rate) = round(kind, Some(attack));
        Self { quiet, trips, rate, report }
    }

    fn ratio(&self) -> f64 {
        self.trips.at(99).as_secs_f64() / self.quiet.at(99).as_secs_f64()
    }
}

/// Prints the round trips beside each attack and those without it before it: those with the median ratio of `rounds`.
/// Returns whether all goals were met.
pub(crate) fn run(attacks: &[Attack], kinds: &[Kind], rounds: usize) -> bool {
    println!("| server | mix | pace | kpps | quiet p50 | p99 | flood p50 | p99 | ratio | answered | goal |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut all_met = true;
    for kind in kinds {
        for attack in attacks {
            let mut pairs: Vec<_> = (0..rounds).map(|_| Pair::run(*kind, *attack)).collect();
            pairs.sort_by(|one, other| one.ratio().total_cmp(&other.ratio()));
            // Every message counts: a rounded share of 100 % hides a lost one.
            let has_all = pairs.iter().all(|pair| pair.trips.sorted.len() as u64 == pair.trips.sent);
            all_met &= print_row(*kind, *attack, &pairs[rounds / 2], has_all);
        }
    }
    all_met
}

/// Prints a row. Returns whether its goals were met.
fn print_row(kind: Kind, attack: Attack, pair: &Pair, has_all: bool) -> bool {
    let Pair { quiet, trips, rate, report } = pair;
    let ratio = pair.ratio();
    let is_met = ratio <= MAX_RATIO && has_all;
    println!(
        "| {kind:?} | {:?} | {:?} | {:.0} | {:.2?} | {:.2?} | {:.2?} | {:.2?} | {ratio:.2} | {:.2} % | <= {MAX_RATIO}, \
         100 %: {} |",
        attack.content,
        attack.pace,
        rate / 1000.0,
        quiet.at(50),
        quiet.at(99),
        trips.at(50),
        trips.at(99),
        trips.answered(),
        if is_met { "yes" } else { "NO" },
    );
    eprintln!("{report:?}");
    is_met
}
