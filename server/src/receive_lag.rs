//! How long the next datagram may have waited in the socket or in the inbox before the server handles it.
//!
//! Two decisions depend on it: an RTT sample must not include the time that a datagram waited unread, and a client is
//! silent only if everything that arrived before was handled.

use std::time::Duration;

use slipgate_netcode::time::Instant;

/// No client has a shorter timeout than this. A server that reads up to its limits this often has handled datagrams of
/// every client that still sends.
const MIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The times that bound how long datagrams may be unread, in the sockets or in the inbox.
pub(crate) struct ReceiveLag {
    /// Every datagram that arrived before this time was read from the sockets.
    sockets_drained_at: Instant,
    /// Every datagram that arrived before this time was handled.
    handled_at: Instant,
    /// The inbox holds datagrams of the last batch.
    has_batch: bool,
    /// The game asked for events until there were none, at least once since the last tick.
    was_drained: bool,
    last_tick_at: Instant,
}

impl ReceiveLag {
    pub(crate) const fn new(now: Instant) -> Self {
        let never = Instant::NEVER;
        Self { sockets_drained_at: never, handled_at: never, has_batch: false, was_drained: false, last_tick_at: now }
    }

    /// Records that the inbox asks for the next batch: it has handled the last one.
    pub(crate) fn on_request(&mut self) {
        self.has_batch = false;
    }

    /// Records a batch of this many datagrams that the inbox receives. `drained_at` is the time as of which the sockets
    /// are empty, `None` if they are not.
    pub(crate) fn on_batch(&mut self, datagrams: usize, drained_at: Option<Instant>) {
        self.drained_at();
        self.sockets_drained_at = drained_at.unwrap_or(self.sockets_drained_at);
        self.has_batch = datagrams > 0;
        self.was_drained |= datagrams == 0;
    }

    /// Records that the inbox receives nothing because the sockets were empty a moment ago.
    pub(crate) fn on_sockets_empty(&mut self) {
        self.was_drained = true;
    }

    /// Records that the inbox receives nothing because the turn has reached its read limits.
    // DECISION: this counts as drained, otherwise a flood would keep the slots of clients that have gone. Datagrams
    // that are read under a flood are no older than what the sockets hold. After a pause they may be older: then it
    // does not count.
    pub(crate) fn on_limit_reached(&mut self, now: Instant) {
        self.was_drained |= now.since(self.last_tick_at) < MIN_TIMEOUT;
    }

    /// Records that the program slept until this moment because the sockets were empty.
    pub(crate) const fn on_wake(&mut self, now: Instant) {
        self.sockets_drained_at = now;
    }

    /// Returns whether the inbox holds datagrams that were not handled, as far as is known.
    pub(crate) const fn has_batch(&self) -> bool {
        self.has_batch
    }

    /// Returns the latest time such that everything that arrived before it was handled.
    pub(crate) fn drained_at(&mut self) -> Instant {
        if !self.has_batch {
            self.handled_at = self.sockets_drained_at;
        }
        self.handled_at
    }

    /// Begins the next tick. Returns whether the game drained the inbox since the last one.
    pub(crate) fn on_tick(&mut self, now: Instant) -> bool {
        self.last_tick_at = now;
        std::mem::replace(&mut self.was_drained, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    #[test]
    fn a_batch_in_the_inbox_is_unread_even_if_sockets_are_empty() {
        let mut lag = ReceiveLag::new(at(0));
        lag.on_wake(at(10));
        lag.on_request();
        assert_eq!(lag.drained_at(), at(10));
        lag.on_batch(64, Some(at(20)));
        assert_eq!((lag.drained_at(), lag.has_batch()), (at(10), true));
        // The game pauses: nothing arrives, and the datagrams stay in the inbox.
        lag.on_wake(at(500));
        assert_eq!(lag.drained_at(), at(10));
        lag.on_request();
        assert_eq!((lag.drained_at(), lag.has_batch()), (at(500), false));
        lag.on_batch(64, None);
        lag.on_request();
        assert_eq!(lag.drained_at(), at(500), "the sockets were not empty");
    }

    #[test]
    fn a_tick_counts_silence_only_after_the_inbox_was_drained() {
        let mut lag = ReceiveLag::new(at(0));
        assert!(!lag.on_tick(at(10)), "no event was asked for");
        for drain in [ReceiveLag::on_sockets_empty, |lag: &mut ReceiveLag| lag.on_batch(0, Some(at(11)))] {
            lag.on_request();
            lag.on_batch(64, Some(at(10)));
            lag.on_request();
            drain(&mut lag);
            assert!(lag.on_tick(at(20)));
        }
        lag.on_request();
        lag.on_batch(64, None);
        assert!(!lag.on_tick(at(30)), "the game paused");
    }

    #[test]
    fn a_flood_counts_as_drained_except_in_the_tick_after_a_pause() {
        let mut lag = ReceiveLag::new(at(0));
        let mut read_to_the_limit = |tick| {
            lag.on_request();
            lag.on_limit_reached(at(tick));
            lag.on_tick(at(tick))
        };
        assert!(read_to_the_limit(16) && read_to_the_limit(32));
        assert!(!read_to_the_limit(6000));
        assert!(read_to_the_limit(6016));
    }
}
