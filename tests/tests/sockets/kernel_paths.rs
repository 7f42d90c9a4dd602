//! Checks whole programs on the kernel: a server and a client on real sockets, with a bottleneck of `tc tbf` between
//! them.
//!
//! The tests in `kernel` run only the congestion avoidance. These run all parts of a game: tokens, ciphers, channels,
//! acknowledgements and the turns of two loops. They need root, `ip` and `tc`. The bounds are measured values with a
//! margin; the figures are printed.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::kernel::attempts::{Attempt, bottleneck, is_left_out, once_in_three, skipped};
use super::kernel::bottleneck::{Bottleneck, End};
use super::kernel::tcp::{EndOf, beside_tcp};
use slipgate_client::transfer::Transfer;
use slipgate_client::{Client, Clock, Event};
use slipgate_server::keys::Key;
use slipgate_server::{
    ChannelConfig, ChannelId, ClientHandle, Inbox, Kind, Layout, Server, ServerConfig, Sockets, Traffic,
};
use slipgate_tests::live::{DEADLINE, PRIVATE_KEY, PROTOCOL_ID, TokenOrder};

/// The newest state of the game, and the transfer of the world to a joining player.
const STATE: ChannelId = ChannelId(0);
const WORLD: ChannelId = ChannelId(1);
/// More than any of these paths carries in the time of a test.
const WORLD_BYTES: usize = 24 << 20;
const TURN: Duration = Duration::from_millis(1);
/// The maximum duration of a punctual sleep of one turn.
const PUNCTUAL: Duration = Duration::from_millis(3);

/// The data of a server.
#[derive(Clone, Copy)]
struct Game {
    state_bytes: usize,
    states_per_second: f64,
    /// Whether a transfer beside the states takes the spare rate.
    with_world: bool,
}

/// A state that arrived: the time since the start of the game, and its latency.
#[derive(Clone, Copy)]
struct Arrival {
    at: Duration,
    delay: Duration,
}

/// The results of a game.
struct Played {
    arrivals: Vec<Arrival>,
    /// The bytes that the bottleneck had carried at each whole second of the game.
    carried: Vec<u64>,
    dropped: u64,
    /// The share of the time in which a loop was ready to run and the machine was busy.
    kept_waiting: f64,
}

fn traffic() -> Traffic {
    let state = ChannelConfig { newest_only: true, ..ChannelConfig::from(Kind::Sequenced) };
    Traffic::channels(Layout::try_from(vec![state, ChannelConfig::from(Kind::Transfers)]).unwrap())
}

/// A loop of turns that measures how late each of them starts.
struct Turns {
    kept_waiting: Duration,
    started: Instant,
}

impl Turns {
    fn new() -> Self {
        Self { kept_waiting: Duration::ZERO, started: Instant::now() }
    }

    fn sleep(&mut self) {
        let asleep = Instant::now();
        thread::sleep(TURN);
        self.kept_waiting += asleep.elapsed().saturating_sub(PUNCTUAL);
    }

    fn share(&self) -> f64 {
        self.kept_waiting.as_secs_f64() / self.started.elapsed().as_secs_f64()
    }
}

/// The server of a game that starts when its player is connected.
struct Hosting<'a> {
    server: Server,
    game: Game,
    player: Option<ClientHandle>,
    /// The start of the game: the reference time of both sides.
    start_time: &'a StartTime,
    sent: u32,
}

/// Reports the start of the game.
type StartTime = std::sync::OnceLock<Instant>;

impl Hosting<'_> {
    fn turn(&mut self, inbox: &mut Inbox, clock: &Clock) {
        self.server.begin_turn(clock.now());
        while let Some(event) = inbox.next(&mut self.server) {
            if let slipgate_server::Event::Connected { client, .. } = event {
                self.player = Some(client);
                let _ = self.start_time.set(Instant::now());
            }
        }
        if let (Some(player), Some(start_time)) = (self.player, self.start_time.get()) {
            self.play(player, *start_time);
        }
        self.server.end_turn();
    }

    fn play(&mut self, player: ClientHandle, start_time: Instant) {
        let mut client = self.server.client(player).unwrap();
        let worlds = client.connection().and_then(|connection| connection.channels.transfers(WORLD));
        if self.game.with_world && worlds.is_none_or(|worlds| worlds.sending().next().is_none()) {
            client.send_transfer(WORLD, Transfer::new(vec![0; WORLD_BYTES]).unwrap(), 0).unwrap();
        }
        let due = (start_time.elapsed().as_secs_f64() * self.game.states_per_second) as u32;
        if due > self.sent {
            // Only the newest of several due states counts.
            self.sent = due;
            let mut state = vec![0; self.game.state_bytes];
            state[..8].copy_from_slice(&(start_time.elapsed().as_nanos() as u64).to_le_bytes());
            client.send_message(STATE, &state).unwrap();
        }
    }
}

fn host(game: Game, address: &Sender<SocketAddr>, start_time: &StartTime, done: &AtomicBool) -> f64 {
    let clock = Clock::start();
    let sockets = Sockets::bind(&["10.213.1.1:0".parse().unwrap()]).unwrap();
    let at = sockets.local_addresses()[0];
    let config = ServerConfig::new(PROTOCOL_ID, 1, &[at]);
    let server = Server::new(sockets, config, Key::from(PRIVATE_KEY).into(), clock.now()).unwrap();
    let server = server.with_traffic(traffic()).unwrap();
    address.send(at).unwrap();
    let (mut hosting, mut inbox) = (Hosting { server, game, player: None, start_time, sent: 0 }, Inbox::default());
    let mut turns = Turns::new();
    while !done.load(Ordering::Relaxed) {
        hosting.turn(&mut inbox, &clock);
        turns.sleep();
    }
    turns.share()
}

fn join(server: SocketAddr, start_time: &StartTime, done: &AtomicBool) -> (Vec<Arrival>, f64) {
    let clock = Clock::start();
    let client = Sockets::bind(&["10.213.2.2:0".parse().unwrap()]).map(Client::with_sockets).unwrap();
    let mut client = client.with_traffic(traffic()).unwrap();
    client.connect(TokenOrder::new(1, &[server]).mint().token, clock.now()).unwrap();
    let (mut inbox, mut arrivals, mut turns) = (slipgate_client::Inbox::default(), Vec::new(), Turns::new());
    while !done.load(Ordering::Relaxed) {
        client.begin_turn(clock.now());
        while let Some(event) = inbox.next(&mut client) {
            match event {
                Event::Message { channel: STATE, bytes, .. } => {
                    let sent = Duration::from_nanos(u64::from_le_bytes(bytes[..8].try_into().unwrap()));
                    let at = start_time.get().unwrap().elapsed();
                    arrivals.push(Arrival { at, delay: at.saturating_sub(sent) });
                }
                Event::Ended { reason } => panic!("the game has ended: {reason}"),
                _ => {}
            }
        }
        client.end_turn();
        turns.sleep();
    }
    (arrivals, turns.share())
}

/// Plays for this number of seconds, and calls `second` at the start of each.
fn play(bottleneck: &Bottleneck, game: Game, seconds: u32, second: impl Fn(u32)) -> Played {
    let (start_time, done, (address_tx, address_rx)) =
        (StartTime::new(), AtomicBool::new(false), channel::<SocketAddr>());
    thread::scope(|scope| {
        let (start_time, done) = (&start_time, &done);
        let ending = EndOf(done);
        let hosting =
            scope.spawn(move || bottleneck.within(End::Sender, || Ok(host(game, &address_tx, start_time, done))));
        let server = address_rx.recv_timeout(DEADLINE).expect("the server starts");
        let joining = scope.spawn(move || bottleneck.within(End::Receiver, || Ok(join(server, start_time, done))));
        let start_time = wait_for(start_time);
        let mut carried = Vec::new();
        for number in 0..=seconds {
            thread::sleep(
                (start_time + Duration::from_secs(u64::from(number))).saturating_duration_since(Instant::now()),
            );
            carried.push(bottleneck.carried_bytes().unwrap());
            second(number);
        }
        drop(ending);
        let (hosted, joined) = (hosting.join().unwrap().unwrap(), joining.join().unwrap().unwrap());
        Played {
            arrivals: joined.0,
            carried,
            dropped: bottleneck.dropped().unwrap(),
            kept_waiting: hosted.max(joined.1),
        }
    })
}

fn wait_for(start_time: &StartTime) -> Instant {
    let waiting = Instant::now();
    loop {
        if let Some(start_time) = start_time.get() {
            return *start_time;
        }
        assert!(waiting.elapsed() < DEADLINE, "no client connects");
        thread::sleep(TURN);
    }
}

/// The measurements between two seconds.
struct Figures {
    /// The used share of the rate of the bottleneck.
    used: f64,
    states_per_second: f64,
    /// The latency of states, in milliseconds.
    median: f64,
    p95: f64,
    worst: f64,
}

impl Played {
    fn figures(&self, from: usize, until: usize, rate: f64) -> Figures {
        let seconds = (until - from) as f64;
        let within = |arrival: &&Arrival| (from..until).contains(&(arrival.at.as_secs() as usize));
        let arrivals = self.arrivals.iter().filter(within);
        let mut delays: Vec<f64> = arrivals.map(|arrival| arrival.delay.as_secs_f64() * 1000.0).collect();
        delays.sort_by(f64::total_cmp);
        let at = |share: f64| delays.get((delays.len() as f64 * share) as usize).copied().unwrap_or(f64::INFINITY);
        Figures {
            used: (self.carried[until] - self.carried[from]) as f64 * 8.0 / seconds / rate,
            states_per_second: delays.len() as f64 / seconds,
            median: at(0.5),
            p95: at(0.95),
            worst: delays.last().copied().unwrap_or(f64::INFINITY),
        }
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { used, states_per_second, median, p95, worst } = self;
        let used = 100.0 * used;
        write!(
            f,
            "{used:.1} % used, {states_per_second:.1} states/s, {median:.1} ms, 95 % {p95:.1} ms, worst {worst:.1} ms"
        )
    }
}

const WITH_WORLD: Game = Game { state_bytes: 200, states_per_second: 60.0, with_world: true };

#[test]
fn states_keep_low_latency_beside_a_transfer_on_4_mbit() {
    once_in_three(|| {
        let bottleneck = bottleneck("p", "4mbit", 125_000)?;
        let played = play(&bottleneck, WITH_WORLD, 10, |_| {});
        let figures = played.figures(3, 10, 4e6);
        eprintln!("a game and a world on 4M: {figures}, {} packets dropped", played.dropped);
        let within = figures.used >= 0.97 && figures.states_per_second >= 59.0 && figures.median <= 20.0;
        let within = within && figures.p95 <= 20.0;
        Some(Attempt { within, kept_waiting: played.kept_waiting })
    });
}

#[test]
fn states_keep_low_latency_when_the_rate_drops_to_an_eighth() {
    if is_left_out() {
        return;
    }
    once_in_three(|| {
        let bottleneck = bottleneck("q", "4mbit", 250_000)?;
        let played = play(&bottleneck, WITH_WORLD, 15, |second| match second {
            5 => bottleneck.set_rate("500kbit", 250_000).unwrap(),
            10 => bottleneck.set_rate("4mbit", 250_000).unwrap(),
            _ => {}
        });
        let (fall, low, back) = (played.figures(5, 8, 5e5), played.figures(8, 10, 5e5), played.figures(13, 15, 4e6));
        eprintln!("4M, for 5 s 0.5M: at first {fall}; after 3 s {low}; 3 s after the return {back}");
        let within = fall.worst <= 900.0 && low.used >= 0.95 && low.p95 <= 45.0 && back.used >= 0.88;
        Some(Attempt { within, kept_waiting: played.kept_waiting })
    });
}

#[test]
fn game_of_1_mbit_keeps_its_rate_beside_kernel_cubic() {
    if is_left_out() {
        return;
    }
    once_in_three(|| {
        let bottleneck = bottleneck("r", "10mbit", 312_500)?;
        let game = Game { state_bytes: 1000, states_per_second: 120.0, with_world: false };
        let (played, received) = match beside_tcp(&bottleneck, "cubic", || play(&bottleneck, game, 12, |_| {})) {
            Ok(played) => played,
            Err(reason) => {
                skipped(&format!("the kernel has no cubic: {reason}"));
                return None;
            }
        };
        let figures = played.figures(4, 12, 1e7);
        eprintln!("a game of 1M beside cubic on 10M: {figures}; cubic got {:.1} Mbit/s", received as f64 * 8.0 / 12e6);
        Some(Attempt { within: figures.states_per_second >= 0.95 * 120.0, kept_waiting: played.kept_waiting })
    });
}
