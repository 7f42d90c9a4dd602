//! Two acknowledged-packet endpoints, and the path between them, in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use slipgate_protocol::reliability::{Config, Endpoint, Event, SendError, Sink, Stats};
use slipgate_protocol::time::Instant;
use slipgate_protocol::wire::MAX_PAYLOAD_BYTES;
use slipgate_protocol::wire::reliable::Sequence;

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
    conditions: Conditions,
    rng: StdRng,
    now: Duration,
    on_the_way: BTreeMap<(Duration, u64), (End, Vec<u8>)>,
    count: u64,
}

impl Pair {
    /// Two endpoints with the same settings. The seed decides all that happens by chance.
    #[must_use]
    pub fn new(seed: u64, conditions: Conditions, config: &Config) -> Self {
        Self {
            sides: [Side::new(config), Side::new(config)],
            conditions,
            rng: StdRng::seed_from_u64(seed),
            now: Duration::from_secs(1000),
            on_the_way: BTreeMap::new(),
            count: 0,
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
        self.conditions = conditions;
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
        while let Some(due) = self.on_the_way.first_entry().filter(|due| due.key().0 <= self.now) {
            let (to, datagram) = due.remove();
            let side = &mut self.sides[to as usize];
            if let Ok(Some(packet)) = side.endpoint.handle(&datagram, now)
                && !packet.payload.is_empty()
            {
                side.received.push((packet.sequence, packet.payload.to_vec()));
            }
        }
    }

    /// Puts datagrams on their way, or loses them.
    fn carry(&mut self, from: End, outbox: Outbox) {
        self.side(from).datagrams += outbox.datagrams.len() as u64;
        for datagram in outbox.datagrams {
            let copies = 1 + usize::from(self.chance(self.conditions.duplication_percent));
            for _ in 0..copies {
                if self.chance(self.conditions.loss_percent) {
                    continue;
                }
                let jitter = self.conditions.jitter.mul_f64(self.rng.random_range(0.0..=1.0));
                let held = self.chance(self.conditions.reordering_percent);
                let held = if held { Duration::from_millis(self.rng.random_range(0..500)) } else { Duration::ZERO };
                let at = self.now + self.conditions.latency + jitter + held;
                self.count += 1;
                self.on_the_way.insert((at, self.count), (from.other(), datagram.clone()));
            }
        }
    }

    fn chance(&mut self, percent: f64) -> bool {
        self.rng.random_range(0.0..100.0) < percent
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
