//! The simple binary congestion avoidance of "Fiedler, Reliability, Ordering and Congestion Avoidance over UDP".
//!
//! Two rates, good and bad, and a round trip that decides between them. It is here because it is the article's, exactly;
//! measured, it is permanently bad on a path of 300 ms, does not see a buffer of less than 250 ms, and uses half of a
//! path when it swings. Its thresholds can be made relative to the path's own round trip.

use core::time::Duration;

use super::extreme::Extreme;
use super::{BytesPerSecond, Controller, Demand, FLOOR_PACKET_BYTES, Feedback, Phase, Report, Suggestion};
use slipgate_netcode::time::Instant;

/// Packets per second in good mode (the article: about 64 kbit/s).
const GOOD_PACKETS_PER_SECOND: f64 = 30.0;
/// Packets per second in bad mode (the article: about 20 kbit/s).
const BAD_PACKETS_PER_SECOND: f64 = 10.0;
/// Conditions are bad when the round trip is longer (the article).
const BAD_ROUND_TRIP: Duration = Duration::from_millis(250);
/// The estimate moves so far towards each sample: 10 % of the way, as the article's estimate of the round-trip time does
/// in the layer of acknowledgements, of which a controller knows nothing.
const SMOOTHING: f64 = 0.1;
/// A packet that was under way for longer is no sample: it has left the queue (the article,
/// whose packets are lost by then).
const MAXIMUM_ROUND_TRIP: Duration = Duration::from_secs(1);
/// Good conditions must have lasted this long for good mode, at first (the article's sample source).
const FIRST_PENALTY: Duration = Duration::from_secs(4);
/// At least this long, and at most (the article).
const LEAST_PENALTY: Duration = Duration::from_secs(1);
const MOST_PENALTY: Duration = Duration::from_secs(60);
/// Who falls from good mode within this time doubles the penalty (the article).
const QUICK_FALL: Duration = Duration::from_secs(10);
/// Each so long in good mode the penalty is halved (the article).
const HALVING: Duration = Duration::from_secs(10);
/// The path's own round trip is the least of this long, where thresholds are relative to it.
const BASE_WINDOW: Duration = Duration::from_secs(60);

/// When a round trip is bad.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Threshold {
    /// Longer than this, whatever the path is like: the article's rule, with 250 ms.
    Absolute(Duration),
    /// Longer than the path's least round trip of a minute by this.
    AboveLeast(Duration),
}

/// What is known before the first acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ignorance {
    /// The round trip counts as zero, which is good, as in the article's sample source.
    Good,
    /// Conditions are bad until something was acknowledged.
    Bad,
}

/// How the algorithm departs from the article, if at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// When a round trip is bad.
    pub threshold: Threshold,
    /// What conditions are before anything was acknowledged.
    pub ignorance: Ignorance,
    /// Bytes of a packet on the path; the article has 256. The packets per second are kept to as bytes: so many times
    /// this. Smaller packets may be more of them in a second, larger ones are fewer.
    pub packet_bytes: u32,
}

impl Default for Config {
    /// The article to the letter.
    fn default() -> Self {
        Self {
            threshold: Threshold::Absolute(BAD_ROUND_TRIP),
            ignorance: Ignorance::Good,
            packet_bytes: FLOOR_PACKET_BYTES,
        }
    }
}

/// ```text
///         conditions turn bad, at once
///  Good ───────────────────────────────▶ Bad
///    ◀───────────────────────────────────┘
///         good conditions for the penalty time
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Good,
    Bad,
}

/// The controller of one connection.
#[derive(Clone, Debug)]
pub struct Binary {
    config: Config,
    header_bytes: u32,
    mode: Mode,
    penalty: Duration,
    good_for: Duration,
    since_halving: Duration,
    /// In seconds; zero before the first sample, as in the article's sample source.
    round_trip: f64,
    has_sample: bool,
    least: Extreme,
    ticked_at: Option<Instant>,
}

impl Binary {
    /// A connection of which nothing is known, and the bytes of a packet that are none of the game's.
    #[must_use]
    pub fn new(config: Config, header_bytes: u32) -> Self {
        Self {
            config,
            header_bytes,
            mode: Mode::Bad,
            penalty: FIRST_PENALTY,
            good_for: Duration::ZERO,
            since_halving: Duration::ZERO,
            round_trip: 0.0,
            has_sample: false,
            least: Extreme::least(BASE_WINDOW),
            ticked_at: None,
        }
    }

    fn is_good(&self) -> bool {
        if !self.has_sample && self.config.ignorance == Ignorance::Bad {
            return false;
        }
        let bound = match self.config.threshold {
            Threshold::Absolute(bound) => bound.as_secs_f64(),
            Threshold::AboveLeast(margin) => self.least.value().unwrap_or(0.0) + margin.as_secs_f64(),
        };
        self.round_trip <= bound
    }

    fn pass(&mut self, time: Duration) {
        match (self.mode, self.is_good()) {
            (Mode::Good, true) => self.stay_good(time),
            (Mode::Good, false) => self.fall(),
            (Mode::Bad, true) => {
                self.good_for += time;
                if self.good_for > self.penalty {
                    self.switch(Mode::Good);
                }
            }
            (Mode::Bad, false) => self.good_for = Duration::ZERO,
        }
    }

    fn stay_good(&mut self, time: Duration) {
        self.good_for += time;
        self.since_halving += time;
        if self.since_halving > HALVING && self.penalty > LEAST_PENALTY {
            self.penalty = (self.penalty / 2).max(LEAST_PENALTY);
            self.since_halving = Duration::ZERO;
        }
    }

    fn fall(&mut self) {
        if self.good_for < QUICK_FALL {
            self.penalty = (self.penalty * 2).min(MOST_PENALTY);
        }
        self.switch(Mode::Bad);
    }

    fn switch(&mut self, mode: Mode) {
        self.mode = mode;
        (self.good_for, self.since_halving) = (Duration::ZERO, Duration::ZERO);
    }

    fn packets_per_second(&self) -> f64 {
        match self.mode {
            Mode::Good => GOOD_PACKETS_PER_SECOND,
            Mode::Bad => BAD_PACKETS_PER_SECOND,
        }
    }
}

impl Controller for Binary {
    fn on_sent(&mut self, _: u32, _: Instant) {}

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        for packet in feedback.acked {
            let sample = feedback.now.since(packet.sent_at);
            if sample <= MAXIMUM_ROUND_TRIP {
                self.round_trip += SMOOTHING * (sample.as_secs_f64() - self.round_trip);
                self.least.push(sample.as_secs_f64(), feedback.now.since_start().as_secs_f64());
                self.has_sample = true;
            }
        }
    }

    fn on_tick(&mut self, _: u64, now: Instant) {
        let time = self.ticked_at.map_or(Duration::ZERO, |ticked_at| now.since(ticked_at));
        self.ticked_at = Some(now);
        self.pass(time);
    }

    fn set_demand(&mut self, _: Demand) {}

    fn rate(&self, _: Instant) -> BytesPerSecond {
        BytesPerSecond(self.packets_per_second() * f64::from(self.config.packet_bytes))
    }

    fn window(&self, _: Instant) -> Option<u64> {
        None
    }

    fn report(&self) -> Report {
        let suggestion = Suggestion {
            packets_per_second: self.packets_per_second(),
            payload_bytes: self.config.packet_bytes.saturating_sub(self.header_bytes),
        };
        let phase = if self.mode == Mode::Good { Phase::Good } else { Phase::Bad };
        Report { phase, queueing_delay: None, suggestion: Some(suggestion) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Departed;
    use super::*;

    /// Ticks of 10 ms, with one acknowledgement each.
    struct Line {
        binary: Binary,
        millis: u64,
    }

    impl Line {
        fn new(config: Config) -> Self {
            Self { binary: Binary::new(config, 56), millis: 2000 }
        }

        fn now(&self) -> Instant {
            Instant::from_start(Duration::from_millis(self.millis))
        }

        /// Milliseconds in which the mode does not change, until it does; at most `most`.
        fn until_switch(&mut self, round_trip: Option<u64>, most: u64) -> u64 {
            let (from, mode) = (self.millis, self.binary.mode);
            while self.binary.mode == mode && self.millis - from < most {
                self.millis += 10;
                let now = self.now();
                if let Some(round_trip) = round_trip {
                    let sent_at = Instant::from_start(Duration::from_millis(self.millis - round_trip));
                    self.binary.on_feedback(&Feedback {
                        now,
                        newest: None,
                        acked: &[Departed { sent_at, bytes: 256 }],
                        lost: &[],
                        delivered: 0,
                        in_flight: 0,
                    });
                }
                self.binary.on_tick(0, now);
            }
            self.millis - from
        }

        fn settle(&mut self, round_trip: u64) {
            self.binary.round_trip = round_trip as f64 / 1000.0;
        }

        fn penalty(&self) -> u64 {
            self.binary.penalty.as_secs()
        }
    }

    #[test]
    fn good_is_thirty_packets_of_256_bytes_and_bad_ten() {
        let mut line = Line::new(Config::default());
        let suggested = |line: &Line| line.binary.report().suggestion.unwrap();
        assert_eq!(line.binary.rate(line.now()), BytesPerSecond(2560.0));
        assert_eq!(suggested(&line), Suggestion { packets_per_second: 10.0, payload_bytes: 200 });
        line.until_switch(Some(50), 10_000);
        assert_eq!(line.binary.rate(line.now()), BytesPerSecond(7680.0));
        assert_eq!(suggested(&line), Suggestion { packets_per_second: 30.0, payload_bytes: 200 });
    }

    #[test]
    fn good_mode_comes_after_four_seconds_of_good_conditions_at_first() {
        let mut line = Line::new(Config::default());
        assert_eq!(
            line.until_switch(Some(50), 10_000),
            4020,
            "the first tick knows of no time, and 4 s are not enough"
        );
    }

    #[test]
    fn a_quarter_of_a_second_is_good_and_any_more_is_bad_at_once() {
        let mut line = Line::new(Config::default());
        line.until_switch(Some(250), 10_000);
        assert_eq!(line.binary.mode, Mode::Good);
        line.settle(250);
        assert_eq!(line.until_switch(Some(250), 5000), 5000);
        assert_eq!(line.until_switch(Some(251), 5000), 10);
    }

    #[test]
    fn the_estimate_moves_a_tenth_of_the_way_and_forgets_what_took_a_second() {
        let mut line = Line::new(Config::default());
        line.until_switch(Some(100), 10);
        assert!((line.binary.round_trip - 0.010).abs() < 1e-9);
        line.until_switch(Some(100), 10);
        assert!((line.binary.round_trip - 0.019).abs() < 1e-9);
        line.until_switch(Some(1010), 10);
        assert!((line.binary.round_trip - 0.019).abs() < 1e-9);
    }

    #[test]
    fn a_fall_within_ten_seconds_doubles_the_penalty_up_to_a_minute() {
        let mut line = Line::new(Config::default());
        for penalty in [8, 16, 32, 60, 60] {
            line.settle(50);
            line.until_switch(Some(50), 100_000);
            assert_eq!(line.binary.mode, Mode::Good);
            line.settle(300);
            line.until_switch(Some(300), 1000);
            assert_eq!((line.binary.mode, line.penalty()), (Mode::Bad, penalty));
        }
    }

    #[test]
    fn a_later_fall_leaves_the_penalty() {
        let mut line = Line::new(Config::default());
        line.until_switch(Some(50), 10_000);
        line.until_switch(Some(50), 10_000);
        line.settle(300);
        line.until_switch(Some(300), 1000);
        assert_eq!((line.binary.mode, line.penalty()), (Mode::Bad, 4));
    }

    #[test]
    fn each_ten_seconds_in_good_mode_halve_the_penalty_down_to_one_second() {
        let mut line = Line::new(Config::default());
        line.until_switch(Some(50), 10_000);
        for penalty in [2, 1, 1] {
            line.until_switch(Some(50), 10_010);
            assert_eq!((line.binary.mode, line.penalty()), (Mode::Good, penalty));
        }
    }

    #[test]
    fn one_bad_moment_starts_the_penalty_time_anew() {
        let mut line = Line::new(Config::default());
        line.until_switch(Some(50), 3900);
        line.settle(300);
        line.until_switch(Some(300), 10);
        line.settle(50);
        assert_eq!(line.until_switch(Some(50), 10_000), 4010);
    }

    #[test]
    fn silence_is_good_by_the_letter_and_bad_by_choice() {
        let mut line = Line::new(Config::default());
        assert_eq!(line.until_switch(None, 10_000), 4020);
        let mut careful = Line::new(Config { ignorance: Ignorance::Bad, ..Config::default() });
        assert_eq!(careful.until_switch(None, 10_000), 10_000);
        assert!(careful.until_switch(Some(50), 10_000) < 4020);
    }

    #[test]
    fn a_satellite_is_bad_for_ever_unless_the_threshold_is_relative() {
        let mut line = Line::new(Config::default());
        line.settle(300);
        assert_eq!(line.until_switch(Some(300), 100_000), 100_000);
        let threshold = Threshold::AboveLeast(Duration::from_millis(100));
        let mut relative = Line::new(Config { threshold, ..Config::default() });
        relative.settle(300);
        assert!(relative.until_switch(Some(300), 100_000) < 4100);
        assert!(relative.until_switch(Some(450), 10_000) < 500, "and a queue of 150 ms is bad");
    }
}
