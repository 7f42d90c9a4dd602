//! Refused requests: their number, and a log line that strangers cannot repeat at will.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::warn;

/// The shortest time between two lines.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Counts requests without the token, and requests that a web page may have sent.
#[derive(Default)]
pub(crate) struct Refusals {
    total: AtomicU64,
    last_line: Mutex<Option<(Instant, u64)>>,
}

impl Refusals {
    /// Returns the number of refused requests.
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Counts a refused request. Logs at most one line in 10 s, with the number of those since the last one.
    pub(crate) fn count(&self, peer: Option<SocketAddr>, code: &str) {
        let (total, now) = (self.total.fetch_add(1, Ordering::Relaxed) + 1, Instant::now());
        // Poisoning is harmless: the critical section only copies.
        let mut last = self.last_line.lock().unwrap_or_else(PoisonError::into_inner);
        let (is_due, before) = match *last {
            None => (true, 0),
            Some((at, before)) => (now.duration_since(at) >= LINE_INTERVAL, before),
        };
        if is_due {
            *last = Some((now, total));
            let peer = peer.map(tracing::field::display);
            warn!(peer, code, requests = total - before, "admin requests were refused");
        }
    }
}
