//! Tokens in bulk: each client gets its token when its turn of the ramp comes, because a token lives for seconds.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;

use slipgate_cli::Failure;
use slipgate_cli::issuer_authorities::{explain, fetch_token};
use slipgate_client::fetch::{CertificateAuthorities, FetchRequest};
use slipgate_netcode::crypto::key::Key;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::token::issue::{Claims, issue};
use slipgate_netcode::wire::token::Servers;
use slipgate_os::clock::wall_clock;
use slipgate_token_issuer::key_file::read_key_file;
use zeroize::Zeroizing;

use super::flags::LoadFlags;
use super::plan::LoadPlan;
use super::report::SharedReport;
use crate::keygen::entropy;

/// The threads that fetch or mint tokens at the same time.
const TOKEN_THREADS: u32 = 8;
/// The lifetime of minted tokens, and the timeout of their connections, in seconds.
const LIFETIME_SECONDS: u32 = 30;
const TIMEOUT_SECONDS: i32 = 5;

/// A token for the client with this number, counted from 0.
pub(super) struct NumberedToken {
    pub(super) number: u32,
    pub(super) token: ConnectToken,
}

/// Where tokens come from.
#[derive(Clone)]
pub(super) enum TokenSource {
    /// The request has no client id yet.
    Issuer {
        url: String,
        authorities: Option<CertificateAuthorities>,
        bearer: Arc<Zeroizing<String>>,
        request: FetchRequest,
    },
    Key {
        key: Box<Key>,
        protocol_id: u64,
        servers: Box<Servers>,
    },
}

impl TokenSource {
    pub(super) fn of(flags: &LoadFlags) -> Result<Self, Failure> {
        match (&flags.issuer, &flags.key_file) {
            (Some(url), _) => {
                let authorities = flags.issuer_ca_file.read(url)?;
                let bearer = Arc::new(crate::api_key::read(flags.api_key_file.as_deref())?);
                let request = flags.group.request(flags.server.clone(), flags.protocol_id);
                Ok(Self::Issuer { url: url.clone(), authorities, bearer, request })
            }
            (None, Some(path)) => Self::of_key(flags, path),
            (None, None) => Err(Failure::usage("give --issuer, or --key-file")),
        }
    }

    fn of_key(flags: &LoadFlags, path: &Path) -> Result<Self, Failure> {
        let keys = read_key_file(path).map_err(|error| Failure::usage(error.to_string()))?;
        let key = keys.iter().next().cloned().ok_or_else(|| Failure::usage("the key file is empty"))?;
        let servers = Servers::new(&flags.server);
        let servers = servers.ok_or_else(|| Failure::usage("give 1 to 32 different --server addresses"))?;
        let protocol_id = flags.protocol_id.ok_or_else(|| Failure::usage("give --protocol-id"))?.0;
        Ok(Self::Key { key: Box::new(key), protocol_id, servers: Box::new(servers) })
    }

    /// Returns a token for this client id.
    ///
    /// # Errors
    /// The text of what failed.
    pub(super) fn token(&self, client_id: u64) -> Result<ConnectToken, String> {
        match self {
            Self::Issuer { url, authorities, bearer, request } => {
                let request = FetchRequest { client_id: client_id.into(), ..request.clone() };
                fetch_token(url, bearer, &request, authorities.as_ref()).map_err(|error| explain(&error))
            }
            Self::Key { key, protocol_id, servers } => {
                let claims = Claims {
                    protocol_id: *protocol_id,
                    client_id: client_id.into(),
                    servers,
                    internal_servers: None,
                    lifetime_seconds: LIFETIME_SECONDS,
                    timeout_seconds: TIMEOUT_SECONDS,
                    user_data: &[0; 256],
                };
                let mut entropy = entropy().map_err(|error| error.to_string())?;
                issue(&claims, key, wall_clock(), &mut entropy).map_err(|error| error.to_string())
            }
        }
    }
}

/// Starts the threads that get the tokens. They end with the last client, or when `stop` is set.
///
/// # Errors
/// The system refuses a thread.
pub(super) fn start_tokens(
    source: &TokenSource,
    plan: &LoadPlan,
    workers: Vec<SyncSender<NumberedToken>>,
    shared: &Arc<SharedReport>,
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    let next = Arc::new(AtomicU32::new(0));
    let workers = Arc::new(workers);
    for _ in 0..TOKEN_THREADS.min(plan.clients) {
        let (source, plan, next) = (source.clone(), plan.clone(), Arc::clone(&next));
        let (workers, shared, stop) = (Arc::clone(&workers), Arc::clone(shared), Arc::clone(stop));
        let run = move || get_tokens(&source, &plan, &next, &workers, &shared, &stop);
        let spawned = thread::Builder::new().name("tokens".to_owned()).spawn(run);
        spawned.map_err(|error| Failure::run_time(format!("cannot start a thread: {error}")))?;
    }
    Ok(())
}

fn get_tokens(
    source: &TokenSource,
    plan: &LoadPlan,
    next: &AtomicU32,
    workers: &[SyncSender<NumberedToken>],
    shared: &SharedReport,
    stop: &AtomicBool,
) {
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= plan.clients {
            return;
        }
        let due = plan.begin_of(number);
        loop {
            let wait = due.since(plan.clock.monotonic());
            if stop.load(Ordering::Relaxed) {
                return;
            }
            if wait.is_zero() {
                break;
            }
            thread::sleep(wait.min(Duration::from_millis(50)));
        }
        match source.token(plan.first_client_id.wrapping_add(number.into())) {
            Ok(token) => {
                let Some(worker) = workers.get(number as usize % workers.len().max(1)) else { return };
                // The worker has ended only if it failed, which the report says.
                let _ = worker.send(NumberedToken { number, token });
            }
            Err(error) => shared.on_ended(&format!("no token: {error}")),
        }
    }
}
