//! The demo's clients: each in a thread of its own, as it would be on a machine of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use slipgate::client::Client;
use slipgate::client::fetch::{Request, fetch};
use slipgate::client::probe::{Probe, ProbeConfig, ProbeReport};
use slipgate::issuer::api_key::ApiKey;
use slipgate_edge::cli::Failure;

/// The first client's id; any numbers would do.
const FIRST_CLIENT_ID: u64 = 1001;
/// A turn at the latest; datagrams wake a client before.
const NAP: Duration = Duration::from_millis(20);

/// What a client has seen.
#[derive(Clone, Default)]
pub(super) struct ClientReport {
    pub(super) client_id: u64,
    pub(super) probe: ProbeReport,
    /// Why it cannot play, if it cannot.
    pub(super) trouble: Option<String>,
    finished: bool,
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
    pub(super) fn start(count: u32, rate: u32, issuer: String, api_key: ApiKey) -> Result<Self, Failure> {
        let (issuer, api_key, orders) = (Arc::new(issuer), Arc::new(api_key), Arc::new(Orders::default()));
        let mut clients = Self { reports: Vec::new(), threads: Vec::new(), orders: Arc::clone(&orders) };
        for number in 0..u64::from(count) {
            let report = Shared::default();
            clients.reports.push(Arc::clone(&report));
            let (issuer, api_key, orders) = (Arc::clone(&issuer), Arc::clone(&api_key), Arc::clone(&orders));
            let client_id = FIRST_CLIENT_ID + number;
            update(&report, |report| report.client_id = client_id);
            let thread = std::thread::Builder::new()
                .name(format!("client-{client_id}"))
                .spawn(move || {
                    let trouble = live(client_id, rate, &issuer, &api_key, &orders, &report).err();
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
        self.reports().iter().all(|report| report.probe.state.is_connected())
    }

    pub(super) fn are_all_gone(&self) -> bool {
        self.reports().iter().all(|report| report.finished)
    }

    pub(super) fn have_their_echoes(&self) -> bool {
        self.reports().iter().all(|report| report.finished || report.probe.missing() == 0)
    }

    pub(super) fn stop_sending(&self) {
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

/// The life of a client: a token by HTTP, a connection by UDP, payloads and their echoes, goodbye.
fn live(
    client_id: u64,
    rate: u32,
    issuer: &str,
    api_key: &ApiKey,
    orders: &Orders,
    report: &Mutex<ClientReport>,
) -> Result<(), String> {
    let request = Request { client_id, ..Request::default() };
    let token = fetch(issuer, api_key.expose(), &request).map_err(|error| error.to_string())?;
    let client = Client::new().map_err(|error| format!("cannot open a socket: {error}"))?;
    let config = ProbeConfig { rate, sizes: 16..=1200, mark: client_id };
    let mut probe = Probe::begin(client, token, config).map_err(|error| error.to_string())?;
    while !orders.leave.load(Ordering::Relaxed) {
        let sending = !orders.quiet.load(Ordering::Relaxed);
        probe.turn(sending, NAP).map_err(|error| format!("cannot wait for packets: {error}"))?;
        update(report, |report| report.probe = probe.report().clone());
        if let Some(reason) = probe.report().ended {
            return Err(reason.to_string());
        }
    }
    probe.leave().map_err(|error| error.to_string())
}
