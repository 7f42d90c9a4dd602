//! Connections: their number, their lifetime and their shutdown.
//!
//! ```text
//!  accepted ──requests──▶ aged, or the service stops ──finishes its open request──▶ closed
//!      │                                                        │
//!      │                                                        └─ not done within the shutdown timeout: aborted
//!      ├─ no head within the header timeout, or a response not read within the write timeout: closed
//!      └─ idle when another connection needs its place: closed
//! ```

use core::pin::pin;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};

use super::connection::HttpConnection;
use super::connections::Connections;
use super::guard::GuardedService;
use super::limited_log::LimitedLog;
use super::listener::{AcceptedStream, IssuerListener};
use super::peer::{ConnectionSource, HttpPeer};
use super::server_watch::watch_servers;
use super::turns::Turns;
use super::{HttpLimits, TokenService};

/// The pause after a failed accept. Without file descriptors, an immediate retry would fail again and waste CPU time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Serves HTTP/1.1 on this listener until `shutdown` completes, then finishes open requests and returns.
///
/// Finishing takes at most [`HttpLimits::shutdown_timeout`]. Requires a tokio runtime with I/O and time.
pub async fn serve(listener: impl Into<IssuerListener>, service: TokenService, shutdown: impl Future<Output = ()>) {
    let listener = listener.into();
    let (limits, observer) = (service.limits, Arc::clone(&service.observer));
    let (running, stop) = watch::channel(());
    let watching = watch_servers(service.clone()).await;
    let mut acceptor = Acceptor {
        turns: Turns::new(service.clone()),
        guarded: GuardedService::new(service),
        limits,
        stop,
        connections: Connections::new(limits),
        failures: LimitedLog::per_minute(log_failures),
    };
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            // Accepting precedes cleaning up: a full backlog of the system would drop new connections.
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept(), if acceptor.connections.can_accept() => tokio::select! {
                biased;
                // While all connections are answering, the accepted one waits for their end.
                () = &mut shutdown => break,
                () = acceptor.on_accept(accepted) => {}
            },
            true = acceptor.connections.next_end() => {}
        }
    }
    drop(listener);
    drop(running);
    while acceptor.connections.next_end().await {}
    drop(watching);
    acceptor.failures.flush();
    observer.flush();
}

fn log_failures(times: u64, error: &io::Error) {
    tracing::warn!(%error, times, "cannot accept connections");
}

/// Starts accepted connections, and closes others for them.
struct Acceptor {
    guarded: GuardedService,
    turns: Turns,
    limits: HttpLimits,
    /// Completes when the service stops.
    stop: watch::Receiver<()>,
    connections: Connections,
    /// Without file descriptors there are several failures in a second.
    failures: Arc<LimitedLog<io::Error>>,
}

impl Acceptor {
    async fn on_accept(&mut self, accepted: io::Result<(AcceptedStream, HttpPeer)>) {
        match accepted {
            Ok((stream, peer)) => self.start(stream, peer).await,
            Err(error) => {
                if let Some(error) = self.failures.count(error) {
                    log_failures(1, &error);
                }
                // Its file descriptor is free after the pause.
                self.connections.close_any();
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }

    async fn start(&mut self, stream: AcceptedStream, peer: HttpPeer) {
        let source = ConnectionSource::from(peer);
        while !self.connections.make_room(source) {
            self.connections.wait_for_room().await;
        }
        let state = Arc::new(self.connections.new_state(Instant::now()).with_peer(peer));
        let connection = HttpConnection {
            source,
            guarded: self.guarded.clone(),
            turns: self.turns.clone(),
            state: Arc::clone(&state),
            limits: self.limits,
            stop: self.stop.clone(),
        };
        self.connections.spawn(source, state, connection.serve(stream));
        // The runtime looks for requests before the next connection is accepted.
        yield_now().await;
    }
}
