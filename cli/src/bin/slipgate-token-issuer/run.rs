//! Runs the service until a stop signal arrives, and reads its keys again when asked to.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use slipgate_cli::file_watch::FileWatch;
use slipgate_cli::reload::ReloadCause;
use slipgate_cli::{Failure, descriptors};
use slipgate_netcode::time::UnixSeconds;
use slipgate_token_issuer::http::{self, Games, TokenService};
use slipgate_token_issuer::players::Players;
use slipgate_token_issuer::wall_clock;
use tokio::runtime::Builder;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use crate::key_log::KeyLog;
use crate::reload::{ReloadGroups, Reloadable};
use crate::settings::{Settings, Sources, TlsFiles};
use crate::signals::{AsyncSignals, ReloadSignal, Signal};
use crate::values::{BindAddress, RegistrySetting};
use crate::{listen, registry};

/// File descriptors besides the connections: runtime, signals, listener, the files of a reload, and some to spare.
const DESCRIPTORS: usize = 16;
/// The minimum number of connections that the descriptors must allow, unless fewer are configured.
const MIN_CONNECTIONS: usize = 4;

/// The number of tasks that run before sockets are looked at again. The runtime's default of 61 lets a request of a
/// backend wait for as many hostile ones.
const EVENT_INTERVAL: u32 = 16;

/// Serves until SIGTERM or SIGINT and for the shutdown delay, then finishes open requests. A second signal aborts them.
pub(crate) fn run(settings: Settings, sources: Sources) -> Result<(), Failure> {
    let connections = limit_by_descriptors(settings.fixed.http.connections)?;
    // One thread for all connections: a new connection is served without waking another thread. It mints thousands of
    // tokens a second. The main thread handles signals, and a thread of its own reads the files of a reload.
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
        warn!(
            connections,
            wanted,
            "fewer connections than --max-connections: the file descriptors do not suffice; raise their limit \
             (`ulimit -n`, or LimitNOFILE of systemd)"
        );
    }
    Ok(connections)
}

async fn serve(settings: Settings, sources: Sources, connections: usize) -> Result<(), Failure> {
    // A start may wait for a disk, so that SIGTERM and SIGINT keep their default action meanwhile.
    let reload = ReloadSignal::listen().map_err(|error| not_registered(&error))?;
    let servers = settings.server_count();
    let fixed = settings.fixed;
    let tls = fixed.tls.as_ref().map(TlsFiles::read).transpose()?.map(Arc::new);
    let socket = listen::open(&fixed, tls.clone())?;
    let registry = registry::open(&fixed)?;
    let players = fixed.players.clone().map(Players::new).transpose();
    let players = players.map_err(|error| Failure::usage(format!("players: {error}")))?.map(Arc::new);
    let files = ReloadGroups::new(settings.files, &fixed);
    let (watch, files_due) = watch(files.paths())?;
    // Must precede the line: a supervisor that sees it may send a signal at once.
    let mut signals = AsyncSignals::listen(reload).map_err(|error| not_registered(&error))?;
    log_start(&socket.address, tls.is_some(), &settings.games, servers, &fixed.registry);
    KeyLog::of(&settings.games, &settings.api_keys).write();
    let limits = http::HttpLimits { connections, ..fixed.http };
    let service = TokenService::new(settings.games, settings.api_keys).with_limits(limits).with_registry(registry);
    let service = if fixed.hosts.is_empty() { service } else { service.with_hosts(fixed.hosts.clone()) };
    let service = if let Some(players) = &players { service.with_players(Arc::clone(players)) } else { service };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    // A task, so that it runs on the thread of the connections' tasks.
    let mut serving = tokio::spawn(http::serve(socket.listener, service.clone(), async {
        // Completes when the sender is dropped.
        let _ = stopped.await;
    }));
    let (mut next_key, shutdown_delay, announced) = (settings.next_key, fixed.shutdown_delay, service.clone());
    let running = Reloadable { service, tls, players, sources, running: fixed, next_key, watch, files };
    let (reloads, mut next_keys) = running.start_thread()?;
    let mut stops_at = None;
    loop {
        tokio::select! {
            _ = &mut serving => return Ok(()),
            signal = signals.next() => match signal {
                Signal::Reload => reloads.request(ReloadCause::Signal),
                Signal::Stop if stops_at.is_some() => {
                    info!("stopped at once");
                    return Ok(());
                }
                Signal::Stop => stops_at = Some(announce_stop(&announced, shutdown_delay)),
            },
            () = files_due.notified() => reloads.request(ReloadCause::Files),
            () = wait_until(next_key) => {
                next_key = None;
                reloads.request(ReloadCause::NewKey);
            }
            Ok(()) = next_keys.changed() => next_key = *next_keys.borrow_and_update(),
            () = sleep_until(stops_at.unwrap_or_else(Instant::now)), if stops_at.is_some() => break,
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

/// Turns `/readyz` 503. Returns the time at which the service stops.
fn announce_stop(service: &TokenService, shutdown_delay: Duration) -> Instant {
    service.announce_stop();
    if !shutdown_delay.is_zero() {
        info!(?shutdown_delay, "stopping: not ready, but requests are served for a while");
    }
    Instant::now() + shutdown_delay
}

fn not_registered(error: &io::Error) -> Failure {
    Failure::run_time(format!("cannot register signal handlers: {error}"))
}

fn log_start(address: &BindAddress, tls: bool, games: &Games, servers: usize, registry: &RegistrySetting) {
    let Some(first) = games.iter().next() else { return };
    let (games, limits) = (games.iter().count(), first.limits());
    info!(
        %address,
        tls,
        protocol_id = format_args!("{:#x}", first.protocol_id()),
        games,
        servers,
        %registry,
        max_lifetime_seconds = limits.lifetime_seconds().end(),
        max_timeout_seconds = limits.timeout_seconds().end(),
        "listening"
    );
}

/// Watches the files of a reload.
fn watch(files: Vec<PathBuf>) -> Result<(FileWatch, Arc<Notify>), Failure> {
    let files_due = Arc::new(Notify::new());
    let notify = Arc::clone(&files_due);
    let watched = FileWatch::start(files, move || notify.notify_one());
    let watch = watched.map_err(|error| Failure::run_time(format!("the files cannot be watched: {error}")))?;
    Ok((watch, files_due))
}

/// Waits until this time of the wall clock, which may be stepped meanwhile.
async fn wait_until(time: Option<UnixSeconds>) {
    let Some(time) = time else { return std::future::pending().await };
    while UnixSeconds::from(wall_clock()) < time {
        sleep(Duration::from_millis(200)).await;
    }
}
