//! Slow start, the first startup of a connection: a window grows by the acknowledged bytes until a queue forms. That
//! queue is drained, which measures the capacity (Glide §6.1).

use super::super::units::{Bounded, Seconds, float};
use super::path_sample::PathSample;
use super::startup::{EXIT, MIN_QUEUE, MIN_ROUND_TRIP, NEAR_ROUND_TRIP, StartupStep};
use crate::congestion::{Feedback, NewestAck};

/// The initial window, in packets (RFC 6928, section 2). The window is never smaller.
pub(super) const INITIAL_PACKETS: f64 = 10.0;
/// The growth of the window by an acknowledged byte; less on round trips below [`MIN_ROUND_TRIP`], down to a share of
/// it: on the shortest paths a window leaves many times within the time in which the rate follows it.
const GROWTH: f64 = 0.84;
const MIN_GROWTH_SHARE: f64 = 0.5;
/// The same on a far path: one on which the initial rate takes more than the initial window. Each round trip costs more
/// time there, and the window doubles, as that of TCP.
const GROWTH_FAR: f64 = 1.0;
/// The growth of a far window above this many initial windows (as in RFC 3742): its last doubling would fill a buffer
/// before the first queue is seen.
const GROWTH_FAR_LARGE: f64 = 0.5;
const LARGE: f64 = 16.0;
/// What a lost byte takes from the window.
const LOSS: f64 = 2.0;
/// The rate as a multiple of the window per round trip: the window limits slow start, and the rate only its bursts.
const PACE: f64 = 1.25;
/// The same on a far path: the acknowledgements of a window cover less than half of a round trip, and twice their rate
/// is to leave.
const PACE_FAR: f64 = 4.0;
/// The window as a multiple of the bytes delivered within a base round trip, beside the initial window.
const MAX_OF_DELIVERED: f64 = 2.0;
/// The parts of a base round trip by which delivered bytes are recorded.
const ROUND_SLICES: usize = 4;
/// The maximum first delivery rate that ends slow start, as a multiple of the initial rate: on a slow path a round trip
/// has few packets. A far path has enough, and its first rate may be that of a greeting.
const SLOW_PATH: f64 = 1.0;
/// For how long beyond a round trip the application must have more to send before that rate counts, in seconds.
const BUSY: Seconds = Seconds(0.15);
/// The maximum round trip without the queue beyond the base round trip, as a multiple of that and in seconds.
const MAX_OF_BASE: f64 = 2.0;
const MAX_BEYOND_BASE: Seconds = Seconds(0.24);
/// The maximum round trip, in seconds, at which the rate may exceed the initial one before a delivery rate is known.
const UNMEASURED_ROUND_TRIP: Seconds = Seconds(0.08);
/// The maximum rate as a multiple of the delivery rate.
pub(super) const MAX_OF_DELIVERY: f64 = 4.0;
/// The packets and the seconds over which the capacity is measured, at least.
const MIN_PACKETS: f64 = 8.0;
const MIN_SPAN: Seconds = Seconds(0.01);
/// The rate while the queue drains, as a share of the capacity, and the maximum time in seconds beside a loop.
const DRAIN_RATE: f64 = 0.5;
const MAX_DRAIN: Seconds = Seconds(1.0);
/// The final rate, as a share of the capacity.
const DRAINED_EXIT: f64 = 0.95;

/// Returns when a packet arrived by the peer's clock, or when that is known here.
fn arrival(newest: &NewestAck, now: f64) -> f64 {
    newest.received_at.map_or(now, |received_at| Seconds::from(received_at.0).0)
}

/// The window of the first startup. Sizes in bytes, rates in bytes per second, times in seconds.
#[derive(Clone, Debug)]
pub(super) struct SlowStart {
    least: f64,
    /// Whether the initial rate takes more than the initial window.
    is_far: bool,
    window: f64,
    /// The arrival of the first packet that met the present queue, and the bytes delivered until then.
    queued_since: Option<(f64, f64)>,
    /// The delivery rate since then.
    capacity: Option<f64>,
    /// When the drain ends, whatever is in flight; `None` before it starts.
    drain_until: Option<f64>,
    /// The bytes delivered by certain times of the local clock, newest first.
    rounds: [(f64, f64); ROUND_SLICES + 1],
    /// When the application last was the limit, in seconds.
    limited_at: f64,
    /// Whether a delivery rate was measured while data waited.
    is_measured: bool,
}

impl SlowStart {
    pub(super) fn new(largest_packet: f64) -> Self {
        let least = INITIAL_PACKETS * largest_packet;
        Self {
            least,
            is_far: false,
            window: least,
            queued_since: None,
            capacity: None,
            drain_until: None,
            rounds: [(f64::NEG_INFINITY, 0.0); ROUND_SLICES + 1],
            limited_at: f64::NEG_INFINITY,
            is_measured: false,
        }
    }

    /// Creates the slow start of a connection that knows its path, which is not slow. `None` if the round trip is long:
    /// there the rate of startup doubles soon enough.
    pub(super) fn again(largest_packet: f64, base_round_trip: f64) -> Option<Self> {
        let is_near = base_round_trip <= NEAR_ROUND_TRIP.0;
        is_near.then(|| Self { is_measured: true, ..Self::new(largest_packet) })
    }

    /// Returns whether slow start suits a path with this round trip: it is short, or far. Between the two the rate of
    /// startup doubles soon enough, and slow start overshoots for longer.
    pub(super) fn suits(&self, base_round_trip: f64, initial: f64) -> bool {
        base_round_trip <= NEAR_ROUND_TRIP.0
            || initial * base_round_trip > self.least
            || self.is_far
            || self.drain_until.is_some()
    }

    /// Records that the application has nothing more to send.
    pub(super) const fn on_app_limited(&mut self, now: f64) {
        self.limited_at = now;
    }

    /// Changes the window by what was acknowledged, lost, and late instead of lost, while data waits for the
    /// controller. The first rate is `initial`.
    pub(super) fn count(&mut self, feedback: &Feedback<'_>, base_round_trip: f64, initial: f64) {
        if self.drain_until.is_some() {
            return;
        }
        // The window must not hold the initial rate down.
        self.is_far |= initial * base_round_trip > self.least;
        self.least = self.least.at_least(initial * base_round_trip);
        let acked: f64 = feedback.acked.iter().map(|packet| f64::from(packet.bytes)).sum();
        let lost: f64 = feedback.lost.iter().map(|packet| f64::from(packet.bytes)).sum();
        let late: f64 = feedback.late.iter().map(|packet| f64::from(packet.bytes)).sum();
        if lost <= 0.0 {
            // What is in flight was permitted, while the application had less to send.
            self.window = self.window.at_least(float(feedback.in_flight));
        }
        let growth = match self.is_far {
            true if self.window > LARGE * self.least => GROWTH_FAR_LARGE,
            true => GROWTH_FAR,
            false => GROWTH * (base_round_trip / MIN_ROUND_TRIP.0).at_least(MIN_GROWTH_SHARE).at_most(1.0),
        };
        let proven = self.proven(feedback, base_round_trip);
        self.window = (self.window + growth * acked - LOSS * (lost - late)).at_most(proven).at_least(self.least);
    }

    /// Returns the window that the bytes acknowledged within the last base round trip permit. The local clock measures
    /// it, so false arrival times have no influence.
    fn proven(&mut self, feedback: &Feedback<'_>, base_round_trip: f64) -> f64 {
        let (now, delivered) = (Seconds::from(feedback.now).0, float(feedback.delivered));
        let base = base_round_trip.at_least(MIN_ROUND_TRIP.0);
        let [(newest, _), ..] = self.rounds;
        if now - newest >= base / ROUND_SLICES as f64 {
            self.rounds.rotate_right(1);
            let [first, ..] = &mut self.rounds;
            *first = (now, delivered);
        }
        let before = self.rounds.iter().find(|(at, _)| now - at >= base).map_or(0.0, |(_, before)| *before);
        self.least + MAX_OF_DELIVERED * (delivered - before)
    }

    /// Returns whether slow start ends before a queue forms: the first delivery rate is low, or the round trip grows
    /// without a queue, so that the way back is longer or the arrival times are false. `initial` is the first rate.
    pub(super) fn ends_early(&mut self, sample: &PathSample, initial: f64) -> bool {
        let base = sample.base_round_trip.at_least(MIN_ROUND_TRIP.0);
        let max_round_trip = base + (MAX_OF_BASE * base).at_most(MAX_BEYOND_BASE.0);
        let is_longer = self.drain_until.is_none() && sample.round_trip - sample.instant_queue > max_round_trip;
        // A delivery rate that contains packets of an application with less data says nothing of the path.
        let is_of_path = sample.now - self.limited_at >= sample.round_trip + BUSY.0;
        let is_first = !sample.app_limited && !self.is_measured && is_of_path;
        self.is_measured |= is_first;
        is_longer || (is_first && !self.is_far && sample.arrivals < SLOW_PATH * initial)
    }

    /// Returns the rate before a delivery rate is known: the initial window leaves within a round trip. `None` if the
    /// round trip is as long as that of a slow path.
    pub(super) fn unmeasured_rate(&self, round_trip: f64) -> Option<f64> {
        (self.is_far || round_trip < UNMEASURED_ROUND_TRIP.0).then(|| self.rate(round_trip))
    }

    /// Returns whether the queue that slow start caused drains.
    pub(super) const fn is_draining(&self) -> bool {
        self.drain_until.is_some()
    }

    pub(super) const fn window(&self) -> f64 {
        self.window
    }

    /// Returns the rate at which the window leaves within a round trip.
    pub(super) fn rate(&self, round_trip: f64) -> f64 {
        let pace = if self.is_far { PACE_FAR } else { PACE };
        pace * self.window / round_trip.at_least(MIN_ROUND_TRIP.0)
    }

    /// Processes a sample; `found` is the step of a startup that does not count bytes, `initial` the first rate.
    pub(super) fn on_sample(
        &mut self,
        sample: &PathSample,
        feedback: &Feedback<'_>,
        found: StartupStep,
        initial: f64,
    ) -> StartupStep {
        self.measure(sample, feedback);
        let capacity = self.capacity(sample);
        let in_flight = float(feedback.in_flight);
        if let Some(until) = self.drain_until {
            let is_drained = in_flight <= capacity * sample.base_round_trip || sample.now > until;
            let [drained, draining] =
                [StartupStep::End(DRAINED_EXIT * capacity), StartupStep::Grow(DRAIN_RATE * capacity)];
            return if is_drained { drained } else { draining };
        }
        match found {
            found if sample.app_limited => found,
            StartupStep::Grow(_) => StartupStep::Grow(self.rate(sample.round_trip).at_least(initial)),
            // The window has outgrown a policer, and so has the sending rate.
            StartupStep::End(rate) if sample.has_excess_loss => StartupStep::End(rate.at_most(EXIT * capacity)),
            StartupStep::End(_) => {
                let queue = (in_flight / capacity - sample.base_round_trip).at_least(0.0);
                let time = (queue / (1.0 - DRAIN_RATE)).at_most(MAX_DRAIN.0);
                self.drain_until = Some(sample.now + sample.loop_time() + time);
                StartupStep::Grow(DRAIN_RATE * capacity)
            }
        }
    }

    /// Measures the capacity: packets that meet a queue arrive at the rate of the path.
    fn measure(&mut self, sample: &PathSample, feedback: &Feedback<'_>) {
        let Some(newest) = feedback.newest else { return };
        if sample.newest_queue < MIN_QUEUE.0 {
            self.queued_since = None;
            return;
        }
        let received = arrival(&newest, sample.now);
        let delivered = float(feedback.delivered);
        let (since, before) = *self.queued_since.get_or_insert((received, delivered));
        let (time, bytes) = (received - since, delivered - before);
        if time > MIN_SPAN.0 && bytes >= MIN_PACKETS * sample.packet {
            // The same share of random loss as in the delivery rate.
            self.capacity = Some(bytes / time * sample.delivery / sample.arrivals);
        }
    }

    /// Returns the capacity, or the delivery rate while no queue has shown it.
    pub(super) fn capacity(&self, sample: &PathSample) -> f64 {
        self.capacity.unwrap_or(sample.delivery)
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::vec;
    use std::vec::Vec;

    use super::super::path_sample::{QUIET, queued};
    use super::*;
    use crate::congestion::{PeerTime, SentPacket};
    use slipgate_netcode::time::Instant;

    const FOUND: StartupStep = StartupStep::End(9e5);

    fn packets(count: usize) -> Vec<SentPacket> {
        vec![SentPacket { bytes: 1200, ..SentPacket::default() }; count]
    }

    /// Returns feedback on these packets, with `delivered` bytes until this second of the peer's clock.
    fn feedback<'a>(acked: &'a [SentPacket], lost: &'a [SentPacket], received: f64, delivered: u64) -> Feedback<'a> {
        Feedback {
            now: Instant::from_start(Duration::from_secs(100)),
            newest: Some(NewestAck {
                sent_at: Instant::default(),
                received_at: Some(PeerTime(Duration::from_secs_f64(received))),
                ack_delay: Duration::ZERO,
                socket_delay: Duration::ZERO,
            }),
            acked,
            lost,
            late: &[],
            delivered,
            in_flight: 0,
        }
    }

    #[test]
    fn rate_of_packets_from_before_does_not_end_slow_start() {
        let mut slow_start = SlowStart::new(1200.0);
        slow_start.on_app_limited(99.95);
        let low = PathSample { arrivals: 1e4, ..QUIET };
        assert!(!slow_start.ends_early(&low, 4e4), "the application had less to send 50 ms ago");
        assert!(slow_start.ends_early(&PathSample { now: 100.2, ..low }, 4e4));
    }

    #[test]
    fn window_follows_acknowledged_and_lost_bytes() {
        let mut slow_start = SlowStart::new(1200.0);
        assert!((slow_start.window() - 12_000.0).abs() < 1e-6);
        slow_start.count(&feedback(&packets(100), &[], 1.0, 120_000), 0.05, 4e4);
        assert!((slow_start.window() - (12_000.0 + GROWTH * 120_000.0)).abs() < 1e-6);
        // The half of the packets that a policer passes does not raise the window.
        slow_start.count(&feedback(&packets(10), &packets(10), 1.0, 132_000), 0.05, 4e4);
        assert!(slow_start.window() < GROWTH * 120_000.0);
        slow_start.count(&feedback(&[], &packets(1000), 1.0, 132_000), 0.05, 4e4);
        assert!((slow_start.window() - 12_000.0).abs() < 1e-6);
        // Late packets give back what their loss took.
        slow_start.count(&feedback(&[], &packets(0), 1.0, 132_000), 0.05, 4e4);
        let before = slow_start.window();
        slow_start.count(&Feedback { late: &packets(2), ..feedback(&[], &packets(0), 1.0, 132_000) }, 0.05, 4e4);
        assert!((slow_start.window() - before - LOSS * 2400.0).abs() < 1e-6);
        slow_start.count(&feedback(&[], &packets(2), 1.0, 132_000), 0.05, 4e4);
        // An application with little data had more in flight.
        slow_start.count(&Feedback { in_flight: 50_000, ..feedback(&[], &[], 1.0, 132_000) }, 0.05, 4e4);
        assert!((slow_start.window() - 50_000.0).abs() < 1e-6);
        assert!((slow_start.rate(0.05) - 1.25e6).abs() < 1.0);
        assert!((slow_start.rate(1e-4) - slow_start.rate(0.02)).abs() < 1.0);
        // A round trip of 10 ms grows the window half as much as one of 20 ms.
        slow_start.count(&feedback(&packets(10), &[], 1.0, 144_000), 0.01, 4e4);
        assert!((slow_start.window() - (50_000.0 + 0.5 * GROWTH * 12_000.0)).abs() < 1e-6);
        // On a satellite path the window permits the initial rate.
        let mut slow_start = SlowStart::new(1200.0);
        slow_start.count(&feedback(&[], &[], 1.0, 0), 0.6, 4e4);
        assert!((slow_start.window() - 24_000.0).abs() < 1e-6);
        // It doubles there, and above 16 initial windows it grows by half of the acknowledged bytes.
        for (acked, window) in [(300, 384_000.0), (10, 396_000.0), (10, 402_000.0)] {
            slow_start.count(&feedback(&packets(acked), &[], 1.0, 600_000), 0.6, 4e4);
            assert!((slow_start.window() - window).abs() < 1e-6, "{}", slow_start.window());
        }
    }

    #[test]
    fn window_is_bounded_by_the_delivery_of_a_round_trip() {
        let (mut slow_start, start) = (SlowStart::new(1200.0), Instant::from_start(Duration::from_secs(100)));
        // A path delivers 12 kB each 10 ms, and a receiver with false delays reports no queue.
        for step in 1..=20_u64 {
            let now = start.after(Duration::from_millis(10 * step));
            slow_start.count(&Feedback { now, ..feedback(&packets(10), &[], 1.0, 12_000 * step) }, 0.04, 4e4);
        }
        // A round trip of 40 ms delivers 48 kB, and the record is late by a quarter of it at most. Without the bound it
        // would be 213 kB.
        assert!(slow_start.window() <= 12_000.0 + 2.0 * 60_000.0 + 1.0, "{}", slow_start.window());
        assert!(slow_start.window() >= 12_000.0 + 2.0 * 48_000.0, "{}", slow_start.window());
    }

    #[test]
    fn slow_or_longer_path_ends_slow_start() {
        let with = |arrivals, app_limited| PathSample { arrivals, app_limited, ..QUIET };
        let mut slow_start = SlowStart::new(1200.0);
        assert!(!slow_start.ends_early(&with(1e3, true), 4e4), "the application was idle");
        assert!(!slow_start.ends_early(&with(5e4, false), 4e4));
        assert!(!slow_start.ends_early(&with(3e4, false), 4e4), "only the first rate counts");
        assert!(SlowStart::new(1200.0).ends_early(&with(3e4, false), 4e4));
        let long = PathSample { round_trip: 0.13, ..queued(0.02, 100.0) };
        assert!(!slow_start.ends_early(&long, 4e4), "most of it is a queue");
        assert!(slow_start.ends_early(&PathSample { instant_queue: 0.0, ..long }, 4e4));
        let satellite = PathSample { base_round_trip: 0.6, round_trip: 0.83, ..with(1e3, false) };
        let mut slow_start = SlowStart::new(1200.0);
        slow_start.count(&feedback(&[], &[], 1.0, 0), 0.6, 4e4);
        assert!(!slow_start.ends_early(&satellite, 4e4), "a greeting is no slow path");
        assert!(slow_start.ends_early(&PathSample { round_trip: 0.85, ..satellite }, 4e4), "240 ms more are a queue");
        let slow_start = SlowStart::new(1200.0);
        assert_eq!(slow_start.unmeasured_rate(0.05), Some(slow_start.rate(0.05)));
        assert_eq!(slow_start.unmeasured_rate(0.08), None);
    }

    #[test]
    fn queue_shows_the_capacity_and_is_drained_to_a_round_trip() {
        let mut slow_start = SlowStart::new(1200.0);
        let mut step = |queue: f64, received: f64, delivered: u64, in_flight: u64| {
            let feedback = Feedback { in_flight, ..feedback(&[], &[], received, delivered) };
            let found = if queue > 0.005 { FOUND } else { StartupStep::Grow(1.0) };
            slow_start.on_sample(&queued(queue, 100.0 + received), &feedback, found, 4e4)
        };
        // The window leaves within a round trip of 40 ms.
        assert_eq!(step(0.0, 5.0, 0, 12_000), StartupStep::Grow(PACE * 12_000.0 / 0.04));
        // The delivery rate is 1 MB/s, as it includes the time before the queue; behind the queue 2 MB/s arrive.
        assert_eq!(step(0.006, 5.01, 100_000, 200_000), StartupStep::Grow(0.5e6));
        let StartupStep::Grow(rate) = step(0.02, 5.03, 140_000, 100_000) else { panic!("more than a round trip") };
        assert!((rate - 1e6).abs() < 1.0, "{rate}");
        let StartupStep::End(rate) = step(0.02, 5.04, 160_000, 79_000) else { panic!("less than a round trip") };
        assert!((rate - 1.9e6).abs() < 1.0, "{rate}");
    }

    #[test]
    fn drain_ends_in_time() {
        let mut slow_start = SlowStart::new(1200.0);
        let full = Feedback { in_flight: 90_000, ..feedback(&[], &[], 5.0, 0) };
        // 50 kB above a round trip drain in 100 ms at half the rate, and a loop takes 110 ms.
        for (now, expected) in
            [(100.0, StartupStep::Grow(5e5)), (100.2, StartupStep::Grow(5e5)), (100.22, StartupStep::End(9.5e5))]
        {
            assert_eq!(slow_start.on_sample(&queued(0.02, now), &full, FOUND, 4e4), expected, "{now}");
        }
        let window = slow_start.window();
        slow_start.count(&feedback(&packets(10), &[], 5.0, 0), 0.04, 4e4);
        assert!(slow_start.window() <= window);
    }

    #[test]
    fn neither_loss_nor_an_idle_application_drains() {
        let feedback = feedback(&[], &[], 5.0, 0);
        let lossy = PathSample { has_excess_loss: true, ..QUIET };
        let mut slow_start = SlowStart::new(1200.0);
        assert_eq!(slow_start.on_sample(&lossy, &feedback, StartupStep::End(2e6), 4e4), StartupStep::End(9e5));
        assert_eq!(slow_start.on_sample(&lossy, &feedback, StartupStep::End(5e5), 4e4), StartupStep::End(5e5));
        let idle = PathSample { app_limited: true, ..queued(0.02, 100.0) };
        for found in [FOUND, StartupStep::Grow(1e5)] {
            assert_eq!(slow_start.on_sample(&idle, &feedback, found, 4e4), found);
        }
        assert!(slow_start.suits(0.12, 4e4) && !slow_start.suits(0.13, 4e4) && slow_start.suits(0.31, 4e4));
    }
}
