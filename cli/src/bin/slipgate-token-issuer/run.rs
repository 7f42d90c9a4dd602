//! Runs the service until a stop signal arrives, and reads its keys again when asked to.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use slipgate_cli::{Failure, descriptors, file_watch};
use slipgate_netcode::time::UnixSeconds;
use slipgate_os::listen::ListenError;
use slipgate_token_issuer::http::{self, Games, TokenService};
use slipgate_token_issuer::wall_clock;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::registry;
use crate::settings::{RestartSettings, Settings, Sources};
use crate::signals::{AsyncSignals, Signal};

/// File descriptors besides the connections: runtime, signals, listener, the files of a reload, and some to spare.
const DESCRIPTORS: usize = 16;
/// The minimum number of connections that the descriptors must allow, unless fewer are configured.
const MIN_CONNECTIONS: usize = 4;

/// The number of tasks that run before sockets are looked at again. The runtime's default of 61 lets a request of a
/// backend wait for as many hostile ones.
const EVENT_INTERVAL: u32 = 16;
/// The connections that wait in the system to be accepted. Where they do not fit, clients try again after a second.
const BACKLOG: u32 = 4096;

/// Serves until SIGTERM or SIGINT, then finishes open requests. A second signal aborts them.
pub(crate) fn run(settings: Settings, sources: &Sources) -> Result<(), Failure> {
    let connections = limit_by_descriptors(settings.fixed.http.connections)?;
    // One thread for all connections: a new connection is served without waking another thread. It mints thousands of
    // tokens a second. The main thread handles signals, and reads the files of a reload.
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .event_interval(EVENT_INTERVAL)
        .enable_all()
        .build()
        .map_err(|error| Failure::run_time(format!("cannot start the runtime's threads: {error}")))?;
    runtime.block_on(serve(settings, sources, connections))
}

/// Returns how many of these connections the process can have open. Fewer than wanted are logged.
fn limit_by_descriptors(wanted: usize) -> Result<usize, Failure> {
    let closing = wanted.min(http::MAX_CLOSING);
    let left = descriptors::available(DESCRIPTORS.saturating_add(wanted).saturating_add(closing));
    let left = left.saturating_sub(DESCRIPTORS);
    // Up to MAX_CLOSING connections may be closing beside the open ones, but never more than may be open.
    let connections = left.saturating_sub(http::MAX_CLOSING).max(left / 2).min(wanted);
    let min_connections = wanted.min(MIN_CONNECTIONS);
    if connections < min_connections {
        descriptors::require(DESCRIPTORS + 2 * min_connections)?;
    }
    if connections < wanted {
        warn!(connections, wanted, "fewer connections than --max-connections: the file descriptors do not suffice");
    }
    Ok(connections)
}

async fn serve(settings: Settings, sources: &Sources, connections: usize) -> Result<(), Failure> {
    // Must precede the first log line: a supervisor that sees the line may send a signal at once.
    let mut signals = AsyncSignals::listen()
        .map_err(|error| Failure::run_time(format!("cannot register signal handlers: {error}")))?;
    let registry = registry::open(&settings.fixed)?;
    let servers = settings.server_count();
    let changed = watch(&settings.files)?;
    let mut next_key = settings.next_key;
    let fixed = settings.fixed;
    let refused = |error| Failure::run_time(ListenError::new(fixed.bind, error).to_string());
    let listener = listen(fixed.bind).map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    log_start(address, &settings.games, servers);
    let limits = http::HttpLimits { connections, ..fixed.http };
    let service = TokenService::new(settings.games, settings.api_keys).with_limits(limits).with_registry(registry);
    let service = if fixed.hosts.is_empty() { service } else { service.with_hosts(fixed.hosts.clone()) };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    // A task, so that it runs on the thread of the connections' tasks.
    let mut serving = tokio::spawn(http::serve(listener, service.clone(), async {
        // Completes when the sender is dropped.
        let _ = stopped.await;
    }));
    loop {
        tokio::select! {
            _ = &mut serving => return Ok(()),
            signal = signals.next() => match signal {
                Signal::Reload => next_key = reload("SIGHUP", &service, sources, &fixed).unwrap_or(next_key),
                Signal::Stop => break,
            },
            () = changed.notified() => {
                next_key = reload("a file has changed", &service, sources, &fixed).unwrap_or(next_key);
            }
            () = wait_until(next_key) => {
                next_key = reload("a new key seals", &service, sources, &fixed).unwrap_or(None);
            }
        }
    }
    info!("stopping: finishing open requests");
    drop(stop);
    tokio::select! {
        _ = &mut serving => info!("stopped"),
        () = signals.next_stop() => info!("stopped at once"),
    }
    Ok(())
}

fn log_start(address: SocketAddr, games: &Games, servers: usize) {
    let Some(first) = games.iter().next() else { return };
    let (games, limits) = (games.iter().count(), first.limits());
    info!(
        %address,
        protocol_id = format_args!("{:#x}", first.protocol_id()),
        games,
        servers,
        max_lifetime_seconds = limits.lifetime_seconds().end(),
        max_timeout_seconds = limits.timeout_seconds().end(),
        "listening"
    );
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // On Windows the option would let another program take the address.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Watches the files of a reload.
fn watch(files: &[PathBuf]) -> Result<Arc<Notify>, Failure> {
    let changed = Arc::new(Notify::new());
    let notify = Arc::clone(&changed);
    let watched = file_watch::watch(files.to_vec(), move || notify.notify_one());
    watched.map_err(|error| Failure::run_time(format!("the files cannot be watched: {error}")))?;
    Ok(changed)
}

/// Waits until this time of the wall clock, which may be stepped meanwhile.
async fn wait_until(time: Option<UnixSeconds>) {
    let Some(time) = time else { return std::future::pending().await };
    while UnixSeconds::from(wall_clock()) < time {
        sleep(Duration::from_millis(200)).await;
    }
}

/// Reads the key file and the configuration file again. Keeps the current settings, and logs why, if they are wrong.
/// Returns when another key seals.
fn reload(
    cause: &str,
    service: &TokenService,
    sources: &Sources,
    running: &RestartSettings,
) -> Option<Option<UnixSeconds>> {
    let settings = match sources.gather() {
        Ok(settings) => settings,
        Err(error) => {
            warn!(%error, "{cause}: the settings are wrong; keeping the current keys and settings");
            return None;
        }
    };
    let (keys, api_keys, servers) = (settings.private_keys, settings.api_keys.count(), settings.server_count());
    service.replace(settings.games, settings.api_keys);
    match settings.keys.file() {
        Some(path) => info!(path = %path.display(), keys, api_keys, servers, "{cause}: the keys were read again"),
        None => info!(api_keys, servers, "{cause}: the API keys were read again; private keys of the environment stay"),
    }
    if settings.fixed != *running {
        warn!(
            "{cause}: listening address, registry, host names, connection limits, tokens per minute and log format \
             change at a restart only"
        );
    }
    Some(settings.next_key)
}
