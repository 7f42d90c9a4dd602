//! Connections: their number, their lifetime and their shutdown.
//!
//! ```text
//!  accepted ──requests──▶ aged, or the service stops ──finishes its open request──▶ closed
//!      │                                                        │
//!      └─ no head within the header time-out: closed            └─ not done within the shutdown time-out: aborted
//! ```

use core::pin::pin;
use std::future::Future;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::{HttpLimits, TokenService, router};

/// The maximum size of a request's head, in bytes: enough for a bearer key and the headers that proxies add.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// The pause after a failed accept. Without file descriptors, an immediate retry would fail again and waste CPU time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// The minimum interval between two log lines about failed accepts.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Serves HTTP/1.1 on this listener until `shutdown` completes, then finishes open requests and returns.
///
/// Finishing takes at most [`HttpLimits::shutdown_timeout`]. Requires a tokio runtime with I/O and time.
pub async fn serve(listener: TcpListener, service: TokenService, shutdown: impl Future<Output = ()>) {
    let limits = service.limits;
    let router = router(service);
    let (running, stop) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut failures = AcceptFailures::default();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            stream = accept(&listener, &mut failures), if connections.len() < limits.connections.max(1) => {
                connections.spawn(connection(stream, router.clone(), limits, stop.clone()));
            }
        }
    }
    drop(listener);
    drop(running);
    while connections.join_next().await.is_some() {}
}

async fn accept(listener: &TcpListener, failures: &mut AcceptFailures) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                if let Some(times) = failures.count(Instant::now()) {
                    tracing::warn!(%error, times, "cannot accept connections");
                }
                sleep(ACCEPT_PAUSE).await;
            }
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

/// Serves one connection. Its errors are ignored: the client disconnected, was too slow, or sent invalid HTTP.
async fn connection(stream: TcpStream, router: Router, limits: HttpLimits, mut stop: watch::Receiver<()>) {
    // Responses are written at once, so Nagle's algorithm would only delay them. A failure costs only that delay.
    let _ = stream.set_nodelay(true);
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_header_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut served = pin!(served);
    tokio::select! {
        _ = served.as_mut() => return,
        _ = stop.changed() => {}
        () = sleep(limits.connection_age) => {}
    }
    served.as_mut().graceful_shutdown();
    let _ = timeout(limits.shutdown_timeout, served).await;
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
