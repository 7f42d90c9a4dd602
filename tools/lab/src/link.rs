//! A path at work: policer, bottleneck, loss, delays, and how they change.

use core::time::Duration;

use slipgate_netcode::time::Instant;

use crate::log::{SLICE, Series};
use crate::path::bottleneck::{Bottleneck, Passed};
use crate::path::loss::Losing;
use crate::path::policer::Policer;
use crate::path::{Change, Darkness, Detour, Jitter, Loss, Path, Stalls};
use crate::random::Random;
use crate::world::Packet;

/// A path at work.
pub struct Link {
    path: Path,
    bottleneck: Bottleneck<Packet>,
    policer: Option<Policer>,
    policed: Vec<Packet>,
    losing: Losing,
    losing_back: Losing,
    delays: Random,
    last_arrival: Instant,
    /// What changes the path, the next one last.
    changes: Vec<(Instant, Turn)>,
    rates: Vec<(Instant, f64)>,
}

/// How a path changes at a moment.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Turn {
    Rate(f64),
    Stalled(bool),
    Loses(Loss),
}

impl Link {
    /// The path of a seed, for so long.
    #[must_use]
    pub fn new(path: &Path, duration: Duration, seed: u64) -> Self {
        let loss = if path.loss_from.is_zero() { path.loss } else { Loss::Never };
        Self {
            path: path.clone(),
            bottleneck: Bottleneck::new(path.rate, path.buffer, path.discipline),
            policer: path.police.map(Policer::new),
            policed: Vec::new(),
            losing: Losing::new(loss, Random::new(seed, 2)),
            losing_back: Losing::new(path.loss_back, Random::new(seed, 3)),
            delays: Random::new(seed, 4),
            last_arrival: Instant::default(),
            changes: changes(path, duration, &mut Random::new(seed, 5)),
            rates: vec![(Instant::default(), path.rate)],
        }
    }

    /// A packet sets out.
    pub fn offer(&mut self, packet: Packet, now: Instant) {
        if self.policer.as_mut().is_some_and(|policer| !policer.passes(packet.bytes, now)) {
            self.policed.push(packet);
        } else {
            self.bottleneck.offer(packet, packet.bytes, now);
        }
    }

    /// When a packet leaves the bottleneck next.
    #[must_use]
    pub fn next_departure(&self) -> Option<Instant> {
        self.bottleneck.next_departure()
    }

    /// A packet leaves the bottleneck.
    pub fn depart(&mut self, now: Instant) -> Option<Passed<Packet>> {
        self.bottleneck.depart(now)
    }

    /// Packets that the policer or the queue dropped since the last call.
    pub fn dropped(&mut self) -> impl Iterator<Item = Packet> + use<'_> {
        self.policed.drain(..).chain(self.bottleneck.dropped())
    }

    /// When what leaves the bottleneck now arrives at the receiver; `None` if it is lost.
    pub fn forward(&mut self, now: Instant) -> Option<Instant> {
        if self.losing.takes_next() || is_dark(self.path.dark, now) {
            return None;
        }
        let delay = self.path.round_trip / 2 + detour(self.path.detour, now);
        let arrival = match self.path.jitter {
            Jitter::None => now.after(delay),
            Jitter::InOrder(most) => now.after(delay + self.delays.duration(Duration::ZERO, most)),
            Jitter::Reordering(mean) => return Some(now.after(delay + self.delays.exponential(mean))),
        };
        // A shorter route lets no packet overtake another.
        self.last_arrival = self.last_arrival.max(arrival);
        Some(self.last_arrival)
    }

    /// When what the receiver sends now arrives at the sender; `None` if it is lost.
    pub fn back(&mut self, now: Instant) -> Option<Instant> {
        if self.losing_back.takes_next() || is_dark(self.path.dark, now) {
            return None;
        }
        Some(now.after(self.path.round_trip / 2 + detour(self.path.detour_back, now)))
    }

    /// When the path changes next.
    #[must_use]
    pub fn next_change(&self) -> Option<Instant> {
        self.changes.last().map(|(at, _)| *at)
    }

    /// The path changes as planned.
    pub fn change(&mut self, now: Instant) {
        match self.changes.pop() {
            Some((_, Turn::Rate(rate))) => {
                self.rates.push((now, rate));
                self.bottleneck.set_rate(rate, now);
            }
            Some((_, Turn::Stalled(stalled))) => self.bottleneck.set_stalled(stalled, now),
            Some((_, Turn::Loses(loss))) => self.losing.change(loss),
            None => {}
        }
    }

    /// What the path could have carried until `end`: by its bottleneck's rate, stalls and all, or its policer's; nothing while
    /// it was dark.
    #[must_use]
    pub fn capacity(&self, end: Instant) -> Series {
        let most = self.path.police.map_or(f64::INFINITY, |police| police.rate);
        let mut capacity = Series::default();
        let mut at = Instant::default();
        let mut rates = self.rates.iter().peekable();
        let mut rate = 0.0;
        while at < end {
            while let Some((_, next)) = rates.next_if(|(from, _)| *from <= at) {
                rate = *next;
            }
            let rate = if is_dark(self.path.dark, at) { 0.0 } else { most.min(rate) };
            capacity.add(rate * SLICE.as_secs_f64(), at);
            at = at.after(SLICE);
        }
        capacity
    }
}

fn detour(detour: Option<Detour>, now: Instant) -> Duration {
    let now = now.since_start();
    detour.filter(|detour| detour.from <= now && now < detour.until).map_or(Duration::ZERO, |detour| detour.extra)
}

fn is_dark(dark: Option<Darkness>, now: Instant) -> bool {
    let now = now.since_start();
    dark.is_some_and(|dark| dark.from <= now && now < dark.until)
}

/// All that will change, the next one last.
fn changes(path: &Path, duration: Duration, random: &mut Random) -> Vec<(Instant, Turn)> {
    let mut changes = rate_changes(path, duration, random);
    if let Some(stalls) = path.stalls {
        changes.extend(stall_changes(stalls, duration, random));
    }
    if !path.loss_from.is_zero() {
        changes.push((Instant::from_start(path.loss_from), Turn::Loses(path.loss)));
    }
    changes.sort_by_key(|(at, _)| core::cmp::Reverse(*at));
    changes
}

fn rate_changes(path: &Path, duration: Duration, random: &mut Random) -> Vec<(Instant, Turn)> {
    match &path.change {
        Change::None => Vec::new(),
        Change::Steps(steps) => {
            steps.iter().map(|(from, rate)| (Instant::from_start(*from), Turn::Rate(*rate))).collect()
        }
        Change::RandomWalk { every, factor, low, high } => {
            let steps = (duration.as_nanos() / every.as_nanos()) as u32;
            let mut rate = path.rate;
            let walk = (1..=steps).map(|step| {
                rate = (rate * random.between_in_proportion(1.0 / factor, *factor)).clamp(*low, *high);
                (Instant::from_start(*every * step), Turn::Rate(rate))
            });
            walk.collect()
        }
    }
}

fn stall_changes(stalls: Stalls, duration: Duration, random: &mut Random) -> Vec<(Instant, Turn)> {
    let mut changes = Vec::new();
    let mut at = Duration::ZERO;
    loop {
        at += random.duration(stalls.every / 2, stalls.every * 3 / 2);
        if at >= duration {
            return changes;
        }
        changes.push((Instant::from_start(at), Turn::Stalled(true)));
        at += random.duration(stalls.shortest, stalls.longest);
        changes.push((Instant::from_start(at), Turn::Stalled(false)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gets_through_a_dark_path_either_way_nor_could_it() {
        let at = |millis| Instant::from_start(Duration::from_millis(millis));
        let darkness = Darkness { from: Duration::from_secs(2), until: Duration::from_secs(4) };
        let path = Path { dark: Some(darkness), ..Path::new(8e6, 50, 250) };
        let mut link = Link::new(&path, Duration::from_secs(10), 1);
        for (millis, is_dark) in [(1999, false), (2000, true), (3999, true), (4000, false)] {
            let arrives = (!is_dark).then(|| at(millis + 25));
            assert_eq!([link.forward(at(millis)), link.back(at(millis))], [arrives; 2], "{millis}");
        }
        assert!((link.capacity(at(10_000)).total() - 8e6).abs() < 1e-3, "eight seconds of ten");
    }
}
