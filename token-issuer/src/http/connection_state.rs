//! The state of one connection, which its task writes and the accept loop reads.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::peer::HttpPeer;

/// Whether a request was sent before the response to the one before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RequestTiming {
    /// The client had the response to its previous request, or this is its first.
    AfterResponse,
    /// The client did not wait for the response to its previous request.
    Pipelined,
}

/// The state of a connection. All fields are written by the connection's task alone.
#[derive(Debug)]
pub(super) struct ConnectionState {
    accepted: Instant,
    peer: Option<HttpPeer>,
    /// The last event that the client cannot fake with single bytes, in microseconds since `accepted`: the accept, the
    /// complete head of a request, its complete body, a response.
    last_progress: AtomicU64,
    /// Whether the connection has waited for its client. A new one has not until its task has run: under load, requests
    /// of many connections lie in the system's buffers.
    has_waited: AtomicBool,
    is_authenticated: AtomicBool,
    is_answering: AtomicBool,
    /// Whether no head is expected: the response to the last one is not complete, or is the last of the connection.
    has_head: AtomicBool,
    is_stopping: AtomicBool,
    is_write_stalled: AtomicBool,
    /// The number of reads that returned bytes.
    reads: AtomicU64,
    /// `reads` when the last response was ready; `u64::MAX` before the first one.
    reads_at_response: AtomicU64,
    /// Wakes the accept loop when this connection can give way again.
    can_give_way: Arc<Notify>,
}

impl ConnectionState {
    pub(super) fn new(now: Instant, can_give_way: Arc<Notify>) -> Self {
        Self {
            accepted: now,
            peer: None,
            last_progress: AtomicU64::new(0),
            has_waited: AtomicBool::new(false),
            is_authenticated: AtomicBool::new(false),
            is_answering: AtomicBool::new(false),
            has_head: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
            is_write_stalled: AtomicBool::new(false),
            reads: AtomicU64::new(0),
            reads_at_response: AtomicU64::new(u64::MAX),
            can_give_way,
        }
    }

    /// Returns the state with its other end.
    pub(super) fn with_peer(self, peer: HttpPeer) -> Self {
        Self { peer: Some(peer), ..self }
    }

    pub(super) const fn peer(&self) -> Option<HttpPeer> {
        self.peer
    }

    /// Records that bytes were read.
    pub(super) fn on_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that all bytes were read that had arrived.
    pub(super) fn on_wait(&self) {
        if !self.has_waited.swap(true, Ordering::Release) {
            self.can_give_way.notify_one();
        }
    }

    /// Records whether the system's buffer has room for the response.
    pub(super) fn set_write_stalled(&self, is_stalled: bool) {
        self.is_write_stalled.store(is_stalled, Ordering::Relaxed);
    }

    /// Returns whether the newest request was pipelined. Must be called once its head is parsed.
    pub(super) fn arrival(&self) -> RequestTiming {
        // A client that waits for its response sends the next request later, so at least one read lies in between.
        let has_read = self.reads.load(Ordering::Relaxed) != self.reads_at_response.load(Ordering::Relaxed);
        let is_stalled = self.is_write_stalled.load(Ordering::Relaxed);
        if has_read && !is_stalled { RequestTiming::AfterResponse } else { RequestTiming::Pipelined }
    }

    /// Records the complete head of a request.
    pub(super) fn on_head(&self, now: Instant) {
        self.on_progress(now);
        self.has_head.store(true, Ordering::Relaxed);
    }

    /// Records the complete body of a request: from now on the client waits for the service.
    pub(super) fn on_body(&self, now: Instant) {
        self.on_progress(now);
        self.is_answering.store(true, Ordering::Release);
    }

    /// Records a response. After the last one of a connection, which is not kept, no head is expected.
    pub(super) fn on_response(&self, now: Instant, is_kept: bool) {
        self.on_progress(now);
        self.has_head.store(!is_kept, Ordering::Relaxed);
        self.reads_at_response.store(self.reads.load(Ordering::Relaxed), Ordering::Relaxed);
        self.is_answering.store(false, Ordering::Release);
        self.has_waited.store(true, Ordering::Release);
        self.can_give_way.notify_one();
    }

    fn on_progress(&self, now: Instant) {
        self.last_progress.store(self.micros(now), Ordering::Relaxed);
    }

    /// Records that a request had a valid API key.
    pub(super) fn authenticate(&self) {
        self.is_authenticated.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_authenticated(&self) -> bool {
        self.is_authenticated.load(Ordering::Relaxed)
    }

    /// Records that the service stops, so the connection must not wait for its client's close.
    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Returns the time from which on the connection waits for the head of a request, or `None` while it has an open
    /// request, or a response that its client does not read.
    pub(super) fn waits_for_head_since(&self) -> Option<Instant> {
        let is_busy = self.has_head.load(Ordering::Relaxed) || self.is_write_stalled.load(Ordering::Relaxed);
        (!is_busy).then(|| self.progressed())
    }

    /// Returns whether bytes have arrived since the last response, or nothing has been requested at all: a connection
    /// that only waits for its next request has neither.
    pub(super) fn has_unfinished_head(&self) -> bool {
        self.reads.load(Ordering::Relaxed) != self.reads_at_response.load(Ordering::Relaxed)
    }

    /// Returns the moment of the last progress, or `None` if the connection is answering a request, or has not been
    /// served yet.
    ///
    /// A request with a body that does not arrive is not answered.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let is_answering = self.is_answering.load(Ordering::Acquire) && self.is_authenticated();
        (self.has_waited.load(Ordering::Acquire) && !is_answering).then(|| self.progressed())
    }

    fn progressed(&self) -> Instant {
        self.accepted + Duration::from_micros(self.last_progress.load(Ordering::Relaxed))
    }

    fn micros(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.accepted).as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_without_a_read_since_the_response_is_pipelined() {
        let now = Instant::now();
        let state = ConnectionState::new(now, Arc::default());
        state.on_read();
        assert_eq!(state.arrival(), RequestTiming::AfterResponse, "the first request");
        state.on_read();
        state.on_response(now, true);
        assert_eq!(state.arrival(), RequestTiming::Pipelined, "it was in the buffer when the response was ready");
        state.on_read();
        assert_eq!(state.arrival(), RequestTiming::AfterResponse);
        state.set_write_stalled(true);
        assert_eq!(state.arrival(), RequestTiming::Pipelined, "the response was not read");
    }

    #[test]
    fn connection_with_an_open_request_waits_for_no_head() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let state = ConnectionState::new(start, Arc::default());
        assert_eq!(state.waits_for_head_since(), Some(start));
        assert!(state.has_unfinished_head(), "nothing was requested");
        state.on_head(at(10));
        assert_eq!(state.waits_for_head_since(), None);
        state.on_response(at(20), true);
        assert_eq!(state.waits_for_head_since(), Some(at(20)));
        assert!(!state.has_unfinished_head(), "it may wait for its next request");
        state.on_read();
        assert!(state.has_unfinished_head());
        state.set_write_stalled(true);
        assert_eq!(state.waits_for_head_since(), None, "the response was not read");
        state.set_write_stalled(false);
        state.on_head(at(30));
        state.on_response(at(40), false);
        assert_eq!(state.waits_for_head_since(), None, "the last response");
    }

    #[test]
    fn connection_with_an_open_request_is_not_idle() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let state = ConnectionState::new(start, Arc::default());
        assert_eq!(state.idle_since(), None, "its task has not run yet");
        state.on_wait();
        assert_eq!(state.idle_since(), Some(start));
        state.on_head(at(10));
        state.on_body(at(11));
        assert_eq!(state.idle_since(), Some(at(11)), "not authenticated");
        state.authenticate();
        assert_eq!(state.idle_since(), None);
        state.on_response(at(1_020), true);
        assert_eq!(state.idle_since(), Some(at(1_020)));
        state.on_head(at(1_060));
        assert_eq!(state.idle_since(), Some(at(1_060)), "its body does not arrive");
        state.on_body(at(1_110));
        assert_eq!(state.idle_since(), None);
    }
}
