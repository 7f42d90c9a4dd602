//! Startup, the first mode: the rate doubles each round trip until a queue forms (Glide §6). The first startup of a
//! connection counts acknowledged bytes instead: see `slow_start`.

use super::super::units::{Bounded, Seconds};
use super::path_sample::PathSample;

/// The growth per round trip; round trips below [`MIN_ROUND_TRIP`] count as that long.
const GROWTH: f64 = 2.0;
pub(super) const MIN_ROUND_TRIP: Seconds = Seconds(0.02);
/// The maximum rate as a multiple of the delivery rate, plus spare packets per round trip: a short buffer would
/// overflow before a queue is seen.
const MAX_OF_DELIVERY: f64 = 1.4;
/// The same on long paths, where each round trip costs more time. Their buffers hold a round trip, or they would
/// carry no TCP (RFC 2488, section 3). 4 ln 2 is the minimum that doubles the delivery rate each round trip
/// (draft-ietf-ccwg-bbr, section 5.6.3).
const MAX_OF_DELIVERY_FAR: f64 = 2.77;
/// The round trips, in seconds, between which the multiple is interpolated.
pub(super) const NEAR_ROUND_TRIP: Seconds = Seconds(0.12);
const FAR_ROUND_TRIP: Seconds = Seconds(0.668);
const SPARE_PACKETS: f64 = 2.0;
/// A queue is this share of the target, and at least this many seconds.
const QUEUE_SHARE: f64 = 0.6;
pub(super) const MIN_QUEUE: Seconds = Seconds(0.004);
/// A period of the path's own delay ends when the delivery rate has grown by this factor.
const OWN_PERIOD: f64 = 2.0;
/// The maximum variation of the path's own delay, in seconds.
const MAX_OWN: Seconds = Seconds(0.020);
/// The final rate, as a share of the delivery rate.
pub(super) const EXIT: f64 = 0.9;

/// The result of one feedback in startup.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum StartupStep {
    /// Startup continues at this rate.
    Grow(f64),
    /// Startup ends with this rate.
    End(f64),
}

/// The state of startup. A delay that existed at half of the delivery rate is no queue: a radio link with time slots
/// has its own delay.
#[derive(Clone, Debug)]
pub(super) struct Startup {
    /// The delivery rate when it last had doubled, in bytes per second.
    delivery: f64,
    /// The longest delays since then, in the doubling before, and earlier, in seconds.
    delays: [f64; 3],
}

impl Startup {
    pub(super) const fn new() -> Self {
        Self { delivery: 0.0, delays: [0.0; 3] }
    }

    /// Processes feedback; `initial` is the rate at the start. A queue must show in the two newest samples.
    pub(super) fn on_feedback(&mut self, sample: &PathSample, rate: f64, initial: f64) -> StartupStep {
        let is_queue = sample.instant_queue > self.queue(sample) && !sample.is_draining;
        if is_queue || sample.has_excess_loss {
            // An idle application found no capacity, so the rate stays; loss ends startup at what was sent.
            return StartupStep::End(match (sample.app_limited, sample.has_excess_loss) {
                (true, _) => rate,
                (false, true) => sample.sent.at_most(rate),
                (false, false) => EXIT * sample.delivery,
            });
        }
        self.note(sample);
        if sample.app_limited {
            return StartupStep::Grow(rate);
        }
        // A peer may claim that it held each acknowledgement for nearly the whole round trip.
        let round_trip = sample.round_trip.at_least(MIN_ROUND_TRIP.0);
        let spare = SPARE_PACKETS * sample.largest_packet / round_trip;
        // The delivery rate lags by a round trip: an unbounded rate would overshoot by more each time.
        let max = (max_of_delivery(round_trip) * sample.delivery + spare).at_least(initial);
        let grown = rate * libm::pow(GROWTH, sample.step / round_trip);
        StartupStep::Grow(rate.at_least(grown.at_most(max)))
    }

    /// Returns the delay above which there is a queue.
    fn queue(&self, sample: &PathSample) -> f64 {
        let [.., own] = self.delays;
        (QUEUE_SHARE * sample.target).at_least(MIN_QUEUE.0) + own
    }

    fn note(&mut self, sample: &PathSample) {
        if sample.is_draining {
            return;
        }
        // A doubling starts a new period: delays of the one before count as the path's own.
        if sample.arrivals > OWN_PERIOD * self.delivery {
            let [now, before, earlier] = self.delays;
            self.delays = [0.0, now, before.at_least(earlier)];
            self.delivery = sample.arrivals;
        }
        let [now, ..] = &mut self.delays;
        *now = now.at_least((sample.instant_queue - sample.queue).at_most(MAX_OWN.0));
    }
}

fn max_of_delivery(round_trip: f64) -> f64 {
    let far = ((round_trip - NEAR_ROUND_TRIP.0) / (FAR_ROUND_TRIP.0 - NEAR_ROUND_TRIP.0)).clamp(0.0, 1.0);
    MAX_OF_DELIVERY + far * (MAX_OF_DELIVERY_FAR - MAX_OF_DELIVERY)
}

#[cfg(test)]
mod tests {
    use super::super::path_sample::{QUIET, queued};
    use super::*;

    #[test]
    fn rate_doubles_up_to_a_multiple_of_the_delivery() {
        let (mut startup, mut rate) = (Startup::new(), 1e5);
        for _ in 0..4 {
            let StartupStep::Grow(grown) = startup.on_feedback(&QUIET, rate, 4e4) else { panic!("no queue, no end") };
            rate = grown;
        }
        assert!((rate - 4e5).abs() < 1.0, "after two round trips: {rate}");
        for _ in 0..100 {
            let StartupStep::Grow(grown) = startup.on_feedback(&QUIET, rate, 4e4) else { panic!("no queue, no end") };
            rate = grown;
        }
        assert!((1.4e6..1.5e6).contains(&rate), "{rate}");
    }

    #[test]
    fn tiny_claimed_round_trip_does_not_raise_the_rate() {
        let next_door = PathSample { round_trip: 1e-4, base_round_trip: 1e-4, ..QUIET };
        let (mut startup, mut rate) = (Startup::new(), 1e5);
        for _ in 0..100 {
            let StartupStep::Grow(grown) = startup.on_feedback(&next_door, rate, 4e4) else {
                panic!("no queue, no end")
            };
            rate = grown;
        }
        assert!((1.4e6..1.6e6).contains(&rate), "{rate}");
    }

    #[test]
    fn growth_is_larger_on_long_round_trips() {
        for (round_trip, max) in [(0.01, 1.4), (0.12, 1.4), (0.24, 1.7), (0.36, 2.0), (2.0, 2.77)] {
            assert!((max_of_delivery(round_trip) - max).abs() < 1e-3, "{round_trip}");
        }
    }

    #[test]
    fn queue_ends_startup_below_the_delivery_rate() {
        assert!(matches!(Startup::new().on_feedback(&queued(0.006, 1.0), 1e6, 4e4), StartupStep::Grow(_)));
        assert_eq!(Startup::new().on_feedback(&queued(0.008, 1.0), 2e6, 4e4), StartupStep::End(9e5));
    }

    /// Returns a sample with this delivery rate in bytes/s, whose two newest delays exceed the minimum by `delay`.
    fn trembling(delivery: f64, delay: f64) -> PathSample {
        PathSample { delivery, arrivals: delivery, instant_queue: delay, ..QUIET }
    }

    #[test]
    fn delay_present_at_half_the_rate_is_no_queue() {
        let mut startup = Startup::new();
        let jitter = trembling(1e5, 0.006);
        for delivery in [1e5, 2.1e5, 4.3e5] {
            assert!(matches!(
                startup.on_feedback(&PathSample { delivery, arrivals: delivery, ..jitter }, 1e5, 4e4),
                StartupStep::Grow(_)
            ));
        }
        assert!(matches!(startup.on_feedback(&trembling(4.3e5, 0.012), 1e5, 4e4), StartupStep::Grow(_)));
        assert!(matches!(startup.on_feedback(&trembling(4.3e5, 0.014), 1e5, 4e4), StartupStep::End(_)));
    }

    #[test]
    fn delay_of_the_newest_doubling_is_a_queue() {
        let mut startup = Startup::new();
        for (delivery, delay) in [(1e5, 0.0), (2.1e5, 0.006)] {
            assert!(matches!(startup.on_feedback(&trembling(delivery, delay), 1e5, 4e4), StartupStep::Grow(_)));
        }
        assert!(matches!(startup.on_feedback(&trembling(4.1e5, 0.008), 1e5, 4e4), StartupStep::End(_)));
        let mut startup = Startup::new();
        for delivery in [1e5, 2.1e5, 4.3e5] {
            let cross_traffic = PathSample { queue: 0.006, ..trembling(delivery, 0.006) };
            assert!(matches!(startup.on_feedback(&cross_traffic, 1e5, 4e4), StartupStep::Grow(_)));
        }
        assert!(matches!(startup.on_feedback(&trembling(4.3e5, 0.008), 1e5, 4e4), StartupStep::End(_)));
    }

    #[test]
    fn loss_ends_startup_at_the_sending_rate() {
        let lossy = PathSample { has_excess_loss: true, sent: 5e5, ..QUIET };
        assert_eq!(Startup::new().on_feedback(&lossy, 2e6, 4e4), StartupStep::End(5e5));
        for _ in 0..10 {
            let stalled = PathSample { is_draining: true, ..queued(0.2, 1.0) };
            assert!(matches!(Startup::new().on_feedback(&stalled, 1e5, 4e4), StartupStep::Grow(_)));
        }
    }

    #[test]
    fn idle_application_does_not_grow() {
        let idle = PathSample { app_limited: true, ..QUIET };
        assert_eq!(Startup::new().on_feedback(&idle, 1e5, 4e4), StartupStep::Grow(1e5));
    }
}
