//! The congestion state of one connection: how many bytes may be sent now, when the next packet may, and what a game
//! should send.
//!
//! It combines a controller, which knows the path, with a token bucket, which limits the moment.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use super::binary::{Binary, BinaryConfig};
use super::controller::{Controller, Demand, Feedback, Phase, SentPacket};
use super::fixed::Fixed;
use super::glide::{Glide, GlideConfig};
use super::pacer::{self, Burst, Pacer};
use super::rate::{BytesPerSecond, FLOOR_INTERVAL, FLOOR_PACKET_BYTES};
use super::suggestion::{PacketShape, Suggestion};
use super::timing::{LossDelays, RttEstimator, Timing, ewma, nanos, nanos_since};
use super::units::{Bytes, Seconds};
use slipgate_netcode::time::Instant;

/// Weight of a new tick interval in the smoothed one.
const TICK_SMOOTHING: f64 = 0.125;
/// The longest tick: the 100 ms of the article's slow rate.
const MAX_TICK: Duration = FLOOR_INTERVAL;
/// The longest time, in seconds, that a bulk packet occupies the path, unless it has the minimum size.
const BULK_PACKET_SECONDS: Seconds = Seconds(0.010);
/// The most lost packets that are stored for the controller while no feedback arrives.
const MAX_PENDING_LOST: usize = 1024;
/// Weight of one packet in the loss share.
const LOSS_SMOOTHING: f64 = 0.01;

/// The congestion control algorithm of a connection.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Algorithm {
    /// The rate follows what the path delivers, and the queue stays short.
    Glide(GlideConfig),
    /// Two rates, after "Fiedler, Reliability, Ordering and Congestion Avoidance over UDP".
    Binary(BinaryConfig),
    /// One fixed rate: for local networks and for tests.
    Fixed(BytesPerSecond),
}

/// The congestion avoidance settings of a connection.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CongestionConfig {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The shape of its packets.
    pub shape: PacketShape,
}

impl Default for CongestionConfig {
    /// Uses Glide, and 60 packets per second of at most 1,200 bytes, plus netcode's 25 and UDP's and IPv4's 28.
    fn default() -> Self {
        Self {
            algorithm: Algorithm::Glide(GlideConfig::default()),
            shape: PacketShape { packets_per_second: 60.0, packet_bytes: 1253, header_bytes: 67 },
        }
    }
}

/// How urgent data may use the budget, in bytes on the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Priority {
    /// The bytes that it may send beyond the credit, because less urgent data used that credit before.
    pub overdraft: u64,
    /// The bytes of the window that it leaves free for more urgent data.
    pub reserve: u64,
}

/// The measurements of the path, and what the connection may send.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CongestionStats {
    /// The sending rate.
    pub rate: BytesPerSecond,
    /// The maximum bytes in flight; `None` if only the rate limits them.
    pub window: Option<u64>,
    /// The phase of the controller.
    pub phase: Phase,
    /// The minimum round trip of the last 20 s; `None` before the first.
    pub base_round_trip: Option<Duration>,
    /// The smoothed round trip; `None` before the first.
    pub round_trip: Option<Duration>,
    /// The smoothed deviation of a round trip from [`round_trip`](Self::round_trip), RFC 6298: the jitter of the path.
    /// The time that the peer holds an acknowledgement is not a part of it. `None` before the first sample.
    pub round_trip_variation: Option<Duration>,
    /// The queueing delay at the bottleneck: as the controller measured it, or else the smoothed round trip less the
    /// minimum. `None` before the first sample.
    pub queueing_delay: Option<Duration>,
    /// The share of lost packets among about the last hundred.
    pub loss: f64,
    /// Whether the application has more to send than it may.
    pub demand: Demand,
}

/// The congestion avoidance of one connection. All bytes are those on the path, headers included.
pub struct CongestionState {
    controller: Box<dyn Controller + Send>,
    pacer: Pacer,
    path: RttEstimator,
    shape: PacketShape,
    demand: Demand,
    loss: f64,
    sent_at: Option<Instant>,
    ticked_at: Option<Instant>,
    /// The smoothed interval between ticks, in nanoseconds; 0 before the second tick.
    tick: u64,
    /// The pacer's, by the tick.
    burst: Burst,
    /// Lost packets that the controller was not notified of yet.
    pending_lost: Vec<SentPacket>,
}

impl From<CongestionConfig> for CongestionState {
    /// Creates the state with one of the algorithms of this crate.
    fn from(config: CongestionConfig) -> Self {
        let controller: Box<dyn Controller + Send> = match config.algorithm {
            Algorithm::Glide(glide) => Box::new(Glide::new(glide, config.shape.packet_bytes)),
            Algorithm::Binary(binary) => Box::new(Binary::new(binary, config.shape.header_bytes)),
            Algorithm::Fixed(rate) => Box::new(Fixed::new(rate)),
        };
        Self::new(controller, config.shape)
    }
}

impl CongestionState {
    /// Creates the state with the caller's own algorithm. [`From`] creates it with one of this crate.
    #[must_use]
    pub fn new(controller: Box<dyn Controller + Send>, shape: PacketShape) -> Self {
        Self {
            controller,
            pacer: Pacer::new(shape.packet_bytes),
            path: RttEstimator::new(),
            shape,
            demand: Demand::Met,
            loss: 0.0,
            sent_at: None,
            ticked_at: None,
            tick: 0,
            burst: pacer::burst(Duration::ZERO),
            pending_lost: Vec::new(),
        }
    }

    /// Records a packet that was sent, even if it exceeded the budget.
    #[inline]
    pub fn on_sent(&mut self, bytes: u32, now: Instant) {
        self.pace(bytes, now);
        self.controller.on_sent(bytes, now);
    }

    /// Records a packet of acknowledgements alone that was sent.
    pub(crate) fn on_ack_only_sent(&mut self, bytes: u32, now: Instant) {
        self.pace(bytes, now);
        self.controller.on_ack_only_sent(bytes, now);
    }

    #[inline]
    fn pace(&mut self, bytes: u32, now: Instant) {
        // Fill first: the controller may change its rate, and the credit until now grew at the old one.
        let rate = self.controller.rate(now);
        self.pacer.fill(rate, self.burst, now);
        // A packet beyond the budget leaves a debt, which later packets wait for.
        self.pacer.spend(bytes, rate, self.burst);
        self.sent_at = Some(now);
    }

    /// Processes a datagram of the peer that reports on our packets.
    pub fn on_feedback(&mut self, mut feedback: Feedback<'_>) {
        self.fill(feedback.now);
        // A sender that waits for the pacer before each packet has nothing left after it, and still needs a higher
        // rate (RFC 9002, section 7.8).
        let used_whole_rate = !self.pacer.take_full();
        self.controller.set_demand(if used_whole_rate { Demand::Unmet } else { self.demand });
        // An implausible round trip would corrupt the minimum for 20 s, so it is dropped here for every controller.
        if feedback.newest.is_some_and(|newest| !self.path.is_plausible(&newest, feedback.now)) {
            feedback.newest = None;
        }
        self.path.on_feedback(&feedback);
        for _ in feedback.acked {
            self.loss -= self.loss * LOSS_SMOOTHING;
        }
        // The usual case: no copy of the list.
        if self.pending_lost.is_empty() {
            self.count_lost(feedback.lost);
            self.controller.on_feedback(&feedback);
        } else {
            self.on_lost(feedback.lost);
            self.controller.on_feedback(&Feedback { lost: &self.pending_lost, ..feedback });
            self.pending_lost.clear();
        }
        if self.controller.take_probe() {
            self.pacer.discard_credit();
        }
    }

    /// Records packets that count as lost because of time, without a report of the peer.
    ///
    /// This is not feedback, so the controller is notified with the next datagram of the peer, of the first 1,024
    /// packets at most.
    pub fn on_lost(&mut self, lost: &[SentPacket]) {
        self.count_lost(lost);
        let free = MAX_PENDING_LOST.saturating_sub(self.pending_lost.len());
        self.pending_lost.extend(lost.iter().take(free));
    }

    fn count_lost(&mut self, lost: &[SentPacket]) {
        for _ in lost {
            self.loss += (1.0 - self.loss) * LOSS_SMOOTHING;
        }
    }

    /// Advances the time; call it before packets are composed. The calls define the length of a tick, whose bytes may
    /// then be sent at once.
    pub fn on_tick(&mut self, in_flight: u64, now: Instant) {
        self.fill(now);
        if let Some(ticked_at) = self.ticked_at {
            let interval = nanos_since(now, ticked_at).min(nanos(MAX_TICK));
            // The first interval is the estimate; later ones smooth it.
            self.tick = if self.tick == 0 { interval } else { ewma(self.tick, interval, TICK_SMOOTHING) };
            self.burst = pacer::burst(self.tick_interval());
        }
        self.ticked_at = Some(now);
        self.controller.on_tick(in_flight, now);
    }

    /// Returns the smoothed interval between ticks; zero before the second tick.
    #[must_use]
    pub(crate) const fn tick_interval(&self) -> Duration {
        Duration::from_nanos(self.tick)
    }

    /// Returns the bytes that the rate brings in the rest of an application's tick, after this turn. A tick counts as
    /// 100 ms at most.
    pub(crate) fn paced_within(&self, tick: Duration, now: Instant) -> u64 {
        let rest = tick.min(MAX_TICK).saturating_sub(self.tick_interval());
        (self.controller.rate(now) * Seconds::from(rest)).0 as u64
    }

    /// Sets whether the application has more to send than it may; call it after the packets of each tick.
    pub fn set_demand(&mut self, demand: Demand) {
        self.demand = demand;
        self.controller.set_demand(demand);
    }

    /// Returns how many bytes may be sent now. A packet of 256 bytes may be sent every 100 ms in any case, so that
    /// the connection does not time out.
    ///
    /// Bulk data should wait for the budget of a whole packet; see [`CongestionState::next_send`].
    #[must_use]
    #[inline]
    pub fn budget(&self, in_flight: u64, now: Instant) -> u64 {
        self.allowance(in_flight, now).budget(Priority::default()).max(0) as u64
    }

    /// Returns when a whole packet may be sent if no acknowledgement arrives before, or the next keep-alive packet if
    /// that is sooner; `None` while nothing waits.
    #[must_use]
    pub fn next_send(&self, in_flight: u64, now: Instant) -> Option<Instant> {
        self.allowance(in_flight, now).next_send(u64::MAX, Priority::default())
    }

    /// Returns what may be sent now, as long as nothing is sent and nothing arrives.
    #[must_use]
    pub(crate) fn allowance(&self, in_flight: u64, now: Instant) -> SendAllowance {
        let rate = self.controller.rate(now);
        SendAllowance {
            now,
            rate,
            credit: self.pacer.credit(rate, self.burst, now),
            window_room: self.controller.window(now).map_or(u64::MAX, |window| window.saturating_sub(in_flight)),
            keep_alive_at: self.keep_alive_at(),
            max_packet_bytes: self.shape.packet_bytes,
            demand: self.demand,
        }
    }

    /// Returns what a game should send; call it before composing a tick.
    #[must_use]
    pub(crate) fn suggestion(&self, now: Instant) -> Suggestion {
        self.controller.report().suggestion.unwrap_or_else(|| self.shape.at(self.controller.rate(now)))
    }

    /// Returns the timing that probes use.
    #[must_use]
    pub(crate) const fn timing(&self) -> &Timing {
        self.path.timing()
    }

    /// Returns the ages at which a packet is lost.
    #[must_use]
    pub fn loss_delays(&self) -> LossDelays {
        self.path.timing().loss_delays()
    }

    /// Returns the measurements of the path.
    #[must_use]
    pub fn stats(&self, now: Instant) -> CongestionStats {
        let report = self.controller.report();
        let (base, smoothed) = (self.path.base(), self.path.smoothed());
        // A controller without a queue estimate still gets one for the statistics.
        let by_round_trip = base.zip(smoothed).map(|(base, smoothed)| smoothed.saturating_sub(base));
        CongestionStats {
            rate: self.controller.rate(now),
            window: self.controller.window(now),
            phase: report.phase,
            base_round_trip: base,
            round_trip: smoothed,
            round_trip_variation: smoothed.map(|_| Duration::from_nanos(self.path.timing().variation)),
            queueing_delay: report.queueing_delay.or(by_round_trip),
            loss: self.loss,
            demand: self.demand,
        }
    }

    fn fill(&mut self, now: Instant) {
        self.pacer.fill(self.controller.rate(now), self.burst, now);
    }

    /// Returns when a keep-alive packet may be sent regardless of rate and window.
    fn keep_alive_at(&self) -> Instant {
        self.sent_at.map_or_else(Instant::default, |sent_at| sent_at.after(FLOOR_INTERVAL))
    }
}

/// What a connection may send at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendAllowance {
    now: Instant,
    rate: BytesPerSecond,
    /// The pacer's credit.
    credit: Bytes,
    /// Bytes that the window leaves.
    window_room: u64,
    keep_alive_at: Instant,
    max_packet_bytes: u32,
    demand: Demand,
}

impl SendAllowance {
    /// Returns how many bytes of data of a given priority may be sent; below zero by the overdraft of other data.
    #[must_use]
    #[inline]
    pub(crate) fn budget(&self, priority: Priority) -> i64 {
        // Urgent data may overdraw the pacer, never the window.
        let paced = (self.credit.0 as i64).saturating_add_unsigned(priority.overdraft);
        let window_room = i64::try_from(self.window_room).unwrap_or(i64::MAX).saturating_sub_unsigned(priority.reserve);
        let allowed = paced.min(window_room);
        // Without this packet a closed window would never reopen if its acknowledgements were lost.
        if self.now >= self.keep_alive_at { allowed.max(FLOOR_PACKET_BYTES.into()) } else { allowed }
    }

    /// Returns whether a packet of this many bytes of any priority may leave now.
    #[must_use]
    pub(crate) fn is_ample_for(&self, bytes: u64, max_reserve: u64) -> bool {
        let bytes = bytes.max(self.max_packet_bytes.into());
        self.demand == Demand::Unmet && self.credit.0 >= bytes as f64 && self.window_room >= bytes + max_reserve
    }

    /// Returns the time like [`CongestionState::next_send`], for `bytes` bytes, at most a whole packet, of a given
    /// priority.
    #[must_use]
    pub(crate) fn next_send(&self, bytes: u64, priority: Priority) -> Option<Instant> {
        if self.demand == Demand::Met {
            return None;
        }
        // Nothing waits for more than one packet.
        let bytes = bytes.min(self.max_packet_bytes.into());
        let alive = self.keep_alive_at.max(self.now);
        // The window is full: only an acknowledgement frees it, so the next packet by time alone is the keep-alive.
        if self.window_room < bytes.saturating_add(priority.reserve) {
            return Some(alive);
        }
        let missing = Bytes((bytes as i64).saturating_sub_unsigned(priority.overdraft) as f64) - self.credit;
        Some(pacer::ready_at(missing, self.rate, self.now).min(alive))
    }

    /// Returns how large bulk packets should be: what the rate brings in 10 ms, at least 256 bytes, at most a whole
    /// packet. A larger one would delay what follows it on a slow path, and look like a queue there.
    #[must_use]
    pub(crate) fn bulk_packet_bytes(&self) -> u32 {
        let bytes = (self.rate * BULK_PACKET_SECONDS).0 as u32;
        bytes.max(FLOOR_PACKET_BYTES).min(self.max_packet_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    /// A window that is always full.
    struct ClosedWindow;

    impl Controller for ClosedWindow {
        fn on_sent(&mut self, _: u32, _: Instant) {}
        fn on_feedback(&mut self, _: &Feedback<'_>) {}
        fn on_tick(&mut self, _: u64, _: Instant) {}
        fn set_demand(&mut self, _: Demand) {}
        fn rate(&self, _: Instant) -> BytesPerSecond {
            BytesPerSecond(1e6)
        }
        fn window(&self, _: Instant) -> Option<u64> {
            Some(0)
        }
    }

    fn fixed(rate: f64) -> CongestionState {
        CongestionState::from(CongestionConfig {
            algorithm: Algorithm::Fixed(BytesPerSecond(rate)),
            ..CongestionConfig::default()
        })
    }

    #[test]
    fn keep_alive_packets_pass_a_closed_window() {
        let mut congestion = CongestionState::new(Box::new(ClosedWindow), CongestionConfig::default().shape);
        congestion.set_demand(Demand::Unmet);
        let mut sent = 0;
        for millis in 0..10_000 {
            let budget = congestion.budget(5000, at(millis));
            if budget > 0 {
                assert_eq!(budget, 256);
                congestion.on_sent(256, at(millis));
                sent += 1;
                assert_eq!(congestion.next_send(5000, at(millis)), Some(at(millis + 100)));
            }
        }
        assert_eq!(sent, 100);
    }

    #[test]
    fn bulk_packet_lasts_ten_milliseconds_within_its_bounds() {
        for (rate, bytes) in [(2560.0, 256), (32_000.0, 320), (64_000.0, 640), (1e6, 1253), (1e12, 1253)] {
            assert_eq!(fixed(rate).allowance(0, at(0)).bulk_packet_bytes(), bytes, "{rate}");
        }
    }

    #[test]
    fn game_of_sixty_ticks_uses_the_whole_rate() {
        for (name, ticks) in [("even", [16, 17, 17]), ("uneven", [10, 24, 16])] {
            let mut congestion = fixed(2_500_000.0);
            let (mut now, mut left) = (0, 0);
            for tick in ticks.into_iter().cycle().take(600) {
                now += tick;
                congestion.on_tick(0, at(now));
                while congestion.budget(0, at(now)) >= 1253 {
                    congestion.on_sent(1253, at(now));
                    left += 1253;
                }
            }
            let share = f64::from(left) / (2500.0 * now as f64);
            assert!((0.985..=1.005).contains(&share), "{name}: {share}");
        }
    }

    #[test]
    fn next_send_is_when_a_whole_packet_may_be_sent() {
        let mut congestion = fixed(125_300.0);
        assert_eq!(congestion.next_send(0, at(0)), None, "nothing waits");
        congestion.set_demand(Demand::Unmet);
        assert_eq!(congestion.next_send(0, at(0)), Some(at(0)));
        for _ in 0..2 {
            congestion.on_sent(1253, at(0));
        }
        let next = congestion.next_send(0, at(0)).unwrap();
        assert!(next >= at(10) && next < at(11), "{next:?}");
        assert!(congestion.budget(0, next) >= 1253);
    }

    /// A controller that remembers which losses it was reported of.
    #[derive(Clone, Default)]
    struct RecordingController(std::sync::Arc<std::sync::Mutex<Vec<u64>>>);

    impl Controller for RecordingController {
        fn on_sent(&mut self, _: u32, _: Instant) {}
        fn on_feedback(&mut self, feedback: &Feedback<'_>) {
            let reported = feedback.lost.iter().map(|lost| lost.sent_at.since_start().as_millis() as u64);
            self.0.lock().unwrap().extend(reported);
        }
        fn on_tick(&mut self, _: u64, _: Instant) {}
        fn set_demand(&mut self, _: Demand) {}
        fn rate(&self, _: Instant) -> BytesPerSecond {
            BytesPerSecond(1e6)
        }
        fn window(&self, _: Instant) -> Option<u64> {
            None
        }
    }

    #[test]
    fn first_1024_losses_of_a_silence_are_reported_and_all_count() {
        let controller = RecordingController::default();
        let mut congestion = CongestionState::new(Box::new(controller.clone()), CongestionConfig::default().shape);
        let reported = || core::mem::take(&mut *controller.0.lock().unwrap());
        let lost = |numbers: core::ops::Range<u64>| -> Vec<SentPacket> {
            numbers.map(|number| SentPacket { sent_at: at(number), bytes: 1000, ..SentPacket::default() }).collect()
        };
        let feed = |congestion: &mut CongestionState, lost: &[SentPacket]| {
            congestion.on_feedback(Feedback {
                now: at(9000),
                newest: None,
                acked: &[],
                lost,
                late: &[],
                delivered: 0,
                in_flight: 0,
            });
        };
        // The bound is met in the middle of a hundred; and a thousand more are lost without a report.
        for hundred in 0..20 {
            congestion.on_lost(&lost(100 * hundred..100 * (hundred + 1)));
            assert!(
                congestion.pending_lost.len() <= MAX_PENDING_LOST
                    && congestion.pending_lost.capacity() <= 2 * MAX_PENDING_LOST
            );
        }
        assert!(reported().is_empty(), "no loss is reported");
        let of_all = congestion.stats(at(9000)).loss;
        assert!(of_all > 0.999_999, "the share of lost packets is that of all 2,000: {of_all}");
        // The list is full, so the losses of this datagram are not reported either.
        feed(&mut congestion, &lost(2000..2010));
        assert_eq!(reported(), (0..1024).collect::<Vec<_>>());
        feed(&mut congestion, &lost(2010..2012));
        assert_eq!(reported(), [2010, 2011], "and then there is");
    }

    #[test]
    fn statistics_describe_the_path() {
        let mut congestion = fixed(1e6);
        let before = congestion.stats(at(0));
        assert_eq!((before.queueing_delay, before.round_trip_variation), (None, None));
        let departed = SentPacket { sent_at: at(0), bytes: 1000, ..SentPacket::default() };
        for (now, rtt) in [(1000, 40), (2000, 80), (3000, 80)] {
            let newest = super::super::NewestAck {
                sent_at: at(now - rtt),
                received_at: None,
                ack_delay: Duration::ZERO,
                socket_delay: Duration::ZERO,
            };
            congestion.on_feedback(Feedback {
                now: at(now),
                newest: Some(newest),
                acked: &[departed; 30],
                lost: &[departed; 10],
                late: &[],
                delivered: 0,
                in_flight: 0,
            });
        }
        let stats = congestion.stats(at(3000));
        assert_eq!(
            (stats.base_round_trip, stats.rate, stats.window),
            (Some(Duration::from_millis(40)), BytesPerSecond(1e6), None)
        );
        assert!(stats.queueing_delay.unwrap() > Duration::from_millis(5), "{stats:?}");
        assert!((0.15..0.35).contains(&stats.loss), "{stats:?}");
        assert_eq!(stats.round_trip_variation, Some(Duration::from_nanos(congestion.path.timing().variation)));
    }

    /// A peer of 60 turns a second holds acknowledgements for up to 16 ms, which is not jitter of the path.
    #[test]
    fn jitter_is_that_of_the_path_not_of_the_peers_turns() {
        let mut congestion = fixed(1e6);
        for (index, held) in [3, 16, 9, 1, 12, 6, 15, 2].into_iter().cycle().take(80).enumerate() {
            let (now, held) = (1000 + 20 * index as u64, Duration::from_millis(held));
            let sent_at =
                Instant::from_start(Duration::from_millis(now).saturating_sub(held + Duration::from_millis(1)));
            congestion.on_feedback(Feedback {
                now: at(now),
                newest: Some(super::super::NewestAck {
                    sent_at,
                    received_at: None,
                    ack_delay: held,
                    socket_delay: Duration::ZERO,
                }),
                acked: &[SentPacket { sent_at, bytes: 1000, ..SentPacket::default() }],
                lost: &[],
                late: &[],
                delivered: 0,
                in_flight: 0,
            });
        }
        let stats = congestion.stats(at(3000));
        let jitter = stats.round_trip_variation.expect("there were samples");
        assert_eq!(stats.round_trip, Some(Duration::from_millis(1)));
        assert!(jitter < Duration::from_micros(10), "{jitter:?}");
    }
}
