//! Connections: how many, for how long, and how they end.
//!
//! ```text
//!  accepted ──requests──▶ aged, or the service stops ──answers what is under way──▶ closed
//!      │                                                        │
//!      └─ no head within the header time-out: closed            └─ not done within the shutdown time-out: cut
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

/// The most bytes of a request's head: a bearer key and some headers that proxies add.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// The pause after a failed accept: out of file handles, trying again at once would only burn the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// How long failed accepts are only counted after they were told.
const ACCEPT_SILENCE: Duration = Duration::from_secs(60);

/// Serves HTTP/1.1 on this listener until `shutdown` is done, then answers what is under way and returns.
///
/// That takes at most [`HttpLimits::shutdown_timeout`]. Needs a tokio runtime with I/O and time.
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
                    tracing::warn!(%error, times, "connections could not be accepted");
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Failed accepts, of which a machine without file handles has several a second.
#[derive(Default)]
struct AcceptFailures {
    told: Option<Instant>,
    untold: u64,
}

impl AcceptFailures {
    /// Counts one, and answers how many are to be told now.
    fn count(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        if self.told.is_some_and(|told| now.duration_since(told) < ACCEPT_SILENCE) {
            return None;
        }
        self.told = Some(now);
        Some(core::mem::take(&mut self.untold))
    }
}

/// Errors of one connection are its client's: it hung up, was too slow, or did not speak HTTP.
async fn connection(stream: TcpStream, router: Router, limits: HttpLimits, mut stop: watch::Receiver<()>) {
    // Answers are written at once; waiting for more to send would only delay them. Failure costs just that.
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
    fn failed_accepts_are_told_once_and_then_at_most_once_a_minute_with_their_number() {
        let mut failures = AcceptFailures::default();
        let start = Instant::now();
        for (millis, told) in
            [(0, Some(1)), (200, None), (59_999, None), (60_000, Some(3)), (60_200, None), (500_000, Some(2))]
        {
            assert_eq!(failures.count(start + Duration::from_millis(millis)), told, "{millis} ms");
        }
    }
}
