//! The simulation of a path: policer, bottleneck, loss, delays, and their changes over time.

use core::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_sim::{Bottleneck, Loss, LossProcess, Policer, Random, Stalls, Transmitted};

use crate::log::{SLICE, Series};
use crate::packet::LabPacket;
use crate::path::{DelayVariation, ExtraDelay, Outage, PathSpec, RateChange};

/// A simulated path.
pub struct PathSimulation {
    path: PathSpec,
    bottleneck: Bottleneck<LabPacket>,
    policer: Option<Policer>,
    policed: Vec<LabPacket>,
    /// The current loss towards the receiver.
    loss: Loss,
    losses: LossProcess,
    losses_back: LossProcess,
    delays: Random,
    last_arrival: Instant,
    /// The planned changes, the next one last.
    changes: Vec<(Instant, PlannedChange)>,
    rates: Vec<(Instant, f64)>,
}

/// A change of the path.
#[derive(Clone, Copy, PartialEq, Debug)]
enum PlannedChange {
    Rate(f64),
    Stalled(bool),
    Loses(Loss),
}

impl PathSimulation {
    /// Creates the path for a run of this duration and seed.
    #[must_use]
    pub fn new(path: &PathSpec, duration: Duration, seed: u64) -> Self {
        let loss = if path.loss_from.is_zero() { path.loss } else { Loss::NONE };
        Self {
            path: path.clone(),
            bottleneck: Bottleneck::new(path.rate, path.buffer, path.discipline),
            policer: path.policer.map(Policer::new),
            policed: Vec::new(),
            loss,
            losses: LossProcess::new(Random::new(seed, 2)),
            losses_back: LossProcess::new(Random::new(seed, 3)),
            delays: Random::new(seed, 4),
            last_arrival: Instant::default(),
            changes: changes(path, duration, &mut Random::new(seed, 5)),
            rates: vec![(Instant::default(), path.rate)],
        }
    }

    /// Sends a packet: the policer or the queue may drop it.
    pub fn enqueue(&mut self, packet: LabPacket, now: Instant) {
        if self.policer.as_mut().is_some_and(|policer| !policer.admits(packet.bytes, now)) {
            self.policed.push(packet);
        } else {
            self.bottleneck.enqueue(packet, packet.bytes, now);
        }
    }

    /// Returns when the next packet leaves the bottleneck.
    #[must_use]
    pub fn next_departure(&self) -> Option<Instant> {
        self.bottleneck.next_departure()
    }

    /// Removes the packet that leaves the bottleneck now.
    pub fn depart(&mut self, now: Instant) -> Option<Transmitted<LabPacket>> {
        self.bottleneck.depart(now)
    }

    /// Removes and returns the packets that the policer or the queue dropped since the last call.
    pub fn drain_dropped(&mut self) -> impl Iterator<Item = LabPacket> + use<'_> {
        self.policed.drain(..).chain(self.bottleneck.drain_dropped())
    }

    /// Returns when a packet that leaves the bottleneck now arrives at the receiver; `None` if it is lost.
    pub fn forward(&mut self, now: Instant) -> Option<Instant> {
        if self.losses.is_next_lost(&self.loss, now) || is_out(self.path.outage, now) {
            return None;
        }
        let delay = self.path.round_trip / 2 + extra_delay(self.path.extra_delay, now);
        let arrival = match self.path.jitter {
            DelayVariation::None => now.after(delay),
            DelayVariation::InOrder(most) => now.after(delay + self.delays.duration_between(Duration::ZERO, most)),
            DelayVariation::InOrderExponential(mean) => now.after(delay + self.delays.exponential(mean)),
            DelayVariation::Reordering(mean) => return Some(now.after(delay + self.delays.exponential(mean))),
        };
        // A route that becomes shorter does not reorder packets.
        self.last_arrival = self.last_arrival.max(arrival);
        Some(self.last_arrival)
    }

    /// Returns when a datagram that the receiver sends now arrives at the sender; `None` if it is lost.
    pub fn back(&mut self, now: Instant) -> Option<Instant> {
        if self.losses_back.is_next_lost(&self.path.loss_back, now) || is_out(self.path.outage, now) {
            return None;
        }
        Some(now.after(self.path.round_trip / 2 + extra_delay(self.path.extra_delay_back, now)))
    }

    /// Returns when the next change is due.
    #[must_use]
    pub fn next_change(&self) -> Option<Instant> {
        self.changes.last().map(|(at, _)| *at)
    }

    /// Applies the next change.
    pub fn change(&mut self, now: Instant) {
        match self.changes.pop() {
            Some((_, PlannedChange::Rate(rate))) => {
                self.rates.push((now, rate));
                self.bottleneck.set_rate(rate, now);
            }
            Some((_, PlannedChange::Stalled(stalled))) => self.bottleneck.set_stalled(stalled, now),
            Some((_, PlannedChange::Loses(loss))) => self.loss = loss,
            None => {}
        }
    }

    /// Returns the bytes that the path could have carried until `end`: limited by the bottleneck, stalls included, and
    /// the policer, and zero during an outage.
    #[must_use]
    pub fn capacity(&self, end: Instant) -> Series {
        let most = self.path.policer.map_or(f64::INFINITY, |policer| policer.rate);
        let mut capacity = Series::default();
        let mut at = Instant::default();
        let mut rates = self.rates.iter().peekable();
        let mut rate = 0.0;
        while at < end {
            while let Some((_, next)) = rates.next_if(|(from, _)| *from <= at) {
                rate = *next;
            }
            let rate = if is_out(self.path.outage, at) { 0.0 } else { most.min(rate) };
            capacity.add(rate * SLICE.as_secs_f64(), at);
            at = at.after(SLICE);
        }
        capacity
    }
}

fn extra_delay(extra_delay: Option<ExtraDelay>, now: Instant) -> Duration {
    let now = now.since_start();
    extra_delay
        .filter(|extra_delay| extra_delay.from <= now && now < extra_delay.until)
        .map_or(Duration::ZERO, |extra_delay| extra_delay.extra)
}

fn is_out(outage: Option<Outage>, now: Instant) -> bool {
    let now = now.since_start();
    outage.is_some_and(|outage| outage.from <= now && now < outage.until)
}

/// Returns all planned changes, the next one last.
fn changes(path: &PathSpec, duration: Duration, random: &mut Random) -> Vec<(Instant, PlannedChange)> {
    let mut changes = rate_changes(path, duration, random);
    if let Some(stalls) = path.stalls {
        changes.extend(stall_changes(stalls, duration, random));
    }
    if !path.loss_from.is_zero() {
        changes.push((Instant::from_start(path.loss_from), PlannedChange::Loses(path.loss)));
    }
    changes.sort_by_key(|(at, _)| core::cmp::Reverse(*at));
    changes
}

fn rate_changes(path: &PathSpec, duration: Duration, random: &mut Random) -> Vec<(Instant, PlannedChange)> {
    match &path.change {
        RateChange::None => Vec::new(),
        RateChange::Steps(steps) => {
            steps.iter().map(|(from, rate)| (Instant::from_start(*from), PlannedChange::Rate(*rate))).collect()
        }
        RateChange::RandomWalk { every, factor, low, high } => {
            let steps = (duration.as_nanos() / every.as_nanos()) as u32;
            let mut rate = path.rate;
            let walk = (1..=steps).map(|step| {
                rate = (rate * random.log_uniform(1.0 / factor, *factor)).clamp(*low, *high);
                (Instant::from_start(*every * step), PlannedChange::Rate(rate))
            });
            walk.collect()
        }
    }
}

fn stall_changes(stalls: Stalls, duration: Duration, random: &mut Random) -> Vec<(Instant, PlannedChange)> {
    let mut changes = Vec::new();
    let mut at = Duration::ZERO;
    loop {
        at += random.duration_between(stalls.every / 2, stalls.every * 3 / 2);
        if at >= duration {
            return changes;
        }
        changes.push((Instant::from_start(at), PlannedChange::Stalled(true)));
        at += random.duration_between(stalls.shortest, stalls.longest);
        changes.push((Instant::from_start(at), PlannedChange::Stalled(false)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outage_loses_everything_and_has_no_capacity() {
        let at = |millis| Instant::from_start(Duration::from_millis(millis));
        let outage = Outage { from: Duration::from_secs(2), until: Duration::from_secs(4) };
        let path = PathSpec { outage: Some(outage), ..PathSpec::new(8e6, 50, 250) };
        let mut link = PathSimulation::new(&path, Duration::from_secs(10), 1);
        for (millis, is_out) in [(1999, false), (2000, true), (3999, true), (4000, false)] {
            let arrives = (!is_out).then(|| at(millis + 25));
            assert_eq!([link.forward(at(millis)), link.back(at(millis))], [arrives; 2], "{millis}");
        }
        assert!((link.capacity(at(10_000)).total() - 8e6).abs() < 1e-3, "eight seconds of ten");
    }
}
