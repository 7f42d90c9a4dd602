//! The controller upon a small path of one bottleneck, in virtual time.

use std::collections::VecDeque;
use std::vec::Vec;

use super::*;
use crate::congestion::{PeerTime, SentPacket};

const PACKET: u32 = 1200;
/// How far the peer's clock is off.
const OFFSET: f64 = 5000.0;

/// One bottleneck, and a sender that always has something to send.
struct Path {
    rate: f64,
    round_trip: f64,
    buffer: f64,
    /// One packet of this many is lost, if any.
    lose_every: Option<u64>,
    /// One packet of this many is late, if any: it counts as lost, and the next report acknowledges it.
    late_every: Option<u64>,
    /// Those that the next report acknowledges.
    late: Vec<SentPacket>,
    /// The mean time in seconds by which a packet is late, exponentially distributed. The order of packets is kept.
    jitter: f64,
    random: u64,
    reports_times: bool,
    glide: Glide,
    now: f64,
    free_at: f64,
    credit: f64,
    sent: u64,
    in_flight: u64,
    delivered: u64,
    /// When the peer has it, when it left, whether it is lost.
    under_way: VecDeque<(f64, f64, bool)>,
    reports: VecDeque<(f64, f64, Vec<SentPacket>, Vec<SentPacket>)>,
    unreported: (Vec<SentPacket>, Vec<SentPacket>, f64),
    queues: Vec<f64>,
    drops: u64,
    silent: bool,
    /// Bytes per second that there are to send.
    wanted: f64,
}

impl Path {
    fn new(mbit: f64, round_trip_ms: f64, buffer_ms: f64) -> Self {
        let mut glide = Glide::new(GlideConfig::default(), PACKET);
        glide.set_demand(Demand::Unmet);
        Self {
            rate: mbit * 125_000.0,
            round_trip: round_trip_ms / 1000.0,
            buffer: buffer_ms / 1000.0,
            lose_every: None,
            late_every: None,
            late: Vec::new(),
            jitter: 0.0,
            random: 1,
            reports_times: true,
            glide,
            now: 1.0,
            free_at: 0.0,
            credit: 0.0,
            sent: 0,
            in_flight: 0,
            delivered: 0,
            under_way: VecDeque::new(),
            reports: VecDeque::new(),
            unreported: (Vec::new(), Vec::new(), 1.0),
            queues: Vec::new(),
            drops: 0,
            silent: false,
            wanted: f64::INFINITY,
        }
    }

    fn want(&mut self, bytes_per_second: f64) {
        self.wanted = bytes_per_second;
        self.glide.set_demand(if bytes_per_second.is_finite() { Demand::Met } else { Demand::Unmet });
    }

    fn moment(seconds: f64) -> Instant {
        Instant::from_start(Duration::from_secs_f64(seconds))
    }

    /// Advances by milliseconds. Returns the share of the capacity that arrived.
    fn run(&mut self, seconds: f64) -> f64 {
        let (end, before) = (self.now + seconds, self.delivered);
        self.queues.clear();
        while self.now < end {
            self.now += 0.001;
            self.arrive();
            self.report();
            self.glide.on_tick(self.in_flight, Self::moment(self.now));
            self.send();
        }
        (self.delivered - before) as f64 / (self.rate * seconds)
    }

    fn send(&mut self) {
        let now = Self::moment(self.now);
        let rate = self.glide.rate(now).0.min(self.wanted);
        self.credit = (self.credit + rate * 0.001).min(f64::max(2400.0, 0.005 * rate));
        let window = self.glide.window(now).unwrap_or(u64::MAX);
        while self.credit >= 1200.0 && self.in_flight + u64::from(PACKET) <= window {
            self.credit -= 1200.0;
            self.in_flight += u64::from(PACKET);
            self.sent += 1;
            self.glide.on_sent(PACKET, now);
            let wait = (self.free_at - self.now).max(0.0);
            self.queues.push(wait);
            let is_dropped = wait > self.buffer;
            self.drops += u64::from(is_dropped);
            let is_lost = is_dropped || self.lose_every.is_some_and(|every| self.sent.is_multiple_of(every));
            if !is_dropped {
                self.free_at = self.free_at.max(self.now) + f64::from(PACKET) / self.rate;
            }
            let arrives = self.free_at + self.round_trip / 2.0 + self.lateness();
            let arrives = self.under_way.back().map_or(arrives, |(before, ..)| arrives.max(*before));
            self.under_way.push_back((arrives, self.now, is_lost));
        }
    }

    fn lateness(&mut self) -> f64 {
        // The generator of Knuth's MMIX.
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = ((self.random >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        -self.jitter * libm::log(uniform)
    }

    /// The peer reports after 16 packets or 33 ms. It knows of holes at once: the numbers tell.
    fn arrive(&mut self) {
        while let Some((at, sent, is_lost)) = self.under_way.front().copied().filter(|(at, ..)| *at <= self.now) {
            self.under_way.pop_front();
            let departed = SentPacket { sent_at: Self::moment(sent), bytes: PACKET, ..SentPacket::default() };
            if is_lost {
                self.unreported.1.push(departed);
                continue;
            }
            self.delivered += u64::from(PACKET);
            let number = self.delivered / u64::from(PACKET);
            if self.late_every.is_some_and(|every| number.is_multiple_of(every)) {
                self.unreported.1.push(departed);
                continue;
            }
            self.unreported.0.push(departed);
            if self.unreported.0.len() >= 16 || at - self.unreported.2 > 0.033 {
                let (acked, lost, _) = core::mem::replace(&mut self.unreported, (Vec::new(), Vec::new(), at));
                self.reports.push_back((at + self.round_trip / 2.0, at, acked, lost));
            }
        }
    }

    fn report(&mut self) {
        while let Some((at, received, acked, lost)) = self.reports.pop_front() {
            if at > self.now {
                self.reports.push_front((at, received, acked, lost));
                return;
            }
            if self.silent {
                continue;
            }
            self.in_flight = self.in_flight.saturating_sub(u64::from(PACKET) * (acked.len() + lost.len()) as u64);
            let sent_at = acked.last().unwrap().sent_at;
            let late = core::mem::take(&mut self.late);
            let acked = [&acked[..], &late].concat();
            self.late = if self.late_every.is_some() { lost.clone() } else { Vec::new() };
            let received_at = PeerTime(Duration::from_secs_f64(received + OFFSET));
            self.glide.on_feedback(&Feedback {
                now: Self::moment(self.now),
                newest: Some(NewestAck {
                    sent_at,
                    received_at: self.reports_times.then_some(received_at),
                    ack_delay: Duration::ZERO,
                    socket_delay: Duration::ZERO,
                }),
                acked: &acked,
                lost: &lost,
                late: &late,
                delivered: self.delivered,
                in_flight: self.in_flight,
            });
        }
    }

    /// The queue of which 95 of 100 packets find less, in milliseconds.
    fn queue(&self) -> f64 {
        let mut queues = self.queues.clone();
        queues.sort_by(f64::total_cmp);
        queues[queues.len() * 95 / 100] * 1000.0
    }
}

#[test]
fn paths_are_used_with_short_queues() {
    for (mbit, round_trip, buffer, max) in
        [(10.0, 40.0, 250.0, 20.0), (4.0, 50.0, 2000.0, 20.0), (1.0, 40.0, 1000.0, 25.0), (50.0, 20.0, 50.0, 20.0)]
    {
        let mut path = Path::new(mbit, round_trip, buffer);
        path.run(5.0);
        let drops = path.drops;
        let used = path.run(20.0);
        assert!(used >= 0.97, "{mbit} Mbit/s: {used}");
        assert!(path.queue() <= max, "{mbit} Mbit/s: {} ms", path.queue());
        assert_eq!(path.drops, drops, "{mbit} Mbit/s");
    }
}

#[test]
fn first_startup_fills_the_path_within_seven_round_trips() {
    let mut path = Path::new(20.0, 50.0, 250.0);
    path.run(0.35);
    let used = path.run(0.35);
    assert!(used >= 0.85, "{used}");
    assert!(path.queue() <= 60.0, "{} ms", path.queue());
    path.run(0.5);
    let used = path.run(2.0);
    assert!(used >= 0.97 && path.queue() <= 20.0, "{used}, {} ms", path.queue());
    assert_eq!(path.drops, 0);
}

#[test]
fn overflow_of_a_short_buffer_in_slow_start_leaves_no_limit() {
    for (mbit, buffer) in [(4.0, 20.0), (10.0, 30.0), (20.0, 20.0), (20.0, 30.0), (50.0, 20.0)] {
        let mut path = Path::new(mbit, 40.0, buffer);
        path.run(1.5);
        assert!(path.drops > 10, "{mbit} Mbit/s, {buffer} ms: slow start fitted into the buffer");
        let used = path.run(5.0);
        assert!(used >= 0.97, "{mbit} Mbit/s, {buffer} ms: {used}");
    }
    // Too long for slow start.
    let mut path = Path::new(20.0, 150.0, 20.0);
    path.run(2.5);
    assert!(path.drops > 50, "startup fitted into the buffer");
    let used = path.run(5.0);
    assert!(used >= 0.97, "{used}");
}

#[test]
fn losses_from_before_a_lower_limit_do_not_end_it() {
    // What is in flight when a tiny buffer renews its limit was sent above it, and is no sign of random loss.
    let mut path = Path::new(50.0, 150.0, 5.0);
    path.run(8.0);
    let drops = path.drops;
    let used = path.run(12.0);
    assert!(used >= 0.97 && path.drops - drops < 1000, "{used}, {} of 62,500 packets dropped", path.drops - drops);
}

#[test]
fn slow_start_ends_on_a_long_path_and_with_startup() {
    let mut path = Path::new(20.0, 130.0, 250.0);
    path.run(0.3);
    assert!(path.glide.mode == GlideMode::Startup && path.glide.slow_start.is_none());
    let mut path = Path::new(20.0, 600.0, 250.0);
    path.run(0.9);
    assert!(path.glide.mode == GlideMode::Startup && path.glide.slow_start.is_some());
    let mut path = Path::new(20.0, 50.0, 250.0);
    path.run(0.3);
    assert!(path.glide.mode == GlideMode::Startup && path.glide.slow_start.is_some());
    path.run(1.0);
    assert!(path.glide.mode == GlideMode::Delay && path.glide.slow_start.is_none());
}

#[test]
fn round_trip_replaces_missing_arrival_times() {
    let mut path = Path::new(4.0, 50.0, 500.0);
    path.reports_times = false;
    path.run(5.0);
    let used = path.run(20.0);
    // One frame more than otherwise: a peer without arrival times may read that late.
    assert!(used >= 0.95 && path.queue() <= 40.0, "{used}, {} ms", path.queue());
}

#[test]
fn random_loss_does_not_reduce_the_rate() {
    let mut path = Path::new(4.0, 60.0, 250.0);
    path.lose_every = Some(10);
    path.run(10.0);
    let used = path.run(20.0);
    assert!(used >= 0.85, "{used} of at max 0.9");
    assert!(path.queue() <= 35.0, "{} ms", path.queue());
}

#[test]
fn short_outage_costs_no_rate() {
    for outage in [0.08, 0.1, 0.15] {
        let mut path = Path::new(16.0, 90.0, 150.0);
        path.run(10.0);
        path.lose_every = Some(1);
        path.run(outage);
        path.lose_every = None;
        // A session sends two probe packets then, whatever is in flight.
        path.in_flight -= 2 * u64::from(PACKET);
        path.run(0.09);
        let used = path.run(4.0);
        assert!(used > 0.94, "{outage} s: {used}");
        assert!(path.glide.policer.rate().is_infinite() && path.glide.losses.random_loss() == 0.0);
    }
}

#[test]
fn startup_resumes_only_without_a_known_limit() {
    for (limit, expected) in [(None, GlideMode::Startup), (Some(1e5), GlideMode::Delay)] {
        let mut path = Path::new(20.0, 400.0, 400.0);
        path.glide.mode = GlideMode::Delay;
        if let Some(limit) = limit {
            path.glide.delay_mode.set_limit(limit);
        }
        path.run(0.8);
        assert_eq!(path.glide.mode, expected, "{limit:?}");
    }
}

#[test]
fn long_idle_application_starts_up_again() {
    let mut path = Path::new(10.0, 400.0, 600.0);
    let first = path.run(5.0);
    path.run(20.0);
    path.want(8000.0);
    path.run(15.0);
    assert!(path.glide.rate(Path::moment(path.now)).0 <= INITIAL.0);
    path.want(f64::INFINITY);
    let again = path.run(5.0);
    assert!(again > 0.9 * first, "{first} of the path at first, then {again}");
}

#[test]
fn transfer_after_a_pause_is_as_fast_as_the_first() {
    for (mbit, round_trip, buffer) in [(20.0, 50.0, 250.0), (100.0, 20.0, 100.0), (5.0, 30.0, 250.0)] {
        let mut path = Path::new(mbit, round_trip, buffer);
        let mut transfer = |pause: f64| {
            path.want(8000.0);
            path.run(pause);
            path.want(f64::INFINITY);
            let (begin, end) = (path.now, path.delivered + (1 << 20));
            while path.delivered < end && path.now < begin + 10.0 {
                path.run(0.01);
            }
            path.now - begin
        };
        let (first, _, again) = (transfer(2.0), transfer(0.5), transfer(30.0));
        assert!(again < 1.1 * first, "{mbit} Mbit/s: {first} s, then {again} s");
    }
}

#[test]
fn capacity_collapse_is_drained_in_two_seconds() {
    let mut path = Path::new(16.0, 50.0, 2000.0);
    path.run(10.0);
    path.rate /= 8.0;
    path.run(2.0);
    let used = path.run(10.0);
    assert!(used >= 0.95 && path.queue() <= 20.0, "{used}, {} ms", path.queue());
    path.rate *= 8.0;
    path.run(2.0);
    let used = path.run(10.0);
    assert!(used >= 0.95, "{used}");
}

/// A packet that is 40 ms late delays the next ones, too, so that nothing arrives for that long.
#[test]
fn late_packets_are_no_queue_and_no_collapse() {
    for (mbit, late_ms) in [(17.0, 6.0), (25.0, 5.0), (50.0, 4.0), (50.0, 6.0)] {
        let mut path = Path { jitter: late_ms / 1000.0, ..Path::new(mbit, 40.0, 250.0) };
        path.run(5.0);
        let used = path.run(40.0);
        assert!(used >= 0.967 && path.queue() <= 30.0, "{mbit} Mbit/s, {late_ms} ms: {used}, {} ms", path.queue());
    }
}

#[test]
fn reordered_packets_do_not_lengthen_the_queue() {
    for late_every in [3, 5, 20] {
        let mut path = Path { late_every: Some(late_every), ..Path::new(4.0, 50.0, 250.0) };
        path.run(5.0);
        let used = path.run(20.0);
        assert!(used >= 0.97 && path.queue() <= 20.0, "1 of {late_every}: {used}, {} ms", path.queue());
        assert!(path.glide.losses.long() < 0.03, "1 of {late_every}: {}", path.glide.losses.long());
    }
}

#[test]
fn silent_peer_reduces_the_rate_to_the_floor() {
    let mut path = Path::new(4.0, 50.0, 250.0);
    path.run(5.0);
    path.silent = true;
    path.run(3.0);
    assert_eq!(path.glide.rate(Path::moment(path.now)), FLOOR);
    path.silent = false;
    path.in_flight = 0;
    path.under_way.clear();
    path.reports.clear();
    path.run(10.0);
    assert!(path.run(5.0) > 0.9);
}

/// The first tick after a sleep finds all packets lost by time, so that nothing is in flight: that is no pause.
#[test]
fn losses_of_a_sleep_are_no_losses_of_the_path() {
    let mut path = Path::new(4.0, 50.0, 250.0);
    path.run(5.0);
    path.now += 3.0;
    path.reports.clear();
    let lost = path.under_way.drain(..).map(|(_, sent, _)| sent);
    let lost: Vec<_> = lost.map(|sent| SentPacket { sent_at: Path::moment(sent), ..SentPacket::default() }).collect();
    assert!(lost.len() > 10);
    path.unreported = (Vec::new(), lost, path.now);
    path.glide.on_tick(0, Path::moment(path.now));
    path.run(1.0);
    assert!(path.glide.losses.recent() == 0.0, "{}", path.glide.losses.recent());
}

#[test]
fn protected_rate_is_kept_with_any_queue() {
    let mut path = Path::new(4.0, 50.0, 250.0);
    path.glide.config.protected = BytesPerSecond(100_000.0);
    path.run(5.0);
    path.rate = 50_000.0;
    path.run(10.0);
    assert!(path.glide.rate(Path::moment(path.now)).0 >= 100_000.0);
}

#[test]
fn drain_that_is_due_waits_for_the_end_of_a_probe() {
    let mut glide = Glide::new(GlideConfig::default(), PACKET);
    let sample = path_sample::queued(0.009, 100.0);
    glide.delay_mode.set_limit(1e6);
    glide.probe_down(&sample);
    let probe = glide.hold.rate;
    glide.run_delay_mode(&sample, None);
    assert_eq!(glide.hold.rate, probe);
    glide.hold = FREE;
    glide.run_delay_mode(&sample, None);
    assert!(glide.hold.rate > 2.0 * probe, "{:?}", glide.hold);
}

#[test]
fn restart_ends_probe_and_held_rate() {
    let mut glide = Glide::new(GlideConfig::default(), PACKET);
    glide.probe_down(&path_sample::queued(0.2, 100.0));
    assert!(glide.down_probes.is_active() && glide.is_held(100.05));
    glide.restart();
    assert!(!glide.down_probes.is_active() && !glide.is_held(100.05));
    assert!(glide.slow_start.is_none(), "the path was measured before");
}

/// Returns how many samples are taken in the next half second, with feedback each 33 ms.
fn samples(path: &mut Path) -> usize {
    let is_new = |path: &mut Path| {
        let last = path.glide.samples.last;
        path.run(0.001);
        path.glide.samples.last != last
    };
    (0..500).filter(|_| is_new(path)).count()
}

#[test]
fn quiet_path_of_a_game_is_sampled_rarely() {
    let game = || {
        let mut path = Path::new(10.0, 40.0, 250.0);
        path.run(3.0);
        path.want(200_000.0);
        path.run(3.0);
        path
    };
    let mut path = game();
    let quiet = samples(&mut path);
    path.glide.set_demand(Demand::Unmet);
    let waiting = samples(&mut path);
    let mut path = game();
    path.lose_every = Some(3);
    path.run(0.1);
    let lossy = samples(&mut path);
    let mut path = game();
    // Other flows leave no more than the game needs.
    (path.rate, path.free_at) = (200_000.0, path.now + 0.05);
    path.run(0.1);
    let queued = samples(&mut path);
    assert!((4..=6).contains(&quiet), "{quiet} samples of a quiet path");
    assert!(waiting.min(lossy).min(queued) >= 12, "{waiting} {lossy} {queued}");
}
