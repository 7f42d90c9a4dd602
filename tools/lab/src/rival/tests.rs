//! The rivals that steer by delay, on reports that a test writes.

use core::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_session::congestion::{BytesPerSecond, Controller, Departed, Feedback, Newest, PeerTime};

use super::gcc::{Detector, Usage};
use super::{Gcc, LEAST_RATE, Nada};

const STEP: f64 = 0.033;
const ROUND_TRIP: f64 = 0.05;
/// The most that NADA may: 8 Mbit/s.
const MOST: f64 = 1e6;

/// A controller that hears 30 reports per second of ten packets each.
struct Heard<C> {
    controller: C,
    steps: u32,
    delivered: f64,
}

impl<C: Controller> Heard<C> {
    fn new(controller: C) -> Self {
        Self { controller, steps: 0, delivered: 0.0 }
    }

    fn rate(&self) -> f64 {
        self.controller.rate(Instant::default()).0
    }

    /// For so many seconds all that is sent arrives, up to `capacity`, after a queueing delay of so many seconds; of ten
    /// packets so many are lost.
    fn hear(&mut self, seconds: f64, capacity: f64, mut queue: impl FnMut(f64) -> f64, lost: usize) -> &mut Self {
        for step in 0..(seconds / STEP) as u32 {
            self.steps += 1;
            let sent_at = f64::from(self.steps) * STEP;
            let one_way = ROUND_TRIP / 2.0 + queue(f64::from(step) * STEP);
            let [sent_at, received_at, now] =
                [sent_at, 100.0 + sent_at + one_way, sent_at + one_way + ROUND_TRIP / 2.0].map(Duration::from_secs_f64);
            let sent_at = Instant::from_start(sent_at);
            self.delivered += self.rate().min(capacity) * STEP;
            let packets = [Departed { sent_at, bytes: 1200 }; 10];
            let newest = Newest {
                sent_at,
                received_at: Some(PeerTime(received_at)),
                ack_delay: Duration::ZERO,
                unread: Duration::ZERO,
            };
            self.controller.on_feedback(&Feedback {
                now: Instant::from_start(now),
                newest: Some(newest),
                acked: &packets[lost..],
                lost: &packets[..lost],
                delivered: self.delivered as u64,
                in_flight: 0,
            });
        }
        self
    }
}

const FREE: f64 = f64::INFINITY;

fn none(_: f64) -> f64 {
    0.0
}

#[test]
fn gcc_grows_by_eight_percent_a_second_on_a_free_path() {
    let mut gcc = Heard::new(Gcc::default());
    let first = gcc.hear(5.0, FREE, none, 0).rate();
    let grown = gcc.hear(10.0, FREE, none, 0).rate() / first;
    assert!((grown / 1.08_f64.powi(10) - 1.0).abs() < 0.02, "{grown}");
}

#[test]
fn gcc_falls_below_the_arriving_rate_when_the_delay_grows() {
    let mut gcc = Heard::new(Gcc::default());
    let before = gcc.hear(20.0, FREE, none, 0).rate();
    let after = gcc.hear(1.0, 0.8 * before, |at| 0.2 * at, 0).rate();
    // 85 % of the 80 % that arrive, and again for as long as the delay grows.
    assert!(after < 0.69 * before && after > 0.25 * before, "{before} {after}");
}

#[test]
fn gcc_grows_on_under_a_constant_delay_but_slowly_near_the_rate_that_was_too_much() {
    let mut gcc = Heard::new(Gcc::default());
    let before = gcc.hear(20.0, FREE, none, 0).rate();
    gcc.hear(1.0, before, |at| 0.2 * at, 0).hear(4.0, before, |_| 0.2, 0);
    let near = gcc.rate();
    let later = gcc.hear(1.0, before, |_| 0.2, 0).rate();
    assert!(later > near && later < 1.06 * near, "{near} {later}");
}

#[test]
fn gcc_never_runs_far_ahead_of_what_arrives() {
    let mut gcc = Heard::new(Gcc::default());
    assert!(gcc.hear(60.0, 50_000.0, none, 0).rate() <= 1.5 * 50_001.0, "{}", gcc.rate());
}

#[test]
fn gcc_reduces_by_half_the_share_that_is_lost_and_stands_a_little_loss() {
    let mut gcc = Heard::new(Gcc::default());
    let before = gcc.hear(20.0, FREE, none, 0).rate();
    let after = gcc.hear(10.0, FREE, none, 3).rate();
    assert!(after < 0.3 * before && after >= LEAST_RATE, "{before} {after}");
    let later = gcc.hear(5.0, FREE, none, 0).rate() / after;
    assert!((1.1..1.35).contains(&later), "{later}");
}

#[test]
fn a_detector_tells_a_queue_that_grows_from_one_that_stands_and_one_that_empties() {
    let mut detector = Detector::default();
    let mut at = 0.0;
    let mut delay = 50.0;
    let mut usage = |slope: f64| {
        (0..30).fold(Usage::Normal, |_, _| {
            (at, delay) = (at + 33.0, delay + 33.0 * slope);
            detector.hear(at, delay)
        })
    };
    let seen = [0.0, 0.3, 0.0, 0.0, -0.3].map(&mut usage);
    assert_eq!(seen, [Usage::Normal, Usage::Over, Usage::Normal, Usage::Normal, Usage::Under]);
}

fn nada() -> Heard<Nada> {
    Heard::new(Nada::up_to(BytesPerSecond(MOST)))
}

#[test]
fn nada_ramps_up_on_a_free_path_and_stops_at_its_highest_rate() {
    let mut nada = nada();
    let first = nada.hear(1.0, FREE, none, 0).rate();
    assert!(nada.hear(2.0, FREE, none, 0).rate() > 1.5 * first, "{first} {}", nada.rate());
    assert_eq!(nada.hear(60.0, FREE, none, 0).rate(), MOST);
}

#[test]
fn nada_holds_half_of_its_highest_rate_under_twice_its_reference_delay() {
    // XREF * RMAX / rate is the delay: at 20 ms of it the rate is half of the highest.
    let mut nada = nada();
    nada.hear(20.0, FREE, none, 0).hear(200.0, FREE, |_| 0.02, 0);
    assert!((nada.rate() / (0.5 * MOST) - 1.0).abs() < 0.01, "{}", nada.rate());
}

#[test]
fn nada_backs_off_when_the_delay_grows() {
    let mut nada = nada();
    let before = nada.hear(20.0, FREE, none, 0).rate();
    let after = nada.hear(1.0, FREE, |at| 0.2 * at, 0).rate();
    assert!(after < 0.8 * before && after > LEAST_RATE, "{before} {after}");
}

#[test]
fn nada_takes_losses_for_a_delay_and_stays_above_the_least_rate() {
    // A tenth lost is ten times PLRREF, or a hundred times DLOSS: a second, at which a hundredth of the rate is held.
    let mut nada = nada();
    nada.hear(20.0, FREE, none, 0).hear(60.0, FREE, none, 1);
    assert!((nada.rate() / (0.01 * MOST) - 1.0).abs() < 0.05, "{}", nada.rate());
    assert!(nada.hear(60.0, FREE, none, 9).rate() >= LEAST_RATE);
}

#[test]
fn nada_warps_long_delays_while_there_are_losses() {
    let held = |lost_at_first: usize| {
        let mut nada = nada();
        nada.hear(20.0, FREE, none, 0);
        for _ in 0..15 {
            // Two in a row, for an interval is known only after the second.
            nada.hear(0.034, FREE, |_| 0.2, lost_at_first).hear(2.0, FREE, |_| 0.2, 0);
        }
        nada.rate()
    };
    assert!(held(1) > 2.0 * held(0), "{} {}", held(1), held(0));
}
