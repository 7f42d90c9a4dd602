//! The demo's dedicated server: sockets and the main loop, in its own thread. The game is in `server_game`.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use slipgate_cli::Failure;
use slipgate_netcode::crypto::key::KeyRing;
use slipgate_netcode::time::Instant;
use slipgate_server::stats::{Discards, NetcodeStats};
use slipgate_server::{Clock, Event, Inbox, ReadLimits, Server, ServerConfig, Sockets};

use super::cannot_listen;
use super::game::GameSettings;
use super::server_game::{ServerGame, ServerSideReport};

/// The longest interval between two ends of turns, at which losses are detected and the path is measured.
const MAX_TURN_INTERVAL: Duration = Duration::from_millis(16);
/// Datagrams read in one turn at most, so that an overloaded server still sends to all clients regularly.
const PACKETS_PER_TURN: u32 = 512;
/// The interval between two published reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(50);

/// The counters of the server.
#[derive(Clone, Default)]
pub(super) struct ServerReport {
    pub(super) slots: u32,
    pub(super) connected: u32,
    pub(super) stats: NetcodeStats,
    pub(super) discards: Discards,
    pub(super) clients: Vec<ServerSideReport>,
}

/// The server's bound socket.
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
                "the demo's clients cannot connect to {address}: give --server a concrete address"
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
    /// Starts the server. `advertised` is the address that the clients' tokens list.
    pub(super) fn start(
        bound: Bound,
        advertised: SocketAddr,
        slots: u32,
        keys: KeyRing,
        protocol_id: u64,
        settings: GameSettings,
    ) -> Result<Self, Failure> {
        let clock = Clock::start();
        let config = ServerConfig::new(protocol_id, slots, &[advertised]);
        let mut server = Server::new(bound.sockets, config, keys, clock.now())
            .and_then(|server| server.with_traffic(settings.traffic.clone()))
            .map_err(|error| Failure::run_time(error.to_string()))?;
        server.set_read_limits(ReadLimits { max_packets: PACKETS_PER_TURN, ..ReadLimits::default() });
        let (report, stop) = (Arc::default(), Arc::default());
        let thread = {
            let game_loop = GameLoop::new(server, clock, settings, slots, Arc::clone(&report));
            let stop = Arc::clone(&stop);
            std::thread::Builder::new()
                .name("game-server".to_owned())
                .spawn(move || game_loop.run(&stop))
                .map_err(|error| Failure::run_time(format!("cannot start a thread: {error}")))?
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

/// The server's loop: wakes for every datagram, and ends turns and advances the game at fixed intervals.
struct GameLoop {
    server: Server,
    inbox: Inbox,
    clock: Clock,
    game: ServerGame,
    tick: Duration,
    next_tick: Instant,
    next_turn: Instant,
    next_report: Instant,
    report: Arc<Mutex<ServerReport>>,
}

impl GameLoop {
    fn new(server: Server, clock: Clock, settings: GameSettings, slots: u32, report: Arc<Mutex<ServerReport>>) -> Self {
        let (now, tick) = (clock.monotonic(), Duration::from_secs(1) / settings.rate);
        let (inbox, game) = (Inbox::default(), ServerGame::new(settings, slots));
        Self { server, inbox, clock, game, tick, next_tick: now, next_turn: now, next_report: now, report }
    }

    fn run(mut self, stop: &AtomicBool) -> io::Result<()> {
        while !stop.load(Ordering::Relaxed) {
            let now = self.clock.now();
            self.server.begin_turn(now);
            self.handle_events(now.monotonic);
            if now.monotonic < self.next_turn {
                // Between two ends of turns, replies are sent at once.
                self.server.flush();
            } else {
                self.end_turn(now.monotonic);
            }
            self.publish_report(now.monotonic);
            self.server.wait(self.next_turn.since(self.clock.monotonic()))?;
        }
        self.server.stop("");
        self.server.end_turn();
        Ok(())
    }

    fn end_turn(&mut self, now: Instant) {
        // Ticks that were missed while the process was stopped are skipped.
        if self.next_tick <= now {
            self.next_tick = self.next_tick.after(self.tick).max(now);
            self.game.advance(&mut self.server, now);
        }
        self.next_turn = self.next_tick.min(now.after(MAX_TURN_INTERVAL));
        self.server.end_turn();
    }

    fn handle_events(&mut self, now: Instant) {
        let Self { server, inbox, game, .. } = self;
        while let Some(event) = inbox.next(server) {
            match event {
                Event::Connected { client, client_id } => game.on_connected(server, client, client_id.0, now),
                Event::Message { client, channel, bytes, .. } => game.on_message(server, client, channel, bytes),
                _ => {}
            }
        }
    }

    fn publish_report(&mut self, now: Instant) {
        if now < self.next_report {
            return;
        }
        self.next_report = now.after(REPORT_INTERVAL);
        let report = ServerReport {
            slots: self.server.config().slots,
            connected: self.server.connected(),
            stats: self.server.totals().stats,
            discards: *self.server.discards(),
            clients: self.game.reports(&mut self.server),
        };
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}
