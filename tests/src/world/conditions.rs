//! What the network of the simulated world does to datagrams.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use slipgate_netcode::address::Address;

/// What the network does, in both directions.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// How long a datagram takes at least.
    pub latency: Duration,
    /// How much longer it may take, by chance; more than the gap between datagrams reorders them.
    pub jitter: Duration,
    /// How many of 100 are lost.
    pub loss_percent: f64,
    /// How many of 100 arrive twice.
    pub duplication_percent: f64,
    /// How many of 100 are held back by up to half a second, behind many later ones.
    pub reordering_percent: f64,
}

impl Conditions {
    /// Nothing is lost, and all of it arrives in the next turn.
    #[must_use]
    pub const fn perfect() -> Self {
        Self {
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            loss_percent: 0.0,
            duplication_percent: 0.0,
            reordering_percent: 0.0,
        }
    }

    /// Conditions by chance, from good to awful.
    #[must_use]
    pub fn random(rng: &mut StdRng) -> Self {
        Self {
            latency: Duration::from_millis(rng.random_range(0..150)),
            jitter: Duration::from_millis(rng.random_range(0..80)),
            loss_percent: rng.random_range(0.0..25.0),
            duplication_percent: rng.random_range(0.0..15.0),
            reordering_percent: rng.random_range(0.0..30.0),
        }
    }
}

/// Datagrams on their way.
pub(super) struct Network {
    pub(super) conditions: Conditions,
    rng: StdRng,
    on_the_way: BTreeMap<(Duration, u64), (Address, Address, Vec<u8>)>,
    count: u64,
}

impl Network {
    pub(super) fn new(rng: StdRng, conditions: Conditions) -> Self {
        Self { conditions, rng, on_the_way: BTreeMap::new(), count: 0 }
    }

    pub(super) fn send(&mut self, now: Duration, from: Address, to: Address, datagram: Vec<u8>) {
        if self.chance(self.conditions.loss_percent) {
            return;
        }
        let copies = 1 + usize::from(self.chance(self.conditions.duplication_percent));
        for _ in 0..copies {
            let jitter = self.rng.random_range(0.0..=1.0) * self.conditions.jitter.as_secs_f64();
            let mut arrival = now + self.conditions.latency + Duration::from_secs_f64(jitter);
            if self.chance(self.conditions.reordering_percent) {
                arrival += Duration::from_millis(self.rng.random_range(0..500));
            }
            self.count += 1;
            self.on_the_way.insert((arrival, self.count), (from, to, datagram.clone()));
        }
    }

    /// The next datagram that has arrived.
    pub(super) fn due(&mut self, now: Duration) -> Option<(Address, Address, Vec<u8>)> {
        let entry = self.on_the_way.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    fn chance(&mut self, percent: f64) -> bool {
        percent > 0.0 && self.rng.random_range(0.0..100.0) < percent
    }
}
