//! The demo's dedicated server: sockets and a loop, in a thread of its own. The game itself is in `seats`.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use slipgate_cli::Failure;
use slipgate_netcode::crypto::key::KeyRing;
use slipgate_netcode::time::Instant;
use slipgate_server::{Clock, Config, Discards, Event, Inbox, Server, Sockets, Stats};

use super::cannot_listen;
use super::game::Rules;
use super::seats::{SeatReport, Seats};

/// The longest turn: losses are noticed and the path is measured once in each.
const LONGEST_TURN: Duration = Duration::from_millis(16);
/// Datagrams that one turn reads: where more come than the machine can take, everyone is still answered often.
const PACKETS_PER_TURN: u32 = 512;
/// How often the server tells of itself.
const REPORT_INTERVAL: Duration = Duration::from_millis(50);

/// What the server has counted.
#[derive(Clone, Default)]
pub(super) struct ServerReport {
    pub(super) slots: u32,
    pub(super) connected: u32,
    pub(super) stats: Stats,
    pub(super) discards: Discards,
    pub(super) seats: Vec<SeatReport>,
}

/// A socket that is a server's.
pub(super) struct Bound {
    sockets: Sockets,
    address: SocketAddr,
}

impl Bound {
    pub(super) fn bind(bind: SocketAddr) -> Result<Self, Failure> {
        let sockets = Sockets::bind(&[bind]).map_err(|error| cannot_listen("server", "UDP", bind, &error))?;
        let address = sockets.local_addresses().first().copied().unwrap_or(bind);
        if address.ip().is_unspecified() {
            return Err(Failure::usage(format!(
                "the demo's clients cannot dial {address}: give the server a real address"
            )));
        }
        Ok(Self { sockets, address })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A running server.
pub(super) struct GameServer {
    report: Arc<Mutex<ServerReport>>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<()>>,
}

impl GameServer {
    /// A server that clients know by the address `advertised`.
    pub(super) fn start(
        bound: Bound,
        advertised: SocketAddr,
        slots: u32,
        keys: KeyRing,
        protocol_id: u64,
        rules: Rules,
    ) -> Result<Self, Failure> {
        let clock = Clock::start();
        let config = Config::new(protocol_id, slots, vec![advertised.into()]);
        let mut server = Server::new(bound.sockets, config, keys, clock.now())
            .and_then(|server| server.carrying(rules.traffic.clone()))
            .map_err(|error| Failure::run_time(error.to_string()))?;
        server.set_packets_per_turn(PACKETS_PER_TURN);
        let (report, stop) = (Arc::default(), Arc::default());
        let thread = {
            let game_loop = Loop::new(server, clock, rules, slots, Arc::clone(&report));
            let stop = Arc::clone(&stop);
            std::thread::Builder::new()
                .name("game-server".to_owned())
                .spawn(move || game_loop.run(&stop))
                .map_err(|error| Failure::run_time(format!("the system refuses a thread: {error}")))?
        };
        Ok(Self { report, stop, thread })
    }

    pub(super) fn report(&self) -> ServerReport {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn stop(self) -> Result<(), Failure> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Failure::run_time(format!("the server could not wait for packets: {error}"))),
            Err(_) => Err(Failure::run_time("the server's thread panicked")),
        }
    }
}

/// The loop of a dedicated server: it wakes for every arrival, and turns end and the game advances in their own rhythm.
struct Loop {
    server: Server,
    inbox: Inbox,
    clock: Clock,
    seats: Seats,
    tick: Duration,
    next_tick: Instant,
    next_turn: Instant,
    next_report: Instant,
    report: Arc<Mutex<ServerReport>>,
}

impl Loop {
    fn new(server: Server, clock: Clock, rules: Rules, slots: u32, report: Arc<Mutex<ServerReport>>) -> Self {
        let (now, tick) = (clock.monotonic(), Duration::from_secs(1) / rules.rate);
        let (inbox, seats) = (Inbox::default(), Seats::new(rules, slots));
        Self { server, inbox, clock, seats, tick, next_tick: now, next_turn: now, next_report: now, report }
    }

    fn run(mut self, stop: &AtomicBool) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            let now = self.clock.now();
            self.server.begin_turn(now);
            self.listen(now.monotonic);
            if now.monotonic < self.next_turn {
                // What came is answered at once.
                self.server.flush();
            } else {
                self.end_turn(now.monotonic);
            }
            self.tell(now.monotonic);
            self.server.wait(self.next_turn.since(self.clock.monotonic()))?;
        }
        self.server.stop();
        self.server.end_turn();
        Ok(())
    }

    fn end_turn(&mut self, now: Instant) {
        // A server that was stopped for a while does not make up for it.
        if self.next_tick <= now {
            self.next_tick = self.next_tick.after(self.tick).max(now);
            self.seats.advance(&mut self.server, now);
        }
        self.next_turn = self.next_tick.min(now.after(LONGEST_TURN));
        self.server.end_turn();
    }

    fn listen(&mut self, now: Instant) {
        let Self { server, inbox, seats, .. } = self;
        while let Some(event) = inbox.next(server) {
            match event {
                Event::Connected { client, client_id } => seats.welcome(server, client, client_id, now),
                Event::Message { client, channel, bytes } => seats.hear(server, client, channel, bytes),
                _ => {}
            }
        }
    }

    fn tell(&mut self, now: Instant) {
        if now < self.next_report {
            return;
        }
        self.next_report = now.after(REPORT_INTERVAL);
        let report = ServerReport {
            slots: self.server.config().slots,
            connected: self.server.connected(),
            stats: *self.server.stats(),
            discards: *self.server.discards(),
            seats: self.seats.reports(&self.server),
        };
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}
