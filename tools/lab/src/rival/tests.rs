//! Tests of the delay-based controllers, on generated reports.

use core::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_session::congestion::{BytesPerSecond, Controller, Feedback, NewestAck, PeerTime, SentPacket};

use super::gcc::{Detector, Usage};
use super::{Gcc, MIN_RATE, Nada};

const STEP: f64 = 0.033;
const ROUND_TRIP: f64 = 0.05;
/// The maximum rate of NADA: 8 Mbit/s.
const MAX_RATE: f64 = 1e6;

/// Feeds a controller with 30 reports per second of ten packets each.
struct ReportFeed<C> {
    controller: C,
    steps: u32,
    delivered: f64,
}

impl<C: Controller> ReportFeed<C> {
    fn new(controller: C) -> Self {
        Self { controller, steps: 0, delivered: 0.0 }
    }

    fn rate(&self) -> f64 {
        self.controller.rate(Instant::default()).0
    }

    /// Sends reports for this many seconds: packets arrive at up to `capacity` after a queueing delay in seconds, and
    /// `lost` of ten packets are lost.
    fn feed(&mut self, seconds: f64, capacity: f64, mut queue: impl FnMut(f64) -> f64, lost: usize) -> &mut Self {
        for step in 0..(seconds / STEP) as u32 {
            self.steps += 1;
            let sent_at = f64::from(self.steps) * STEP;
            let one_way = ROUND_TRIP / 2.0 + queue(f64::from(step) * STEP);
            let [sent_at, received_at, now] =
                [sent_at, 100.0 + sent_at + one_way, sent_at + one_way + ROUND_TRIP / 2.0].map(Duration::from_secs_f64);
            let sent_at = Instant::from_start(sent_at);
            self.delivered += self.rate().min(capacity) * STEP;
            let packets = [SentPacket { sent_at, bytes: 1200, ..SentPacket::default() }; 10];
            let newest = NewestAck {
                sent_at,
                received_at: Some(PeerTime(received_at)),
                ack_delay: Duration::ZERO,
                socket_delay: Duration::ZERO,
            };
            self.controller.on_feedback(&Feedback {
                now: Instant::from_start(now),
                newest: Some(newest),
                acked: &packets[lost..],
                lost: &packets[..lost],
                late: &[],
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
    let mut gcc = ReportFeed::new(Gcc::default());
    let first = gcc.feed(5.0, FREE, none, 0).rate();
    let grown = gcc.feed(10.0, FREE, none, 0).rate() / first;
    assert!((grown / 1.08_f64.powi(10) - 1.0).abs() < 0.02, "{grown}");
}

#[test]
fn gcc_falls_below_the_arriving_rate_when_the_delay_grows() {
    let mut gcc = ReportFeed::new(Gcc::default());
    let before = gcc.feed(20.0, FREE, none, 0).rate();
    let after = gcc.feed(1.0, 0.8 * before, |at| 0.2 * at, 0).rate();
    // The rate falls to 85 % of the arriving 80 %, and repeatedly while the delay grows.
    assert!(after < 0.69 * before && after > 0.25 * before, "{before} {after}");
}

#[test]
fn gcc_grows_slowly_near_the_overused_rate() {
    let mut gcc = ReportFeed::new(Gcc::default());
    let before = gcc.feed(20.0, FREE, none, 0).rate();
    gcc.feed(1.0, before, |at| 0.2 * at, 0).feed(4.0, before, |_| 0.2, 0);
    let near = gcc.rate();
    let later = gcc.feed(1.0, before, |_| 0.2, 0).rate();
    assert!(later > near && later < 1.06 * near, "{near} {later}");
}

#[test]
fn gcc_rate_is_limited_by_the_arrival_rate() {
    let mut gcc = ReportFeed::new(Gcc::default());
    assert!(gcc.feed(60.0, 50_000.0, none, 0).rate() <= 1.5 * 50_001.0, "{}", gcc.rate());
}

#[test]
fn gcc_reduces_its_rate_by_half_of_the_loss() {
    let mut gcc = ReportFeed::new(Gcc::default());
    let before = gcc.feed(20.0, FREE, none, 0).rate();
    let after = gcc.feed(10.0, FREE, none, 3).rate();
    assert!(after < 0.3 * before && after >= MIN_RATE, "{before} {after}");
    let later = gcc.feed(5.0, FREE, none, 0).rate() / after;
    assert!((1.1..1.35).contains(&later), "{later}");
}

#[test]
fn detector_distinguishes_growing_and_emptying_queues() {
    let mut detector = Detector::default();
    let mut at = 0.0;
    let mut delay = 50.0;
    let mut usage = |slope: f64| {
        (0..30).fold(Usage::Normal, |_, _| {
            (at, delay) = (at + 33.0, delay + 33.0 * slope);
            detector.update(at, delay)
        })
    };
    let seen = [0.0, 0.3, 0.0, 0.0, -0.3].map(&mut usage);
    assert_eq!(seen, [Usage::Normal, Usage::Over, Usage::Normal, Usage::Normal, Usage::Under]);
}

fn nada() -> ReportFeed<Nada> {
    ReportFeed::new(Nada::up_to(BytesPerSecond(MAX_RATE)))
}

#[test]
fn nada_ramps_up_to_its_maximum_rate() {
    let mut nada = nada();
    let first = nada.feed(1.0, FREE, none, 0).rate();
    assert!(nada.feed(2.0, FREE, none, 0).rate() > 1.5 * first, "{first} {}", nada.rate());
    assert_eq!(nada.feed(60.0, FREE, none, 0).rate(), MAX_RATE);
}

#[test]
fn nada_holds_half_its_rate_at_twice_the_reference_delay() {
    // XREF * RMAX / rate is the equilibrium delay: 20 ms holds half of the maximum rate.
    let mut nada = nada();
    nada.feed(20.0, FREE, none, 0).feed(200.0, FREE, |_| 0.02, 0);
    assert!((nada.rate() / (0.5 * MAX_RATE) - 1.0).abs() < 0.01, "{}", nada.rate());
}

#[test]
fn nada_backs_off_when_the_delay_grows() {
    let mut nada = nada();
    let before = nada.feed(20.0, FREE, none, 0).rate();
    let after = nada.feed(1.0, FREE, |at| 0.2 * at, 0).rate();
    assert!(after < 0.8 * before && after > MIN_RATE, "{before} {after}");
}

#[test]
fn nada_converts_losses_to_delay_above_the_minimum_rate() {
    // A loss of 10 % is ten times PLRREF and counts as a hundred times DLOSS: a delay of 1 s, which holds 1 % of the
    // rate.
    let mut nada = nada();
    nada.feed(20.0, FREE, none, 0).feed(60.0, FREE, none, 1);
    assert!((nada.rate() / (0.01 * MAX_RATE) - 1.0).abs() < 0.05, "{}", nada.rate());
    assert!(nada.feed(60.0, FREE, none, 9).rate() >= MIN_RATE);
}

#[test]
fn nada_warps_long_delays_while_there_are_losses() {
    let held = |lost_at_first: usize| {
        let mut nada = nada();
        nada.feed(20.0, FREE, none, 0);
        for _ in 0..15 {
            // Two losses, because an interval is known only after the second.
            nada.feed(0.034, FREE, |_| 0.2, lost_at_first).feed(2.0, FREE, |_| 0.2, 0);
        }
        nada.rate()
    };
    assert!(held(1) > 2.0 * held(0), "{} {}", held(1), held(0));
}
