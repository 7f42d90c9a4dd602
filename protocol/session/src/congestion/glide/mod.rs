//! Glide: the rate follows what the path delivers, and the queue stays short.
//!
//! Delay, not loss, tells of congestion; so a lossy radio link is not slowed down, and a large buffer is not filled. A
//! queue that others keep full is told apart by asking: one sends less for a moment, and looks whether it falls.
//!
//! ```text
//!  feedback ─┬▶ delay ──────── the queue, the path's own delay, jitter          ─┐
//!            ├▶ stall ──────── whether the path has just stood still             │
//!            ├▶ delivery ───── what arrives, by the receiver's clock             ├▶ Reading
//!            ├▶ losses ─────── what is lost, and how much of it the path's way   │
//!  departures ▶ departures ─── what is sent                                     ─┘
//!
//!  Reading ──┬▶ ceiling ────── does loss without a queue depend on the rate?
//!            ├▶ pulse ──────── whose queue is it?
//!            └▶ modes          Startup ◀──▶ Delay (steady) ◀──▶ Compete (company, cubic)
//! ```
//!
//! Of the peer it needs when packets arrived by its clock and how long it held the acknowledgement; without them it goes
//! by the round trip. Inside, times are in seconds and rates in bytes per second.

mod ceiling;
mod company;
mod cubic;
mod delay;
mod delivery;
mod departures;
mod losses;
mod pulse;
mod reading;
mod ring;
mod silence;
mod stall;
mod startup;
mod steady;

use core::time::Duration;

use self::ceiling::{Ceiling, Finding};
use self::company::Company;
use self::delay::Delay;
use self::delivery::Delivery;
use self::departures::Departures;
use self::losses::Losses;
use self::pulse::{Belief, Pulses, Verdict};
use self::reading::Reading;
use self::silence::Silence;
use self::stall::Stall;
use self::startup::{Progress, Startup};
use self::steady::{Circumstances, Question, Steady};
use super::{BytesPerSecond, Controller, Demand, FLOOR, Feedback, Newest, Phase, Report};
use slipgate_netcode::time::Instant;

/// Before anything is known: 320 kbit/s.
const INITIAL: BytesPerSecond = BytesPerSecond(40_000.0);
/// No rate exceeds this multiple of the greatest delivery of late.
const MOST_OF_PEAK: f64 = 2.0;
/// The window before the first feedback and in startup, in packets, and later.
const INITIAL_PACKETS: f64 = 10.0;
const LEAST_PACKETS: f64 = 4.0;
/// A delivery is measured over a round trip within these bounds, or over eight packets up to the last, in seconds.
const LEAST_SPAN: f64 = 0.15;
const MOST_SPAN: f64 = 0.30;
const SPAN_PACKETS: f64 = 8.0;
const MOST_PACKET_SPAN: f64 = 0.6;
/// The path has collapsed when the queue is at once this many targets, and this share of what is sent arrives.
const COLLAPSE_TARGETS: f64 = 2.0;
const COLLAPSE_SHARE: f64 = 0.7;
/// The waiting that is held possible of a peer that does not tell, in seconds: a frame at 60 Hz.
const MOST_UNTOLD: f64 = 1.0 / 60.0;
/// Company that shows this soon after startup, in seconds, was there before: startup ended by a queue of others, and says
/// nothing of what the path carries.
const NEWCOMER: f64 = 5.0;
/// A round trip is no shorter, in seconds.
const LEAST_ROUND_TRIP: f64 = 1e-4;

/// What a path is taken for until it shows otherwise.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Config {
    /// The rate before anything is known.
    pub initial: BytesPerSecond,
    /// The rate is never above this.
    pub most: BytesPerSecond,
    /// The rate is never below this while the peer is heard: what a game cannot do without, whoever else fills the path.
    pub protected: BytesPerSecond,
}

impl Default for Config {
    /// 40 kB/s at first, up to 1 GB/s, and 2,560 bytes per second always.
    fn default() -> Self {
        Self { initial: INITIAL, most: BytesPerSecond(1e9), protected: FLOOR }
    }
}

/// The controller of one connection. It asks for its memory, about 20 kB, once.
#[derive(Clone, Debug)]
pub struct Glide {
    config: Config,
    largest_packet: f64,
    mode: Mode,
    rate: f64,
    app_limited: bool,
    hold: Hold,
    delay: Delay,
    stall: Stall,
    delivery: Delivery,
    departures: Departures,
    losses: Losses,
    ceiling: Ceiling,
    pulses: Pulses,
    silence: Silence,
    startup: Startup,
    steady: Steady,
    company: Company,
    /// When startup ended, in seconds.
    grown_up_at: f64,
    reading: Option<Reading>,
}

/// ```text
///  Startup ──▶ Delay ◀──▶ Compete
///     ▲          │
///     └──────────┘ no limit was met yet
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Startup,
    Delay,
    Compete,
}

/// A rate that is held until a question is answered or a queue is drained.
#[derive(Clone, Copy, Debug)]
struct Hold {
    until: f64,
    rate: f64,
}

const FREE: Hold = Hold { until: f64::NEG_INFINITY, rate: 0.0 };

impl Glide {
    /// A path of which nothing is known, and its largest packet.
    #[must_use]
    pub fn new(config: Config, packet_bytes: u32) -> Self {
        let largest_packet = f64::from(packet_bytes);
        Self {
            config,
            largest_packet,
            mode: Mode::Startup,
            rate: config.initial.0.max(FLOOR.0),
            app_limited: true,
            hold: FREE,
            delay: Delay::new(),
            stall: Stall::new(),
            delivery: Delivery::new(),
            departures: Departures::new(),
            losses: Losses::new(),
            ceiling: Ceiling::new(),
            pulses: Pulses::new(),
            silence: Silence::new(),
            startup: Startup::new(),
            steady: Steady::new(),
            company: Company::new(largest_packet),
            grown_up_at: f64::NEG_INFINITY,
            reading: None,
        }
    }

    /// Measures the path; `None` until a packet has come back and a rate is known.
    fn read(&mut self, feedback: &Feedback<'_>) -> Option<Reading> {
        let now = seconds(feedback.now);
        let step = self.delay.hear(now).unwrap_or(0.0).clamp(0.0, 0.25);
        let newest = feedback.newest.map(|newest| self.measure(&newest, feedback, now));
        let round_trip = self.delay.round_trip()?;
        let queue = self.delay.queue(now)?;
        let queue_at_once = self.delay.queue_at_once()?;
        self.losses.count(feedback.acked.len(), feedback.lost, &self.departures, now);
        let arrivals = self.delivery.rate();
        if arrivals <= 0.0 {
            return None;
        }
        let packet = reading::packet(arrivals.max(FLOOR.0), self.largest_packet);
        let target = reading::target(arrivals.max(FLOOR.0), packet, self.delay.excess_jitter());
        let (sent, at_once) = (self.departures.rate(now), self.delivery.at_once());
        let is_draining = self.stall.is_draining(now);
        let has_collapsed =
            queue_at_once > COLLAPSE_TARGETS * target && at_once < COLLAPSE_SHARE * sent && !is_draining;
        let queue = if has_collapsed { queue_at_once } else { queue };
        let base_round_trip = self.delay.base_round_trip()?;
        let in_queue = (feedback.in_flight as f64 / arrivals - base_round_trip).max(0.0);
        let known_loss = if queue < target { self.losses.recent() } else { self.losses.inherent() };
        let (newest_sent, newest_queue) = newest.unzip();
        Some(Reading {
            now,
            step,
            newest_sent,
            newest_queue: newest_queue.unwrap_or(0.0),
            queue,
            queue_at_once,
            queue_left: if queue > 3.0 * target { queue.min(in_queue.max(0.5 * target)) } else { queue },
            target,
            delivery: arrivals / (1.0 - known_loss.min(0.5)),
            arrivals,
            arrivals_at_once: at_once,
            peak: self.delivery.peak(),
            recent_peak: self.delivery.recent_peak(),
            sent,
            round_trip,
            base_round_trip,
            feedback_interval: self.delay.feedback_interval(),
            has_collapsed,
            is_draining,
            loses_more: self.losses.is_more_than_inherent(),
            app_limited: self.app_limited,
            packet,
            largest_packet: self.largest_packet,
        })
    }

    /// Takes the newest arrival into the delay and the delivery. Answers when it left, and the queue it met.
    fn measure(&mut self, newest: &Newest, feedback: &Feedback<'_>, now: f64) -> (f64, f64) {
        let sent = seconds(newest.sent_at);
        let round_trip = (now - sent - newest.ack_delay.as_secs_f64()).max(LEAST_ROUND_TRIP);
        let received = newest.received_at.map_or(sent + round_trip, |received_at| received_at.0.as_secs_f64());
        self.delay.measure(round_trip, received - sent, now);
        let smoothed = self.delay.round_trip().unwrap_or(round_trip);
        if self.stall.arrival(sent, received, smoothed, now) {
            self.delay.forget_queue();
            self.delivery.forget_record();
        }
        let queue = self.delay.above_base(received - sent);
        let unread = self.unread(newest);
        self.delay.sample(queue, unread, !self.stall.is_draining(now), now);
        let packet = reading::packet(self.delivery.rate().max(FLOOR.0), self.largest_packet);
        let packets = (SPAN_PACKETS * packet / self.rate).min(MOST_PACKET_SPAN);
        let span = smoothed.clamp(LEAST_SPAN, MOST_SPAN).max(packets);
        self.delivery.sample(received, feedback.delivered as f64, span, now);
        (sent, queue)
    }

    /// How much of a sample may be waiting in a socket. A peer that says nothing reads and answers once a frame, most likely,
    /// and no more seldom than it is heard.
    fn unread(&self, newest: &Newest) -> f64 {
        match newest.received_at {
            Some(_) => newest.unread.as_secs_f64(),
            None => self.delay.feedback_interval().min(MOST_UNTOLD),
        }
    }

    /// For how long the peer was quiet, and may be; `None` before anything is known of it.
    fn quiet(&self, now: f64) -> Option<(f64, f64)> {
        let longest = Silence::longest(self.delay.feedback_interval(), self.delay.round_trip()?);
        Some((now - self.delay.heard_at()?, longest))
    }

    /// Decides by a reading.
    fn decide(&mut self, reading: &Reading, feedback: &Feedback<'_>) {
        self.look_at_loss(reading, feedback);
        let belief = if self.mode == Mode::Compete { Belief::Company } else { Belief::Alone };
        let verdict = self.pulses.hear(reading, &self.departures, belief);
        self.steady.observe(reading);
        if let Some(Verdict::LongerPath(longer)) = verdict {
            return self.rebase(longer, reading);
        }
        match self.mode {
            Mode::Startup => self.start_up(reading),
            Mode::Delay => self.stay_short(reading, verdict),
            Mode::Compete => self.compete(reading, feedback, verdict),
        }
        let most = (MOST_OF_PEAK * reading.peak).max(self.config.initial.0);
        if self.mode == Mode::Delay && reading.app_limited && self.steady.forgets_limit(most) {
            self.startup = Startup::new();
        }
        let limit = most.min(self.ceiling.limit(reading.now)).min(self.config.most.0);
        self.rate = self.rate.min(limit).max(self.config.protected.0.max(FLOOR.0));
    }

    fn look_at_loss(&mut self, reading: &Reading, feedback: &Feedback<'_>) {
        let may_test = self.mode == Mode::Delay && !self.is_held(reading.now) && !reading.is_draining;
        let (acked, lost) = (feedback.acked, feedback.lost);
        match self.ceiling.hear(reading, acked, lost, &mut self.losses, may_test, self.rate) {
            Finding::Nothing => {}
            Finding::Test { rate, until } => self.hold(rate, until),
            Finding::Void | Finding::Inherent => self.hold = FREE,
            Finding::Policed => {
                self.hold = FREE;
                self.rate = self.rate.min(self.ceiling.rate());
                self.steady.set_limit(self.ceiling.rate());
            }
            Finding::Renewed => self.rate = self.rate.min(self.ceiling.rate()),
        }
    }

    fn start_up(&mut self, reading: &Reading) {
        match self.startup.hear(reading, self.rate, self.config.initial.0) {
            Progress::Grow(rate) => self.rate = rate,
            Progress::End(rate) => {
                self.mode = Mode::Delay;
                self.grown_up_at = reading.now;
                self.rate = rate;
                self.steady.begin(reading.delivery, reading);
                if !reading.app_limited && !reading.loses_more {
                    self.steady.set_limit(reading.delivery);
                }
            }
        }
    }

    fn stay_short(&mut self, reading: &Reading, verdict: Option<Verdict>) {
        match verdict {
            Some(Verdict::Ours) => self.steady.ours(reading),
            Some(Verdict::Others) => {
                self.steady.others();
                if reading.queue > 0.5 * reading.target && !reading.is_draining && !self.is_held(reading.now) {
                    return self.join_company(reading);
                }
            }
            _ => {}
        }
        let around = self.circumstances(reading.now);
        if self.steady.ask(reading, &around, self.rate) == Question::Ask {
            self.pulse(reading);
        }
        if reading.is_draining || self.ceiling.is_testing() {
            return;
        }
        let is_calm = !self.is_held(reading.now) && !reading.loses_more && !reading.app_limited;
        if is_calm && !self.steady.knows_limit() {
            self.mode = Mode::Startup;
            return;
        }
        if !self.is_held(reading.now) {
            self.rate = self.steady.steer(reading, self.rate, self.ceiling.rate());
        }
        if let Some(time) = self.steady.drain_once(reading) {
            self.hold(steady::DRAIN_RATE * reading.delivery, reading.now + time);
        }
    }

    fn join_company(&mut self, reading: &Reading) {
        let before = self.steady.rate_before_episode().unwrap_or(self.rate.min(1.2 * reading.sent));
        self.company.begin(reading, self.pulses.fall(), before, reading.now - self.grown_up_at < NEWCOMER);
        self.steady.end_episode();
        self.mode = Mode::Compete;
        self.delay.set_company(true);
    }

    fn compete(&mut self, reading: &Reading, feedback: &Feedback<'_>, verdict: Option<Verdict>) {
        let may_grow = !self.is_held(reading.now);
        self.rate =
            self.company.hear(reading, feedback.acked, feedback.lost, self.losses.inherent(), may_grow).max(FLOOR.0);
        let is_ours = verdict == Some(Verdict::Ours);
        if is_ours || (reading.queue < reading.target && !reading.is_draining) {
            self.company.end(self.rate, reading.now);
            self.rate = reading.delivery;
            self.steady.begin_after_company(reading, is_ours);
            self.leave_company();
        } else if self.company.asks(reading, &self.pulses) {
            self.pulse(reading);
        }
    }

    fn leave_company(&mut self) {
        self.mode = Mode::Delay;
        self.delay.set_company(false);
    }

    fn rebase(&mut self, longer: f64, reading: &Reading) {
        self.delay.rebase(longer, reading.now);
        self.rate = self.rate.max(reading.delivery);
        self.steady.begin_on_longer_path(reading);
        self.leave_company();
    }

    /// What the path carries now nobody knows: it is looked for as at the beginning, from the rate that is left.
    fn begin_anew(&mut self) {
        (self.mode, self.startup, self.hold) = (Mode::Startup, Startup::new(), FREE);
        self.delay.set_company(false);
        self.steady.end_episode();
    }

    fn pulse(&mut self, reading: &Reading) {
        let until = self.pulses.begin(reading);
        self.hold(pulse::DEPTH * reading.delivery, until);
    }

    fn hold(&mut self, rate: f64, until: f64) {
        self.hold = Hold { until, rate: rate.max(FLOOR.0) };
    }

    fn is_held(&self, now: f64) -> bool {
        now <= self.hold.until
    }

    fn circumstances(&self, now: f64) -> Circumstances {
        Circumstances {
            is_held: self.is_held(now),
            is_asking: self.pulses.is_under_way(),
            asked_ago: self.pulses.age(now),
        }
    }
}

impl Controller for Glide {
    fn on_sent(&mut self, bytes: u32, now: Instant) {
        self.departures.push(f64::from(bytes), seconds(now));
    }

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let now = seconds(feedback.now);
        if let Some((quiet, longest)) = self.quiet(now)
            && self.silence.end(quiet, longest, feedback.lost, now)
        {
            self.begin_anew();
        }
        let feedback = Feedback { lost: self.silence.lost_since(feedback.lost), ..*feedback };
        if let Some(reading) = self.read(&feedback) {
            self.decide(&reading, &feedback);
            self.reading = Some(reading);
        }
    }

    fn on_tick(&mut self, in_flight: u64, now: Instant) {
        let now = seconds(now);
        if let Some((quiet, longest)) = self.quiet(now)
            && in_flight > 0
        {
            let left = self.silence.pass(quiet, longest, now);
            self.rate = (self.rate * left).max(FLOOR.0);
        }
    }

    fn set_demand(&mut self, demand: Demand) {
        self.app_limited = demand == Demand::Met;
    }

    fn rate(&self, now: Instant) -> BytesPerSecond {
        if self.silence.is_long() {
            return FLOOR;
        }
        let held =
            if seconds(now) < self.hold.until { self.hold.rate.max(self.config.protected.0) } else { f64::INFINITY };
        BytesPerSecond(self.rate.min(held))
    }

    fn window(&self, now: Instant) -> Option<u64> {
        let least = LEAST_PACKETS * self.largest_packet;
        let initial = INITIAL_PACKETS * self.largest_packet;
        let Some(base) = self.delay.base_round_trip() else { return Some(initial as u64) };
        let interval = self.delay.feedback_interval();
        let (queue, target, arrivals) =
            self.reading.map_or((0.0, 0.0, 0.0), |reading| (reading.queue, reading.target, reading.arrivals));
        let window = match self.mode {
            Mode::Startup => (2.0 * self.rate * (base + interval + 0.05)).max(initial),
            Mode::Compete => self.company.window(),
            Mode::Delay => {
                let room = 1.5 * target;
                let queue = if self.steady.is_ours(seconds(now)) { room } else { queue.min(0.5).max(room) };
                1.07 * self.rate.max(0.5 * arrivals) * (base + queue + 1.2 * interval + 0.010)
            }
        };
        Some(window.max(least) as u64)
    }

    fn report(&self) -> Report {
        let phase = match self.mode {
            Mode::Startup => Phase::Startup,
            Mode::Delay => Phase::Delay,
            Mode::Compete => Phase::Compete,
        };
        let queue = self.reading.and_then(|reading| Duration::try_from_secs_f64(reading.queue).ok());
        Report { phase, queueing_delay: queue, suggestion: None }
    }
}

fn seconds(moment: Instant) -> f64 {
    moment.since_start().as_secs_f64()
}

#[cfg(test)]
mod tests;
