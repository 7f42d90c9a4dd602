//! A server's uplink, shared over its clients by weight: what one client does not need, others have.
//!
//! A client that asks for much gets no more than its share while others ask, so its burst delays nobody; what is too
//! much for the uplink waits in that client's own queue. What goes into a frame for everybody is decided in `admission`,
//! and how several shards share one uplink in `trunk`.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::BytesPerSecond;
use slipgate_netcode::time::Instant;

/// So often a tick's bytes are divided by weight; each time either all are gone or somebody has enough. What is left
/// then, hardly ever anything, goes by turns.
const ROUNDS: usize = 8;

/// How much of the uplink a client gets compared with another that asks for as much.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weight(pub u16);

impl Default for Weight {
    fn default() -> Self {
        Self(1)
    }
}

/// The uplink of one server. A tick costs a few steps for each client that has something to send, and asks for no
/// memory; a silent client costs nothing.
///
/// Each tick: [`Uplink::offer`] for each client that has something, [`Uplink::share`], and for each packet
/// [`Uplink::spend`], as long as [`Uplink::allowance`] lasts. Messages that are sent anew spend the same allowance.
#[derive(Clone, Debug)]
pub struct Uplink {
    rate: BytesPerSecond,
    burst: Duration,
    /// Bytes that nobody has been given yet; below zero after more was spent than given.
    credit: f64,
    filled_at: Option<Instant>,
    /// Bytes that the last tick brought, and the weights of those among whom they were divided.
    gained: f64,
    weights: f64,
    /// Bytes that have left without asking since the last tick.
    charged: f64,
    /// The same on all shards, since ever, as far as it was told.
    charged_before: f64,
    clients: Box<[Client]>,
    /// Who has something to send, in the order of turns.
    active: Vec<usize>,
}

/// What the clients of a shard lack together, beyond what it has left for them.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Need {
    /// The weights of those who lack something.
    pub(super) weights: u32,
    pub(super) bytes: u64,
    /// What nobody here can use any more; below zero what was spent and not given.
    pub(super) settled: f64,
    /// What left without asking since the last time.
    pub(super) charged: f64,
}

/// A shard's part of what the uplink of its server has gained.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Part {
    pub(super) bytes: u64,
    /// The rate of the whole server.
    pub(super) rate: BytesPerSecond,
    /// The weights of those on other shards who lack something.
    pub(super) others: f64,
    /// What left on all shards without asking, since ever.
    pub(super) charged: f64,
}

#[derive(Clone, Copy, Debug)]
struct Client {
    weight: u32,
    wanted: u64,
    /// At most what is wanted: what cannot be used is nobody's.
    allowance: u64,
    is_active: bool,
}

impl Default for Client {
    fn default() -> Self {
        Self { weight: 1, wanted: 0, allowance: 0, is_active: false }
    }
}

impl Client {
    fn weight(&self) -> f64 {
        f64::from(self.weight)
    }

    fn lacks(&self) -> u64 {
        self.wanted - self.allowance
    }
}

impl Uplink {
    /// An uplink of `rate` for so many client slots, which sends at most what it gains in `burst` at once: a tick, and
    /// what the clock is late by.
    #[must_use]
    pub fn new(rate: BytesPerSecond, burst: Duration, clients: usize) -> Self {
        Self {
            rate,
            burst,
            credit: 0.0,
            filled_at: None,
            gained: rate.0 * burst.as_secs_f64(),
            weights: 0.0,
            charged: 0.0,
            charged_before: 0.0,
            clients: vec![Client::default(); clients].into_boxed_slice(),
            active: Vec::with_capacity(clients),
        }
    }

    /// The uplink's rate from now on: the lesser of what was bought and what the clients' paths allow together.
    pub fn set_rate(&mut self, rate: BytesPerSecond) {
        self.rate = rate;
    }

    /// A client's weight from now on; zero counts as one.
    pub fn set_weight(&mut self, client: usize, weight: Weight) {
        if let Some(client) = self.clients.get_mut(client) {
            client.weight = weight.0.max(1).into();
        }
    }

    /// A client has so many bytes to send, all told; zero when it has nothing any more or is gone. Of a slot that does
    /// not exist nothing is noted.
    pub fn offer(&mut self, client: usize, bytes: u64) {
        let Some(place) = self.clients.get_mut(client) else { return };
        place.wanted = bytes;
        // What it cannot use any more is lent to others.
        self.credit += place.allowance.saturating_sub(bytes) as f64;
        place.allowance = place.allowance.min(bytes);
        if bytes > 0 && !place.is_active {
            place.is_active = true;
            self.active.push(client);
        }
    }

    /// Divides what the uplink has gained since the last time. A client keeps what it was given until it has sent it.
    pub fn share(&mut self, now: Instant) {
        let charged = core::mem::take(&mut self.charged);
        self.credit += self.pass(now, charged);
        self.settle(0.0);
        self.retire();
        self.weights = self.active.iter().filter_map(|client| self.clients.get(*client)).map(Client::weight).sum();
        self.divide_all();
    }

    /// Time has passed, in which so much left without asking. Answers what the rate brought.
    fn pass(&mut self, now: Instant, charged: f64) -> f64 {
        let passed = self.filled_at.map_or(self.burst, |filled_at| now.since(filled_at));
        self.filled_at = Some(now);
        self.gained = (self.rate.0 * passed.min(self.burst).as_secs_f64() - charged).max(0.0);
        self.rate.0 * passed.as_secs_f64()
    }

    /// So many bytes come back, or are owed. Neither is remembered for longer than a burst lasts.
    pub(super) fn settle(&mut self, bytes: f64) {
        let most = self.rate.0 * self.burst.as_secs_f64();
        self.credit = (self.credit + bytes).clamp(-most, most);
    }

    fn divide_all(&mut self) {
        for _ in 0..ROUNDS {
            if !self.divide() {
                return;
            }
        }
        self.give_by_turns();
    }

    /// So many bytes leave that cannot wait for an allowance. They are missing to all, but no longer than a burst lasts: who
    /// sends too much for the uplink without asking does not keep others back for ever.
    pub fn charge(&mut self, bytes: u64) {
        self.credit -= bytes as f64;
        self.charged += bytes as f64;
    }

    // The uplink of a shard -----------------------------------------------------------------------------------------

    /// What the clients lack; what is not needed here is given back, and what is owed is settled.
    pub(crate) fn need(&mut self) -> Need {
        self.retire();
        let (weights, lacks) =
            self.lacking().fold((0, 0), |(weights, lacks), client| (weights + client.weight, lacks + client.lacks()));
        let kept = self.credit.clamp(0.0, lacks as f64);
        let settled = self.credit - kept;
        self.credit = kept;
        let bytes = lacks.saturating_sub(kept as u64);
        Need { weights, bytes, settled, charged: core::mem::take(&mut self.charged) }
    }

    /// As [`share`](Self::share), of this shard's part of a whole server's uplink.
    pub(crate) fn share_part(&mut self, part: &Part, now: Instant) {
        self.rate = part.rate;
        self.pass(now, part.charged - self.charged_before);
        self.charged_before = part.charged;
        self.credit += part.bytes as f64;
        self.weights = part.others + self.lacking().map(Client::weight).sum::<f64>();
        self.divide_all();
    }

    // The uplink of all shards --------------------------------------------------------------------------------------

    /// A shard lacks so much, for clients of so much weight.
    pub(super) fn bring(&mut self, shard: usize, weights: u32, bytes: u64) {
        if let Some(place) = self.clients.get_mut(shard) {
            place.weight = weights.max(1);
        }
        self.offer(shard, bytes);
    }

    /// What leaves at once at most.
    pub(super) fn most(&self) -> u64 {
        (self.rate.0 * self.burst.as_secs_f64()) as u64
    }

    pub(super) const fn rate(&self) -> BytesPerSecond {
        self.rate
    }

    /// The weights of all who had something to send, but this one's.
    pub(super) fn weights_beside(&self, client: usize) -> f64 {
        let own = self.clients.get(client).filter(|client| client.is_active).map_or(0.0, Client::weight);
        (self.weights - own).max(0.0)
    }

    // What is known -------------------------------------------------------------------------------------------------

    /// How many bytes a client may expect to send in the tick that is being composed: what it may send now, and its part
    /// of as much as the uplink gained in the last one, if the same clients ask for it again. It is told before anything
    /// is offered, so that a game sends less detail instead of later data.
    #[must_use]
    pub fn prospect(&self, client: usize) -> u64 {
        let Some(client) = self.clients.get(client) else { return 0 };
        let weights = if client.is_active { self.weights } else { self.weights + client.weight() };
        client.allowance + (self.gained * client.weight() / weights.max(1.0)) as u64
    }

    /// How many bytes a client may send now.
    #[must_use]
    pub fn allowance(&self, client: usize) -> u64 {
        self.clients.get(client).map_or(0, |client| client.allowance)
    }

    /// A client has sent so many bytes. What it was not allowed is missing to all.
    pub fn spend(&mut self, client: usize, bytes: u64) {
        let Some(client) = self.clients.get_mut(client) else { return };
        self.credit -= bytes.saturating_sub(client.allowance) as f64;
        client.allowance = client.allowance.saturating_sub(bytes);
        client.wanted = client.wanted.saturating_sub(bytes).max(client.allowance);
    }

    /// Forgets clients that have nothing to send.
    fn retire(&mut self) {
        let clients = &mut self.clients;
        self.active.retain(|client| {
            let Some(client) = clients.get_mut(*client) else { return false };
            client.is_active = client.wanted > 0;
            client.is_active
        });
        if self.active.len() > 1 {
            self.active.rotate_left(1);
        }
    }

    /// Gives everybody its share of what is left, or what it lacks if that is less. Answers whether there is more to do.
    fn divide(&mut self) -> bool {
        let weights: f64 = self.lacking().map(Client::weight).sum();
        let level = self.credit / weights.max(1.0);
        if weights <= 0.0 || level < 1.0 {
            return weights > 0.0 && self.credit >= 1.0;
        }
        for index in &self.active {
            let Some(client) = self.clients.get_mut(*index) else { continue };
            let given = client.lacks().min((level * client.weight()) as u64);
            client.allowance += given;
            self.credit -= given as f64;
        }
        self.credit >= 1.0
    }

    fn lacking(&self) -> impl Iterator<Item = &Client> {
        self.active.iter().filter_map(|index| self.clients.get(*index)).filter(|client| client.lacks() > 0)
    }

    fn give_by_turns(&mut self) {
        for index in &self.active {
            let Some(client) = self.clients.get_mut(*index) else { continue };
            let given = client.lacks().min(self.credit.max(0.0) as u64);
            client.allowance += given;
            self.credit -= given as f64;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::vec::Vec;

    use super::*;

    const TICK: Duration = Duration::from_millis(10);

    fn at(tick: u32) -> Instant {
        Instant::from_start(TICK * tick)
    }

    /// An uplink that gains 10,000 bytes each tick.
    fn uplink(clients: usize) -> Uplink {
        Uplink::new(BytesPerSecond(1e6), TICK, clients)
    }

    fn allowances(uplink: &Uplink) -> Vec<u64> {
        (0..uplink.clients.len()).map(|client| uplink.allowance(client)).collect()
    }

    #[test]
    fn what_a_client_may_expect_is_its_part_of_what_a_tick_brings() {
        let mut uplink = uplink(4);
        uplink.set_weight(1, Weight(2));
        for tick in 1..5 {
            (0..3).for_each(|client| uplink.offer(client, 1_000_000));
            uplink.share(at(tick));
            let prospects: Vec<u64> = (0..4).map(|client| uplink.prospect(client)).collect();
            assert_eq!(prospects, [5000, 10_000, 5000, 2000], "what was given and not spent, and as much again");
            (0..3).for_each(|client| uplink.spend(client, uplink.allowance(client)));
            assert_eq!([0, 1, 2].map(|client| uplink.prospect(client)), [2500, 5000, 2500]);
        }
        assert_eq!(uplink.prospect(9), 0, "no such client");
    }

    #[test]
    fn everybody_gets_what_it_wants_as_long_as_there_is_enough() {
        let mut uplink = uplink(3);
        for (client, bytes) in [(0, 1000), (2, 5000)] {
            uplink.offer(client, bytes);
        }
        uplink.share(at(0));
        assert_eq!(allowances(&uplink), [1000, 0, 5000]);
    }

    #[test]
    fn one_clients_burst_delays_nobody_else() {
        let mut uplink = uplink(10);
        for tick in 0..400 {
            for client in 0..9 {
                uplink.offer(client, 800);
            }
            uplink.offer(9, 1_000_000);
            uplink.share(at(tick));
            for client in 0..9 {
                assert_eq!(uplink.allowance(client), 800, "client {client} in tick {tick}");
                uplink.spend(client, 800);
            }
            let burst = uplink.allowance(9);
            assert!((2799..=2801).contains(&burst), "and the burst has the rest: {burst} in tick {tick}");
            uplink.spend(9, burst);
        }
    }

    #[test]
    fn what_is_scarce_goes_by_weight() {
        let mut uplink = uplink(3);
        uplink.set_weight(1, Weight(3));
        uplink.set_weight(2, Weight(0));
        for client in 0..3 {
            uplink.offer(client, 1_000_000);
        }
        uplink.share(at(0));
        assert_eq!(allowances(&uplink), [2000, 6000, 2000]);
    }

    #[test]
    fn shares_too_small_for_a_packet_add_up() {
        let mut uplink = uplink(100);
        let mut sent = 0;
        for tick in 0..100 {
            (0..100).for_each(|client| uplink.offer(client, 50_000));
            uplink.share(at(tick));
            for client in 0..100 {
                if uplink.allowance(client) >= 1200 {
                    uplink.spend(client, 1200);
                    sent += 1200;
                }
            }
        }
        assert!((900_000..=1_000_000).contains(&sent), "{sent}");
    }

    #[test]
    fn who_is_gone_leaves_what_it_was_given() {
        let mut uplink = uplink(2);
        uplink.offer(0, 10_000);
        uplink.share(at(0));
        uplink.offer(0, 0);
        uplink.offer(1, 10_000);
        uplink.share(at(0));
        assert_eq!(allowances(&uplink), [0, 10_000]);
    }

    #[test]
    fn what_was_not_allowed_is_missing_afterwards() {
        let mut uplink = uplink(2);
        uplink.share(at(0));
        uplink.spend(0, 15_000);
        uplink.offer(1, 10_000);
        uplink.share(at(1));
        assert_eq!(uplink.allowance(1), 5000);
    }

    proptest! {
        #[test]
        fn no_more_is_given_than_the_uplink_gains_and_nothing_is_left_while_somebody_wants(
            ticks in prop::collection::vec(prop::collection::vec((0..20_usize, 0..5000_u64), 0..30), 1..50),
        ) {
            let mut uplink = uplink(20);
            let mut sent = 0;
            for (tick, offers) in (0..).zip(&ticks) {
                for (client, bytes) in offers {
                    uplink.offer(*client, *bytes);
                }
                uplink.share(at(tick));
                let lacking: u64 = uplink.clients.iter().map(Client::lacks).sum();
                prop_assert!(uplink.credit < 1.0 || lacking == 0, "{} left, {} lacking", uplink.credit, lacking);
                for client in 0..20 {
                    let bytes = uplink.allowance(client);
                    uplink.spend(client, bytes);
                    sent += bytes;
                }
                prop_assert!(sent <= 10_000 * u64::from(tick + 1));
                prop_assert!(uplink.active.len() <= 20);
            }
        }
    }
}
