//! The demo's clients, each in its own thread.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use slipgate_cli::Failure;
use slipgate_client::fetch::{FetchRequest, fetch};
use slipgate_client::{CloseKind, CloseReason, ConnectToken};
use slipgate_netcode::ids::ClientId;
use slipgate_token_issuer::api_key::ApiKey;

use super::game::GameSettings;
use super::player::{Player, PlayerReport};

/// The client id of the first client; the value is arbitrary.
const FIRST_CLIENT_ID: u64 = 1001;
/// The timeout of a connection, in seconds: a small machine may need a while to serve 256 clients.
pub(super) const TIMEOUT_SECONDS: u32 = 15;
/// The longest wait between two turns; a datagram ends it earlier.
const MAX_TURN_WAIT: Duration = Duration::from_millis(20);
/// How long a kicked player stays away, so that the reason can be read.
const PAUSE_AFTER_KICK: Duration = Duration::from_secs(3);
/// The pause of a player before it asks for another token, after an end without a known cause.
const PAUSE_AFTER_END: Duration = Duration::from_millis(100);
/// How long an attempt to connect may take before the player asks for another token: two round trips over a satellite
/// take 1.2 s, and lost datagrams are repeated.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(4);

/// The interval at which clients leave at the end.
const LEAVE_INTERVAL: Duration = Duration::from_millis(2);

/// What a client does after its connection has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AfterEnd {
    /// It fails: the demo must serve each client without a break.
    Fail,
    /// It asks for a new token and connects again, as a game does.
    Rejoin,
}

/// The state and counters of a client.
#[derive(Clone, Default)]
pub(super) struct ClientReport {
    pub(super) client_id: ClientId,
    /// The present or last session.
    pub(super) player: PlayerReport,
    /// The sessions before.
    pub(super) past: PastSessions,
    /// Why the client stopped, if it failed.
    pub(super) error: Option<String>,
    pub(super) finished: bool,
}

/// The sums of a client's ended sessions.
#[derive(Clone, Default)]
pub(super) struct PastSessions {
    /// Sessions that have ended, attempts included.
    pub(super) count: u32,
    /// Chat lines that the server returned. Lines that were on the way at the end of a session do not count.
    pub(super) lines: u64,
    pub(super) states: u64,
    pub(super) wrong: u64,
    /// Sessions that neither a kick nor a stop of the server has ended.
    pub(super) lost: u32,
    /// Why the last one of these has ended.
    pub(super) last_loss: Option<CloseReason>,
    /// Why the last one has ended.
    pub(super) last_end: Option<CloseReason>,
}

impl PastSessions {
    fn add(&mut self, player: &PlayerReport, end: CloseReason) {
        self.count += 1;
        self.lines += player.chat.returned;
        self.states += player.states.received;
        self.wrong += player.wrong();
        let is_expected = matches!(end.kind, CloseKind::Kicked | CloseKind::ServerStopped);
        if player.slot.is_some() && !is_expected {
            self.lost += 1;
            self.last_loss = Some(end.clone());
        }
        self.last_end = Some(end);
    }
}

impl ClientReport {
    /// Returns whether the client is on its way back: its last session has ended, and the next is not established.
    pub(super) const fn is_between_sessions(&self) -> bool {
        self.past.count > 0 && !self.player.state.is_connected()
    }

    /// Returns the chat lines that came back, in all sessions.
    pub(super) const fn lines_returned(&self) -> u64 {
        self.player.chat.returned + self.past.lines
    }

    /// Returns the state updates that arrived, in all sessions.
    pub(super) const fn states_received(&self) -> u64 {
        self.player.states.received + self.past.states
    }

    /// Returns whether the present session must be complete: not if it follows another one and had no time to begin.
    pub(super) const fn must_be_complete(&self) -> bool {
        let has_started = self.player.chat.sent > 0 && self.player.states.received > 0;
        self.past.count == 0 || (self.player.state.is_connected() && has_started)
    }
}

type Shared = Arc<Mutex<ClientReport>>;

/// All clients.
pub(super) struct Clients {
    reports: Vec<Shared>,
    threads: Vec<JoinHandle<()>>,
    commands: Arc<Commands>,
}

/// Commands of the main thread to all clients.
#[derive(Default)]
struct Commands {
    stop_sending: AtomicBool,
    /// The clients that must leave: those with lower ids.
    leave_below: AtomicU64,
    /// Counts the stops and starts of the server, so it is odd while the server restarts. The backend of a game knows
    /// that, and sends no player there.
    server_changes: AtomicU32,
}

/// What all clients need to know to join.
#[derive(Clone)]
pub(super) struct JoinSettings {
    pub(super) issuer: String,
    pub(super) api_key: Arc<ApiKey>,
    /// The address in the tokens.
    pub(super) server: SocketAddr,
    pub(super) after_end: AfterEnd,
    /// Held for each request to the issuer: both ends of 256 requests at once would need too many file descriptors.
    pub(super) fetching: Arc<Mutex<()>>,
}

impl JoinSettings {
    fn fetch_token(&self, client_id: ClientId) -> Result<ConnectToken, String> {
        let _one_at_a_time = self.fetching.lock().unwrap_or_else(PoisonError::into_inner);
        let request = FetchRequest { client_id, timeout_seconds: Some(TIMEOUT_SECONDS), ..FetchRequest::default() };
        fetch(&self.issuer, self.api_key.expose(), &request).map_err(|error| error.to_string())
    }
}

impl Clients {
    pub(super) fn start(count: u32, settings: &GameSettings, join: &JoinSettings) -> Result<Self, Failure> {
        let mut clients = Self { reports: Vec::new(), threads: Vec::new(), commands: Arc::default() };
        for client_id in (FIRST_CLIENT_ID..).map(ClientId).take(count as usize) {
            let report = Arc::new(Mutex::new(ClientReport { client_id, ..ClientReport::default() }));
            clients.reports.push(Arc::clone(&report));
            let (settings, join, commands) = (settings.clone(), join.clone(), Arc::clone(&clients.commands));
            let run = move || {
                let error = run_client(client_id, &settings, &join, &commands, &report).err();
                update(&report, |report| (report.error, report.finished) = (error, true));
            };
            let thread = std::thread::Builder::new()
                .name(format!("client-{client_id}"))
                .spawn(run)
                .map_err(|error| Failure::run_time(format!("cannot start a thread: {error}")))?;
            clients.threads.push(thread);
        }
        Ok(clients)
    }

    pub(super) fn reports(&self) -> Vec<ClientReport> {
        self.reports.iter().map(|report| report.lock().unwrap_or_else(PoisonError::into_inner).clone()).collect()
    }

    pub(super) fn are_all_connected(&self) -> bool {
        self.reports().iter().all(|report| report.player.state.is_connected())
    }

    pub(super) fn have_all_ended(&self) -> bool {
        self.reports().iter().all(|report| report.finished)
    }

    /// Returns whether every client received all messages that must arrive.
    pub(super) fn have_received_all(&self) -> bool {
        let is_done = |report: &ClientReport| report.finished || report.is_between_sessions();
        self.reports().iter().all(|report| is_done(report) || report.player.has_received_all())
    }

    /// Returns a number that grows with each arrival of a message that must arrive.
    pub(super) fn progress(&self) -> u64 {
        let of = |player: &PlayerReport| player.chat.returned + u64::from(player.map.bytes) + player.map.complete;
        self.reports().iter().map(|report| of(&report.player)).sum()
    }

    /// Sets whether the server is up: players fetch no tokens while it is down.
    pub(super) fn set_server_state(&self, state: ServerState) {
        if (state == ServerState::Down) != self.commands.is_server_down() {
            self.commands.server_changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn stop_sending(&self) {
        self.commands.stop_sending.store(true, Ordering::Relaxed);
        // A client may be within a turn that has already read the flag.
        std::thread::sleep(2 * MAX_TURN_WAIT);
    }

    /// Disconnects all clients and joins their threads.
    pub(super) fn leave(&mut self) {
        // One after the other: the disconnect packets of 256 clients at once would overflow the proxy's socket.
        for client_id in (FIRST_CLIENT_ID..).take(self.reports.len()) {
            self.commands.leave_below.store(client_id + 1, Ordering::Relaxed);
            std::thread::sleep(LEAVE_INTERVAL);
        }
        for thread in self.threads.drain(..) {
            // A panicked thread has not set `finished` or its results, so the outcome reports the failure.
            let _ = thread.join();
        }
    }
}

/// Whether the server can be joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ServerState {
    Up,
    Down,
}

impl Commands {
    /// Waits for this time, or until the server has restarted; then for as long as no player may connect. A command
    /// to leave ends the wait.
    fn pause(&self, client_id: ClientId, time: Duration) {
        let (end, changes) = (Instant::now() + time, self.server_changes.load(Ordering::Relaxed));
        let is_early = || Instant::now() < end && self.server_changes.load(Ordering::Relaxed) <= changes + 1;
        while !self.is_leaving(client_id) && (is_early() || !self.may_connect()) {
            std::thread::sleep(MAX_TURN_WAIT);
        }
    }

    fn is_server_down(&self) -> bool {
        self.server_changes.load(Ordering::Relaxed) % 2 == 1
    }

    /// Returns whether players may connect: not while the server is down, and not at the end of the demo.
    fn may_connect(&self) -> bool {
        !self.is_server_down() && self.is_sending()
    }

    fn is_leaving(&self, client_id: ClientId) -> bool {
        client_id.0 < self.leave_below.load(Ordering::Relaxed)
    }

    /// Returns whether players still send messages.
    fn is_sending(&self) -> bool {
        !self.stop_sending.load(Ordering::Relaxed)
    }
}

fn update(report: &Mutex<ClientReport>, change: impl FnOnce(&mut ClientReport)) {
    change(&mut report.lock().unwrap_or_else(PoisonError::into_inner));
}

/// Returns the wildcard address of the server's family, so that each client needs one file descriptor instead of two.
fn wildcard_of_family(server: SocketAddr) -> SocketAddr {
    match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// Returns how long a player stays away after this end. After a stop it waits for the next server only.
const fn pause_after(end: CloseKind) -> Duration {
    match end {
        CloseKind::Kicked => PAUSE_AFTER_KICK,
        CloseKind::ServerStopped => Duration::ZERO,
        _ => PAUSE_AFTER_END,
    }
}

/// Runs a client until it is stopped. Each session has a token of its own.
fn run_client(
    client_id: ClientId,
    settings: &GameSettings,
    join: &JoinSettings,
    commands: &Commands,
    report: &Mutex<ClientReport>,
) -> Result<(), String> {
    let mut player = Player::new(client_id, wildcard_of_family(join.server), settings)?;
    while !commands.is_leaving(client_id) {
        let token = match join.fetch_token(client_id) {
            // A game asks again. The first token must come at once, or the demo is set up wrongly.
            Err(_) if player.has_played() => {
                commands.pause(client_id, PAUSE_AFTER_KICK);
                continue;
            }
            token => token?,
        };
        player.connect(token)?;
        let Some(end) = play(&mut player, join.after_end, commands, report)? else { break };
        if join.after_end == AfterEnd::Fail {
            return Err(end.to_string());
        }
        let pause = pause_after(end.kind);
        update(report, |report| {
            report.past.add(player.report(), end);
            report.player = PlayerReport { state: report.player.state, ..PlayerReport::default() };
        });
        commands.pause(client_id, pause);
    }
    player.leave().map_err(|error| error.to_string())
}

/// Plays a session. Returns why it ended, `None` when the client is stopped.
fn play(
    player: &mut Player,
    after_end: AfterEnd,
    commands: &Commands,
    report: &Mutex<ClientReport>,
) -> Result<Option<CloseReason>, String> {
    let started = Instant::now();
    while !commands.is_leaving(player.id()) {
        player
            .turn(commands.is_sending(), MAX_TURN_WAIT)
            .map_err(|error| format!("cannot wait for packets: {error}"))?;
        update(report, |report| report.player = player.report().clone());
        if let Some(end) = &player.report().ended {
            return Ok(Some(end.clone()));
        }
        let is_late = player.report().slot.is_none() && started.elapsed() > ATTEMPT_TIMEOUT;
        if after_end == AfterEnd::Rejoin && is_late {
            player.leave().map_err(|error| error.to_string())?;
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn players_join_a_server_that_has_restarted_without_a_pause() {
        let (commands, player) = (Commands::default(), ClientId(FIRST_CLIENT_ID));
        let paused = |commands: &Commands| {
            let began = Instant::now();
            commands.pause(player, pause_after(CloseKind::ServerStopped));
            began.elapsed()
        };
        // The close reason crosses a long path, and the server is up again before it arrives.
        commands.server_changes.store(2, Ordering::Relaxed);
        assert!(paused(&commands) < PAUSE_AFTER_END);
        // It arrives before the server is up again.
        commands.server_changes.store(3, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let up = scope.spawn(|| {
                std::thread::sleep(2 * PAUSE_AFTER_END);
                commands.server_changes.store(4, Ordering::Relaxed);
            });
            assert!(paused(&commands) > PAUSE_AFTER_END);
            up.join().unwrap();
        });
        assert_eq!(pause_after(CloseKind::Kicked), PAUSE_AFTER_KICK);
    }
}
