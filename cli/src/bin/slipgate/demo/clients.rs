//! The demo's clients, each in its own thread.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use slipgate_cli::Failure;
use slipgate_client::fetch::{TokenRequest, fetch};
use slipgate_token_issuer::api_key::ApiKey;

use super::game::GameSettings;
use super::player::{Player, PlayerReport};

/// The client id of the first client; the value is arbitrary.
const FIRST_CLIENT_ID: u64 = 1001;
/// The time-out of a connection, in seconds: a small machine may need a while to serve 256 clients.
const TIMEOUT_SECONDS: u32 = 15;
/// The longest wait between two turns; a datagram ends it earlier.
const MAX_TURN_WAIT: Duration = Duration::from_millis(20);

/// The state and counters of a client.
#[derive(Clone, Default)]
pub(super) struct ClientReport {
    pub(super) client_id: u64,
    pub(super) player: PlayerReport,
    /// Why the client stopped, if it failed.
    pub(super) error: Option<String>,
    pub(super) finished: bool,
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
    leave: AtomicBool,
}

impl Clients {
    pub(super) fn start(
        count: u32,
        settings: &GameSettings,
        issuer: String,
        server: SocketAddr,
        api_key: ApiKey,
    ) -> Result<Self, Failure> {
        let bind = wildcard_of_family(server);
        let (issuer, api_key, commands) = (Arc::new(issuer), Arc::new(api_key), Arc::new(Commands::default()));
        let mut clients = Self { reports: Vec::new(), threads: Vec::new(), commands: Arc::clone(&commands) };
        for number in 0..u64::from(count) {
            let report = Shared::default();
            clients.reports.push(Arc::clone(&report));
            let (issuer, api_key, commands) = (Arc::clone(&issuer), Arc::clone(&api_key), Arc::clone(&commands));
            let (settings, client_id) = (settings.clone(), FIRST_CLIENT_ID + number);
            update(&report, |report| report.client_id = client_id);
            let thread = std::thread::Builder::new()
                .name(format!("client-{client_id}"))
                .spawn(move || {
                    let error = run_client(client_id, &settings, &issuer, bind, &api_key, &commands, &report).err();
                    update(&report, |report| (report.error, report.finished) = (error, true));
                })
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
        self.reports().iter().all(|report| report.finished || report.player.has_received_all())
    }

    /// Returns a number that grows with each arrival of a message that must arrive.
    pub(super) fn progress(&self) -> u64 {
        let of = |player: &PlayerReport| player.chat.returned + u64::from(player.map.bytes) + player.map.complete;
        self.reports().iter().map(|report| of(&report.player)).sum()
    }

    pub(super) fn stop_sending(&self) {
        self.commands.stop_sending.store(true, Ordering::Relaxed);
        // A client may be within a turn that has already read the flag.
        std::thread::sleep(2 * MAX_TURN_WAIT);
    }

    /// Disconnects all clients and joins their threads.
    pub(super) fn leave(&mut self) {
        self.commands.leave.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panicked thread has not set `finished` or its results, so the outcome reports the failure.
            let _ = thread.join();
        }
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

/// Runs a client: fetches a token over HTTP, connects over UDP, plays, and disconnects.
fn run_client(
    client_id: u64,
    settings: &GameSettings,
    issuer: &str,
    bind: SocketAddr,
    api_key: &ApiKey,
    commands: &Commands,
    report: &Mutex<ClientReport>,
) -> Result<(), String> {
    let request = TokenRequest { client_id, timeout_seconds: Some(TIMEOUT_SECONDS), ..TokenRequest::default() };
    let token = fetch(issuer, api_key.expose(), &request).map_err(|error| error.to_string())?;
    let mut player = Player::begin(client_id, token, bind, settings)?;
    while !commands.leave.load(Ordering::Relaxed) {
        let sending = !commands.stop_sending.load(Ordering::Relaxed);
        player.turn(sending, MAX_TURN_WAIT).map_err(|error| format!("cannot wait for packets: {error}"))?;
        update(report, |report| report.player = player.report().clone());
        if let Some(reason) = &player.report().ended {
            return Err(reason.clone());
        }
    }
    player.leave().map_err(|error| error.to_string())
}
