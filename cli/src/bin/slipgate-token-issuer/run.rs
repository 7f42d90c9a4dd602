//! From a checked configuration to a service that runs until it is told to stop.

use slipgate_cli::Failure;
use slipgate_os::listen::ListenError;
use slipgate_token_issuer::http::{self, TokenService};
use tokio::net::TcpListener;
use tracing::info;

use crate::config::Config;
use crate::signals::Signals;

/// Serves until SIGTERM or SIGINT; a second one cuts what is still under way.
pub(crate) fn run(config: Config) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| Failure::run_time(format!("the system refuses threads to serve with: {error}")))?;
    runtime.block_on(serve(config))
}

async fn serve(config: Config) -> Result<(), Failure> {
    // Before the first line of the log: who reads it there may stop the program at once.
    let mut signals = Signals::listen()
        .map_err(|error| Failure::run_time(format!("the system refuses to report signals: {error}")))?;
    let refused = |error| Failure::run_time(ListenError::new(config.bind, error).to_string());
    let listener = TcpListener::bind(config.bind).await.map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    let (issuer, limits) = (&config.issuer, config.issuer.limits());
    info!(
        %address,
        protocol_id = format_args!("{:#x}", issuer.protocol_id()),
        servers = issuer.server_count(),
        max_lifetime_seconds = limits.lifetime_seconds().end(),
        max_timeout_seconds = limits.timeout_seconds().end(),
        "listening"
    );
    let service = TokenService::new(config.issuer, config.api_keys).with_limits(config.http);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut serving = std::pin::pin!(http::serve(listener, service, async {
        // A dropped sender stops it as well as a sent word.
        let _ = stopped.await;
    }));
    tokio::select! {
        () = &mut serving => return Ok(()),
        () = signals.next() => {}
    }
    info!("stopping: requests under way are answered first");
    drop(stop);
    tokio::select! {
        () = &mut serving => info!("stopped"),
        () = signals.next() => info!("stopped at once"),
    }
    Ok(())
}
