//! Eight clients beside a flooding one on real sockets: their round trips, and how many of their messages arrive.
//!
//! Rounds without and with the flood alternate. A round without it has a thread that keeps one core busy instead, as
//! the flooding program would, so that the difference is what the server does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use slipgate_client::{Client, ClientState, Inbox as ClientInbox};
use slipgate_netcode::address::Address;
use slipgate_netcode::client::NetcodeClient;
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_os::pace::Pace;
use slipgate_server::keys::Key;
use slipgate_server::sharded::{ShardedServer, ShardedServerConfig};
use slipgate_server::{ChannelId, Clock, Event, Inbox, Server, ServerConfig, Sockets, Traffic};
use slipgate_session::connection::ConnectionConfig;
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
    pub(crate) mix: FloodMix,
    pub(crate) pace: AttackPace,
    /// The clients that flood at the same time, all by one thread.
    pub(crate) flooders: u32,
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
    report: Report,
}

impl Game {
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
    let (mut servers, clock, address) = servers(1);
    let stop = Arc::clone(stop);
    let mut game = Game { work, start: Instant::now(), flooders: Vec::new(), report: Report::default() };
    let thread = thread::spawn(move || {
        if kind == Kind::Sharded {
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
            return game.report;
        }
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
    });
    (address, thread)
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

/// A client with a valid token that floods.
struct Flooder {
    sockets: Sockets,
    outbox: SendBatch,
    netcode: NetcodeClient,
    writer: FloodWriter,
}

impl Flooder {
    fn new(id: u64, address: SocketAddr, mix: FloodMix, clock: Clock) -> Self {
        let mut netcode = NetcodeClient::new(TimeoutPolicy::Clamped);
        netcode.connect(TokenOrder::new(id, &[address]).mint().token, clock.now().monotonic).expect("a fresh token");
        let sockets = Sockets::bind(&[(IPV4, 0).into()]).expect("a socket");
        Self { sockets, outbox: SendBatch::default(), netcode, writer: FloodWriter::new(mix, &flood_layout()) }
    }

    fn turn(&mut self, address: SocketAddr, batch: &mut ReceiveBatch, clock: Clock) {
        let now = clock.now().monotonic;
        self.netcode.tick(now);
        self.netcode.transmit(now, &mut self.outbox);
        self.sockets.send(&mut self.outbox);
        self.sockets.receive(batch);
        for index in 0..batch.len() {
            if let Some(arrived) = batch.get(index) {
                let _ = self.netcode.handle(Address::from(address), arrived.datagram, now);
            }
        }
        while self.netcode.poll_event().is_some() {}
    }

    fn send(&mut self, packets: u32, clock: Clock) {
        let now = clock.now().monotonic;
        for _ in 0..packets {
            let payload = self.writer.next_payload();
            if self.netcode.send(&payload, now, &mut self.outbox).is_err() {
                self.sockets.send(&mut self.outbox);
                let _ = self.netcode.send(&payload, now, &mut self.outbox);
            }
        }
        self.sockets.send(&mut self.outbox);
    }
}

/// Connects with valid tokens, and floods until `stop`. The pace is that of each flooder.
fn flood(address: SocketAddr, attack: Attack, is_flooding: &AtomicBool, stop: &AtomicBool, sent: &AtomicU64) {
    let clock = Clock::start();
    let new = |number| Flooder::new(FLOODER + u64::from(number), address, attack.mix, clock);
    let mut flooders: Vec<_> = (0..attack.flooders).map(new).collect();
    let mut batch = ReceiveBatch::default();
    let are_connected =
        |flooders: &[Flooder]| flooders.iter().all(|flooder| flooder.netcode.state() == ClientState::Connected);
    while !are_connected(&flooders) || !is_flooding.load(Ordering::Relaxed) {
        flooders.iter_mut().for_each(|flooder| flooder.turn(address, &mut batch, clock));
        thread::sleep(Duration::from_millis(1));
    }
    let start = Instant::now();
    let mut packets = 0_u32;
    // It reads nothing any more, so it does not notice that its session has ended.
    while !stop.load(Ordering::Relaxed) {
        let (count, pause_until) = match attack.pace {
            AttackPace::Full => (32, None),
            AttackPace::PerSecond(rate) => {
                let due = (start.elapsed().as_secs_f64() * f64::from(rate)) as u32;
                (due.saturating_sub(packets).min(64), Some(Instant::now() + Duration::from_micros(200)))
            }
            AttackPace::Bursts(count, pause) => (count, Some(Instant::now() + Duration::from_millis(u64::from(pause)))),
        };
        flooders.iter_mut().for_each(|flooder| flooder.send(count, clock));
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
        attack.mix,
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
