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
use super::listener::{AcceptedStream, IssuerListener};
use super::peer::{ConnectionSource, HttpPeer};
use super::turns::Turns;
use super::{HttpLimits, TokenService};

/// The pause after a failed accept. Without file descriptors, an immediate retry would fail again and waste CPU time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// The maximum number of connections that are accepted without a pause in which the tasks of other connections run.
const ACCEPT_BATCH: u32 = 4;
/// The minimum interval between two log lines about failed accepts.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Serves HTTP/1.1 on this listener until `shutdown` completes, then finishes open requests and returns.
///
/// Finishing takes at most [`HttpLimits::shutdown_timeout`]. Requires a tokio runtime with I/O and time.
pub async fn serve(listener: impl Into<IssuerListener>, service: TokenService, shutdown: impl Future<Output = ()>) {
    let listener = listener.into();
    let limits = service.limits;
    let (running, stop) = watch::channel(());
    let mut acceptor = Acceptor {
        turns: Turns::new(service.clone()),
        guarded: GuardedService::new(service),
        limits,
        stop,
        connections: Connections::new(limits),
        accepted: 0,
        failures: AcceptFailures::default(),
    };
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            // Accepting precedes cleaning up: a full backlog of the system would drop new connections.
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept(), if acceptor.connections.can_accept() => acceptor.on_accept(accepted).await,
            true = acceptor.connections.next_end() => {}
        }
    }
    drop(listener);
    drop(running);
    while acceptor.connections.next_end().await {}
}

/// Starts accepted connections, and closes others for them.
struct Acceptor {
    guarded: GuardedService,
    turns: Turns,
    limits: HttpLimits,
    /// Completes when the service stops.
    stop: watch::Receiver<()>,
    connections: Connections,
    accepted: u32,
    failures: AcceptFailures,
}

impl Acceptor {
    async fn on_accept(&mut self, accepted: io::Result<(AcceptedStream, HttpPeer)>) {
        match accepted {
            Ok((stream, peer)) => self.start(stream, peer).await,
            Err(error) => {
                if let Some(times) = self.failures.count(Instant::now()) {
                    tracing::warn!(%error, times, "cannot accept connections");
                }
                // Its file descriptor is free after the pause.
                self.connections.close_any(Instant::now());
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }

    async fn start(&mut self, stream: AcceptedStream, peer: HttpPeer) {
        let source = ConnectionSource::from(peer);
        while !self.connections.make_room(source, Instant::now()) {
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
        self.accepted = self.accepted.wrapping_add(1);
        if self.accepted.is_multiple_of(ACCEPT_BATCH) {
            yield_now().await;
        }
    }
}

/// Counts failed accepts and limits their log lines: without file descriptors there are several per second.
#[derive(Default)]
struct AcceptFailures {
    last_logged: Option<Instant>,
    unlogged: u64,
}

impl AcceptFailures {
    /// Counts a failure. Returns the number of failures to log now, or `None` within the interval.
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.unlogged += 1;
        if self.last_logged.is_some_and(|last| now.duration_since(last) < LOG_INTERVAL) {
            return None;
        }
        self.last_logged = Some(now);
        Some(core::mem::take(&mut self.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_accepts_are_logged_at_most_once_a_minute() {
        let mut failures = AcceptFailures::default();
        let start = Instant::now();
        for (millis, last_logged) in
            [(0, Some(1)), (200, None), (59_999, None), (60_000, Some(3)), (60_200, None), (500_000, Some(2))]
        {
            assert_eq!(failures.count(start + Duration::from_millis(millis)), last_logged, "{millis} ms");
        }
    }
}
