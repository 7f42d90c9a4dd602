//! The uplink of a server, shared over its clients by weight: bytes that one client does not need go to the others.
//!
//! A client with much data gets no more than its share while others have data, so its burst delays only itself: the
//! rest waits in its own queue. `join_limit` decides what enters a frame for all clients, and `shared_uplink` shares
//! one uplink over several shards.

use alloc::vec::Vec;
use core::time::Duration;

use crate::congestion::BytesPerSecond;
use slipgate_netcode::slab::{Slab, SlabIndex};
use slipgate_netcode::time::Instant;

/// Rounds in which the bytes of a tick are divided by weight. Each round uses all bytes, or satisfies at least one
/// client. The remainder, usually nothing, goes to the clients in turn.
const ROUNDS: usize = 8;

/// The share of the uplink that a client gets, relative to others with as much data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weight(pub u16);

impl Default for Weight {
    fn default() -> Self {
        Self(1)
    }
}

/// The uplink of one server. Its clients are the slots of a shard, or the shards of a server. A tick costs a few steps
/// for each client with data, and allocates nothing; a silent client costs nothing.
///
/// Each tick: [`Uplink::offer`] for each client with data, [`Uplink::share`], and [`Uplink::spend`] for each packet
/// while [`Uplink::allowance`] lasts. Retransmitted messages spend the same allowance.
#[derive(Clone, Debug)]
pub(crate) struct Uplink<I> {
    rate: BytesPerSecond,
    burst: Duration,
    /// Bytes that are not assigned yet; negative after more was spent than assigned.
    credit: f64,
    filled_at: Option<Instant>,
    /// Bytes that the last tick gained, and the sum of the weights that shared them.
    gained: f64,
    weights: f64,
    /// Bytes sent without an allowance since the last tick.
    unscheduled: f64,
    /// The total of unscheduled bytes on all shards, as last reported.
    unscheduled_before: f64,
    clients: Slab<I, UplinkClient>,
    /// Clients with data, in the order of their turns.
    active: Vec<I>,
}

/// The bytes that the clients of a shard lack beyond its own credit.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct UplinkRequest {
    /// The sum of the weights of lacking clients.
    pub(super) weights: u32,
    pub(super) bytes: u64,
    /// Credit that this shard cannot use; negative for bytes spent beyond it.
    pub(super) returned: f64,
    /// Bytes sent without an allowance since the last request.
    pub(super) unscheduled: f64,
}

/// A shard's part of what the uplink of the server has gained.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct UplinkGrant {
    pub(super) bytes: u64,
    /// The rate of the whole server.
    pub(super) rate: BytesPerSecond,
    /// The sum of the weights of lacking clients on other shards.
    pub(super) other_weights: f64,
    /// The total of bytes sent without an allowance on all shards.
    pub(super) unscheduled: f64,
}

#[derive(Clone, Copy, Debug)]
struct UplinkClient {
    weight: u32,
    wanted: u64,
    /// At most `wanted`: an allowance that cannot be used is returned.
    allowance: u64,
    is_active: bool,
}

impl Default for UplinkClient {
    fn default() -> Self {
        Self { weight: 1, wanted: 0, allowance: 0, is_active: false }
    }
}

impl UplinkClient {
    fn weight(&self) -> f64 {
        f64::from(self.weight)
    }

    fn lacking_bytes(&self) -> u64 {
        self.wanted - self.allowance
    }
}

impl<I: SlabIndex> Uplink<I> {
    /// Creates an uplink of `rate` for this many clients, which sends at most the gain of `burst` at once: a tick plus
    /// the delay of its timer.
    #[must_use]
    pub(crate) fn new(rate: BytesPerSecond, burst: Duration, clients: usize) -> Self {
        Self {
            rate,
            burst,
            credit: 0.0,
            filled_at: None,
            gained: rate.0 * burst.as_secs_f64(),
            weights: 0.0,
            unscheduled: 0.0,
            unscheduled_before: 0.0,
            clients: (0..clients).map(|_| UplinkClient::default()).collect(),
            active: Vec::with_capacity(clients),
        }
    }

    /// Sets the rate: the smaller of the server's bandwidth and the sum of what the clients' paths allow.
    pub(crate) fn set_rate(&mut self, rate: BytesPerSecond) {
        self.rate = rate;
    }

    /// Sets the weight of a client; zero counts as one.
    pub(crate) fn set_weight(&mut self, client: I, weight: Weight) {
        self.clients[client].weight = weight.0.max(1).into();
    }

    /// Sets the bytes that a client has to send in all; zero if it has none or has left.
    pub(crate) fn offer(&mut self, client: I, bytes: u64) {
        let entry = &mut self.clients[client];
        entry.wanted = bytes;
        // The unused rest goes back to all clients.
        self.credit += entry.allowance.saturating_sub(bytes) as f64;
        entry.allowance = entry.allowance.min(bytes);
        if bytes > 0 && !entry.is_active {
            entry.is_active = true;
            self.active.push(client);
        }
    }

    /// Divides the gain since the last call. A client keeps its allowance until it is spent.
    pub(crate) fn share(&mut self, now: Instant) {
        let unscheduled = core::mem::take(&mut self.unscheduled);
        self.credit += self.advance_clock(now, unscheduled);
        self.return_credit(0.0);
        self.drop_inactive();
        self.weights = self.active.iter().map(|client| self.clients[*client].weight()).sum();
        self.divide_all();
    }

    /// Advances the clock over a time with `unscheduled` bytes. Returns what the rate gained.
    fn advance_clock(&mut self, now: Instant, unscheduled: f64) -> f64 {
        let passed = self.filled_at.map_or(self.burst, |filled_at| now.since(filled_at));
        self.filled_at = Some(now);
        // Unscheduled bytes are no gain that clients could expect again.
        self.gained = (self.rate.0 * passed.min(self.burst).as_secs_f64() - unscheduled).max(0.0);
        self.rate.0 * passed.as_secs_f64()
    }

    /// Returns or charges credit. Neither lasts longer than a burst.
    pub(super) fn return_credit(&mut self, bytes: f64) {
        let max_burst = self.rate.0 * self.burst.as_secs_f64();
        self.credit = (self.credit + bytes).max(-max_burst).min(max_burst);
    }

    fn divide_all(&mut self) {
        for _ in 0..ROUNDS {
            if !self.divide() {
                return;
            }
        }
        self.divide_remainder();
    }

    /// Spends bytes that cannot wait for an allowance. All clients pay for them, but for no longer than a burst: a
    /// sender of too much unscheduled data must not block the others for ever.
    pub(crate) fn spend_unscheduled(&mut self, bytes: u64) {
        self.credit -= bytes as f64;
        self.unscheduled += bytes as f64;
    }

    // The uplink of one shard ----------------------------------------------------------------------------------------

    /// Returns what the clients lack. Unused credit and debts go back with it.
    pub(crate) fn take_request(&mut self) -> UplinkRequest {
        self.drop_inactive();
        let (weights, lacking_bytes) = self.lacking().fold((0, 0), |(weights, lacking_bytes), client| {
            (weights + client.weight, lacking_bytes + client.lacking_bytes())
        });
        // Keep only the credit that this shard's clients can use.
        let reserved = self.credit.max(0.0).min(lacking_bytes as f64);
        let returned = self.credit - reserved;
        self.credit = reserved;
        let bytes = lacking_bytes.saturating_sub(reserved as u64);
        UplinkRequest { weights, bytes, returned, unscheduled: core::mem::take(&mut self.unscheduled) }
    }

    /// Divides like [`share`](Self::share), from this shard's grant of the server's uplink.
    pub(crate) fn apply_grant(&mut self, grant: &UplinkGrant, now: Instant) {
        self.rate = grant.rate;
        self.advance_clock(now, grant.unscheduled - self.unscheduled_before);
        // Totals, not differences: a shard that skips a tick still sees all unscheduled bytes.
        self.unscheduled_before = grant.unscheduled;
        self.credit += grant.bytes as f64;
        self.weights = grant.other_weights + self.lacking().map(UplinkClient::weight).sum::<f64>();
        self.divide_all();
    }

    // The uplink of all shards --------------------------------------------------------------------------------------

    /// Sets what a shard lacks, and the weights of its lacking clients.
    pub(super) fn set_demand(&mut self, shard: I, weights: u32, bytes: u64) {
        self.clients[shard].weight = weights.max(1);
        self.offer(shard, bytes);
    }

    /// Returns the maximum bytes sent at once.
    pub(super) fn max_burst(&self) -> u64 {
        (self.rate.0 * self.burst.as_secs_f64()) as u64
    }

    pub(super) const fn rate(&self) -> BytesPerSecond {
        self.rate
    }

    /// Returns the sum of the weights of all active clients but this one.
    pub(super) fn other_weights(&self, client: I) -> f64 {
        let client = &self.clients[client];
        let own = if client.is_active { client.weight() } else { 0.0 };
        (self.weights - own).max(0.0)
    }

    // Queries -------------------------------------------------------------------------------------------------------

    /// Returns the bytes that a client may expect to send in this tick: its allowance, and its part of the last gain
    /// if the same clients have data again. A game asks before it composes the tick, and sends less detail instead of
    /// later data.
    #[must_use]
    #[inline]
    pub(crate) fn expected_bytes(&self, client: I) -> u64 {
        let client = &self.clients[client];
        let weights = if client.is_active { self.weights } else { self.weights + client.weight() };
        client.allowance + (self.gained * client.weight() / weights.max(1.0)) as u64
    }

    /// Returns the bytes that a client may send now.
    #[must_use]
    #[inline]
    pub(crate) fn allowance(&self, client: I) -> u64 {
        self.clients[client].allowance
    }

    /// Records bytes that a client has sent. All clients pay for bytes beyond its allowance.
    pub(crate) fn spend(&mut self, client: I, bytes: u64) {
        let client = &mut self.clients[client];
        self.credit -= bytes.saturating_sub(client.allowance) as f64;
        client.allowance = client.allowance.saturating_sub(bytes);
        // Never below the allowance: what is assigned stays usable.
        client.wanted = client.wanted.saturating_sub(bytes).max(client.allowance);
    }

    /// Drops clients without data, and moves the first turn on.
    fn drop_inactive(&mut self) {
        let clients = &mut self.clients;
        self.active.retain(|client| {
            let client = &mut clients[*client];
            client.is_active = client.wanted > 0;
            client.is_active
        });
        // Rotate: the remainder of a tick goes to another client each time.
        if self.active.len() > 1 {
            self.active.rotate_left(1);
        }
    }

    /// Assigns each client its share of the credit, or what it lacks if that is less. Returns whether another round
    /// can assign more.
    fn divide(&mut self) -> bool {
        let weights: f64 = self.lacking().map(UplinkClient::weight).sum();
        let level = self.credit / weights.max(1.0);
        // Less than a byte per weight is left: only the remainder by turns can use it.
        if weights <= 0.0 || level < 1.0 {
            return weights > 0.0 && self.credit >= 1.0;
        }
        for index in &self.active {
            let client = &mut self.clients[*index];
            let given = client.lacking_bytes().min((level * client.weight()) as u64);
            client.allowance += given;
            self.credit -= given as f64;
        }
        self.credit >= 1.0
    }

    fn lacking(&self) -> impl Iterator<Item = &UplinkClient> {
        self.active.iter().map(|index| &self.clients[*index]).filter(|client| client.lacking_bytes() > 0)
    }

    fn divide_remainder(&mut self) {
        for index in &self.active {
            let client = &mut self.clients[*index];
            let given = client.lacking_bytes().min(self.credit.max(0.0) as u64);
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
    use slipgate_netcode::ids::SlotIndex;

    const TICK: Duration = Duration::from_millis(10);

    fn at(tick: u32) -> Instant {
        Instant::from_start(TICK * tick)
    }

    /// An uplink that gains 10,000 bytes each tick.
    fn uplink(clients: usize) -> Uplink<SlotIndex> {
        Uplink::new(BytesPerSecond(1e6), TICK, clients)
    }

    fn allowances(uplink: &Uplink<SlotIndex>) -> Vec<u64> {
        (&uplink.clients).into_iter().map(|client| client.allowance).collect()
    }

    #[test]
    fn expected_bytes_are_the_part_of_a_tick() {
        let mut uplink = uplink(4);
        uplink.set_weight(SlotIndex(1), Weight(2));
        for tick in 1..5 {
            (0..3).for_each(|client| uplink.offer(SlotIndex(client), 1_000_000));
            uplink.share(at(tick));
            let prospects: Vec<u64> = (0..4).map(|client| uplink.expected_bytes(SlotIndex(client))).collect();
            assert_eq!(prospects, [5000, 10_000, 5000, 2000], "what was given and not spent, and as much again");
            (0..3).for_each(|client| uplink.spend(SlotIndex(client), uplink.allowance(SlotIndex(client))));
            assert_eq!([0, 1, 2].map(|client| uplink.expected_bytes(SlotIndex(client))), [2500, 5000, 2500]);
        }
    }

    #[test]
    fn all_clients_are_satisfied_while_bytes_suffice() {
        let mut uplink = uplink(3);
        for (client, bytes) in [(0, 1000), (2, 5000)] {
            uplink.offer(SlotIndex(client), bytes);
        }
        uplink.share(at(0));
        assert_eq!(allowances(&uplink), [1000, 0, 5000]);
    }

    #[test]
    fn burst_of_one_client_delays_no_other() {
        let mut uplink = uplink(10);
        for tick in 0..400 {
            for client in 0..9 {
                uplink.offer(SlotIndex(client), 800);
            }
            uplink.offer(SlotIndex(9), 1_000_000);
            uplink.share(at(tick));
            for client in 0..9 {
                assert_eq!(uplink.allowance(SlotIndex(client)), 800, "client {client} in tick {tick}");
                uplink.spend(SlotIndex(client), 800);
            }
            let burst = uplink.allowance(SlotIndex(9));
            assert!((2799..=2801).contains(&burst), "and the burst has the rest: {burst} in tick {tick}");
            uplink.spend(SlotIndex(9), burst);
        }
    }

    #[test]
    fn scarce_bytes_are_divided_by_weight() {
        let mut uplink = uplink(3);
        uplink.set_weight(SlotIndex(1), Weight(3));
        uplink.set_weight(SlotIndex(2), Weight(0));
        for client in 0..3 {
            uplink.offer(SlotIndex(client), 1_000_000);
        }
        uplink.share(at(0));
        assert_eq!(allowances(&uplink), [2000, 6000, 2000]);
    }

    #[test]
    fn shares_below_a_packet_add_up() {
        let mut uplink = uplink(100);
        let mut sent = 0;
        for tick in 0..100 {
            (0..100).for_each(|client| uplink.offer(SlotIndex(client), 50_000));
            uplink.share(at(tick));
            for client in 0..100 {
                if uplink.allowance(SlotIndex(client)) >= 1200 {
                    uplink.spend(SlotIndex(client), 1200);
                    sent += 1200;
                }
            }
        }
        assert!((900_000..=1_000_000).contains(&sent), "{sent}");
    }

    #[test]
    fn allowance_of_a_gone_client_is_returned() {
        let mut uplink = uplink(2);
        uplink.offer(SlotIndex(0), 10_000);
        uplink.share(at(0));
        uplink.offer(SlotIndex(0), 0);
        uplink.offer(SlotIndex(1), 10_000);
        uplink.share(at(0));
        assert_eq!(allowances(&uplink), [0, 10_000]);
    }

    #[test]
    fn bytes_beyond_the_allowance_are_charged() {
        let mut uplink = uplink(2);
        uplink.share(at(0));
        uplink.spend(SlotIndex(0), 15_000);
        uplink.offer(SlotIndex(1), 10_000);
        uplink.share(at(1));
        assert_eq!(uplink.allowance(SlotIndex(1)), 5000);
    }

    proptest! {
        #[test]
        fn assigned_bytes_match_the_gain_and_the_demand(
            ticks in prop::collection::vec(prop::collection::vec((0..20_u32, 0..5000_u64), 0..30), 1..50),
        ) {
            let mut uplink = uplink(20);
            let mut sent = 0;
            for (tick, offers) in (0..).zip(&ticks) {
                for (client, bytes) in offers {
                    uplink.offer(SlotIndex(*client), *bytes);
                }
                uplink.share(at(tick));
                let lacking: u64 = (&uplink.clients).into_iter().map(UplinkClient::lacking_bytes).sum();
                prop_assert!(uplink.credit < 1.0 || lacking == 0, "{} left, {} lacking", uplink.credit, lacking);
                for client in 0..20 {
                    let bytes = uplink.allowance(SlotIndex(client));
                    uplink.spend(SlotIndex(client), bytes);
                    sent += bytes;
                }
                prop_assert!(sent <= 10_000 * u64::from(tick + 1));
                prop_assert!(uplink.active.len() <= 20);
            }
        }
    }
}
