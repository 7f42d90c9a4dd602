//! Two acknowledged-packet endpoints in a simulated world.

use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_session::connection::SendError;
use slipgate_session::reliability::{Endpoint, EndpointConfig, EndpointStats, PacketEvent};
use slipgate_session::wire::reliable::Sequence;
use slipgate_sim::Conditions;

use crate::world::{End, PathSink, Program, World};

/// Two endpoints and the path between them.
pub type EndpointWorld = World<EndpointProgram>;

/// An endpoint, and what its application received.
pub struct EndpointProgram {
    /// The endpoint under test.
    pub endpoint: Endpoint,
    /// Packets with a payload that arrived, in order.
    pub received: Vec<(Sequence, Vec<u8>)>,
    /// The events of the packets that were sent, in the order of their reports.
    pub events: Vec<PacketEvent>,
}

impl EndpointProgram {
    fn new(config: &EndpointConfig) -> Self {
        let endpoint = Endpoint::new(config.clone(), None).expect("valid settings");
        Self { endpoint, received: Vec::new(), events: Vec::new() }
    }

    /// Returns the number of packets reported as acknowledged.
    #[must_use]
    pub fn acked(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, PacketEvent::Acked { .. })).count()
    }

    /// Returns the number of packets reported as lost.
    #[must_use]
    pub fn lost(&self) -> usize {
        self.events.len() - self.acked()
    }
}

impl Program for EndpointProgram {
    fn receive(&mut self, datagram: &[u8], _waited: Duration, now: Instant) {
        if let Ok(Some(packet)) = self.endpoint.handle(datagram, now)
            && !packet.payload.is_empty()
        {
            self.received.push((packet.sequence, packet.payload.to_vec()));
        }
    }

    fn run(&mut self, sink: &mut PathSink<'_>, now: Instant) {
        self.endpoint.tick(now);
        self.endpoint.transmit(now, sink);
        self.events.extend(std::iter::from_fn(|| self.endpoint.poll_event()));
    }
}

impl EndpointWorld {
    /// Creates two endpoints with the same settings. The seed determines all random decisions.
    #[must_use]
    pub fn new(seed: u64, conditions: Conditions, config: &EndpointConfig) -> Self {
        Self::of([EndpointProgram::new(config), EndpointProgram::new(config)], conditions, seed)
    }

    /// Returns the statistics of an end.
    #[must_use]
    pub fn stats(&self, end: End) -> EndpointStats {
        self.sides()[end as usize].endpoint.stats(self.now())
    }

    /// Sends a packet.
    ///
    /// # Errors
    /// Returns the error of the endpoint.
    pub fn send(&mut self, from: End, payload: &[u8]) -> Result<Sequence, SendError> {
        self.act(from, |side, sink, now| side.endpoint.send(payload, now, sink))
    }
}
