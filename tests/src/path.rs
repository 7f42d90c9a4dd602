//! Two acknowledged-packet endpoints, and the path between them, in virtual time.

use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_session::reliability::{Config, Endpoint, Event, SendError, Sink, Stats};
use slipgate_session::wire::reliable::Sequence;
use slipgate_sim::{self as conditioner, Link, Loss, Order, Reordering, Share};

use crate::world::Conditions;

/// One of the two ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The one.
    A,
    /// The other.
    B,
}

impl End {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    /// The one at the far side of the path.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// An endpoint, and what its application saw.
pub struct Side {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// Packets with payload that arrived, in order.
    pub received: Vec<(Sequence, Vec<u8>)>,
    /// What became of the packets that were sent, in the order in which it was said.
    pub events: Vec<Event>,
    /// Datagrams that left.
    pub datagrams: u64,
}

impl Side {
    fn new(config: &Config) -> Self {
        let endpoint = Endpoint::new(config.clone()).expect("settings to run with");
        Self { endpoint, received: Vec::new(), events: Vec::new(), datagrams: 0 }
    }

    /// How many packets were said to have arrived.
    #[must_use]
    pub fn acked(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Event::Acked { .. })).count()
    }

    /// How many packets were said to be lost.
    #[must_use]
    pub fn lost(&self) -> usize {
        self.events.len() - self.acked()
    }
}

/// Two endpoints and the path between them.
pub struct Pair {
    sides: [Side; 2],
    /// Up is from A to B.
    link: Link,
    now: Duration,
}

/// What the simulated world calls conditions, on a path.
fn on_a_path(conditions: &Conditions) -> conditioner::Conditions {
    conditioner::Conditions {
        latency: conditions.latency,
        jitter: conditions.jitter,
        order: Order::Free,
        loss: Loss::Random(Share::percent(conditions.loss_percent)),
        duplication: Share::percent(conditions.duplication_percent),
        reordering: Reordering {
            share: Share::percent(conditions.reordering_percent),
            longest: Duration::from_millis(500),
        },
        ..conditioner::Conditions::perfect()
    }
}

impl Pair {
    /// Two endpoints with the same settings. The seed decides all that happens by chance.
    #[must_use]
    pub fn new(seed: u64, conditions: Conditions, config: &Config) -> Self {
        let conditions = on_a_path(&conditions);
        Self {
            sides: [Side::new(config), Side::new(config)],
            link: Link::new(conditions, conditions, seed),
            now: Duration::from_secs(1000),
        }
    }

    /// One of the ends.
    pub fn side(&mut self, end: End) -> &mut Side {
        &mut self.sides[end as usize]
    }

    /// What an end says about the path.
    #[must_use]
    pub fn stats(&self, end: End) -> Stats {
        self.sides[end as usize].endpoint.stats(self.now())
    }

    /// The monotonic clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_start(self.now)
    }

    /// Changes the path, for what is sent from now on.
    pub fn set_conditions(&mut self, conditions: Conditions) {
        let conditions = on_a_path(&conditions);
        self.link.set_conditions(conditions, conditions, self.now());
    }

    /// Sends a packet.
    ///
    /// # Errors
    /// The endpoint's.
    pub fn send(&mut self, from: End, payload: &[u8]) -> Result<Sequence, SendError> {
        let now = self.now();
        let mut outbox = Outbox::default();
        let sent = self.side(from).endpoint.send(payload, now, &mut outbox);
        self.carry(from, outbox);
        sent
    }

    /// One turn at both ends: what is due arrives, time passes, what is owed leaves, and the applications ask for news.
    pub fn turn(&mut self, step: Duration) {
        self.now += step;
        self.deliver();
        let now = self.now();
        for end in End::BOTH {
            let mut outbox = Outbox::default();
            let side = self.side(end);
            side.endpoint.tick(now);
            side.endpoint.transmit(now, &mut outbox);
            while let Some(event) = side.endpoint.poll_event() {
                side.events.push(event);
            }
            self.carry(end, outbox);
        }
    }

    /// Turns of `step` for as long as `duration`.
    pub fn run_for(&mut self, duration: Duration, step: Duration) {
        let end = self.now + duration;
        while self.now < end {
            self.turn(step);
        }
    }

    fn deliver(&mut self) {
        let now = self.now();
        let [a, b] = &mut self.sides;
        for (path, side) in [(&mut self.link.up, b), (&mut self.link.down, a)] {
            while let Some(arrival) = path.pop_due(now) {
                if let Ok(Some(packet)) = side.endpoint.handle(arrival.bytes, now)
                    && !packet.payload.is_empty()
                {
                    side.received.push((packet.sequence, packet.payload.to_vec()));
                }
            }
        }
    }

    /// Puts datagrams on their way.
    fn carry(&mut self, from: End, outbox: Outbox) {
        self.side(from).datagrams += outbox.datagrams.len() as u64;
        let now = self.now();
        let path = match from {
            End::A => &mut self.link.up,
            End::B => &mut self.link.down,
        };
        for datagram in outbox.datagrams {
            path.push(&datagram, now);
        }
    }
}

/// As many datagrams as one likes, none of them larger than a netcode payload.
#[derive(Default)]
struct Outbox {
    room: Vec<u8>,
    datagrams: Vec<Vec<u8>>,
}

impl Sink for Outbox {
    fn rooms(&self) -> usize {
        usize::MAX
    }

    fn room(&mut self) -> Option<&mut [u8]> {
        self.room.resize(MAX_PAYLOAD_BYTES, 0xee);
        Some(&mut self.room)
    }

    fn commit(&mut self, bytes: usize) {
        self.datagrams.push(self.room[..bytes].to_vec());
    }
}
