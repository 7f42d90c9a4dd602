//! The demo's clients: each in a thread of its own, as it would be on a machine of its own.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use slipgate_cli::Failure;
use slipgate_client::fetch::{Request, fetch};
use slipgate_token_issuer::api_key::ApiKey;

use super::game::Rules;
use super::player::{Player, PlayerReport};

/// The first client's id; any numbers would do.
const FIRST_CLIENT_ID: u64 = 1001;
/// Seconds of silence that end a connection: a small machine is busy with two hundred of them for a while.
const SILENCE_SECONDS: u32 = 15;
/// A turn at the latest; datagrams wake a client before.
const NAP: Duration = Duration::from_millis(20);

/// What a client has seen.
#[derive(Clone, Default)]
pub(super) struct ClientReport {
    pub(super) client_id: u64,
    pub(super) player: PlayerReport,
    /// Why it cannot play, if it cannot.
    pub(super) trouble: Option<String>,
    pub(super) finished: bool,
}

type Shared = Arc<Mutex<ClientReport>>;

/// All clients.
pub(super) struct Clients {
    reports: Vec<Shared>,
    threads: Vec<JoinHandle<()>>,
    orders: Arc<Orders>,
}

/// What the clients are told.
#[derive(Default)]
struct Orders {
    quiet: AtomicBool,
    leave: AtomicBool,
}

impl Clients {
    pub(super) fn start(
        count: u32,
        rules: &Rules,
        issuer: String,
        server: SocketAddr,
        api_key: ApiKey,
    ) -> Result<Self, Failure> {
        let bind = any_address_towards(server);
        let (issuer, api_key, orders) = (Arc::new(issuer), Arc::new(api_key), Arc::new(Orders::default()));
        let mut clients = Self { reports: Vec::new(), threads: Vec::new(), orders: Arc::clone(&orders) };
        for number in 0..u64::from(count) {
            let report = Shared::default();
            clients.reports.push(Arc::clone(&report));
            let (issuer, api_key, orders) = (Arc::clone(&issuer), Arc::clone(&api_key), Arc::clone(&orders));
            let (rules, client_id) = (rules.clone(), FIRST_CLIENT_ID + number);
            update(&report, |report| report.client_id = client_id);
            let thread = std::thread::Builder::new()
                .name(format!("client-{client_id}"))
                .spawn(move || {
                    let trouble = live(client_id, &rules, &issuer, bind, &api_key, &orders, &report).err();
                    update(&report, |report| (report.trouble, report.finished) = (trouble, true));
                })
                .map_err(|error| Failure::run_time(format!("the system refuses a thread: {error}")))?;
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

    pub(super) fn are_all_gone(&self) -> bool {
        self.reports().iter().all(|report| report.finished)
    }

    /// Whether nothing is under way any more that must arrive.
    pub(super) fn have_all(&self) -> bool {
        self.reports().iter().all(|report| report.finished || report.player.has_all())
    }

    /// A number that grows with everything that arrives and must.
    pub(super) fn progress(&self) -> u64 {
        let of = |player: &PlayerReport| player.chat.back + u64::from(player.map.bytes) + player.map.whole;
        self.reports().iter().map(|report| of(&report.player)).sum()
    }

    pub(super) fn stop_talking(&self) {
        self.orders.quiet.store(true, Ordering::Relaxed);
        // Each client takes one more turn before it has heard of it.
        std::thread::sleep(2 * NAP);
    }

    /// Lets all clients leave, and waits for them.
    pub(super) fn leave(&mut self) {
        self.orders.leave.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // One that panicked has left no word of having finished, and the verdict counts that.
            let _ = thread.join();
        }
    }
}

fn update(report: &Mutex<ClientReport>, change: impl FnOnce(&mut ClientReport)) {
    change(&mut report.lock().unwrap_or_else(PoisonError::into_inner));
}

/// One socket a client is enough, and leaves file descriptors for the others.
fn any_address_towards(server: SocketAddr) -> SocketAddr {
    match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

/// The life of a client: a token by HTTP, a connection by UDP, the game, goodbye.
fn live(
    client_id: u64,
    rules: &Rules,
    issuer: &str,
    bind: SocketAddr,
    api_key: &ApiKey,
    orders: &Orders,
    report: &Mutex<ClientReport>,
) -> Result<(), String> {
    let request = Request { client_id, timeout_seconds: Some(SILENCE_SECONDS), ..Request::default() };
    let token = fetch(issuer, api_key.expose(), &request).map_err(|error| error.to_string())?;
    let mut player = Player::begin(client_id, token, bind, rules)?;
    while !orders.leave.load(Ordering::Relaxed) {
        let talking = !orders.quiet.load(Ordering::Relaxed);
        player.turn(talking, NAP).map_err(|error| format!("cannot wait for packets: {error}"))?;
        update(report, |report| report.player = player.report().clone());
        if let Some(reason) = &player.report().ended {
            return Err(reason.clone());
        }
    }
    player.leave().map_err(|error| error.to_string())
}
