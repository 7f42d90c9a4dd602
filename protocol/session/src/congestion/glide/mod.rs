//! Glide: the rate follows what the path delivers, and the queue stays short. `specs/glide-1.md` is its law book: it
//! has all equations, and the source of each constant. The code cites its sections (Glide §4.2).
//!
//! Delay, not loss, is the congestion signal, so a lossy radio link is not slowed down and a large buffer is not
//! filled. A queue of cross traffic is recognized by a probe: the sender reduces its rate briefly and observes the
//! queue.
//!
//! ```text
//!  feedback ─┬▶ delay ───────── queueing delay, base delay, jitter        ─┐
//!            ├▶ link_stall ──── whether the path has just stood still      │
//!            ├▶ delivery_rate ─ what arrives, by the receiver's clock      ├▶ PathSample
//!            ├▶ losses ──────── loss, and how much of it is random         │
//!  on_sent ──▶  send_rate ───── what is sent                              ─┤
//!               sample_clock ── whether there is anything to decide        ─┘
//!
//!  PathSample ─┬▶ policer ───── does loss without a queue depend on the rate?
//!              ├▶ probe_down ── is the standing queue self-inflicted?
//!              ├▶ protected ─── the demand to keep beside a queue of others (protected_demand)
//!              └▶ modes         Startup ◀──▶ Delay (delay_mode) ◀──▶ Compete (competitive, cubic)
//! ```
//!
//! Glide uses the arrival times of packets by the peer's clock and the time that the peer held acknowledgements;
//! without them it uses the round trip. All internal times are in seconds and rates in bytes per second.

mod competitive;
mod cubic;
mod delay;
mod delay_mode;
mod delivery_rate;
mod feedback_timeout;
mod flight;
mod link_stall;
mod losses;
mod outage;
mod path_sample;
mod policer;
mod probe_down;
mod protected_demand;
mod sample_clock;
mod send_rate;
mod slow_start;
mod startup;

use core::time::Duration;

use self::competitive::CompetitiveMode;
use self::delay::DelayEstimator;
use self::delay_mode::{DelayMode, ProbeContext, ProbeDecision};
use self::delivery_rate::DeliveryRate;
use self::feedback_timeout::{FeedbackTimeout, Silence};
use self::flight::Flight;
use self::link_stall::LinkStall;
use self::losses::LossEstimator;
use self::outage::OutageDetector;
use self::path_sample::PathSample;
use self::policer::{PolicerDetector, PolicerFinding};
use self::probe_down::{CrossTraffic, DownProbes, ProbeResult};
use self::protected_demand::ProtectedDemand;
use self::sample_clock::SampleClock;
use self::send_rate::SendRate;
use self::slow_start::{INITIAL_PACKETS, SlowStart};
use self::startup::{Startup, StartupStep};
use super::units::{Bounded, Bytes, Seconds, float};
use super::{BytesPerSecond, Controller, ControllerReport, Demand, FLOOR, Feedback, NewestAck, Phase};
use slipgate_netcode::time::Instant;

/// The rate before the first measurement: 320 kbit/s.
const INITIAL: BytesPerSecond = BytesPerSecond(40_000.0);
/// The maximum rate as a multiple of the peak delivery rate.
const MAX_OF_PEAK: f64 = 2.0;
/// The minimum window, in packets.
const MIN_PACKETS: f64 = 4.0;
/// The bounds, in seconds, of the round trip over which delivery is measured, or over eight packets up to the last
/// bound.
const MIN_SPAN: Seconds = Seconds(0.15);
const MAX_SPAN: Seconds = Seconds(0.30);
const SPAN_PACKETS: f64 = 8.0;
const MAX_PACKET_SPAN: Seconds = Seconds(0.6);
/// The pause after which no delivery rate spans it: the longest span.
const PAUSE: Duration = Duration::from_millis(600);
/// The time for which a measured delivery rate validates the rate, in seconds: the non-validated period of RFC 7661.
const VALID_FOR: Seconds = Seconds(300.0);
/// The path has collapsed if the instant queue exceeds this many targets plus this multiple of the jitter, and less
/// than this share of the sent bytes arrives. One late packet delays those behind it by several times the jitter.
const COLLAPSE_TARGETS: f64 = 2.0;
const COLLAPSE_JITTER: f64 = 5.0;
const COLLAPSE_SHARE: f64 = 0.7;
/// The socket delay assumed of a peer that does not report it, in seconds: a frame at 60 Hz.
const MAX_ASSUMED_SOCKET_DELAY: Seconds = Seconds(1.0 / 60.0);
/// Cross traffic found this soon after startup, in seconds, was there before. Startup then ended because of its
/// queue, and measured nothing of the capacity.
const EARLY_CROSS_TRAFFIC_SECONDS: Seconds = Seconds(5.0);
/// The time, in seconds, by which the window of a protected demand exceeds the round trip: the queue of another flow
/// grows within a round trip, before it is measured.
const PROTECTED_WINDOW: Seconds = Seconds(0.5);
/// The window of startup, as a multiple of what leaves in a loop: the rate and not the window limits startup.
const STARTUP_WINDOW: f64 = 2.0;
/// The time of the loop beside round trip and feedback interval, in seconds: that of the delay filter.
const STARTUP_WINDOW_MARGIN: Seconds = Seconds(0.05);
/// The window of delay mode, as a multiple of what leaves in a loop, at the rate or at this share of the delivery rate.
const DELAY_WINDOW: f64 = 1.07;
const DELAY_WINDOW_SHARE: f64 = 0.5;
/// The queue that the window of delay mode allows: a multiple of the target, or the present queue up to a maximum in
/// seconds while its cause is unknown.
const WINDOW_TARGETS: f64 = 1.5;
const MAX_WINDOW_QUEUE: Seconds = Seconds(0.5);
/// The feedback intervals in the window of delay mode, and a margin in seconds for late timers.
const WINDOW_INTERVALS: f64 = 1.2;
const WINDOW_MARGIN: Seconds = Seconds(0.010);
/// The delay of a queue above this many targets is estimated from the bytes in flight, as at least this share of the
/// target: such a queue is measured late, when part of it has drained.
const LONG_QUEUE_TARGETS: f64 = 3.0;
const MIN_LONG_QUEUE: f64 = 0.5;
/// The largest loss that is added to the delivery rate.
const MAX_ADDED_LOSS: f64 = 0.5;
/// Compete mode needs a queue above this share of the target: the probe that found cross traffic is a round trip old.
const COMPETE_QUEUE: f64 = 0.5;
/// The minimum round trip, in seconds: guards the divisions.
const MIN_ROUND_TRIP: Seconds = Seconds(1e-4);

/// The settings of Glide.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GlideConfig {
    /// The rate before the first measurement.
    pub initial: BytesPerSecond,
    /// The maximum rate.
    pub max: BytesPerSecond,
    /// The minimum rate while feedback arrives: what a game needs, even beside cross traffic.
    pub protected: BytesPerSecond,
}

impl Default for GlideConfig {
    /// 40 kB/s at first, up to 1 GB/s, and at least 2,560 bytes per second.
    fn default() -> Self {
        Self { initial: INITIAL, max: BytesPerSecond(1e9), protected: FLOOR }
    }
}

/// The controller of one connection. Its records take memory as they fill.
#[derive(Clone, Debug)]
pub(crate) struct Glide {
    config: GlideConfig,
    largest_packet: f64,
    mode: GlideMode,
    rate: f64,
    app_limited: bool,
    hold: RateHold,
    delay: DelayEstimator,
    stall: LinkStall,
    delivery: DeliveryRate,
    send_rate: SendRate,
    losses: LossEstimator,
    outage: OutageDetector,
    policer: PolicerDetector,
    down_probes: DownProbes,
    feedback_timeout: FeedbackTimeout,
    flight: Flight,
    startup: Startup,
    /// The first startup; `None` once it has ended.
    slow_start: Option<SlowStart>,
    delay_mode: DelayMode,
    competitive: CompetitiveMode,
    protected: ProtectedDemand,
    /// When startup ended, in seconds.
    startup_ended_at: f64,
    /// Whether the path has delivered more than the initial rate.
    is_fast: bool,
    queue: LastQueue,
    samples: SampleClock,
    /// A probe of a demand started since the last call of [`take_probe`](Controller::take_probe).
    has_new_probe: bool,
}

/// ```text
///  Startup ──▶ Delay ◀──▶ Compete
///     ▲          │
///     └──────────┘ no limit was found yet
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GlideMode {
    Startup,
    Delay,
    Compete,
}

/// What the window needs of the last sample; zeros before the first.
#[derive(Clone, Copy, Debug, Default)]
struct LastQueue {
    /// The queueing delay, once there was a sample.
    delay: Option<f64>,
    target: f64,
    arrivals: f64,
}

/// A rate that is held until a probe or test is evaluated, or a queue is drained (Glide §5.1).
#[derive(Clone, Copy, Debug)]
struct RateHold {
    until: f64,
    rate: f64,
}

const FREE: RateHold = RateHold { until: f64::NEG_INFINITY, rate: 0.0 };

impl Glide {
    /// Creates a controller for an unknown path, and its largest packet.
    #[must_use]
    pub(crate) fn new(config: GlideConfig, packet_bytes: u32) -> Self {
        let largest_packet = f64::from(packet_bytes);
        Self {
            config,
            largest_packet,
            mode: GlideMode::Startup,
            rate: config.initial.0.at_least(FLOOR.0),
            app_limited: true,
            hold: FREE,
            delay: DelayEstimator::new(),
            stall: LinkStall::new(),
            delivery: DeliveryRate::new(),
            send_rate: SendRate::new(),
            losses: LossEstimator::new(),
            outage: OutageDetector::new(),
            policer: PolicerDetector::new(),
            down_probes: DownProbes::new(),
            feedback_timeout: FeedbackTimeout::new(),
            flight: Flight::new(),
            startup: Startup::new(),
            slow_start: Some(SlowStart::new(largest_packet)),
            delay_mode: DelayMode::new(),
            competitive: CompetitiveMode::new(Bytes(largest_packet)),
            protected: ProtectedDemand::new(),
            startup_ended_at: f64::NEG_INFINITY,
            is_fast: false,
            queue: LastQueue::default(),
            samples: SampleClock::new(),
            has_new_probe: false,
        }
    }

    /// Counts what was acknowledged and lost, and measures the newest arrival, as [`measure`](Self::measure) does.
    fn count(&mut self, feedback: &Feedback<'_>) -> Option<(f64, f64)> {
        let now = seconds(feedback.now);
        self.delay.on_feedback(now);
        self.losses.take_back(feedback.late, now);
        self.losses.count(feedback.acked.len(), feedback.lost, &self.send_rate, now);
        let newest = feedback.newest.map(|newest| self.measure(&newest, feedback, now));
        self.count_in_slow_start(feedback);
        newest
    }

    /// Returns whether there is nothing to decide: the last sample was quiet, the application has sent all it had,
    /// nothing is lost, and there is no queue (Glide §4.9).
    fn may_wait(&self, feedback: &Feedback<'_>, newest: Option<(f64, f64)>) -> bool {
        self.app_limited
            && self.samples.may_wait(seconds(feedback.now))
            && feedback.lost.is_empty()
            && newest.is_none_or(|(_, queue)| sample_clock::is_quiet(queue, self.queue.target))
    }

    /// Samples the path (Glide §4); `None` until a packet was acknowledged and a delivery rate is known.
    fn sample(&mut self, feedback: &Feedback<'_>, newest: Option<(f64, f64)>) -> Option<PathSample> {
        let now = seconds(feedback.now);
        let step = self.samples.step(now);
        let round_trip = self.delay.round_trip()?;
        let (queue, instant_queue) = (self.delay.queue(now)?, self.delay.instant_queue()?);
        let arrivals = self.delivery.rate();
        if arrivals <= 0.0 {
            return None;
        }
        // The target belongs to the demand: beside other flows a small share of the path would raise it.
        let usual = arrivals.at_least(self.protected.demand()).at_least(FLOOR.0);
        let packet = path_sample::packet(usual, self.largest_packet);
        let target = path_sample::target(usual, packet, self.delay.excess_jitter());
        let (sent, instant_rate) = (self.send_rate.rate(now), self.delivery.instant_rate());
        let is_draining = self.stall.is_draining(Seconds(now));
        let long_queue = COLLAPSE_TARGETS * target + COLLAPSE_JITTER * self.delay.excess_jitter();
        let has_collapsed = instant_queue > long_queue && instant_rate < COLLAPSE_SHARE * sent && !is_draining;
        // The filtered queue lags. Use the instant one as long as the capacity is far below the sending rate.
        let queue = if has_collapsed { instant_queue } else { queue };
        let base_round_trip = self.delay.base_round_trip()?;
        // Bytes in flight beyond one base round trip are queued.
        let in_queue = (float(feedback.in_flight) / arrivals - base_round_trip).at_least(0.0);
        // With a queue the loss may be congestive: then count only the known random loss as delivered.
        let known_loss = if queue < target { self.losses.plausible() } else { self.losses.random_loss() };
        let (newest_sent, newest_queue) = newest.unzip();
        Some(PathSample {
            now,
            step,
            newest_sent,
            newest_queue: newest_queue.unwrap_or(0.0),
            queue,
            instant_queue,
            queue_left: if queue > LONG_QUEUE_TARGETS * target {
                queue.at_most(in_queue.at_least(MIN_LONG_QUEUE * target))
            } else {
                queue
            },
            target,
            delivery: arrivals / (1.0 - known_loss.at_most(MAX_ADDED_LOSS)),
            arrivals,
            instant_arrivals: instant_rate,
            peak: self.delivery.peak(),
            recent_peak: self.delivery.recent_peak(),
            sent,
            round_trip,
            base_round_trip,
            feedback_interval: self.delay.feedback_interval(),
            has_collapsed,
            is_draining,
            has_excess_loss: self.losses.is_excess(),
            app_limited: self.app_limited,
            has_demand: self.protected.demand() > 0.0,
            jitter: self.delay.excess_jitter(),
            packet,
            largest_packet: self.largest_packet,
        })
    }

    /// Ignores the losses of an outage, and restarts the record of what was delivered, which would span it.
    fn check_outage(&mut self, feedback: &Feedback<'_>) {
        if feedback.lost.is_empty() {
            return self.outage.on_acked(feedback.acked);
        }
        let packet_time = Seconds(self.largest_packet / self.delivery.rate().at_least(FLOOR.0));
        let outage = self.outage.on_feedback(feedback.acked, feedback.lost, &self.send_rate, packet_time);
        // With a long queue the capacity may have fallen far: then a queue that overflows drops such runs.
        let has_queue = self.queue.delay.is_some_and(|delay| delay > LONG_QUEUE_TARGETS * self.queue.target);
        if let Some(until) = outage.filter(|_| !has_queue) {
            self.losses.ignore_until(until);
            self.delivery.forget_record();
        }
    }

    /// Updates delay and delivery with the newest arrival (Glide §4.1). Returns when it was sent, and the queue it met.
    fn measure(&mut self, newest: &NewestAck, feedback: &Feedback<'_>, now: f64) -> (f64, f64) {
        let sent = seconds(newest.sent_at);
        let round_trip = (now - sent - Seconds::from(newest.ack_delay).0).at_least(MIN_ROUND_TRIP.0);
        let received = newest.received_at.map_or(sent + round_trip, |received_at| Seconds::from(received_at.0).0);
        self.delay.measure(round_trip, received - sent, now);
        let smoothed = self.delay.round_trip().unwrap_or(round_trip);
        // After a stall a burst arrives that says nothing of the queue or of the delivery rate.
        if self.stall.arrival(Seconds(sent), Seconds(received), Seconds(smoothed), Seconds(now)) {
            self.delay.forget_queue();
            self.delivery.forget_record();
        }
        let queue = self.delay.above_base(received - sent);
        let socket_delay = self.socket_delay(newest);
        self.delay.sample(queue, socket_delay, !self.stall.is_draining(Seconds(now)), now);
        let packet = path_sample::packet(self.delivery.rate().at_least(FLOOR.0), self.largest_packet);
        // A slow path delivers few packets in a round trip, so measure over eight packets.
        let packets = (SPAN_PACKETS * packet / self.rate).at_most(MAX_PACKET_SPAN.0);
        let span = smoothed.clamp(MIN_SPAN.0, MAX_SPAN.0).at_least(packets);
        if self.delivery.measures(Seconds(sent)) {
            self.delivery.sample(received, float(feedback.delivered), span, now);
        }
        (sent, queue)
    }

    /// Returns how much of a delay sample may be waiting in the peer's socket (Glide §3). A peer that does not report
    /// it probably reads its socket once per frame, and at least once per feedback.
    fn socket_delay(&self, newest: &NewestAck) -> f64 {
        match newest.received_at {
            // A peer that reports arrival times reports its socket delay as well.
            Some(_) => Seconds::from(newest.socket_delay).0,
            None => self.delay.feedback_interval().at_most(MAX_ASSUMED_SOCKET_DELAY.0),
        }
    }

    /// Returns for how long no feedback arrived, and the timeout; `None` before the first measurement.
    fn idle_time(&self, now: Seconds) -> Option<(Seconds, Seconds)> {
        let (interval, round_trip) = (Seconds(self.delay.feedback_interval()), Seconds(self.delay.round_trip()?));
        let flight = self.flight.since().map_or(Seconds::NEVER, Seconds::from);
        let since = Seconds(self.delay.last_received_at()?).max(flight);
        Some((now - since, FeedbackTimeout::timeout(interval, round_trip)))
    }

    /// Ends a pause: its length would falsify the delivery rate, and after a long one the rate is that of a new
    /// connection (Glide §12).
    fn end_pause(&mut self, now: Seconds) {
        self.delivery.forget_record();
        if now - self.delivery.measured_at() > VALID_FOR {
            self.rate = self.rate.at_most(self.config.initial.0.at_least(self.config.protected.0));
        }
    }

    /// Adjusts mode and rate to a sample (Glide §5).
    fn decide(&mut self, sample: &PathSample, feedback: &Feedback<'_>) {
        self.check_policer(sample, feedback);
        let cross_traffic = if self.mode == GlideMode::Compete { CrossTraffic::Competing } else { CrossTraffic::Alone };
        let result = self.down_probes.on_feedback(sample, &self.send_rate, cross_traffic);
        self.delay_mode.observe(sample);
        if self.delay_mode.has_fallen(sample) {
            self.protected.on_fall();
            if self.down_probes.is_active() {
                // The queue drains only after the probe, which would take it for that of cross traffic.
                self.down_probes.end_probe();
                self.hold = FREE;
            }
        }
        self.ignore_losses_of_fall(sample);
        let excess_loss = self.losses.recent() - self.losses.random_loss();
        self.protected.on_feedback(sample, self.is_held(sample.now), excess_loss);
        // A longer route first: the modes would take its delay for a standing queue.
        if let Some(ProbeResult::RttIncreased(longer)) = result {
            return self.rebase(longer, sample);
        }
        match self.mode {
            GlideMode::Startup => self.run_startup(sample, feedback),
            GlideMode::Delay => self.run_delay_mode(sample, result),
            GlideMode::Compete => self.run_compete_mode(sample, feedback, result),
        }
        let max = self.proven_rate(sample);
        self.restart_idle(sample, max);
        let limit = max.at_most(self.policer.limit(sample.now)).at_most(self.config.max.0);
        if let Some(demand) = self.protected_rate() {
            self.rate = self.rate.at_least(demand);
        }
        // The protected rate wins over every limit: the game cannot do without it.
        self.rate = self.rate.at_most(limit).at_least(self.config.protected.0.at_least(FLOOR.0));
    }

    /// Ignores the losses of what was sent above a capacity that has fallen: they show no policer and no random loss
    /// (Glide §4.9).
    fn ignore_losses_of_fall(&mut self, sample: &PathSample) {
        let knows_none = self.losses.random_loss() <= 0.0;
        let is_unprotected = self.mode == GlideMode::Delay && self.protected_rate().is_none();
        if sample.has_collapsed && knows_none && is_unprotected {
            self.losses.ignore_until(Seconds(sample.now));
        }
    }

    /// Tests whether loss without a queue depends on the rate (Glide §11).
    fn check_policer(&mut self, sample: &PathSample, feedback: &Feedback<'_>) {
        let may_test = self.mode == GlideMode::Delay && !self.is_held(sample.now) && !sample.is_draining;
        let (acked, lost) = (feedback.acked, feedback.lost);
        self.policer.take_back(feedback.late);
        match self.policer.on_feedback(sample, acked, lost, &mut self.losses, may_test, self.rate) {
            PolicerFinding::Nothing => {}
            PolicerFinding::Test { rate, until } => self.hold(rate, until),
            // Release the rate that the test held.
            PolicerFinding::Void | PolicerFinding::RandomLoss => self.hold = FREE,
            PolicerFinding::Policed => {
                self.hold = FREE;
                self.rate = self.rate.at_most(self.policer.rate());
                self.delay_mode.set_limit(self.policer.rate());
            }
            PolicerFinding::Renewed => {
                self.rate = self.rate.at_most(self.policer.rate());
                // What is in flight was sent above the limit.
                self.losses.ignore_until(Seconds(sample.now));
            }
        }
    }

    /// Startup: grows the rate until a queue or excess loss appears (Glide §6).
    fn run_startup(&mut self, sample: &PathSample, feedback: &Feedback<'_>) {
        let initial = self.config.initial.0;
        let mut step = self.startup.on_feedback(sample, self.rate, initial);
        if let Some(slow_start) = &mut self.slow_start {
            step = slow_start.on_sample(sample, feedback, step, initial);
        }
        match step {
            StartupStep::Grow(rate) => self.rate = rate,
            StartupStep::End(rate) => {
                let slow_start = self.slow_start.take();
                let limit = slow_start.as_ref().map_or(sample.delivery, |slow_start| slow_start.capacity(sample));
                let has_drained = slow_start.is_some_and(|slow_start| slow_start.is_draining());
                // Only a queue shows the capacity: an idle application or loss ends startup without finding it.
                let is_found = !sample.app_limited && (has_drained || !sample.has_excess_loss);
                if is_found && self.startup_ended_at == f64::NEG_INFINITY {
                    // The first startup overfills a short buffer: such losses show no policer and no random loss.
                    self.losses.forget();
                    self.losses.ignore_until(Seconds(sample.now));
                }
                // Loss beyond the random loss that a test has measured shows the capacity, too.
                let exceeds_random = !sample.app_limited && sample.has_excess_loss && self.losses.random_loss() > 0.0;
                self.mode = GlideMode::Delay;
                self.startup_ended_at = sample.now;
                self.rate = if exceeds_random { rate.at_most(limit) } else { rate };
                self.delay_mode.begin(limit, sample);
                if is_found || exceeds_random {
                    self.delay_mode.set_limit(limit);
                }
            }
        }
    }

    /// Prepares the next startup of an application that has had little data for so long that only `max` is proven: as
    /// that of a new connection, on a path that is not slow (Glide §5).
    fn restart_idle(&mut self, sample: &PathSample, max: f64) {
        let initial = self.config.initial.0;
        self.is_fast |= sample.arrivals > initial;
        if !sample.app_limited || self.mode == GlideMode::Compete {
            return;
        }
        let is_stale = self.mode == GlideMode::Delay && self.delay_mode.discard_stale_limit(max);
        let is_new = self.is_fast && max <= initial && !self.delay_mode.knows_limit() && self.slow_start.is_none();
        let slow_start = SlowStart::again(self.largest_packet, sample.base_round_trip).filter(|_| self.is_fast);
        if is_stale || (is_new && slow_start.is_some()) {
            self.startup = Startup::new();
            self.slow_start = slow_start;
            self.startup_ended_at = f64::NEG_INFINITY;
        }
    }

    /// Counts the bytes of a feedback in slow start, and ends slow start on a path that it does not suit (Glide §6.1).
    fn count_in_slow_start(&mut self, feedback: &Feedback<'_>) {
        let (base, initial) = (self.delay.base_round_trip(), self.config.initial.0);
        let suits = |slow_start: &SlowStart| base.is_none_or(|base| slow_start.suits(base, initial));
        if !self.slow_start.as_ref().is_some_and(suits) {
            self.slow_start = None;
        } else if let Some(slow_start) = &mut self.slow_start {
            if self.app_limited {
                slow_start.on_app_limited(seconds(feedback.now));
            } else {
                slow_start.count(feedback, base.unwrap_or(0.0), initial);
            }
        }
    }

    /// Returns the maximum rate by what was delivered: an application-limited flow must not keep a rate that the path
    /// never proved.
    fn proven_rate(&self, sample: &PathSample) -> f64 {
        let proven = match self.slow_start {
            Some(_) => slow_start::MAX_OF_DELIVERY * sample.peak.at_least(sample.instant_arrivals),
            None => MAX_OF_PEAK * sample.peak,
        };
        proven.at_least(self.config.initial.0)
    }

    /// Delay mode: keeps the queue near its target, and probes a standing queue (Glide §7).
    fn run_delay_mode(&mut self, sample: &PathSample, result: Option<ProbeResult>) {
        match result {
            Some(ProbeResult::SelfInflicted) => {
                self.delay_mode.self_inflicted(sample);
                self.protected.on_self_inflicted(self.down_probes.queue_before(), self.down_probes.is_certain());
            }
            Some(ProbeResult::CrossTraffic) => {
                self.protected.confirm();
                self.delay_mode.cross_traffic();
                if sample.queue > COMPETE_QUEUE * sample.target && !sample.is_draining && !self.is_held(sample.now) {
                    // Compete only beside a queue that exists now: the probe is a round trip old.
                    return self.enter_compete(sample);
                }
            }
            _ => {}
        }
        let around = self.probe_context(sample.now);
        if self.delay_mode.on_queue(sample, &around, self.rate) == ProbeDecision::Probe {
            self.probe_down(sample);
        }
        // The rate is given by a stall or a test: delay mode must not change it now.
        if sample.is_draining || self.policer.is_testing() {
            return;
        }
        // Startup ended without meeting the capacity, so searching for it slowly would waste the path.
        let is_calm = !self.is_held(sample.now) && !sample.has_excess_loss && !sample.app_limited;
        if is_calm && !self.delay_mode.knows_limit() {
            self.mode = GlideMode::Startup;
            return;
        }
        // A drain would replace the rate that a probe holds.
        if self.is_held(sample.now) {
            return;
        }
        self.rate = self.delay_mode.next_rate(sample, self.rate, self.policer.rate());
        if let Some(time) = self.delay_mode.drain_once(sample) {
            self.hold(delay_mode::DRAIN_RATE * sample.delivery, sample.now + time);
        }
    }

    fn enter_compete(&mut self, sample: &PathSample) {
        // The rate before the queue grew is what the cross traffic has displaced.
        let before =
            self.delay_mode.rate_before_queue().unwrap_or(self.rate.at_most(delay_mode::SENT_MARGIN * sample.sent));
        self.competitive.begin(
            sample,
            self.down_probes.fall(),
            before,
            sample.now - self.startup_ended_at < EARLY_CROSS_TRAFFIC_SECONDS.0,
        );
        self.delay_mode.end_standing_queue();
        self.mode = GlideMode::Compete;
        self.delay.set_competitive(true);
    }

    /// Compete mode: holds a share of the path like TCP, and probes again whether cross traffic is still there (Glide
    /// §9).
    fn run_compete_mode(&mut self, sample: &PathSample, feedback: &Feedback<'_>, result: Option<ProbeResult>) {
        let may_grow = !self.is_held(sample.now);
        self.rate =
            self.competitive.on_feedback(sample, feedback, self.losses.random_loss(), may_grow).at_least(FLOOR.0);
        // A queue below the target cannot be one that cross traffic keeps full.
        let is_self_inflicted = result == Some(ProbeResult::SelfInflicted);
        if is_self_inflicted || (sample.queue < sample.target && !sample.is_draining) {
            self.competitive.end(BytesPerSecond(self.rate), Seconds(sample.now));
            // The delivery rate is what the path gives us now; the window may be far above it.
            self.rate = sample.delivery;
            self.delay_mode.begin_after_competition(sample, is_self_inflicted);
            self.leave_compete();
        } else if self.competitive.should_probe(sample, &self.down_probes) {
            self.probe_down(sample);
        }
    }

    fn leave_compete(&mut self) {
        (self.mode, self.slow_start) = (GlideMode::Delay, None);
        self.delay.set_competitive(false);
    }

    /// The route became longer: moves the base delay, and returns to delay mode (Glide §8.4).
    fn rebase(&mut self, longer: f64, sample: &PathSample) {
        self.delay.rebase(longer, sample.now);
        self.rate = self.rate.at_least(sample.delivery);
        self.delay_mode.begin_on_longer_route(sample);
        self.leave_compete();
    }

    /// Restarts the search for the capacity at the current rate, after a feedback timeout (Glide §12).
    fn restart(&mut self) {
        (self.mode, self.startup, self.hold) = (GlideMode::Startup, Startup::new(), FREE);
        self.slow_start = None;
        // Without the held rate their results would be those of the full rate.
        self.policer.end_test();
        self.down_probes.end_probe();
        self.delay.set_competitive(false);
        self.delay_mode.end_standing_queue();
    }

    fn probe_down(&mut self, sample: &PathSample) {
        let until = self.down_probes.begin(sample);
        self.has_new_probe = sample.has_demand;
        // The held rate ends with the probe, whatever its result.
        self.hold(probe_down::DEPTH * sample.delivery, until);
    }

    /// Returns the minimum rate beside the present queue, if the demand is protected (Glide §10).
    fn protected_rate(&self) -> Option<f64> {
        self.protected.rate().filter(|_| self.mode != GlideMode::Startup)
    }

    fn hold(&mut self, rate: f64, until: f64) {
        self.hold = RateHold { until, rate: rate.at_least(FLOOR.0) };
    }

    fn is_held(&self, now: f64) -> bool {
        now <= self.hold.until
    }

    /// Returns whether there is no queue, and no probe, test or limit that the next feedback could end.
    fn is_quiet(&self, sample: &PathSample) -> bool {
        let is_active = self.is_held(sample.now) || self.down_probes.is_active() || self.policer.is_active();
        let is_steady = self.mode != GlideMode::Compete && !sample.is_draining && !is_active;
        is_steady && sample_clock::is_quiet(sample.queue, sample.target)
    }

    fn probe_context(&self, now: f64) -> ProbeContext {
        ProbeContext {
            is_held: self.is_held(now),
            is_probing: self.down_probes.is_active(),
            since_probe: self.down_probes.age(now),
        }
    }
}

impl Controller for Glide {
    fn on_sent(&mut self, bytes: u32, now: Instant) {
        self.send_rate.push(bytes, now);
        if self.flight.on_sent(now) > PAUSE {
            self.end_pause(Seconds::from(now));
        }
    }

    fn on_ack_only_sent(&mut self, bytes: u32, now: Instant) {
        self.send_rate.push(bytes, now);
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let now = Seconds::from(feedback.now);
        // The usual case: no timeout, and none that no tick noticed.
        if (self.feedback_timeout.is_expired() || !feedback.lost.is_empty())
            && let Some((idle_time, timeout)) = self.idle_time(now)
        {
            let silence = self.feedback_timeout.on_feedback(idle_time, timeout, feedback.lost);
            if silence != Silence::None {
                self.losses.ignore_until(now);
            }
            // Only a timeout long enough to halve the rate restarts the search for the capacity.
            if silence == Silence::Long {
                self.delivery.restart(now);
                self.restart();
            }
        }
        self.flight.on_feedback(feedback.in_flight, feedback.now);
        self.check_outage(feedback);
        let feedback = Feedback { lost: self.losses.without_ignored(feedback.lost), ..*feedback };
        let newest = self.count(&feedback);
        if self.may_wait(&feedback, newest) {
            return;
        }
        if let Some(sample) = self.sample(&feedback, newest) {
            let initial = self.config.initial.0;
            if self.slow_start.as_mut().is_some_and(|slow_start| slow_start.ends_early(&sample, initial)) {
                self.slow_start = None;
            }
            self.decide(&sample, &feedback);
            self.queue = LastQueue { delay: Some(sample.queue), target: sample.target, arrivals: sample.arrivals };
            if self.is_quiet(&sample) {
                self.samples.set_quiet(now.0);
            }
        } else if let (Some(slow_start), Some(round_trip)) = (&self.slow_start, self.delay.round_trip())
            && !self.app_limited
            && let Some(rate) = slow_start.unmeasured_rate(round_trip)
        {
            self.rate = self.rate.at_least(rate);
        }
    }

    fn on_tick(&mut self, in_flight: u64, now: Instant) {
        let now = Seconds::from(now);
        // Without packets in flight the peer has nothing to acknowledge, so its silence means nothing.
        if in_flight > 0
            && let Some((idle_time, timeout)) = self.idle_time(now)
        {
            let left = self.feedback_timeout.on_tick(idle_time, timeout, self.app_limited, now);
            self.rate = (self.rate * left).at_least(FLOOR.0);
        }
    }

    fn set_demand(&mut self, demand: Demand) {
        self.app_limited = demand == Demand::Met;
    }

    fn rate(&self, now: Instant) -> BytesPerSecond {
        // Nothing is known of the path: only keep-alive packets are safe.
        if self.feedback_timeout.holds_back() {
            return FLOOR;
        }
        let held = if seconds(now) < self.hold.until {
            self.hold.rate.at_least(self.config.protected.0)
        } else {
            f64::INFINITY
        };
        BytesPerSecond(self.rate.at_most(held))
    }

    fn take_probe(&mut self) -> bool {
        core::mem::take(&mut self.has_new_probe)
    }

    fn window(&self, now: Instant) -> Option<u64> {
        let least = MIN_PACKETS * self.largest_packet;
        let initial = INITIAL_PACKETS * self.largest_packet;
        let Some(base) = self.delay.base_round_trip() else { return Some(initial as u64) };
        let interval = self.delay.feedback_interval();
        let LastQueue { delay, target, arrivals } = self.queue;
        let queue = delay.unwrap_or(0.0);
        let window = match self.mode {
            _ if self.protected_rate().is_some() => self.rate * (base + queue + PROTECTED_WINDOW.0),
            GlideMode::Startup => match &self.slow_start {
                Some(slow_start) if !self.app_limited => slow_start.window(),
                _ => (STARTUP_WINDOW * self.rate * (base + interval + STARTUP_WINDOW_MARGIN.0)).at_least(initial),
            },
            GlideMode::Compete => self.competitive.window().0,
            GlideMode::Delay => {
                // The window bounds the queue at half above its target, and more only while probing cross traffic.
                let room = WINDOW_TARGETS * target;
                let queue = if self.delay_mode.is_self_inflicted(seconds(now)) {
                    room
                } else {
                    queue.at_most(MAX_WINDOW_QUEUE.0).at_least(room)
                };
                let rate = self.rate.at_least(DELAY_WINDOW_SHARE * arrivals);
                DELAY_WINDOW * rate * (base + queue + WINDOW_INTERVALS * interval + WINDOW_MARGIN.0)
            }
        };
        Some(window.at_least(least) as u64)
    }

    fn report(&self) -> ControllerReport {
        let phase = match self.mode {
            GlideMode::Startup => Phase::Startup,
            GlideMode::Delay => Phase::Delay,
            GlideMode::Compete => Phase::Compete,
        };
        let queue = self.queue.delay.and_then(|queue| Duration::try_from_secs_f64(queue).ok());
        ControllerReport { phase, queueing_delay: queue, suggestion: None }
    }
}

fn seconds(moment: Instant) -> f64 {
    Seconds::from(moment).0
}

#[cfg(test)]
mod tests;
