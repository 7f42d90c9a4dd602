//! BBR, main features: the model of version 1 (Cardwell et al., "BBR: congestion-based congestion control", 2016) with
//! a limit on the bytes in flight after losses, as in later versions (draft-ietf-ccwg-bbr).
//!
//! It serves for comparison and as a competing flow. It is not a complete implementation.

use core::time::Duration;
use std::collections::VecDeque;

use slipgate_netcode::time::Instant;
use slipgate_session::congestion::{BytesPerSecond, Controller, Demand, Feedback};

use super::path::{RttEstimate, acked_bytes, lost_bytes};
use super::{FIRST_RATE, FIRST_WINDOW, MIN_RATE, MTU};

/// 2 / ln 2: the gain that doubles the rate each round.
const STARTUP_GAIN: f64 = 2.89;
/// The pacing gains of the bandwidth probing cycle.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// The number of rounds over which the maximum delivery rate is taken.
const ROUNDS: u64 = 10;
/// How long the minimum round-trip time is valid.
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
/// How long the minimum is measured again.
const PROBE: Duration = Duration::from_millis(200);
/// The loss of a round above which the sending was too fast.
const TOLERATED: f64 = 0.02;
/// The factor by which the limit is reduced after such a round.
const BETA: f64 = 0.7;

enum State {
    Startup { fullest: f64, rounds_without_growth: u32 },
    Drain,
    Cruise { phase: usize, since: Instant },
    ProbeRoundTrip { until: Instant },
}

#[derive(Default)]
struct Round {
    number: u64,
    started_at: Instant,
    acked: f64,
    lost: f64,
}

/// BBR, main features.
pub struct Bbr {
    state: State,
    path: RttEstimate,
    round: Round,
    /// The delivery rates of the last rounds, in bytes per second.
    deliveries: VecDeque<(u64, f64)>,
    /// Times and delivered bytes.
    history: VecDeque<(Instant, u64)>,
    /// The limit of bytes in flight after losses.
    bound: f64,
    demand: Demand,
}

impl Default for Bbr {
    fn default() -> Self {
        Self {
            state: State::Startup { fullest: 0.0, rounds_without_growth: 0 },
            path: RttEstimate::default(),
            round: Round::default(),
            deliveries: VecDeque::new(),
            history: VecDeque::new(),
            bound: f64::INFINITY,
            demand: Demand::Met,
        }
    }
}

impl Bbr {
    fn bandwidth(&self) -> f64 {
        self.deliveries.iter().map(|(_, rate)| *rate).fold(0.0, f64::max)
    }

    /// Returns the bandwidth-delay product in bytes.
    fn product(&self) -> f64 {
        self.bandwidth() * self.path.min
    }

    /// Measures the delivery rate since the newest acknowledged packet was sent.
    fn measure(&mut self, feedback: &Feedback<'_>) {
        self.history.push_back((feedback.now, feedback.delivered));
        let Some(newest) = feedback.newest else { return };
        while self.history.get(1).is_some_and(|(at, _)| *at <= newest.sent_at) {
            self.history.pop_front();
        }
        let Some((since, delivered)) = self.history.front() else { return };
        let elapsed = feedback.now.since(*since).as_secs_f64();
        if elapsed < 0.9 * self.path.min || elapsed == 0.0 {
            return;
        }
        let rate = (feedback.delivered - delivered) as f64 / elapsed;
        // An application-limited sample counts only if it exceeds the known bandwidth.
        if self.demand == Demand::Unmet || rate > self.bandwidth() {
            self.deliveries.push_back((self.round.number, rate));
        }
        let oldest = self.round.number.saturating_sub(ROUNDS);
        while self.deliveries.len() > 1 && self.deliveries.front().is_some_and(|(round, _)| *round < oldest) {
            self.deliveries.pop_front();
        }
    }

    fn count_round(&mut self, feedback: &Feedback<'_>) {
        self.round.acked += acked_bytes(feedback);
        self.round.lost += lost_bytes(feedback);
        if feedback.newest.is_none_or(|newest| newest.sent_at < self.round.started_at) {
            return;
        }
        let share = self.round.lost / (self.round.acked + self.round.lost).max(1.0);
        let too_much = share > TOLERATED && self.round.lost > 2.0 * MTU;
        if too_much {
            let under_way = (feedback.in_flight as f64).max(self.product());
            self.bound = (BETA * self.bound.min(under_way)).max(4.0 * MTU);
        } else {
            self.bound *= 1.05;
        }
        self.round = Round { number: self.round.number + 1, started_at: feedback.now, ..Round::default() };
        self.end_startup(too_much);
    }

    fn end_startup(&mut self, too_much: bool) {
        let bandwidth = self.bandwidth();
        let unmet = self.demand == Demand::Unmet;
        if let State::Startup { fullest, rounds_without_growth } = &mut self.state {
            if bandwidth > 1.25 * *fullest {
                *fullest = bandwidth;
                *rounds_without_growth = 0;
            } else if unmet {
                *rounds_without_growth += 1;
            }
            if *rounds_without_growth >= 3 || too_much {
                self.state = State::Drain;
            }
        }
    }

    fn advance(&mut self, feedback: &Feedback<'_>) {
        let now = feedback.now;
        let drained = feedback.in_flight as f64 <= self.product();
        match self.state {
            State::Drain if drained => self.state = State::Cruise { phase: 2, since: now },
            State::Cruise { phase, since } => {
                let lasted = now.since(since).as_secs_f64() > self.path.min;
                if lasted || (phase == 1 && drained) {
                    self.state = State::Cruise { phase: (phase + 1) % CYCLE.len(), since: now };
                }
            }
            State::ProbeRoundTrip { until } if now >= until => {
                self.state = State::Cruise { phase: 2, since: now };
            }
            State::Startup { .. } | State::Drain | State::ProbeRoundTrip { .. } => {}
        }
    }
}

impl Controller for Bbr {
    fn on_sent(&mut self, _: u32, _: Instant) {}

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        let stale = self.path.smoothed > 0.0 && feedback.now.reached(self.path.least_at, MIN_RTT_WINDOW);
        self.path.update(feedback, MIN_RTT_WINDOW);
        if stale && !matches!(self.state, State::Startup { .. }) && self.demand == Demand::Unmet {
            self.state = State::ProbeRoundTrip { until: feedback.now.after(PROBE) };
        }
        self.measure(feedback);
        self.count_round(feedback);
        self.advance(feedback);
    }

    fn on_tick(&mut self, _: u64, _: Instant) {}

    fn set_demand(&mut self, demand: Demand) {
        self.demand = demand;
    }

    fn rate(&self, _: Instant) -> BytesPerSecond {
        let (gain, min) = match self.state {
            State::Startup { .. } => (STARTUP_GAIN, FIRST_RATE),
            State::Drain => (1.0 / STARTUP_GAIN, MIN_RATE),
            State::Cruise { phase, .. } => (CYCLE.get(phase).copied().unwrap_or(1.0), MIN_RATE),
            State::ProbeRoundTrip { .. } => (1.0, MIN_RATE),
        };
        BytesPerSecond((gain * self.bandwidth()).max(min))
    }

    fn window(&self, _: Instant) -> Option<u64> {
        let product = self.product();
        let window = match self.state {
            State::Startup { .. } => (STARTUP_GAIN * product).max(FIRST_WINDOW),
            State::Drain | State::Cruise { .. } => 2.0 * product + 2.0 * MTU,
            State::ProbeRoundTrip { .. } => 0.5 * product,
        };
        Some(window.min(self.bound).max(4.0 * MTU) as u64)
    }
}
