//! A connection without channels: acknowledged packets, as peers of `netcode` and `reliable` send them.
//!
//! The application composes packets and polls which of them arrived. The controller works from round-trip times alone,
//! because such a peer does not report when packets arrived.

use alloc::vec::Vec;

use super::path::ConnectionPath;
use super::{Budget, ConnectionConfig, ConnectionConfigError, Memory, PathStats, SendError};
use crate::congestion::Demand;
use crate::reject::Reject;
use crate::reliability::{PacketEvent, Sink};
use crate::wire::PayloadSpan;
use crate::wire::reliable::Sequence;
use slipgate_netcode::time::Instant;

/// A connection of acknowledged packets.
pub(crate) struct PacketConnection {
    path: ConnectionPath,
    fragment_above: usize,
    fragment_bytes: usize,
}

impl PacketConnection {
    /// Creates a connection on which nothing was sent yet.
    ///
    /// # Errors
    /// [`ConnectionConfigError::Endpoint`] when a setting of the endpoint is invalid.
    pub(crate) fn new(config: &ConnectionConfig, memory: Option<&Memory>) -> Result<Self, ConnectionConfigError> {
        config.check()?;
        let endpoint = config.endpoint.clone();
        let (window, fragment_above, fragment_bytes) =
            (endpoint.sent_window, endpoint.fragment_above, endpoint.fragment_bytes);
        let memory = memory.map(|memory| memory.messages.clone());
        let path = ConnectionPath::new(endpoint, memory, config.controller())?.with_events(window);
        Ok(Self { path, fragment_above, fragment_bytes })
    }

    /// Processes a datagram. Returns the number and payload of the packet that it is or completes, unless it carries
    /// acknowledgements alone; `scratch` receives packets that came in fragments.
    ///
    /// # Errors
    /// The reason why the datagram was dropped, which is already counted.
    pub(crate) fn handle(
        &mut self,
        datagram: &[u8],
        scratch: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<(Sequence, PayloadSpan)>, Reject> {
        let packet = self.path.handle_plain(datagram, scratch, now)?;
        // Reliable 1.0 sends acknowledgements as packets without payload.
        let is_empty = |span: &PayloadSpan| matches!(span, PayloadSpan::Datagram(range) if range.is_empty());
        Ok(packet.filter(|(_, span)| !is_empty(span)))
    }

    /// Sends a packet, in fragments if it is large, and returns its number.
    ///
    /// # Errors
    /// `Empty`, `TooLarge`, or `Backlogged` when the path can carry no more now or the sink is full.
    pub(crate) fn send(&mut self, payload: &[u8], now: Instant, sink: &mut dyn Sink) -> Result<Sequence, SendError> {
        let datagrams =
            if payload.len() > self.fragment_above { payload.len().div_ceil(self.fragment_bytes.max(1)) } else { 1 };
        // A fragmented packet leaves as soon as its first datagram may, and later packets wait longer for it. The
        // budget of a slow path never covers all of it at once.
        if self.path.budget(now) < payload.len().min(self.fragment_above) {
            self.path.set_demand(Demand::Unmet);
            return Err(SendError::Backlogged);
        }
        self.path.set_demand(Demand::Met);
        self.path.send_plain(payload, u32::try_from(datagrams).unwrap_or(u32::MAX), now, sink)
    }

    /// Detects losses by time, and discards incomplete packets that are too old.
    pub(crate) fn tick(&mut self, now: Instant) {
        self.path.tick(now);
        self.path.clear_ack_result();
    }

    /// Sends the acknowledgements that are due and that no other packet carried.
    pub(crate) fn transmit(&mut self, now: Instant, sink: &mut dyn Sink) {
        self.path.send_plain_acks(now, sink);
    }

    /// Takes the oldest event of a packet that was sent. Poll until `None` once per tick: beyond a window of events the
    /// oldest one is dropped, and counted in
    /// [`EndpointCounters::dropped_events`](crate::reliability::EndpointCounters::dropped_events).
    pub(crate) fn poll_event(&mut self) -> Option<PacketEvent> {
        self.path.poll_event()
    }

    /// Returns what may leave now.
    pub(crate) fn budget(&self, now: Instant) -> Budget {
        Budget::of(&self.path, 0, self.fragment_above, now)
    }

    /// Returns when something is due, if nothing arrives before; `NEVER` if nothing is.
    pub(crate) fn next_deadline(&self) -> Instant {
        self.path.next_deadline()
    }

    /// Returns the measurements of the path.
    pub(crate) fn stats(&self, now: Instant) -> PathStats {
        PathStats::of(&self.path, now)
    }
}
