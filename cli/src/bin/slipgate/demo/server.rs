//! The demo's dedicated server: sockets and the main loop, in its own thread. The game is in `server_game`.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use slipgate_cli::Failure;
use slipgate_netcode::crypto::key::KeyRing;
use slipgate_netcode::time::Instant;
use slipgate_server::counters::{Discards, NetcodeStats};
use slipgate_server::{Clock, Event, Inbox, ReadLimits, Server, ServerConfig, Sockets};

use super::failures::cannot_listen;
use super::game::GameSettings;
use super::server_game::{ServerGame, ServerSideReport};

/// The longest interval between two ends of turns, at which losses are detected and the path is measured.
const MAX_TURN_INTERVAL: Duration = Duration::from_millis(16);
/// Datagrams read in one turn at most, so that an overloaded server still sends to all clients regularly.
const PACKETS_PER_TURN: u32 = 512;
/// The interval between two published reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(50);
/// How long a stopping server repeats the close reason to clients that have not acknowledged it.
const STOP_LINGER: Duration = Duration::from_millis(250);
/// What players read when the server stops.
const STOP_TEXT: &str = "The server restarts. You will be back in a moment.";

/// The counters of the server.
#[derive(Clone, Default)]
pub(super) struct ServerReport {
    pub(super) slots: u32,
    pub(super) connected: u32,
    pub(super) stats: NetcodeStats,
    pub(super) discards: Discards,
    /// Datagrams that the system dropped before the server read them; `None` if it does not report them.
    pub(super) dropped_by_system: Option<u64>,
    /// The processor time of the server's thread; `None` if the system does not report it.
    pub(super) cpu: Option<Duration>,
    /// When the report was made; `None` before the first one.
    pub(super) made_at: Option<std::time::Instant>,
    pub(super) clients: Vec<ServerSideReport>,
    /// Wrong messages of former clients of slots in use.
    pub(super) past_wrong: u64,
}

/// What is needed to start the server, again after a restart.
#[derive(Clone)]
pub(super) struct ServerSettings {
    /// The address that the clients' tokens list.
    pub(super) advertised: SocketAddr,
    pub(super) slots: u32,
    pub(super) keys: KeyRing,
    pub(super) protocol_id: u64,
    pub(super) game: GameSettings,
}

/// The server's bound socket.
pub(super) struct BoundServer {
    sockets: Sockets,
    address: SocketAddr,
}

impl BoundServer {
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
    commands: Arc<Commands>,
    /// `None` after the stop.
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// Commands of the main thread to the server.
#[derive(Default)]
struct Commands {
    stop: AtomicBool,
    /// The number of clients to kick.
    kicks: AtomicU32,
}

impl GameServer {
    pub(super) fn start(bound: BoundServer, settings: &ServerSettings) -> Result<Self, Failure> {
        let clock = Clock::start();
        let config = ServerConfig::new(settings.protocol_id, settings.slots, &[settings.advertised]);
        let mut server = Server::new(bound.sockets, config, settings.keys.clone(), clock.now())
            .and_then(|server| server.with_traffic(settings.game.traffic.clone()))
            .map_err(|error| Failure::run_time(error.to_string()))?;
        server.set_read_limits(ReadLimits { max_packets: PACKETS_PER_TURN, ..ReadLimits::default() });
        let (report, commands) = (Arc::default(), Arc::<Commands>::default());
        let thread = {
            let game_loop = GameLoop::new(server, clock, settings, Arc::clone(&report));
            let commands = Arc::clone(&commands);
            std::thread::Builder::new()
                .name("game-server".to_owned())
                .spawn(move || game_loop.run(&commands))
                .map_err(|error| Failure::run_time(format!("cannot start a thread: {error}")))?
        };
        Ok(Self { report, commands, thread: Some(thread) })
    }

    pub(super) fn report(&self) -> ServerReport {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets the game kick one client, another one each time.
    pub(super) fn kick_one(&self) {
        self.commands.kicks.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether the server's thread has ended by itself.
    pub(super) fn has_failed(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Disconnects all clients with a text, then closes the sockets. Returns the last report.
    pub(super) fn stop(&mut self) -> Result<ServerReport, Failure> {
        self.commands.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => Ok(self.report()),
            Some(Ok(Err(error))) => Err(Failure::run_time(format!("the server could not wait for packets: {error}"))),
            Some(Err(_)) => Err(Failure::run_time("the server's thread panicked")),
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
    fn new(server: Server, clock: Clock, settings: &ServerSettings, report: Arc<Mutex<ServerReport>>) -> Self {
        let (now, tick) = (clock.monotonic(), Duration::from_secs(1) / settings.game.rate);
        let (inbox, game) = (Inbox::default(), ServerGame::new(settings.game.clone(), settings.slots));
        Self { server, inbox, clock, game, tick, next_tick: now, next_turn: now, next_report: now, report }
    }

    fn run(mut self, commands: &Commands) -> io::Result<()> {
        while !commands.stop.load(Ordering::Relaxed) {
            for _ in 0..commands.kicks.swap(0, Ordering::Relaxed) {
                self.game.kick_one(&mut self.server);
            }
            self.turn()?;
        }
        self.server.stop(STOP_TEXT);
        let end = self.clock.monotonic().after(STOP_LINGER);
        while self.server.connected_count() > 0 && self.clock.monotonic() < end {
            self.turn()?;
        }
        self.server.end_turn();
        Ok(())
    }

    fn turn(&mut self) -> io::Result<()> {
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
        self.server.wait(self.next_turn.since(self.clock.monotonic()))
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
                Event::Connected { client, client_id } => game.on_connected(server, client, client_id, now),
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
        let totals = self.server.totals();
        let report = ServerReport {
            slots: self.server.config().slots,
            connected: totals.connected,
            stats: totals.stats,
            discards: totals.discards,
            dropped_by_system: totals.sockets.dropped_by_system,
            cpu: thread_time(),
            made_at: Some(std::time::Instant::now()),
            clients: self.game.reports(&mut self.server),
            past_wrong: self.game.past_wrong(),
        };
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}

/// Returns the processor time of this thread.
#[cfg(unix)]
fn thread_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).ok()
}

#[cfg(not(unix))]
fn thread_time() -> Option<Duration> {
    None
}
