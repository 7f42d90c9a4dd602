//! The simple binary congestion avoidance of "Fiedler, Reliability, Ordering and Congestion Avoidance over UDP".
//!
//! Two rates, good and bad, chosen by the round trip. It reproduces the article exactly. Measured: it stays in bad
//! mode on a path of 300 ms, does not see a buffer under 250 ms, and uses half of a path when it oscillates. The
//! threshold can be made relative to the minimum round trip of the path.

use core::time::Duration;

use super::controller::{Controller, ControllerReport, Demand, Feedback, Phase};
use super::rate::{BytesPerSecond, FLOOR_PACKET_BYTES};
use super::suggestion::Suggestion;
use super::windowed_minmax::WindowedMinMax;
use slipgate_netcode::time::Instant;

/// Packets per second in good mode (the article: about 64 kbit/s).
const GOOD_PACKETS_PER_SECOND: f64 = 30.0;
/// Packets per second in bad mode (the article: about 20 kbit/s).
const BAD_PACKETS_PER_SECOND: f64 = 10.0;
/// Conditions are bad above this round trip (the article).
const BAD_ROUND_TRIP: Duration = Duration::from_millis(250);
/// Share of the way that the estimate moves with each sample: 10 %, like the article's round-trip time in the
/// acknowledgement layer, which a controller does not see.
const SMOOTHING: f64 = 0.1;
/// A longer round trip is not a sample: the packet has left the article's queue and counts as lost.
const MAX_ROUND_TRIP: Duration = Duration::from_secs(1);
/// How long good conditions must last for good mode at first (the article's sample source).
const FIRST_PENALTY: Duration = Duration::from_secs(4);
/// The bounds of the penalty time (the article).
const MIN_PENALTY: Duration = Duration::from_secs(1);
const MAX_PENALTY: Duration = Duration::from_secs(60);
/// A fall from good mode within this time doubles the penalty (the article).
const QUICK_FALL: Duration = Duration::from_secs(10);
/// The penalty is halved each time good mode lasts this long (the article).
const HALVING: Duration = Duration::from_secs(10);
/// The window of the minimum round trip, for relative thresholds.
const BASE_WINDOW: Duration = Duration::from_secs(60);

/// When a round trip is bad.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Threshold {
    /// Above this, on any path: the article's rule, with 250 ms.
    Absolute(Duration),
    /// Above the minimum round trip of the last minute by more than this.
    AboveMin(Duration),
}

/// How the algorithm differs from the article, if at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BinaryConfig {
    /// When a round trip is bad.
    pub threshold: Threshold,
    /// Bytes of a packet on the path; the article has 256. The limit is this times the packets per second, in bytes:
    /// smaller packets may be more per second, larger ones are fewer.
    pub packet_bytes: u32,
}

impl Default for BinaryConfig {
    /// Returns the article's settings.
    fn default() -> Self {
        Self { threshold: Threshold::Absolute(BAD_ROUND_TRIP), packet_bytes: FLOOR_PACKET_BYTES }
    }
}

/// ```text
///         conditions turn bad, at once
///  Good ───────────────────────────────▶ Bad
///    ◀───────────────────────────────────┘
///         good conditions for the penalty time
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BinaryMode {
    Good,
    Bad,
}

/// The controller of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Binary {
    config: BinaryConfig,
    header_bytes: u32,
    mode: BinaryMode,
    penalty: Duration,
    good_for: Duration,
    since_halving: Duration,
    /// Seconds; zero before the first sample, as in the article's sample source.
    round_trip: f64,
    min_round_trip: WindowedMinMax,
    ticked_at: Option<Instant>,
}

impl Binary {
    /// Creates a controller for a new connection. `header_bytes` are the bytes of a packet that are not game data.
    #[must_use]
    pub(crate) fn new(config: BinaryConfig, header_bytes: u32) -> Self {
        Self {
            config,
            header_bytes,
            mode: BinaryMode::Bad,
            penalty: FIRST_PENALTY,
            good_for: Duration::ZERO,
            since_halving: Duration::ZERO,
            round_trip: 0.0,
            min_round_trip: WindowedMinMax::min(BASE_WINDOW, BASE_WINDOW),
            ticked_at: None,
        }
    }

    fn is_good(&self) -> bool {
        // An unknown minimum counts as zero, so the relative threshold starts strict.
        let bound = match self.config.threshold {
            Threshold::Absolute(bound) => bound.as_secs_f64(),
            Threshold::AboveMin(margin) => self.min_round_trip.value().unwrap_or(0.0) + margin.as_secs_f64(),
        };
        self.round_trip <= bound
    }

    fn advance(&mut self, time: Duration) {
        match (self.mode, self.is_good()) {
            (BinaryMode::Good, true) => self.stay_good(time),
            // No grace time: one bad tick ends good mode, as in the article.
            (BinaryMode::Good, false) => self.fall(),
            (BinaryMode::Bad, true) => {
                self.good_for += time;
                // Strictly more than the penalty, as in the article's sample source.
                if self.good_for > self.penalty {
                    self.switch(BinaryMode::Good);
                }
            }
            // Good conditions must be uninterrupted.
            (BinaryMode::Bad, false) => self.good_for = Duration::ZERO,
        }
    }

    fn stay_good(&mut self, time: Duration) {
        self.good_for += time;
        self.since_halving += time;
        // Restart the interval only when a halving took place, as in the sample source.
        if self.since_halving > HALVING && self.penalty > MIN_PENALTY {
            self.penalty = (self.penalty / 2).max(MIN_PENALTY);
            self.since_halving = Duration::ZERO;
        }
    }

    fn fall(&mut self) {
        if self.good_for < QUICK_FALL {
            self.penalty = (self.penalty * 2).min(MAX_PENALTY);
        }
        self.switch(BinaryMode::Bad);
    }

    fn switch(&mut self, mode: BinaryMode) {
        self.mode = mode;
        (self.good_for, self.since_halving) = (Duration::ZERO, Duration::ZERO);
    }

    fn packets_per_second(&self) -> f64 {
        match self.mode {
            BinaryMode::Good => GOOD_PACKETS_PER_SECOND,
            BinaryMode::Bad => BAD_PACKETS_PER_SECOND,
        }
    }
}

impl Controller for Binary {
    fn on_sent(&mut self, _: u32, _: Instant) {}

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        for packet in feedback.acked {
            let sample = feedback.now.since(packet.sent_at);
            // Every acknowledged packet is a sample here, unlike in RFC 9002: the article has it so.
            if sample <= MAX_ROUND_TRIP {
                self.round_trip += SMOOTHING * (sample.as_secs_f64() - self.round_trip);
                self.min_round_trip.push(sample.as_secs_f64(), feedback.now.since_start().as_secs_f64());
            }
        }
    }

    fn on_tick(&mut self, _: u64, now: Instant) {
        let time = self.ticked_at.map_or(Duration::ZERO, |ticked_at| now.since(ticked_at));
        self.ticked_at = Some(now);
        self.advance(time);
    }

    fn set_demand(&mut self, _: Demand) {}

    fn rate(&self, _: Instant) -> BytesPerSecond {
        // The article counts packets; bytes keep the same load with other packet sizes.
        BytesPerSecond(self.packets_per_second() * f64::from(self.config.packet_bytes))
    }

    fn window(&self, _: Instant) -> Option<u64> {
        None
    }

    fn report(&self) -> ControllerReport {
        let suggestion = Suggestion {
            packets_per_second: self.packets_per_second(),
            payload_bytes: self.config.packet_bytes.saturating_sub(self.header_bytes),
        };
        let phase = if self.mode == BinaryMode::Good { Phase::Good } else { Phase::Bad };
        ControllerReport { phase, queueing_delay: None, suggestion: Some(suggestion) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::SentPacket;
    use super::*;

    /// Ticks of 10 ms, with one acknowledgement each.
    struct Line {
        binary: Binary,
        millis: u64,
    }

    impl Line {
        fn new(config: BinaryConfig) -> Self {
            Self { binary: Binary::new(config, 56), millis: 2000 }
        }

        fn now(&self) -> Instant {
            Instant::from_start(Duration::from_millis(self.millis))
        }

        /// Milliseconds in which the mode does not change, until it does; at most `max`.
        fn until_switch(&mut self, round_trip: Option<u64>, max: u64) -> u64 {
            let (from, mode) = (self.millis, self.binary.mode);
            while self.binary.mode == mode && self.millis - from < max {
                self.millis += 10;
                let now = self.now();
                if let Some(round_trip) = round_trip {
                    let sent_at = Instant::from_start(Duration::from_millis(self.millis - round_trip));
                    self.binary.on_feedback(&Feedback {
                        now,
                        newest: None,
                        acked: &[SentPacket { sent_at, bytes: 256, ..SentPacket::default() }],
                        lost: &[],
                        late: &[],
                        delivered: 0,
                        in_flight: 0,
                    });
                }
                self.binary.on_tick(0, now);
            }
            self.millis - from
        }

        fn set_round_trip(&mut self, round_trip: u64) {
            self.binary.round_trip = round_trip as f64 / 1000.0;
        }

        fn penalty(&self) -> u64 {
            self.binary.penalty.as_secs()
        }
    }

    #[test]
    fn good_mode_sends_thirty_packets_and_bad_mode_ten() {
        let mut line = Line::new(BinaryConfig::default());
        let suggested = |line: &Line| line.binary.report().suggestion.unwrap();
        assert_eq!(line.binary.rate(line.now()), BytesPerSecond(2560.0));
        assert_eq!(suggested(&line), Suggestion { packets_per_second: 10.0, payload_bytes: 200 });
        line.until_switch(Some(50), 10_000);
        assert_eq!(line.binary.rate(line.now()), BytesPerSecond(7680.0));
        assert_eq!(suggested(&line), Suggestion { packets_per_second: 30.0, payload_bytes: 200 });
    }

    #[test]
    fn first_good_mode_follows_four_good_seconds() {
        let mut line = Line::new(BinaryConfig::default());
        assert_eq!(
            line.until_switch(Some(50), 10_000),
            4020,
            "the first tick knows of no time, and 4 s are not enough"
        );
    }

    #[test]
    fn round_trip_above_250_ms_is_bad_at_once() {
        let mut line = Line::new(BinaryConfig::default());
        line.until_switch(Some(250), 10_000);
        assert_eq!(line.binary.mode, BinaryMode::Good);
        line.set_round_trip(250);
        assert_eq!(line.until_switch(Some(250), 5000), 5000);
        assert_eq!(line.until_switch(Some(251), 5000), 10);
    }

    #[test]
    fn estimate_moves_ten_percent_and_ignores_late_samples() {
        let mut line = Line::new(BinaryConfig::default());
        line.until_switch(Some(100), 10);
        assert!((line.binary.round_trip - 0.010).abs() < 1e-9);
        line.until_switch(Some(100), 10);
        assert!((line.binary.round_trip - 0.019).abs() < 1e-9);
        line.until_switch(Some(1010), 10);
        assert!((line.binary.round_trip - 0.019).abs() < 1e-9);
    }

    #[test]
    fn fall_within_ten_seconds_doubles_the_penalty() {
        let mut line = Line::new(BinaryConfig::default());
        for penalty in [8, 16, 32, 60, 60] {
            line.set_round_trip(50);
            line.until_switch(Some(50), 100_000);
            assert_eq!(line.binary.mode, BinaryMode::Good);
            line.set_round_trip(300);
            line.until_switch(Some(300), 1000);
            assert_eq!((line.binary.mode, line.penalty()), (BinaryMode::Bad, penalty));
        }
    }

    #[test]
    fn later_fall_keeps_the_penalty() {
        let mut line = Line::new(BinaryConfig::default());
        line.until_switch(Some(50), 10_000);
        line.until_switch(Some(50), 10_000);
        line.set_round_trip(300);
        line.until_switch(Some(300), 1000);
        assert_eq!((line.binary.mode, line.penalty()), (BinaryMode::Bad, 4));
    }

    #[test]
    fn ten_good_seconds_halve_the_penalty_to_one_second() {
        let mut line = Line::new(BinaryConfig::default());
        line.until_switch(Some(50), 10_000);
        for penalty in [2, 1, 1] {
            line.until_switch(Some(50), 10_010);
            assert_eq!((line.binary.mode, line.penalty()), (BinaryMode::Good, penalty));
        }
    }

    #[test]
    fn one_bad_moment_restarts_the_penalty_time() {
        let mut line = Line::new(BinaryConfig::default());
        line.until_switch(Some(50), 3900);
        line.set_round_trip(300);
        line.until_switch(Some(300), 10);
        line.set_round_trip(50);
        assert_eq!(line.until_switch(Some(50), 10_000), 4010);
    }

    #[test]
    fn silence_is_good_as_in_the_article() {
        let mut line = Line::new(BinaryConfig::default());
        assert_eq!(line.until_switch(None, 10_000), 4020);
    }

    #[test]
    fn satellite_is_bad_unless_the_threshold_is_relative() {
        let mut line = Line::new(BinaryConfig::default());
        line.set_round_trip(300);
        assert_eq!(line.until_switch(Some(300), 100_000), 100_000);
        let threshold = Threshold::AboveMin(Duration::from_millis(100));
        let mut relative = Line::new(BinaryConfig { threshold, ..BinaryConfig::default() });
        relative.set_round_trip(300);
        assert!(relative.until_switch(Some(300), 100_000) < 4100);
        assert!(relative.until_switch(Some(450), 10_000) < 500, "and a queue of 150 ms is bad");
    }
}
