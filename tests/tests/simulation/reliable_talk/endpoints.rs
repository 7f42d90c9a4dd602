//! The two endpoints, ours and that of the crate `reliable`, behind one face.

use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_session::reliability::{Config, Endpoint, Event};
use slipgate_tests::acknowledged::Datagrams;

/// What an endpoint says of its path, in units of its own choice made equal.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    pub rtt: Duration,
    /// The share of packets that were lost.
    pub loss: f64,
    pub sent_kbps: f64,
    pub received_kbps: f64,
    pub packets_acked: u64,
}

/// An endpoint, ours or theirs.
pub trait Acknowledging {
    /// Sends a packet and answers its number.
    fn send(&mut self, payload: &[u8]) -> u16;

    /// Brings a datagram in, and answers the packet that it completes.
    fn receive(&mut self, datagram: &[u8]) -> Option<Vec<u8>>;

    /// Time has passed. Answers the numbers of packets that were acknowledged since the last time.
    fn turn(&mut self, now: Instant) -> Vec<u16>;

    /// Datagrams that must leave.
    fn take_outgoing(&mut self) -> Vec<Vec<u8>>;

    /// How the path is.
    fn measured(&self) -> Measured;
}

/// Ours.
pub struct Ours {
    endpoint: Endpoint,
    now: Instant,
    outgoing: Datagrams,
}

impl Ours {
    /// With settings of the test's.
    pub fn with(config: Config) -> Box<dyn Acknowledging> {
        let endpoint = Endpoint::new(config).expect("settings to run with");
        Box::new(Self { endpoint, now: Instant::default(), outgoing: Datagrams::default() })
    }

    /// Under our defaults.
    pub fn boxed() -> Box<dyn Acknowledging> {
        Self::with(Config::default())
    }
}

impl Acknowledging for Ours {
    fn send(&mut self, payload: &[u8]) -> u16 {
        self.endpoint.send(payload, self.now, &mut self.outgoing).expect("it is not too large").0
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
        let acked = |event| if let Event::Acked { sequence, .. } = event { Some(sequence.0) } else { None };
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

/// Theirs, under its defaults.
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
