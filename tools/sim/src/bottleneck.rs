//! The laboratory's bottleneck: a queue of bytes, emptied at a rate that may change in the middle of a packet.
//!
//! It computes in floating-point bytes per second, as the congestion controllers do. The conditioner has an exact link
//! instead (`link_buffer`).

use core::time::Duration;
use std::collections::VecDeque;

use slipgate_netcode::time::Instant;

use crate::codel::{Codel, CodelAction};

/// The drop policy of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Discipline {
    /// Packets that do not fit are dropped.
    #[default]
    TailDrop,
    /// `CoDel` (RFC 8289). Packets that do not fit are dropped, too.
    CoDel,
}

/// A transmitted packet, and how long it waited.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Transmitted<P> {
    /// The packet.
    pub packet: P,
    /// Its time in the queue, without its own transmission.
    pub waited: Duration,
}

#[derive(Debug)]
struct Queued<P> {
    packet: P,
    bytes: u32,
    since: Instant,
}

#[derive(Debug)]
struct Transmission<P> {
    packet: P,
    waited: Duration,
    bytes_left: f64,
    updated_at: Instant,
}

/// A queue and the packet in transmission.
#[derive(Debug)]
pub struct Bottleneck<P> {
    rate: f64,
    is_stalled: bool,
    capacity: u64,
    queued_bytes: u64,
    queue: VecDeque<Queued<P>>,
    transmitting: Option<Transmission<P>>,
    codel: Option<Codel>,
    dropped: Vec<P>,
}

impl<P> Bottleneck<P> {
    /// Creates an idle bottleneck with a rate in bytes per second and a capacity in waiting bytes.
    #[must_use]
    pub fn new(rate: f64, capacity: u64, discipline: Discipline) -> Self {
        let codel = (discipline == Discipline::CoDel).then(Codel::default);
        Self {
            rate,
            is_stalled: false,
            capacity,
            queued_bytes: 0,
            queue: VecDeque::new(),
            transmitting: None,
            codel,
            dropped: Vec::new(),
        }
    }

    /// Enqueues a packet, or drops it if it does not fit.
    pub fn enqueue(&mut self, packet: P, bytes: u32, now: Instant) {
        if self.queued_bytes + u64::from(bytes) > self.capacity {
            self.dropped.push(packet);
            return;
        }
        self.queued_bytes += u64::from(bytes);
        self.queue.push_back(Queued { packet, bytes, since: now });
        self.start_transmission(now);
    }

    /// Returns when the current transmission ends; `None` while there is none or the link is stalled.
    #[must_use]
    pub fn next_departure(&self) -> Option<Instant> {
        let transmitting = self.transmitting.as_ref()?;
        (!self.is_stalled && self.rate > 0.0)
            .then(|| transmitting.updated_at.after(Duration::from_secs_f64(transmitting.bytes_left / self.rate)))
    }

    /// Ends the current transmission. The caller calls it when [`Self::next_departure`] is reached.
    pub fn depart(&mut self, now: Instant) -> Option<Transmitted<P>> {
        let transmitted = self.transmitting.take()?;
        self.start_transmission(now);
        Some(Transmitted { packet: transmitted.packet, waited: transmitted.waited })
    }

    /// Removes and returns the packets that were dropped since the last call, in order.
    pub fn drain_dropped(&mut self) -> impl Iterator<Item = P> + use<'_, P> {
        self.dropped.drain(..)
    }

    /// Changes the rate from now on. The queue and its capacity in bytes stay the same.
    pub fn set_rate(&mut self, rate: f64, now: Instant) {
        self.count_transmitted(now);
        self.rate = rate;
    }

    /// Stalls or resumes the transmission.
    pub fn set_stalled(&mut self, stalled: bool, now: Instant) {
        self.count_transmitted(now);
        self.is_stalled = stalled;
    }

    /// Subtracts the bytes that were transmitted since the last update.
    fn count_transmitted(&mut self, now: Instant) {
        if let Some(transmitting) = &mut self.transmitting {
            if !self.is_stalled {
                let sent = now.since(transmitting.updated_at).as_secs_f64() * self.rate;
                transmitting.bytes_left = (transmitting.bytes_left - sent).max(0.0);
            }
            transmitting.updated_at = now;
        }
    }

    fn start_transmission(&mut self, now: Instant) {
        while self.transmitting.is_none() {
            let Some(head) = self.queue.pop_front() else { return };
            self.queued_bytes -= u64::from(head.bytes);
            let waited = now.since(head.since);
            let action = self
                .codel
                .as_mut()
                .map_or(CodelAction::Forward, |codel| codel.on_dequeue(waited, self.queued_bytes, now));
            match action {
                CodelAction::Drop => self.dropped.push(head.packet),
                CodelAction::Forward => {
                    let bytes_left = f64::from(head.bytes);
                    self.transmitting = Some(Transmission { packet: head.packet, waited, bytes_left, updated_at: now });
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

    /// Empties the queue. Returns when each packet left and how long it had waited, in milliseconds.
    fn drain(bottleneck: &mut Bottleneck<u32>) -> Vec<(u32, u128, u128)> {
        let mut left = Vec::new();
        while let Some(when) = bottleneck.next_departure() {
            let departed = bottleneck.depart(when).unwrap();
            left.push((departed.packet, when.since_start().as_millis(), departed.waited.as_millis()));
        }
        left
    }

    #[test]
    fn queueing_delay_equals_bytes_divided_by_rate() {
        // 1 Mbit/s: 1250 bytes take 10 ms.
        let mut bottleneck = Bottleneck::new(125_000.0, 100_000, Discipline::TailDrop);
        for packet in 0..4 {
            bottleneck.enqueue(packet, 1250, at(0.0));
        }
        assert_eq!(drain(&mut bottleneck), [(0, 10, 0), (1, 20, 10), (2, 30, 20), (3, 40, 30)]);
    }

    #[test]
    fn full_queue_drops_at_its_tail() {
        let mut bottleneck = Bottleneck::new(125_000.0, 2500, Discipline::TailDrop);
        for packet in 0..5 {
            bottleneck.enqueue(packet, 1250, at(0.0));
        }
        // One is in transmission, two wait.
        assert_eq!(bottleneck.drain_dropped().collect::<Vec<_>>(), [3, 4]);
        assert_eq!(drain(&mut bottleneck).len(), 3);
    }

    #[test]
    fn new_rate_applies_to_the_rest_of_the_current_packet() {
        let mut bottleneck = Bottleneck::new(125_000.0, 100_000, Discipline::TailDrop);
        bottleneck.enqueue(0, 1250, at(0.0));
        bottleneck.enqueue(1, 1250, at(0.0));
        // Half of the first packet has left after 5 ms; the other half takes 50 ms at a tenth of the rate.
        bottleneck.set_rate(12_500.0, at(0.005));
        assert_eq!(drain(&mut bottleneck), [(0, 55, 0), (1, 155, 55)]);
    }

    #[test]
    fn nothing_leaves_a_stalled_bottleneck() {
        let mut bottleneck = Bottleneck::new(125_000.0, 100_000, Discipline::TailDrop);
        bottleneck.enqueue(0, 1250, at(0.0));
        bottleneck.set_stalled(true, at(0.002));
        assert_eq!(bottleneck.next_departure(), None);
        bottleneck.set_stalled(false, at(0.102));
        assert_eq!(drain(&mut bottleneck), [(0, 110, 0)]);
    }

    #[test]
    fn codel_keeps_a_standing_queue_short() {
        let delays = |discipline| {
            let mut bottleneck = Bottleneck::new(125_000.0, 1_000_000, discipline);
            let mut waited = Vec::new();
            // The load is 10 % above the rate, for five seconds.
            for packet in 0..550_u32 {
                let now = at(f64::from(packet) / 110.0);
                while let Some(when) = bottleneck.next_departure().filter(|when| *when <= now) {
                    waited.push(bottleneck.depart(when).unwrap().waited.as_millis());
                }
                bottleneck.enqueue(packet, 1250, now);
            }
            (waited, bottleneck.drain_dropped().count())
        };
        let (tail, none) = delays(Discipline::TailDrop);
        assert_eq!(none, 0);
        assert!(*tail.last().unwrap() > 400, "{tail:?}");
        let (codel, some) = delays(Discipline::CoDel);
        assert!(some > 10, "{some}");
        assert!(*codel.last().unwrap() < 100, "{codel:?}");
    }
}
