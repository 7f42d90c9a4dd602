//! Loss and bandwidths as the reference measures them (§2.5): over the older half of its windows, smoothed each tick.
//!
//! It walks the windows only when they have changed; the tick of an idle endpoint is four multiplications.

use alloc::boxed::Box;
use alloc::vec;

use super::config::ReferenceSmoothing;
use super::meter::{Arrival, Reading};
use super::sent::Sent;
use super::stats::BitsPerSecond;
use crate::wire::reliable::Sequence;
use slipgate_netcode::time::Instant;

/// Two values nearer to each other than this, in per cent or kbit/s, are one (§2.5).
const SAME: f64 = 0.00001;

/// The reference's statistics. Its units are its own: per cent and kbit/s.
pub(super) struct Reference {
    smoothing: ReferenceSmoothing,
    loss: Smoothed,
    sent: Smoothed,
    acked: Smoothed,
    received: Smoothed,
    sent_changed: bool,
    received_changed: bool,
    arrivals: Arrivals,
}

impl Reference {
    pub(super) fn new(smoothing: ReferenceSmoothing, received_window: u16) -> Self {
        Self {
            smoothing,
            loss: Smoothed::default(),
            sent: Smoothed::default(),
            acked: Smoothed::default(),
            received: Smoothed::default(),
            sent_changed: false,
            received_changed: false,
            arrivals: Arrivals::new(received_window),
        }
    }

    /// A packet was sent, or acknowledged.
    pub(super) fn note_sent(&mut self) {
        self.sent_changed = true;
    }

    pub(super) fn note_received(&mut self, arrival: Arrival) {
        self.advance(arrival.sequence);
        self.arrivals.put(arrival);
    }

    /// The window of received packets moves, if it has to, so that this one is in it.
    pub(super) fn advance(&mut self, sequence: Sequence) {
        self.arrivals.advance(sequence);
        self.received_changed = true;
    }

    pub(super) fn tick(&mut self, sent: &Sent) {
        if core::mem::take(&mut self.sent_changed) {
            self.measure_sent(sent);
        }
        if core::mem::take(&mut self.received_changed) {
            let arrivals = self.arrivals.older_half().map(|arrival| (arrival.bytes, arrival.at));
            self.received.target = kilobits_per_second(arrivals);
        }
        self.loss.step(self.smoothing.loss);
        for bandwidth in [&mut self.sent, &mut self.acked, &mut self.received] {
            bandwidth.step(self.smoothing.bandwidth);
        }
    }

    fn measure_sent(&mut self, sent: &Sent) {
        let (mut all, mut acked) = (0_u32, 0_u32);
        for departure in sent.older_half() {
            all += 1;
            acked += u32::from(departure.is_acked());
        }
        self.loss.target = Some(if all == 0 { 0.0 } else { 100.0 * f64::from(all - acked) / f64::from(all) });
        let departures = sent.older_half();
        self.sent.target = kilobits_per_second(departures.map(|departure| (departure.bytes, departure.at)));
        let departures = sent.older_half().filter(|departure| departure.is_acked());
        self.acked.target = kilobits_per_second(departures.map(|departure| (departure.bytes, departure.at)));
    }

    pub(super) fn read(&self) -> Reading {
        Reading {
            loss: self.loss.value / 100.0,
            sent: BitsPerSecond(self.sent.value * 1000.0),
            received: BitsPerSecond(self.received.value * 1000.0),
            acked: BitsPerSecond(self.acked.value * 1000.0),
        }
    }

    pub(super) fn reset(&mut self) {
        *self = Self::new(self.smoothing, self.arrivals.size);
    }
}

/// A value, and where it is going; without target it stays where it is.
#[derive(Clone, Copy, Default)]
struct Smoothed {
    value: f64,
    target: Option<f64>,
}

impl Smoothed {
    fn step(&mut self, factor: f64) {
        let Some(target) = self.target else { return };
        let off = target - self.value;
        self.value = if off.abs() > SAME { self.value + off * factor } else { target };
    }
}

/// The bandwidth of packets, if they do not all have the same time.
fn kilobits_per_second(packets: impl Iterator<Item = (u32, Instant)>) -> Option<f64> {
    let (bytes, earliest, latest) = packets
        .fold((0_u64, Instant::NEVER, Instant::default()), |(sum, earliest, latest), (bytes, at)| {
            (sum + u64::from(bytes), earliest.min(at), latest.max(at))
        });
    let seconds = latest.since(earliest).as_secs_f64();
    (seconds > 0.0).then(|| bytes as f64 * 8.0 / 1000.0 / seconds)
}

/// When packets arrived, and how large they were: a window of the same size and rule as that of received packets.
struct Arrivals {
    next: Sequence,
    size: u16,
    places: Box<[Option<Arrival>]>,
}

impl Arrivals {
    fn new(size: u16) -> Self {
        Self { next: Sequence::default(), size, places: vec![None; size.into()].into_boxed_slice() }
    }

    fn advance(&mut self, sequence: Sequence) {
        let next = sequence.ahead(1);
        if next.is_newer_than(self.next) {
            let passed = next.distance_from(self.next).min(self.size);
            for ahead in 0..passed {
                let index = self.index(self.next.ahead(ahead));
                if let Some(place) = self.places.get_mut(index) {
                    *place = None;
                }
            }
            self.next = next;
        }
    }

    fn put(&mut self, arrival: Arrival) {
        let index = self.index(arrival.sequence);
        if let Some(place) = self.places.get_mut(index) {
            *place = Some(arrival);
        }
    }

    fn older_half(&self) -> impl Iterator<Item = &Arrival> {
        let oldest = self.next.back(self.size);
        let half = (0..self.size / 2).map(move |ahead| self.index(oldest.ahead(ahead)));
        half.filter_map(|index| self.places.get(index)?.as_ref())
    }

    fn index(&self, sequence: Sequence) -> usize {
        (sequence.0 & (self.size - 1)).into()
    }
}
