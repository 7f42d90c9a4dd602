//! The first mode: the rate doubles each round trip until a queue shows.

use super::reading::Reading;

/// Each round trip multiplies the rate by this; a shorter one than [`LEAST_ROUND_TRIP`] counts as that long.
const GROWTH: f64 = 2.0;
const LEAST_ROUND_TRIP: f64 = 0.02;
/// The rate is at most this multiple of what is delivered, or a short buffer would overflow before a queue is seen; and
/// as many packets for each round trip.
const MOST_OF_DELIVERY: f64 = 1.4;
/// The same on long paths, where each further round trip costs much more time: their buffers hold a round trip, or they
/// would carry no TCP (RFC 2488, section 3). 4 ln 2 is the least that doubles what is delivered each round trip
/// (draft-ietf-ccwg-bbr, section 5.6.3).
const MOST_OF_DELIVERY_FAR: f64 = 2.77;
/// Round trips between which it goes from one to the other, in seconds.
const NEAR_ROUND_TRIP: f64 = 0.12;
const FAR_ROUND_TRIP: f64 = 0.668;
const SPARE_PACKETS: f64 = 2.0;
/// A queue is this share of the target, and at least so many seconds.
const QUEUE_SHARE: f64 = 0.6;
const LEAST_QUEUE: f64 = 0.004;
/// No path's own delay varies by more, in seconds.
const MOST_OWN: f64 = 0.020;
/// The rate with which it ends, as a share of what is delivered.
const EXIT: f64 = 0.9;

/// What becomes of the mode.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Progress {
    /// It goes on at this rate.
    Grow(f64),
    /// It ends with this rate.
    End(f64),
}

/// The way upwards. A delay that was there at half of what is delivered now is none of our queue: a radio link that
/// hands out time slots has its own.
#[derive(Clone, Debug)]
pub(super) struct Startup {
    /// What was delivered when it last had doubled, in bytes per second.
    delivery: f64,
    /// The longest delays since then, in the doubling before, and earlier, in seconds.
    delays: [f64; 3],
}

impl Startup {
    pub(super) const fn new() -> Self {
        Self { delivery: 0.0, delays: [0.0; 3] }
    }

    /// Takes a feedback; `initial` is where the rate began. A queue is what the two newest samples both saw.
    pub(super) fn hear(&mut self, reading: &Reading, rate: f64, initial: f64) -> Progress {
        let is_queue = reading.queue_at_once > self.queue(reading) && !reading.is_draining;
        if is_queue || reading.loses_more {
            return Progress::End(match (reading.app_limited, reading.loses_more) {
                (true, _) => rate,
                (false, true) => reading.sent.min(rate),
                (false, false) => EXIT * reading.delivery,
            });
        }
        self.note(reading);
        if reading.app_limited {
            return Progress::Grow(rate);
        }
        // A peer may say that it held each acknowledgement for all but nothing of the round trip.
        let round_trip = reading.round_trip.max(LEAST_ROUND_TRIP);
        let spare = SPARE_PACKETS * reading.largest_packet / round_trip;
        let most = (most_of_delivery(round_trip) * reading.delivery + spare).max(initial);
        let grown = rate * libm::pow(GROWTH, reading.step / round_trip);
        Progress::Grow(rate.max(grown.min(most)))
    }

    /// The delay from which on there is a queue.
    fn queue(&self, reading: &Reading) -> f64 {
        let [.., own] = self.delays;
        (QUEUE_SHARE * reading.target).max(LEAST_QUEUE) + own
    }

    fn note(&mut self, reading: &Reading) {
        if reading.is_draining {
            return;
        }
        if reading.arrivals > 2.0 * self.delivery {
            let [now, before, earlier] = self.delays;
            self.delays = [0.0, now, before.max(earlier)];
            self.delivery = reading.arrivals;
        }
        let [now, ..] = &mut self.delays;
        *now = now.max((reading.queue_at_once - reading.queue).min(MOST_OWN));
    }
}

fn most_of_delivery(round_trip: f64) -> f64 {
    let far = ((round_trip - NEAR_ROUND_TRIP) / (FAR_ROUND_TRIP - NEAR_ROUND_TRIP)).clamp(0.0, 1.0);
    MOST_OF_DELIVERY + far * (MOST_OF_DELIVERY_FAR - MOST_OF_DELIVERY)
}

#[cfg(test)]
mod tests {
    use super::super::reading::{QUIET, queued};
    use super::*;

    #[test]
    fn the_rate_doubles_each_round_trip_up_to_a_multiple_of_the_delivery() {
        let (mut startup, mut rate) = (Startup::new(), 1e5);
        for _ in 0..4 {
            let Progress::Grow(grown) = startup.hear(&QUIET, rate, 4e4) else { panic!("no queue, no end") };
            rate = grown;
        }
        assert!((rate - 4e5).abs() < 1.0, "after two round trips: {rate}");
        for _ in 0..100 {
            let Progress::Grow(grown) = startup.hear(&QUIET, rate, 4e4) else { panic!("no queue, no end") };
            rate = grown;
        }
        assert!((1.4e6..1.5e6).contains(&rate), "{rate}");
    }

    #[test]
    fn a_peer_that_claims_to_be_next_door_gets_no_more_than_the_delivery_says() {
        let next_door = Reading { round_trip: 1e-4, base_round_trip: 1e-4, ..QUIET };
        let (mut startup, mut rate) = (Startup::new(), 1e5);
        for _ in 0..100 {
            let Progress::Grow(grown) = startup.hear(&next_door, rate, 4e4) else { panic!("no queue, no end") };
            rate = grown;
        }
        assert!((1.4e6..1.6e6).contains(&rate), "{rate}");
    }

    #[test]
    fn where_round_trips_are_long_it_grows_by_more_in_each() {
        for (round_trip, most) in [(0.01, 1.4), (0.12, 1.4), (0.24, 1.7), (0.36, 2.0), (2.0, 2.77)] {
            assert!((most_of_delivery(round_trip) - most).abs() < 1e-3, "{round_trip}");
        }
    }

    #[test]
    fn a_queue_ends_it_a_little_below_the_delivery_and_a_very_short_one_does_not() {
        assert!(matches!(Startup::new().hear(&queued(0.006, 1.0), 1e6, 4e4), Progress::Grow(_)));
        assert_eq!(Startup::new().hear(&queued(0.008, 1.0), 2e6, 4e4), Progress::End(9e5));
    }

    /// Delivers so much, with the two newest samples above the least of late by so much.
    fn trembling(delivery: f64, delay: f64) -> Reading {
        Reading { delivery, arrivals: delivery, queue_at_once: delay, ..QUIET }
    }

    #[test]
    fn a_delay_that_was_there_at_half_of_the_delivery_is_no_queue() {
        let mut startup = Startup::new();
        let jitter = trembling(1e5, 0.006);
        for delivery in [1e5, 2.1e5, 4.3e5] {
            assert!(matches!(
                startup.hear(&Reading { delivery, arrivals: delivery, ..jitter }, 1e5, 4e4),
                Progress::Grow(_)
            ));
        }
        assert!(matches!(startup.hear(&trembling(4.3e5, 0.012), 1e5, 4e4), Progress::Grow(_)));
        assert!(matches!(startup.hear(&trembling(4.3e5, 0.014), 1e5, 4e4), Progress::End(_)));
    }

    #[test]
    fn a_delay_that_came_with_the_newest_doubling_is_one_and_so_is_one_that_never_falls() {
        let mut startup = Startup::new();
        for (delivery, delay) in [(1e5, 0.0), (2.1e5, 0.006)] {
            assert!(matches!(startup.hear(&trembling(delivery, delay), 1e5, 4e4), Progress::Grow(_)));
        }
        assert!(matches!(startup.hear(&trembling(4.1e5, 0.008), 1e5, 4e4), Progress::End(_)));
        let mut startup = Startup::new();
        for delivery in [1e5, 2.1e5, 4.3e5] {
            let others = Reading { queue: 0.006, ..trembling(delivery, 0.006) };
            assert!(matches!(startup.hear(&others, 1e5, 4e4), Progress::Grow(_)));
        }
        assert!(matches!(startup.hear(&trembling(4.3e5, 0.008), 1e5, 4e4), Progress::End(_)));
    }

    #[test]
    fn loss_ends_it_at_what_is_sent_and_a_stall_does_not() {
        let lossy = Reading { loses_more: true, sent: 5e5, ..QUIET };
        assert_eq!(Startup::new().hear(&lossy, 2e6, 4e4), Progress::End(5e5));
        for _ in 0..10 {
            let stalled = Reading { is_draining: true, ..queued(0.2, 1.0) };
            assert!(matches!(Startup::new().hear(&stalled, 1e5, 4e4), Progress::Grow(_)));
        }
    }

    #[test]
    fn who_has_nothing_to_send_learns_nothing() {
        let idle = Reading { app_limited: true, ..QUIET };
        assert_eq!(Startup::new().hear(&idle, 1e5, 4e4), Progress::Grow(1e5));
    }
}
