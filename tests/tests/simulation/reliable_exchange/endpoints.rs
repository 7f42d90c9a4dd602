//! A common interface for our endpoint and that of the crate `reliable`.

use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_session::reliability::{Endpoint, EndpointConfig, PacketEvent};
use slipgate_tests::acknowledged::Datagrams;

/// The measurements of an endpoint, converted to common units.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    pub rtt: Duration,
    /// The share of packets that were lost.
    pub loss: f64,
    pub sent_kbps: f64,
    pub received_kbps: f64,
    pub packets_acked: u64,
}

/// An endpoint, ours or the peer's.
pub trait Acknowledging {
    /// Sends a packet and returns its sequence number.
    fn send(&mut self, payload: &[u8]) -> u16;

    /// Processes a datagram, and returns the packet that it completes.
    fn receive(&mut self, datagram: &[u8]) -> Option<Vec<u8>>;

    /// Advances the time. Returns the packets acknowledged since the last call.
    fn turn(&mut self, now: Instant) -> Vec<u16>;

    /// Returns the datagrams to send.
    fn take_outgoing(&mut self) -> Vec<Vec<u8>>;

    /// Returns the measurements of the path.
    fn measured(&self) -> Measured;
}

/// Our endpoint.
pub struct Ours {
    endpoint: Endpoint,
    now: Instant,
    outgoing: Datagrams,
}

impl Ours {
    /// Creates an endpoint with settings of the test.
    pub fn with(config: EndpointConfig) -> Box<dyn Acknowledging> {
        let endpoint = Endpoint::new(config, None).expect("valid settings");
        Box::new(Self { endpoint, now: Instant::default(), outgoing: Datagrams::default() })
    }

    /// Creates an endpoint with our defaults.
    pub fn boxed() -> Box<dyn Acknowledging> {
        Self::with(EndpointConfig::default())
    }
}

impl Acknowledging for Ours {
    fn send(&mut self, payload: &[u8]) -> u16 {
        self.endpoint.send(payload, self.now, &mut self.outgoing).expect("the packet is not too large").0
    }

    fn receive(&mut self, datagram: &[u8]) -> Option<Vec<u8>> {
        let packet = self.endpoint.handle(datagram, self.now).ok().flatten();
        packet.map(|packet| packet.payload.to_vec())
    }

    fn turn(&mut self, now: Instant) -> Vec<u16> {
        self.now = now;
        self.endpoint.tick(self.now);
        self.endpoint.transmit(self.now, &mut self.outgoing);
        let events = std::iter::from_fn(|| self.endpoint.poll_event());
        let acked = |event| if let PacketEvent::Acked { sequence, .. } = event { Some(sequence.0) } else { None };
        events.filter_map(acked).collect()
    }

    fn take_outgoing(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.outgoing.sent)
    }

    fn measured(&self) -> Measured {
        let stats = self.endpoint.stats(self.now);
        Measured {
            rtt: stats.rtt.map_or(Duration::ZERO, |rtt| rtt.smoothed),
            loss: stats.loss,
            sent_kbps: stats.sent.0 / 1000.0,
            received_kbps: stats.received.0 / 1000.0,
            packets_acked: stats.counters.acked,
        }
    }
}

/// The peer's endpoint, with its defaults.
pub struct Theirs {
    endpoint: reliable::Endpoint,
    outgoing: Vec<Vec<u8>>,
}

impl Theirs {
    pub fn boxed() -> Box<dyn Acknowledging> {
        let endpoint = reliable::Endpoint::new(reliable::Config::default(), 0.0);
        Box::new(Self { endpoint, outgoing: Vec::new() })
    }
}

impl Acknowledging for Theirs {
    fn send(&mut self, payload: &[u8]) -> u16 {
        let number = self.endpoint.next_packet_sequence();
        self.endpoint.send_packet(payload, |_, datagram| self.outgoing.push(datagram.to_vec()));
        number
    }

    fn receive(&mut self, datagram: &[u8]) -> Option<Vec<u8>> {
        let mut packet = None;
        self.endpoint.receive_packet(datagram, |_, payload| {
            packet = Some(payload.to_vec());
            true
        });
        packet
    }

    fn turn(&mut self, now: Instant) -> Vec<u16> {
        self.endpoint.update(now.since_start().as_secs_f64());
        self.endpoint.drain_acks().collect()
    }

    fn take_outgoing(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.outgoing)
    }

    fn measured(&self) -> Measured {
        let bandwidth = self.endpoint.bandwidth();
        Measured {
            rtt: Duration::from_secs_f32(self.endpoint.rtt() / 1000.0),
            loss: f64::from(self.endpoint.packet_loss()) / 100.0,
            sent_kbps: bandwidth.sent_kbps.into(),
            received_kbps: bandwidth.received_kbps.into(),
            packets_acked: self.endpoint.counters().num_packets_acked,
        }
    }
}
