//! What a connection asks: how many bytes may leave now, when the next may, and what a game had best send.
//!
//! It joins a controller, which knows the path, with a bucket, which knows the moment.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use super::pacer::Pacer;
use super::timing::RoundTrip;
use super::{
    Binary, BinaryConfig, BytesPerSecond, Controller, Demand, Departed, FLOOR_INTERVAL, FLOOR_PACKET_BYTES, Feedback,
    Fixed, Glide, GlideConfig, Phase, Shape, Suggestion, Timing,
};
use slipgate_netcode::time::Instant;

/// Weight of a new interval between two ticks.
const TICK_SMOOTHING: f64 = 0.125;
/// Nobody's tick is longer: 10 in a second are the article's slow rate.
const LONGEST_TICK: Duration = FLOOR_INTERVAL;
/// A packet of what can wait lasts no longer on the path, in seconds, unless it is of the least kind.
const BULK_PACKET_TIME: f64 = 0.010;
/// So many lost packets are kept for the controller while nothing is heard.
const MOST_UNTOLD: usize = 1024;
/// Weight of one packet's fate in the share of lost packets.
const LOSS_SMOOTHING: f64 = 0.01;

/// Which algorithm rules a connection.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Algorithm {
    /// The rate follows what the path delivers, and its queue stays short.
    Glide(GlideConfig),
    /// Two rates, after "Fiedler, Reliability, Ordering and Congestion Avoidance over UDP".
    Binary(BinaryConfig),
    /// One rate always: for local networks and for tests.
    Fixed(BytesPerSecond),
}

/// How a connection avoids congestion.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Config {
    /// Which algorithm rules it.
    pub algorithm: Algorithm,
    /// What its packets are like.
    pub shape: Shape,
}

impl Default for Config {
    /// Glide, and 60 packets in a second of at most 1,200 bytes, in netcode's 25 and UDP's and IPv4's 28.
    fn default() -> Self {
        Self {
            algorithm: Algorithm::Glide(GlideConfig::default()),
            shape: Shape { packets_per_second: 60.0, packet_bytes: 1253, header_bytes: 67 },
        }
    }
}

/// What a packet may draw on, where some of what waits is more urgent than the rest. In bytes on the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Claim {
    /// It may leave so much ahead of what has come in, for others have drawn on that which can wait.
    pub ahead: u64,
    /// It leaves so much room in the window, for others that cannot wait.
    pub kept: u64,
}

/// What is known of a connection's path, and what it may do there.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stats {
    /// How fast bytes may leave.
    pub rate: BytesPerSecond,
    /// How many bytes may be under way; `None` for as many as the rate brings.
    pub window: Option<u64>,
    /// What the controller is doing.
    pub phase: Phase,
    /// The least round trip of the last 20 s; `None` before the first.
    pub base_round_trip: Option<Duration>,
    /// The smoothed round trip; `None` before the first.
    pub round_trip: Option<Duration>,
    /// How long packets wait in the bottleneck's queue: as the controller measured it, or else by how much the smoothed
    /// round trip is longer than the least. `None` before the first.
    pub queueing_delay: Option<Duration>,
    /// The share of packets of late, about the last hundred, that were lost.
    pub loss: f64,
    /// Whether the application wants more than it may.
    pub demand: Demand,
}

/// The congestion avoidance of one connection. Bytes are those on the path, headers included.
pub struct Congestion {
    controller: Box<dyn Controller + Send>,
    pacer: Pacer,
    path: RoundTrip,
    shape: Shape,
    demand: Demand,
    loss: f64,
    sent_at: Option<Instant>,
    ticked_at: Option<Instant>,
    tick: Duration,
    /// Lost packets of which the controller has not heard.
    untold: Vec<Departed>,
}

impl Congestion {
    /// Rules by one of the algorithms that come with this crate.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let controller: Box<dyn Controller + Send> = match config.algorithm {
            Algorithm::Glide(glide) => Box::new(Glide::new(glide, config.shape.packet_bytes)),
            Algorithm::Binary(binary) => Box::new(Binary::new(binary, config.shape.header_bytes)),
            Algorithm::Fixed(rate) => Box::new(Fixed::new(rate)),
        };
        Self::with_controller(controller, config.shape)
    }

    /// Rules by an algorithm of the caller's.
    #[must_use]
    pub fn with_controller(controller: Box<dyn Controller + Send>, shape: Shape) -> Self {
        Self {
            controller,
            pacer: Pacer::new(shape.packet_bytes),
            path: RoundTrip::new(),
            shape,
            demand: Demand::Met,
            loss: 0.0,
            sent_at: None,
            ticked_at: None,
            tick: Duration::ZERO,
            untold: Vec::new(),
        }
    }

    /// A packet has left, whether or not the budget allowed it.
    pub fn on_sent(&mut self, bytes: u32, now: Instant) {
        self.fill(now);
        self.pacer.spend(bytes, self.controller.rate(now), self.tick);
        self.controller.on_sent(bytes, now);
        self.sent_at = Some(now);
    }

    /// A datagram of the peer told of our packets, be it that nothing is new.
    pub fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.fill(feedback.now);
        let newest = feedback.newest.filter(|newest| self.path.believes(newest, feedback.now));
        let feedback = &Feedback { newest, ..*feedback };
        self.path.on_feedback(feedback);
        for _ in feedback.acked {
            self.loss -= self.loss * LOSS_SMOOTHING;
        }
        if self.untold.is_empty() {
            self.note_lost(feedback.lost);
            return self.controller.on_feedback(feedback);
        }
        self.on_lost(feedback.lost);
        self.controller.on_feedback(&Feedback { lost: &self.untold, ..*feedback });
        self.untold.clear();
    }

    /// Packets count as lost because time has passed, and not because of something that the peer told.
    ///
    /// That is no feedback: it says nothing of the path that silence does not say. The controller hears of them with the
    /// next datagram of the peer's, of the first 1,024 at most.
    pub fn on_lost(&mut self, lost: &[Departed]) {
        self.note_lost(lost);
        let room = MOST_UNTOLD.saturating_sub(self.untold.len());
        self.untold.extend(lost.iter().take(room));
    }

    fn note_lost(&mut self, lost: &[Departed]) {
        for _ in lost {
            self.loss += (1.0 - self.loss) * LOSS_SMOOTHING;
        }
    }

    /// Time has passed; to be called each time before packets are composed. How often that is tells how long a tick
    /// is, whose whole worth may then leave at once.
    pub fn on_tick(&mut self, in_flight: u64, now: Instant) {
        self.fill(now);
        if let Some(ticked_at) = self.ticked_at {
            let interval = now.since(ticked_at).min(LONGEST_TICK);
            self.tick = if self.tick.is_zero() {
                interval
            } else {
                self.tick.mul_f64(1.0 - TICK_SMOOTHING) + interval.mul_f64(TICK_SMOOTHING)
            };
        }
        self.ticked_at = Some(now);
        self.controller.on_tick(in_flight, now);
    }

    /// How far apart ticks are, smoothed; zero before the second.
    #[must_use]
    pub const fn tick_interval(&self) -> Duration {
        self.tick
    }

    /// Whether the application has more to send than it was allowed: to be told after each tick's packets.
    pub fn set_demand(&mut self, demand: Demand) {
        self.demand = demand;
        self.controller.set_demand(demand);
    }

    /// How many bytes may leave now. A packet of 256 bytes may leave each 100 ms whatever the path does, so that the
    /// connection lives.
    ///
    /// Who has much to send had best wait for a whole packet's worth; see [`Congestion::next_send`].
    #[must_use]
    pub fn budget(&self, in_flight: u64, now: Instant) -> u64 {
        self.budget_of(Claim::default(), in_flight, now).max(0) as u64
    }

    /// As [`Congestion::budget`], for what draws on it by a claim; below zero by as much as others were ahead.
    #[must_use]
    pub fn budget_of(&self, claim: Claim, in_flight: u64, now: Instant) -> i64 {
        let credit = self.pacer.credit(self.controller.rate(now), self.tick, now) as i64;
        let paced = credit.saturating_add_unsigned(claim.ahead);
        let room = i64::try_from(self.room(in_flight, now)).unwrap_or(i64::MAX).saturating_sub_unsigned(claim.kept);
        let allowed = paced.min(room);
        if now >= self.alive_at() { allowed.max(FLOOR_PACKET_BYTES.into()) } else { allowed }
    }

    /// When a whole packet may leave if no acknowledgement comes before, or else the next small one that keeps the
    /// connection alive; `None` while nothing waits for leave.
    #[must_use]
    pub fn next_send(&self, in_flight: u64, now: Instant) -> Option<Instant> {
        self.next_send_of(u64::MAX, Claim::default(), in_flight, now)
    }

    /// As [`Congestion::next_send`], for what has so many bytes, or a whole packet of it if it has more, and draws on the
    /// budget by a claim.
    #[must_use]
    pub fn next_send_of(&self, bytes: u64, claim: Claim, in_flight: u64, now: Instant) -> Option<Instant> {
        if self.demand == Demand::Met {
            return None;
        }
        let bytes = bytes.min(self.shape.packet_bytes.into());
        let alive = self.alive_at().max(now);
        if self.room(in_flight, now) < bytes.saturating_add(claim.kept) {
            return Some(alive);
        }
        let credit = (bytes as i64).saturating_sub_unsigned(claim.ahead);
        let ready = self.pacer.ready_at(credit, self.controller.rate(now), self.tick, now);
        Some(ready.min(alive))
    }

    /// How large the packets of what can wait had best be: what the rate brings in 10 ms, at least 256 bytes, at most a
    /// whole packet. A larger one would keep what comes behind it waiting on a thin path, and would itself look like a queue
    /// there.
    #[must_use]
    pub fn bulk_packet_bytes(&self, now: Instant) -> u32 {
        let bytes = (self.controller.rate(now).0 * BULK_PACKET_TIME) as u32;
        bytes.max(FLOOR_PACKET_BYTES).min(self.shape.packet_bytes)
    }

    /// What a game had best send now, to be asked before it composes a tick.
    #[must_use]
    pub fn suggestion(&self, now: Instant) -> Suggestion {
        self.controller.report().suggestion.unwrap_or_else(|| self.shape.at(self.controller.rate(now)))
    }

    /// What a packet's deadlines go by.
    #[must_use]
    pub fn timing(&self) -> Timing {
        self.path.timing()
    }

    /// What is known of the path, and what the connection may do there.
    #[must_use]
    pub fn stats(&self, now: Instant) -> Stats {
        let report = self.controller.report();
        let (base, smoothed) = (self.path.base(), self.path.smoothed());
        let by_round_trip = base.zip(smoothed).map(|(base, smoothed)| smoothed.saturating_sub(base));
        Stats {
            rate: self.controller.rate(now),
            window: self.controller.window(now),
            phase: report.phase,
            base_round_trip: base,
            round_trip: smoothed,
            queueing_delay: report.queueing_delay.or(by_round_trip),
            loss: self.loss,
            demand: self.demand,
        }
    }

    fn fill(&mut self, now: Instant) {
        self.pacer.fill(self.controller.rate(now), self.tick, now);
    }

    fn room(&self, in_flight: u64, now: Instant) -> u64 {
        self.controller.window(now).map_or(u64::MAX, |window| window.saturating_sub(in_flight))
    }

    /// When a packet may leave that keeps the connection alive.
    fn alive_at(&self) -> Instant {
        self.sent_at.map_or_else(Instant::default, |sent_at| sent_at.after(FLOOR_INTERVAL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    /// A window that is always full.
    struct Shut;

    impl Controller for Shut {
        fn on_sent(&mut self, _: u32, _: Instant) {}
        fn on_feedback(&mut self, _: &Feedback<'_>) {}
        fn on_tick(&mut self, _: u64, _: Instant) {}
        fn set_demand(&mut self, _: Demand) {}
        fn rate(&self, _: Instant) -> BytesPerSecond {
            BytesPerSecond(1e6)
        }
        fn window(&self, _: Instant) -> Option<u64> {
            Some(0)
        }
    }

    fn fixed(rate: f64) -> Congestion {
        Congestion::new(Config { algorithm: Algorithm::Fixed(BytesPerSecond(rate)), ..Config::default() })
    }

    #[test]
    fn a_small_packet_each_tenth_of_a_second_passes_a_shut_window() {
        let mut congestion = Congestion::with_controller(Box::new(Shut), Config::default().shape);
        congestion.set_demand(Demand::Unmet);
        let mut sent = 0;
        for millis in 0..10_000 {
            let budget = congestion.budget(5000, at(millis));
            if budget > 0 {
                assert_eq!(budget, 256);
                congestion.on_sent(256, at(millis));
                sent += 1;
                assert_eq!(congestion.next_send(5000, at(millis)), Some(at(millis + 100)));
            }
        }
        assert_eq!(sent, 100);
    }

    #[test]
    fn a_packet_of_what_can_wait_lasts_ten_milliseconds_within_the_least_and_the_largest() {
        for (rate, bytes) in [(2560.0, 256), (32_000.0, 320), (64_000.0, 640), (1e6, 1253), (1e12, 1253)] {
            assert_eq!(fixed(rate).bulk_packet_bytes(at(0)), bytes, "{rate}");
        }
    }

    #[test]
    fn a_game_of_sixty_ticks_sends_all_that_the_rate_brings() {
        for (name, ticks) in [("even", [16, 17, 17]), ("uneven", [10, 24, 16])] {
            let mut congestion = fixed(2_500_000.0);
            let (mut now, mut left) = (0, 0);
            for tick in ticks.into_iter().cycle().take(600) {
                now += tick;
                congestion.on_tick(0, at(now));
                while congestion.budget(0, at(now)) >= 1253 {
                    congestion.on_sent(1253, at(now));
                    left += 1253;
                }
            }
            let share = f64::from(left) / (2500.0 * now as f64);
            assert!((0.985..=1.005).contains(&share), "{name}: {share}");
        }
    }

    #[test]
    fn the_next_departure_is_when_a_whole_packet_may_leave() {
        let mut congestion = fixed(125_300.0);
        assert_eq!(congestion.next_send(0, at(0)), None, "nothing waits");
        congestion.set_demand(Demand::Unmet);
        assert_eq!(congestion.next_send(0, at(0)), Some(at(0)));
        for _ in 0..2 {
            congestion.on_sent(1253, at(0));
        }
        let next = congestion.next_send(0, at(0)).unwrap();
        assert!(next >= at(10) && next < at(11), "{next:?}");
        assert!(congestion.budget(0, next) >= 1253);
    }

    /// A controller that remembers which losses it was told of.
    #[derive(Clone, Default)]
    struct Listening(std::sync::Arc<std::sync::Mutex<Vec<u64>>>);

    impl Controller for Listening {
        fn on_sent(&mut self, _: u32, _: Instant) {}
        fn on_feedback(&mut self, feedback: &Feedback<'_>) {
            let told = feedback.lost.iter().map(|lost| lost.sent_at.since_start().as_millis() as u64);
            self.0.lock().unwrap().extend(told);
        }
        fn on_tick(&mut self, _: u64, _: Instant) {}
        fn set_demand(&mut self, _: Demand) {}
        fn rate(&self, _: Instant) -> BytesPerSecond {
            BytesPerSecond(1e6)
        }
        fn window(&self, _: Instant) -> Option<u64> {
            None
        }
    }

    #[test]
    fn of_what_is_lost_in_a_silence_the_first_1024_are_told_and_all_of_it_counts() {
        let controller = Listening::default();
        let mut congestion = Congestion::with_controller(Box::new(controller.clone()), Config::default().shape);
        let told = || core::mem::take(&mut *controller.0.lock().unwrap());
        let lost = |numbers: core::ops::Range<u64>| -> Vec<Departed> {
            numbers.map(|number| Departed { sent_at: at(number), bytes: 1000 }).collect()
        };
        let hear = |congestion: &mut Congestion, lost: &[Departed]| {
            congestion.on_feedback(&Feedback {
                now: at(9000),
                newest: None,
                acked: &[],
                lost,
                delivered: 0,
                in_flight: 0,
            });
        };
        // The bound is met in the middle of a hundred; and a thousand more are found with nothing said.
        for hundred in 0..20 {
            congestion.on_lost(&lost(100 * hundred..100 * (hundred + 1)));
            assert!(congestion.untold.len() <= MOST_UNTOLD && congestion.untold.capacity() <= 2 * MOST_UNTOLD);
        }
        assert!(told().is_empty(), "nothing was heard");
        let of_all = congestion.stats(at(9000)).loss;
        assert!(of_all > 0.999_999, "the share of lost packets is that of all 2,000: {of_all}");
        // Nor is there room for what this datagram tells of.
        hear(&mut congestion, &lost(2000..2010));
        assert_eq!(told(), (0..1024).collect::<Vec<_>>());
        hear(&mut congestion, &lost(2010..2012));
        assert_eq!(told(), [2010, 2011], "and then there is");
    }

    #[test]
    fn statistics_tell_of_the_path() {
        let mut congestion = fixed(1e6);
        assert_eq!(congestion.stats(at(0)).queueing_delay, None);
        let departed = Departed { sent_at: at(0), bytes: 1000 };
        for (now, rtt) in [(1000, 40), (2000, 80), (3000, 80)] {
            let newest = super::super::Newest {
                sent_at: at(now - rtt),
                received_at: None,
                ack_delay: Duration::ZERO,
                unread: Duration::ZERO,
            };
            congestion.on_feedback(&Feedback {
                now: at(now),
                newest: Some(newest),
                acked: &[departed; 30],
                lost: &[departed; 10],
                delivered: 0,
                in_flight: 0,
            });
        }
        let stats = congestion.stats(at(3000));
        assert_eq!(
            (stats.base_round_trip, stats.rate, stats.window),
            (Some(Duration::from_millis(40)), BytesPerSecond(1e6), None)
        );
        assert!(stats.queueing_delay.unwrap() > Duration::from_millis(5), "{stats:?}");
        assert!((0.15..0.35).contains(&stats.loss), "{stats:?}");
    }
}
