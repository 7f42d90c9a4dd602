//! Runs the service until a stop signal arrives, and reads its keys again when asked to.

use slipgate_cli::{Failure, descriptors};
use slipgate_os::listen::ListenError;
use slipgate_token_issuer::http::{self, TokenService};
use tokio::net::TcpListener;
use tracing::{info, warn};

use crate::settings::{Fixed, Settings, Sources};
use crate::signals::{Signal, Signals};

/// File descriptors besides the connections: runtime, signals, listener, the files of a reload, and some to spare.
const DESCRIPTORS: usize = 16;
/// The minimum number of connections that the descriptors must allow, unless fewer are configured.
const MIN_CONNECTIONS: usize = 4;

/// Serves until SIGTERM or SIGINT, then finishes open requests. A second signal aborts them.
pub(crate) fn run(settings: Settings, sources: &Sources) -> Result<(), Failure> {
    let connections = limit_by_descriptors(settings.fixed.http.connections)?;
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| Failure::run_time(format!("cannot start the runtime's threads: {error}")))?;
    runtime.block_on(serve(settings, sources, connections))
}

/// Returns how many of these connections the process can have open. Fewer than wanted are logged.
fn limit_by_descriptors(wanted: usize) -> Result<usize, Failure> {
    let available = descriptors::available(DESCRIPTORS.saturating_add(wanted));
    let connections = available.saturating_sub(DESCRIPTORS).min(wanted);
    if connections < wanted.min(MIN_CONNECTIONS) {
        descriptors::require(DESCRIPTORS + wanted.min(MIN_CONNECTIONS))?;
    }
    if connections < wanted {
        warn!(connections, wanted, "fewer connections than --max-connections: the file descriptors do not suffice");
    }
    Ok(connections)
}

async fn serve(settings: Settings, sources: &Sources, connections: usize) -> Result<(), Failure> {
    // Must precede the first log line: a supervisor that sees the line may send a signal at once.
    let mut signals =
        Signals::listen().map_err(|error| Failure::run_time(format!("cannot register signal handlers: {error}")))?;
    let fixed = settings.fixed;
    let refused = |error| Failure::run_time(ListenError::new(fixed.bind, error).to_string());
    let listener = TcpListener::bind(fixed.bind).await.map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    let (issuer, limits) = (&settings.issuer, settings.issuer.limits());
    info!(
        %address,
        protocol_id = format_args!("{:#x}", issuer.protocol_id()),
        servers = issuer.server_count(),
        max_lifetime_seconds = limits.lifetime_seconds().end(),
        max_timeout_seconds = limits.timeout_seconds().end(),
        "listening"
    );
    let limits = http::HttpLimits { connections, ..fixed.http };
    let service = TokenService::new(settings.issuer, settings.api_keys).with_limits(limits);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut serving = std::pin::pin!(http::serve(listener, service.clone(), async {
        // Completes when the sender is dropped.
        let _ = stopped.await;
    }));
    loop {
        tokio::select! {
            () = &mut serving => return Ok(()),
            signal = signals.next() => match signal {
                Signal::Reload => reload(&service, sources, &fixed),
                Signal::Stop => break,
            }
        }
    }
    info!("stopping: finishing open requests");
    drop(stop);
    tokio::select! {
        () = &mut serving => info!("stopped"),
        () = signals.next_stop() => info!("stopped at once"),
    }
    Ok(())
}

/// Reads the key file and the configuration file again. Keeps the current settings, and logs why, if they are wrong.
fn reload(service: &TokenService, sources: &Sources, running: &Fixed) {
    let settings = match sources.gather() {
        Ok(settings) => settings,
        Err(error) => {
            warn!(%error, "SIGHUP: the settings are wrong; keeping the current keys and settings");
            return;
        }
    };
    let (keys, api_keys, servers) = (settings.private_keys, settings.digests, settings.issuer.server_count());
    service.replace(settings.issuer, settings.api_keys);
    match settings.keys.file() {
        Some(path) => info!(path = %path.display(), keys, api_keys, servers, "SIGHUP: the keys were read again"),
        None => info!(api_keys, servers, "SIGHUP: the API keys were read again; private keys of the environment stay"),
    }
    if settings.fixed != *running {
        warn!(
            "SIGHUP: listening address, connection limits, tokens per minute and log format change at a restart only"
        );
    }
}
