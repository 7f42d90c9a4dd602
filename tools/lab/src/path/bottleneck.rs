//! The narrow place of a path: a queue of so many bytes, emptied at so many bytes per second.

use core::time::Duration;
use std::collections::VecDeque;

use slipgate_netcode::time::Instant;

use super::codel::{CoDel, Verdict};

/// How a full or a standing queue drops.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Discipline {
    /// What does not fit is dropped.
    #[default]
    TailDrop,
    /// As RFC 8289 has it; what does not fit is dropped, too.
    CoDel,
}

/// A packet that has passed, and how long it waited before its first bit left.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Passed<P> {
    /// The packet.
    pub packet: P,
    /// How long it stood in the queue, without its own transmission.
    pub waited: Duration,
}

#[derive(Debug)]
struct Waiting<P> {
    packet: P,
    bytes: u32,
    since: Instant,
}

#[derive(Debug)]
struct Serving<P> {
    packet: P,
    waited: Duration,
    bytes_left: f64,
    counted_at: Instant,
}

/// A bottleneck at work.
#[derive(Debug)]
pub struct Bottleneck<P> {
    rate: f64,
    stalled: bool,
    capacity: u64,
    waiting_bytes: u64,
    queue: VecDeque<Waiting<P>>,
    serving: Option<Serving<P>>,
    codel: Option<CoDel>,
    dropped: Vec<P>,
}

impl<P> Bottleneck<P> {
    /// An idle bottleneck of so many bytes per second, with room for so many waiting bytes.
    #[must_use]
    pub fn new(rate: f64, capacity: u64, discipline: Discipline) -> Self {
        let codel = (discipline == Discipline::CoDel).then(CoDel::default);
        Self {
            rate,
            stalled: false,
            capacity,
            waiting_bytes: 0,
            queue: VecDeque::new(),
            serving: None,
            codel,
            dropped: Vec::new(),
        }
    }

    /// A packet arrives; it is dropped if it does not fit.
    pub fn offer(&mut self, packet: P, bytes: u32, now: Instant) {
        if self.waiting_bytes + u64::from(bytes) > self.capacity {
            self.dropped.push(packet);
            return;
        }
        self.waiting_bytes += u64::from(bytes);
        self.queue.push_back(Waiting { packet, bytes, since: now });
        self.serve(now);
    }

    /// When the packet in service will have left; `None` while there is none or nothing moves.
    #[must_use]
    pub fn next_departure(&self) -> Option<Instant> {
        let serving = self.serving.as_ref()?;
        (!self.stalled && self.rate > 0.0)
            .then(|| serving.counted_at.after(Duration::from_secs_f64(serving.bytes_left / self.rate)))
    }

    /// The packet in service leaves; call it when [`Self::next_departure`] has come.
    pub fn depart(&mut self, now: Instant) -> Option<Passed<P>> {
        let served = self.serving.take()?;
        self.serve(now);
        Some(Passed { packet: served.packet, waited: served.waited })
    }

    /// Packets that were dropped since the last call, in order.
    pub fn dropped(&mut self) -> impl Iterator<Item = P> + use<'_, P> {
        self.dropped.drain(..)
    }

    /// The rate is another one from now on; what waits keeps waiting, and there is room for as many bytes as before.
    pub fn set_rate(&mut self, rate: f64, now: Instant) {
        self.settle(now);
        self.rate = rate;
    }

    /// Nothing moves from now on, or everything does again.
    pub fn set_stalled(&mut self, stalled: bool, now: Instant) {
        self.settle(now);
        self.stalled = stalled;
    }

    /// Counts what has left of the packet in service.
    fn settle(&mut self, now: Instant) {
        if let Some(serving) = &mut self.serving {
            if !self.stalled {
                let sent = now.since(serving.counted_at).as_secs_f64() * self.rate;
                serving.bytes_left = (serving.bytes_left - sent).max(0.0);
            }
            serving.counted_at = now;
        }
    }

    fn serve(&mut self, now: Instant) {
        while self.serving.is_none() {
            let Some(head) = self.queue.pop_front() else { return };
            self.waiting_bytes -= u64::from(head.bytes);
            let waited = now.since(head.since);
            let verdict =
                self.codel.as_mut().map_or(Verdict::Send, |codel| codel.judge(waited, self.waiting_bytes, now));
            match verdict {
                Verdict::Drop => self.dropped.push(head.packet),
                Verdict::Send => {
                    let bytes_left = f64::from(head.bytes);
                    self.serving = Some(Serving { packet: head.packet, waited, bytes_left, counted_at: now });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Instant {
        Instant::from_start(Duration::from_secs_f64(seconds))
    }

    /// Empties the queue and says when each packet left and how long it had waited, in milliseconds.
    fn drain(bottleneck: &mut Bottleneck<u32>) -> Vec<(u32, u128, u128)> {
        let mut left = Vec::new();
        while let Some(when) = bottleneck.next_departure() {
            let passed = bottleneck.depart(when).unwrap();
            left.push((passed.packet, when.since_start().as_millis(), passed.waited.as_millis()));
        }
        left
    }

    #[test]
    fn a_queue_of_known_size_gives_the_known_delay() {
        // 1 Mbit/s: 1250 bytes take 10 ms.
        let mut bottleneck = Bottleneck::new(125_000.0, 100_000, Discipline::TailDrop);
        for packet in 0..4 {
            bottleneck.offer(packet, 1250, at(0.0));
        }
        assert_eq!(drain(&mut bottleneck), [(0, 10, 0), (1, 20, 10), (2, 30, 20), (3, 40, 30)]);
    }

    #[test]
    fn what_does_not_fit_is_dropped() {
        let mut bottleneck = Bottleneck::new(125_000.0, 2500, Discipline::TailDrop);
        for packet in 0..5 {
            bottleneck.offer(packet, 1250, at(0.0));
        }
        // One is in service, two wait.
        assert_eq!(bottleneck.dropped().collect::<Vec<_>>(), [3, 4]);
        assert_eq!(drain(&mut bottleneck).len(), 3);
    }

    #[test]
    fn a_change_of_the_rate_counts_from_the_bit_that_is_leaving() {
        let mut bottleneck = Bottleneck::new(125_000.0, 100_000, Discipline::TailDrop);
        bottleneck.offer(0, 1250, at(0.0));
        bottleneck.offer(1, 1250, at(0.0));
        // Half of the first has left after 5 ms; the other half takes 50 ms at a tenth of the rate.
        bottleneck.set_rate(12_500.0, at(0.005));
        assert_eq!(drain(&mut bottleneck), [(0, 55, 0), (1, 155, 55)]);
    }

    #[test]
    fn nothing_leaves_a_stalled_bottleneck() {
        let mut bottleneck = Bottleneck::new(125_000.0, 100_000, Discipline::TailDrop);
        bottleneck.offer(0, 1250, at(0.0));
        bottleneck.set_stalled(true, at(0.002));
        assert_eq!(bottleneck.next_departure(), None);
        bottleneck.set_stalled(false, at(0.102));
        assert_eq!(drain(&mut bottleneck), [(0, 110, 0)]);
    }

    #[test]
    fn codel_keeps_a_queue_short_that_would_stand() {
        let delays = |discipline| {
            let mut bottleneck = Bottleneck::new(125_000.0, 1_000_000, discipline);
            let mut waited = Vec::new();
            // A tenth more than the bottleneck carries, for five seconds.
            for packet in 0..550_u32 {
                let now = at(f64::from(packet) / 110.0);
                while let Some(when) = bottleneck.next_departure().filter(|when| *when <= now) {
                    waited.push(bottleneck.depart(when).unwrap().waited.as_millis());
                }
                bottleneck.offer(packet, 1250, now);
            }
            (waited, bottleneck.dropped().count())
        };
        let (tail, none) = delays(Discipline::TailDrop);
        assert_eq!(none, 0);
        assert!(*tail.last().unwrap() > 400, "{tail:?}");
        let (codel, some) = delays(Discipline::CoDel);
        assert!(some > 10, "{some}");
        assert!(*codel.last().unwrap() < 100, "{codel:?}");
    }
}
