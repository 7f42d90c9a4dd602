//! Eight clients beside a flooding one on real sockets: their round trips, and how many of their messages arrive.
//!
//! Three rounds follow each other. In the quiet one a thread keeps one core busy, as the flooding program would. In the
//! control round the same flood goes to another socket, and the kernel drops it there. In the third one it goes to the
//! server. The kernel handles a datagram on the core of its sender. The costs of the control round are the machine's
//! share, and further ones are the server's.

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
use slipgate_tests::hostile::{FloodMix, FloodWriter, ORDERED, UNRELIABLE, flood_layout};
use slipgate_tests::live::{IPV4, PRIVATE_KEY, PROTOCOL_ID, TokenOrder};
use slipgate_udp::{BlockedSender, OtherProtocol, Passing, ReceiveBatch, SendBatch, SocketFilter, sequence_of};

const INNOCENTS: u64 = 8;
const FLOODER: u64 = 99;
const TICK: Duration = Duration::from_millis(16);
/// The game loop of the sharded server.
const GAME_TICK: Duration = Duration::from_millis(4);
/// How often each innocent client sends unless a word says otherwise, and the minimum of the time for which it does:
/// 4,000 round trips in a round.
pub(crate) const SEND_INTERVAL: Duration = Duration::from_millis(8);
const ROUND: Duration = Duration::from_secs(2);
/// The minimum of the messages of each client and channel in a round.
const MIN_SENDS: u32 = 40;
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
    /// How often each innocent client sends.
    pub(crate) interval: Duration,
}

impl Attack {
    /// Returns how long the innocent clients send. Slow ones do so for longer, for the sake of their p99.
    fn round_time(self) -> Duration {
        ROUND.max(self.interval * MIN_SENDS)
    }
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
    /// The same with the numbers that the client would send next, and an authentic packet in each tick.
    Near(usize),
}

impl Content {
    /// All contents.
    pub(crate) fn every() -> Vec<Self> {
        let packets = FloodMix::EVERY.map(Self::Packets);
        packets
            .into_iter()
            .chain([Self::Replayed, Self::Forged(60), Self::Forged(1200), Self::Near(60), Self::Near(1200)])
            .collect()
    }
}

/// The word that chooses it.
impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(mix) => write!(f, "{mix:?}"),
            Self::Replayed => f.write_str("Replayed"),
            Self::Forged(bytes) => write!(f, "Forged{bytes}"),
            Self::Near(bytes) => write!(f, "Near{bytes}"),
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
    /// The same with this number of packets within the budget before each burst, as an upload would send.
    PaddedBursts(u32, u32, u32),
}

/// What happens beside the innocent clients.
#[derive(Clone, Copy)]
enum Load {
    /// A thread keeps a core busy.
    Quiet,
    /// The flood goes to a socket whose kernel filter drops it.
    Control(Attack),
    /// The flood goes to the server.
    Flood(Attack),
}

/// What the server reports after a round.
#[derive(Default, Debug)]
struct Report {
    /// The reason of the last flooder's disconnect, and after how long.
    ended: Option<(String, Duration)>,
    flood_messages: u64,
    /// The authentic packets of clients beside forged ones. Each has one message, except in the mixes.
    authentic: u64,
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
fn innocents(address: SocketAddr, is_flooding: &AtomicBool, attack: Attack) -> RoundTrips {
    let (interval, round) = (attack.interval, attack.round_time());
    let clock = Clock::start();
    let mut clients: Vec<_> = (0..INNOCENTS)
        .map(|id| {
            let mut client = Client::new().expect("a socket").with_traffic(traffic()).expect("valid");
            let minted = TokenOrder::new(id, &[address]).mint();
            client.connect(minted.token, clock.now()).expect("a fresh token");
            (client, ClientInbox::default())
        })
        .collect();
    let start = Instant::now();
    let (mut sent, mut trips, mut next_send) = (0, Vec::new(), Instant::now());
    let mut measuring: Option<Instant> = None;
    loop {
        let since = measuring.map_or(Duration::ZERO, |since: Instant| since.elapsed());
        if since > round + Duration::from_millis(300) {
            break;
        }
        let all_in = clients.iter().all(|(client, _)| client.state() == ClientState::Connected);
        if all_in && measuring.is_none() && start.elapsed() > Duration::from_millis(300) {
            is_flooding.store(true, Ordering::Relaxed);
            measuring = Some(Instant::now());
        }
        let sends = measuring.is_some() && since < round && Instant::now() >= next_send;
        if sends {
            next_send = (next_send + interval).max(Instant::now());
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
    /// When the next authentic packet beside forged ones is due, and the number of the last one.
    next_authentic: Instant,
    newest: u64,
    authentic: u64,
    /// The socket that takes the flood in the server's place.
    sink: Option<Sockets>,
}

impl Flooder {
    fn new(id: u64, address: SocketAddr, content: Content, clock: Clock, has_sink: bool) -> Self {
        let mut netcode = NetcodeClient::new(TimeoutPolicy::Clamped);
        netcode
            .connect(TokenOrder::new(id, &[address]).mint().token, clock.now().monotonic, |_| true)
            .expect("a fresh token");
        let sockets = Sockets::bind(&[(IPV4, 0).into()]).expect("a socket");
        let mix = match content {
            Content::Packets(mix) => mix,
            Content::Near(_) => FloodMix::FullPackets,
            Content::Replayed | Content::Forged(_) => FloodMix::Headers,
        };
        let sealed = Sealed { buf: [7; MAX_DATAGRAM_BYTES], bytes: 0 };
        let writer = FloodWriter::new(mix, &flood_layout());
        let sink = has_sink.then(|| sink_for(sockets.local_addresses()[0]));
        let (forged, next_authentic) = (1 << 20, Instant::now());
        let outbox = SendBatch::default();
        Self {
            sockets,
            outbox,
            netcode,
            content,
            writer,
            sealed,
            forged,
            next_authentic,
            newest: 0,
            authentic: 0,
            sink,
        }
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
            if let Ok(Some(payload)) = self.netcode.handle(Address::from(address), arrived.datagram, now) {
                self.writer.acknowledge(payload.bytes);
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
                    if self.sink.is_some() {
                        let _ = self.netcode.send(&payload, now, &mut self.sealed);
                        self.send_sealed(address);
                    } else {
                        let _ = self.netcode.send(&payload, now, &mut self.outbox);
                    }
                }
                Content::Replayed => {
                    if self.sealed.bytes == 0 {
                        let _ = self.netcode.send(&self.writer.next_payload(), now, &mut self.sealed);
                    }
                    self.send_sealed(address);
                }
                Content::Forged(bytes) => {
                    self.send_forged(self.forged, bytes, address);
                    self.forged += 1;
                }
                Content::Near(bytes) => {
                    if Instant::now() >= self.next_authentic {
                        self.next_authentic = Instant::now() + TICK;
                        let _ = self.netcode.send(&self.writer.next_payload(), now, &mut self.sealed);
                        self.newest = sequence_of(&self.sealed.buf).map_or(0, u64::from);
                        self.authentic += 1;
                        self.send_sealed(address);
                    }
                    self.forged += 1;
                    self.send_forged(self.newest + self.forged % 200, bytes, address);
                }
            }
        }
        self.sockets.send(&mut self.outbox);
    }

    fn send_forged(&mut self, number: u64, bytes: usize, address: SocketAddr) {
        // The type of a payload, and 8 bytes of the packet number.
        self.sealed.buf[0] = 0x85;
        self.sealed.buf[1..9].copy_from_slice(&number.to_le_bytes());
        self.sealed.bytes = bytes;
        self.send_sealed(address);
    }

    fn send_sealed(&mut self, address: SocketAddr) {
        let address = self.sink.as_ref().map_or(address, |sink| sink.local_addresses()[0]);
        if let Some(buf) = self.outbox.next_buf() {
            *buf = self.sealed.buf;
            self.outbox.commit(Address::from(address), self.sealed.bytes);
        }
    }
}

/// Returns a socket whose kernel filter drops all datagrams of this sender.
fn sink_for(sender: SocketAddr) -> Sockets {
    let sink = Sockets::bind(&[(IPV4, 0).into()]).expect("a socket");
    let filter = SocketFilter { protocol_id: PROTOCOL_ID, other_protocols: OtherProtocol::Dropped };
    // A system without filters fills the receive buffer of the socket instead.
    if sink.set_filter(Some(&filter)).is_ok() {
        let sender = BlockedSender { address: sender, passing: Passing::Nothing };
        sink.block_senders(&[sender]).both().expect("a filter was set");
    }
    sink
}

/// What the threads of a round share.
#[derive(Default)]
struct Shared {
    stop: Arc<AtomicBool>,
    is_flooding: AtomicBool,
    sent: AtomicU64,
    authentic: AtomicU64,
}

/// Returns how many packets a flooder sends at once now, and when it continues.
fn next_packets(pace: AttackPace, start: Instant, packets: u32) -> (u32, Option<Instant>) {
    let after = |pause: u32| Some(Instant::now() + Duration::from_millis(u64::from(pause)));
    match pace {
        AttackPace::Full => (32, None),
        AttackPace::PerSecond(rate) => {
            let due = (start.elapsed().as_secs_f64() * f64::from(rate)) as u32;
            (due.saturating_sub(packets).min(64), Some(Instant::now() + Duration::from_micros(200)))
        }
        AttackPace::Bursts(count, pause) => (count, after(pause)),
        AttackPace::PaddedBursts(count, pause, padding) => {
            // The padding goes on at 12,500 packets a second, which the budget allows.
            let is_burst = packets % (count + padding) >= padding;
            if is_burst { (count, after(pause)) } else { (25.min(padding - packets % (count + padding)), after(2)) }
        }
    }
}

/// Connects with valid tokens, and floods until `stop`. The pace is that of each flooder.
fn flood(address: SocketAddr, attack: Attack, has_sink: bool, shared: &Shared) {
    let Shared { stop, is_flooding, sent, authentic } = shared;
    let clock = Clock::start();
    let new = |number| Flooder::new(FLOODER + u64::from(number), address, attack.content, clock, has_sink);
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
        let (count, pause_until) = next_packets(attack.pace, start, packets);
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
    authentic.store(flooders.iter().map(|flooder| flooder.authentic).sum(), Ordering::Relaxed);
}

/// Runs one round. Returns the packets of the flood in a second, too.
fn round(kind: Kind, load: Load, attack: Attack) -> (RoundTrips, Report, f64) {
    let shared = Shared::default();
    let (address, server) = serve(kind, WORK, &shared.stop);
    let trips = thread::scope(|scope| {
        scope.spawn(|| match load {
            Load::Flood(attack) => flood(address, attack, false, &shared),
            Load::Control(attack) => flood(address, attack, true, &shared),
            Load::Quiet => {
                while !shared.stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }
        });
        let trips = innocents(address, &shared.is_flooding, attack);
        shared.stop.store(true, Ordering::Relaxed);
        trips
    });
    let rate = shared.sent.load(Ordering::Relaxed) as f64 / attack.round_time().as_secs_f64();
    let mut report = server.join().expect("the server ends in order");
    report.authentic = shared.authentic.load(Ordering::Relaxed);
    (trips, report, rate)
}

/// A round without the flood, one with the flood at another socket, and one with it at the server.
struct Rounds {
    quiet: RoundTrips,
    control: RoundTrips,
    trips: RoundTrips,
    rate: f64,
    report: Report,
}

impl Rounds {
    fn run(kind: Kind, attack: Attack) -> Self {
        let (quiet, ..) = round(kind, Load::Quiet, attack);
        let (control, ..) = round(kind, Load::Control(attack), attack);
        let (trips, report, rate) = round(kind, Load::Flood(attack), attack);
        Self { quiet, control, trips, rate, report }
    }

    /// Returns the p99 in relation to that of another round.
    fn ratio(&self, to: &RoundTrips) -> f64 {
        self.trips.at(99).as_secs_f64() / to.at(99).as_secs_f64()
    }

    fn has_all(&self) -> bool {
        // Every message counts: a rounded share of 100 % hides a lost one.
        self.trips.sorted.len() as u64 == self.trips.sent
    }

    fn is_met(&self) -> bool {
        self.ratio(&self.quiet) <= MAX_RATIO && self.has_all()
    }
}

/// Prints the round trips beside each attack: the worst of `rounds`, and how many of them met the goals. Returns
/// whether all did.
pub(crate) fn run(attacks: &[Attack], kinds: &[Kind], rounds: usize) -> bool {
    println!(
        "| server | mix | pace | kpps | quiet p50 | p99 | control p99 | flood p50 | p99 | to quiet | to control | \
         answered | goal |"
    );
    println!("|{}", " --- |".repeat(13));
    let mut all_met = true;
    for kind in kinds {
        for attack in attacks {
            let mut all: Vec<_> = (0..rounds).map(|_| Rounds::run(*kind, *attack)).collect();
            let met = all.iter().filter(|one| one.is_met()).count();
            all_met &= met == rounds;
            // The last one is the worst.
            all.sort_by(|one, other| {
                let order = other.has_all().cmp(&one.has_all());
                order.then(one.ratio(&one.quiet).total_cmp(&other.ratio(&other.quiet)))
            });
            if let Some(worst) = all.last() {
                print_row(*kind, *attack, worst, (met, rounds));
            }
        }
    }
    all_met
}

/// Prints a row, and in how many of how many rounds its goals were met.
fn print_row(kind: Kind, attack: Attack, worst: &Rounds, (met, rounds): (usize, usize)) {
    let Rounds { quiet, control, trips, rate, report } = worst;
    println!(
        "| {kind:?} | {:?} | {:?} | {:.0} | {:.2?} | {:.2?} | {:.2?} | {:.2?} | {:.2?} | {:.2} | {:.2} | {:.2} % | <= \
         {MAX_RATIO}, 100 %: {met} of {rounds} |",
        attack.content,
        attack.pace,
        rate / 1000.0,
        quiet.at(50),
        quiet.at(99),
        control.at(99),
        trips.at(50),
        trips.at(99),
        worst.ratio(quiet),
        worst.ratio(control),
        trips.answered(),
    );
    eprintln!("{report:?}");
}
