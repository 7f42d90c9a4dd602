//! How many clients were redirected, and why others were not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The redirects of a server since its start. Each client of a drain with redirects counts once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RedirectCounts {
    /// Clients to which a token for another server was sent. Whether a client followed is known to the other server.
    pub sent: u64,
    /// Clients for which the issuer refused a token. They stay until the drain is over.
    pub refused: u64,
    /// Clients without channels, to which no token can be sent. They stay until the drain is over.
    pub without_channels: u64,
    /// Clients that left before their token came.
    pub left: u64,
    /// Clients that wait for a token now.
    pub waiting: u64,
}

/// Counts the redirects of a server. A clone is a handle to the same counts.
#[derive(Clone, Debug, Default)]
pub struct RedirectCounter(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    requested: AtomicU64,
    sent: AtomicU64,
    refused: AtomicU64,
    without_channels: AtomicU64,
    left: AtomicU64,
}

impl RedirectCounter {
    /// Returns the counts.
    #[must_use]
    pub fn counts(&self) -> RedirectCounts {
        let [sent, refused, left] =
            [&self.0.sent, &self.0.refused, &self.0.left].map(|count| count.load(Ordering::Relaxed));
        let without_channels = self.0.without_channels.load(Ordering::Relaxed);
        let waiting = self.0.requested.load(Ordering::Relaxed).saturating_sub(sent + refused + left);
        RedirectCounts { sent, refused, without_channels, left, waiting }
    }

    pub(crate) fn on_requested(&self) {
        self.0.requested.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn on_sent(&self) {
        self.0.sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn on_refused(&self) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn on_without_channels(&self) {
        self.0.without_channels.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn on_left(&self) {
        self.0.left.fetch_add(1, Ordering::Relaxed);
    }
}
