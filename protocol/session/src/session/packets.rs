//! A connection without channels: acknowledged packets, as peers of `netcode` and `reliable` send them.
//!
//! The application hears which of its packets arrived, and composes its own. The controller works from round-trip times
//! alone, because such a peer does not say when packets arrived.

use alloc::vec::Vec;

use super::path::{Path, Place};
use super::{Budget, Config, ConfigError, Memory, PathStats};
use crate::congestion::Demand;
use crate::reject::Reject;
use crate::reliability::{self, Event, Sink};
use crate::wire::reliable::Sequence;
use slipgate_netcode::time::Instant;

/// A connection of acknowledged packets.
pub struct Packets {
    path: Path,
    fragment_above: usize,
    fragment_bytes: usize,
}

/// A packet that arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// Its number: it tells newer from older.
    pub sequence: Sequence,
    /// Where its payload lies.
    pub place: Place,
}

impl Packets {
    /// A connection on which nothing was sent yet.
    ///
    /// # Errors
    /// A setting that no connection can run with.
    pub fn new(config: &Config, memory: Option<&Memory>) -> Result<Self, ConfigError> {
        let endpoint = config.endpoint.clone();
        let (window, fragment_above, fragment_bytes) =
            (endpoint.sent_window, endpoint.fragment_above, endpoint.fragment_bytes);
        let path =
            Path::new(endpoint, memory.map(|memory| memory.messages.clone()), config.controller())?.with_news(window);
        Ok(Self { path, fragment_above, fragment_bytes })
    }

    /// Takes a datagram. Answers the packet that it is or completes; `scratch` is lent for packets that came in
    /// fragments. One of acknowledgements alone is no packet to the application.
    ///
    /// # Errors
    /// Why it was dropped; it has been counted.
    pub fn handle(&mut self, datagram: &[u8], scratch: &mut Vec<u8>, now: Instant) -> Result<Option<Arrived>, Reject> {
        let taken = self.path.take_plain(datagram, scratch, now)?;
        let is_empty = |place: &Place| matches!(place, Place::Datagram(range) if range.is_empty());
        Ok(taken.filter(|(_, place)| !is_empty(place)).map(|(sequence, place)| Arrived { sequence, place }))
    }

    /// Sends a packet, in fragments if it is large, and answers its number.
    ///
    /// # Errors
    /// `Empty`, `TooLarge`, or `Backlogged` when the path should carry no more now or the sink has no room.
    pub fn send(
        &mut self,
        payload: &[u8],
        now: Instant,
        sink: &mut impl Sink,
    ) -> Result<Sequence, reliability::SendError> {
        let datagrams =
            if payload.len() > self.fragment_above { payload.len().div_ceil(self.fragment_bytes.max(1)) } else { 1 };
        // One in fragments leaves as soon as its first datagram may, and those that come after it wait the longer: on a
        // slow path the budget of a moment never holds all of it.
        if self.path.budget(now) < payload.len().min(self.fragment_above) {
            self.path.set_demand(Demand::Unmet);
            return Err(reliability::SendError::Backlogged);
        }
        self.path.set_demand(Demand::Met);
        self.path.send_plain(payload, u32::try_from(datagrams).unwrap_or(u32::MAX), now, sink)
    }

    /// Time has passed: packets are lost, unfinished ones are given up.
    pub fn tick(&mut self, now: Instant) {
        self.path.tick(now);
    }

    /// Sends what is due: acknowledgements that no other packet carried.
    pub fn transmit(&mut self, now: Instant, sink: &mut impl Sink) {
        self.path.send_plain_acks(now, sink);
    }

    /// The oldest news of a packet that was sent. Ask until there is none, once a turn: of what nobody asks for, the oldest is
    /// forgotten when there is a window of it, and counted in
    /// [`Counters::untold_events`](reliability::Counters::untold_events).
    pub fn poll_event(&mut self) -> Option<Event> {
        self.path.poll_news()
    }

    /// What may leave now.
    #[must_use]
    pub fn budget(&self, now: Instant) -> Budget {
        Budget::of(&self.path, 0, now)
    }

    /// When something is due, if nothing arrives before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.path.next_deadline()
    }

    /// How the path is.
    #[must_use]
    pub fn stats(&self, now: Instant) -> PathStats {
        PathStats::of(&self.path, now)
    }
}
