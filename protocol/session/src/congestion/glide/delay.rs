//! How long packets wait in the bottleneck's queue.
//!
//! One-way delay by the peer's clock where the peer says when packets arrived, so that a slow way back says nothing; the
//! round trip where it does not. The least delay of late is the path itself, what is above it the queue.

use core::time::Duration;

use super::super::extreme::Extreme;
use super::ring::Ring;

/// How far back the path's own delay is looked for: as long as a route usually stays.
const BASE_WINDOW: Duration = Duration::from_secs(20);
/// The same while others keep the queue full, when the path's own delay is rarely seen.
const BASE_WINDOW_IN_COMPANY: Duration = Duration::from_secs(60);
/// The shortest and the longest time over which the least sample counts, in seconds: shorter than this, jitter passes
/// for a queue; longer, a queue is seen too late.
const LEAST_FILTER: f64 = 0.05;
const MOST_FILTER: f64 = 0.20;
/// Samples of the longest filter, each of at least a 128th of it.
const SAMPLES: usize = 128;
/// Weight of a new sample in the smoothed round trip (RFC 6298, section 2.3).
const ROUND_TRIP_SMOOTHING: f64 = 0.125;
/// Feedback comes at 30 per second ("Fiedler, Reliability, Ordering and Congestion Avoidance over UDP") until its
/// interval was measured, in seconds.
const FEEDBACK_INTERVAL: f64 = 0.033;
/// Weight of a new interval.
const INTERVAL_SMOOTHING: f64 = 0.1;
/// A longer silence is none of the peer's rhythm, in seconds.
const LONGEST_INTERVAL: f64 = 0.3;
/// Weight of a new difference in the jitter.
const JITTER_SMOOTHING: f64 = 0.05;
/// A greater difference between two samples is no jitter, in seconds.
const MOST_JITTER: f64 = 0.02;
/// Less jitter than this needs no allowance, in seconds: any path with a scheduler has it.
const FREE_JITTER: f64 = 0.001;
/// The one-way delay is further above its least than the round trip above its own by more than this, in seconds: no queue
/// does that, for it is in both; but a clock that stood still does, of a machine that slept.
const CLOCK_JUMP: f64 = 0.1;
/// What is left of the jitter after the filter, as a share.
const JITTER_LEFT: f64 = 0.35;

/// What is measured of a path's delay; all in seconds.
#[derive(Clone, Debug)]
pub(super) struct Delay {
    round_trip: Option<f64>,
    feedback_interval: f64,
    heard_at: Option<f64>,
    base: [Extreme; 2],
    base_round_trip: [Extreme; 2],
    company: bool,
    recent: Ring<Least>,
    /// The two newest samples as far as they are certain, the newest first.
    newest: [Option<f64>; 2],
    previous: Option<f64>,
    jitter: f64,
    /// The round trip and the one-way delay of the newest packet.
    measured: Option<(f64, f64)>,
}

/// The least of the samples from a moment on.
#[derive(Clone, Copy, Debug)]
struct Least {
    since: f64,
    queue: f64,
    /// By how much a packet was read late, at most; the sample that is known best counts.
    unread: f64,
}

impl Delay {
    pub(super) fn new() -> Self {
        let base = [Extreme::least(BASE_WINDOW), Extreme::least(BASE_WINDOW_IN_COMPANY)];
        Self {
            round_trip: None,
            feedback_interval: FEEDBACK_INTERVAL,
            heard_at: None,
            base_round_trip: base.clone(),
            base,
            company: false,
            recent: Ring::new(SAMPLES + 2),
            newest: [None; 2],
            previous: None,
            jitter: 0.0,
            measured: None,
        }
    }

    /// Some feedback arrived: how long after the one before, if there was one.
    pub(super) fn hear(&mut self, now: f64) -> Option<f64> {
        let interval = self.heard_at.map(|heard_at| now - heard_at);
        if let Some(interval) = interval {
            self.feedback_interval += INTERVAL_SMOOTHING * (interval.min(LONGEST_INTERVAL) - self.feedback_interval);
        }
        self.heard_at = Some(now);
        interval
    }

    /// A packet's round trip and its one-way delay, by whatever offset between the clocks.
    pub(super) fn measure(&mut self, round_trip: f64, one_way: f64, now: f64) {
        let previous = self.measured.replace((round_trip, one_way));
        if let Some(further) = previous.and_then(|previous| self.clock_jump((round_trip, one_way), previous)) {
            self.clocks_moved(further, now);
        }
        let smoothed = self.round_trip.unwrap_or(round_trip);
        self.round_trip = Some(smoothed + ROUND_TRIP_SMOOTHING * (round_trip - smoothed));
        for base in &mut self.base_round_trip {
            base.push(round_trip, now);
        }
        for base in &mut self.base {
            base.push(one_way, now);
        }
    }

    /// By how much the clocks moved apart, if the round trip cannot hold what the one-way delay says.
    ///
    /// Two samples say nothing: a radio that stands still both ways keeps first an acknowledgement waiting, then the next
    /// packet, and so the round trip does not change while the way there grows by all of it. What counts is the least of
    /// either, and of the round trip that of a minute, which is seldom that of a way back with a queue of its own.
    fn clock_jump(&self, (round_trip, one_way): (f64, f64), previous: (f64, f64)) -> Option<f64> {
        let [_, least_round_trip] = &self.base_round_trip;
        let (above, above_round_trip) = (self.above_base(one_way), round_trip - least_round_trip.value()?);
        let (previous_round_trip, previous_one_way) = previous;
        if above - above_round_trip > CLOCK_JUMP {
            // Should the round trip have grown by the way back, the least delay is too short, and would last; so it moves by
            // the whole jump if that is more. One that is too long is mended by the next lesser sample.
            let jump = (one_way - previous_one_way) - (round_trip - previous_round_trip);
            return Some(jump.max(above - above_round_trip));
        }
        // Backwards the least delay would follow by itself, but hide the queue that there was.
        let queue = self.above_base(previous_one_way).min(above_round_trip).max(0.0);
        (above < -CLOCK_JUMP && above_round_trip - above > CLOCK_JUMP).then_some(above - queue)
    }

    /// The queue that a packet of this one-way delay met.
    pub(super) fn above_base(&self, one_way: f64) -> f64 {
        one_way - self.of_route(&self.base).unwrap_or(one_way)
    }

    /// Takes a packet's queue into the filter; `steady` unless the path has just stood still. So much of it, `unread`, may
    /// be the time in which nobody read it: no queue of the path's, and not the same for each packet, for two loops of
    /// nearly the same length drift past each other.
    pub(super) fn sample(&mut self, queue: f64, unread: f64, steady: bool, now: f64) {
        if let Some(previous) = self.previous.filter(|_| steady) {
            let difference = (queue - previous).abs().min(MOST_JITTER);
            self.jitter += JITTER_SMOOTHING * (difference - self.jitter);
        }
        self.previous = Some(queue);
        let [newest, _] = self.newest;
        self.newest = [Some(queue - unread), newest];
        match self.recent.newest_mut() {
            Some(least) if now < least.since + MOST_FILTER / SAMPLES as f64 => {
                (least.queue, least.unread) = (least.queue.min(queue), least.unread.min(unread));
            }
            _ => self.recent.push(Least { since: now, queue, unread }),
        }
    }

    /// The least queue of the filter's time, without what jitter leaves in it.
    pub(super) fn queue(&mut self, now: f64) -> Option<f64> {
        let filter = (0.5 * self.round_trip?).max(2.5 * self.feedback_interval).clamp(LEAST_FILTER, MOST_FILTER);
        self.recent.drop_while(2, |least, _| least.since < now - filter);
        let queue = self.recent.iter().map(|least| least.queue).reduce(f64::min)?;
        let unread = self.recent.iter().map(|least| least.unread).reduce(f64::min)?;
        Some((queue - unread - JITTER_LEFT * self.excess_jitter()).max(0.0))
    }

    /// The lesser of the two newest samples, without what jitter leaves in it.
    pub(super) fn queue_at_once(&self) -> Option<f64> {
        let least = self.newest.iter().flatten().copied().reduce(f64::min)?;
        Some((least - 2.0 * JITTER_LEFT * self.excess_jitter()).max(0.0))
    }

    /// Jitter beyond what any path has.
    pub(super) fn excess_jitter(&self) -> f64 {
        (self.jitter - FREE_JITTER).max(0.0)
    }

    /// The smoothed round trip; `None` before the first.
    pub(super) fn round_trip(&self) -> Option<f64> {
        self.round_trip
    }

    /// The round trip without queues; `None` before the first.
    pub(super) fn base_round_trip(&self) -> Option<f64> {
        self.of_route(&self.base_round_trip)
    }

    pub(super) fn feedback_interval(&self) -> f64 {
        self.feedback_interval
    }

    pub(super) fn heard_at(&self) -> Option<f64> {
        self.heard_at
    }

    /// Whether others keep the queue full, so that the path's own delay must be remembered longer.
    pub(super) fn set_company(&mut self, company: bool) {
        self.company = company;
    }

    /// Forgets the samples of the queue, but not the path.
    pub(super) fn forget_queue(&mut self) {
        self.recent.clear();
        self.newest = [None; 2];
    }

    /// The clocks of the two ends are `further` apart than before.
    fn clocks_moved(&mut self, further: f64, now: f64) {
        for base in &mut self.base {
            if let Some(old) = base.value() {
                base.restart(old + further, now);
            }
        }
        self.forget_queue();
    }

    /// The path itself became `longer`: what looked like a queue is none.
    pub(super) fn rebase(&mut self, longer: f64, now: f64) {
        for (bases, value) in [(&mut self.base, self.company), (&mut self.base_round_trip, self.company)] {
            let [short, long] = bases;
            let old = if value { long.value() } else { short.value() };
            if let Some(old) = old {
                short.restart(old + longer, now);
                long.restart(old + longer, now);
            }
        }
        self.forget_queue();
    }

    fn of_route(&self, bases: &[Extreme; 2]) -> Option<f64> {
        let [short, long] = bases;
        if self.company { long.value() } else { short.value() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of one-way delay in milliseconds, 10 ms apart, from a clock an hour off.
    fn after(delays: impl IntoIterator<Item = f64>) -> (Delay, f64) {
        let (mut delay, mut now) = (Delay::new(), 0.0);
        for one_way in delays {
            now += 0.01;
            delay.hear(now);
            let one_way = 3600.0 + one_way / 1000.0;
            delay.measure(0.04, one_way, now);
            let queue = delay.above_base(one_way);
            delay.sample(queue, 0.0, true, now);
        }
        (delay, now)
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    #[test]
    fn the_queue_is_what_lies_above_the_least_delay_whatever_the_clocks_say() {
        let (mut delay, now) = after([20.0; 30].into_iter().chain([50.0; 1000]));
        assert!((delay.queue(now).unwrap() - 0.030).abs() < 1e-6);
        assert!((delay.queue_at_once().unwrap() - 0.030).abs() < 1e-6);
        let (mut idle, now) = after([20.0; 100]);
        assert!(close(idle.queue(now).unwrap(), 0.0));
    }

    #[test]
    fn one_late_packet_is_no_queue() {
        let (mut delay, now) = after([20.0; 300].into_iter().chain([90.0]));
        assert!(close(delay.queue(now).unwrap(), 0.0));
        assert!(close(delay.queue_at_once().unwrap(), 0.0));
    }

    #[test]
    fn jitter_is_allowed_for() {
        let (mut delay, now) = after((0..2000).map(|packet| 20.0 + f64::from(packet * 7 % 11)));
        assert!(delay.excess_jitter() > 0.002, "{}", delay.excess_jitter());
        assert!(close(delay.queue(now).unwrap(), 0.0));
    }

    #[test]
    fn what_may_have_been_the_readers_own_waiting_is_no_queue() {
        // Two loops of nearly the same length: the waiting grows to a frame, over minutes.
        let (mut delay, mut now) = (Delay::new(), 0.0);
        for packet in 0..4000 {
            now += 0.016;
            delay.hear(now);
            let one_way = 3600.0 + f64::from(packet % 1000) * 16e-6;
            delay.measure(0.001, one_way, now);
            let queue = delay.above_base(one_way);
            delay.sample(queue, 0.016, true, now);
            assert!(close(delay.queue(now).unwrap(), 0.0), "{packet}");
            assert!(close(delay.queue_at_once().unwrap(), 0.0), "{packet}");
        }
        // What is longer than that is one.
        for _ in 0..30 {
            now += 0.016;
            delay.sample(0.056, 0.016, true, now);
        }
        assert!((delay.queue(now).unwrap() - 0.040).abs() < 0.002, "{:?}", delay.queue(now));
    }

    #[test]
    fn a_longer_route_is_the_path_itself_after_its_window_or_at_once_when_told() {
        let (mut delay, now) = after([20.0; 30].into_iter().chain([100.0; 1900]));
        assert!(delay.queue(now).unwrap() > 0.07);
        let (mut late, later) = after([20.0; 30].into_iter().chain([100.0; 2200]));
        assert!(close(late.queue(later).unwrap(), 0.0));
        delay.rebase(0.08, now);
        assert_eq!(delay.queue(now), None);
        assert!(close(delay.above_base(3600.1), 0.0));
    }

    #[test]
    fn a_clock_that_stood_still_is_no_queue_and_a_queue_that_comes_at_once_is() {
        let (mut delay, mut now) = after([20.0; 30]);
        let mut take = |one_way: f64, round_trip: f64| {
            now += 0.01;
            delay.measure(round_trip, 3600.0 + one_way, now);
            delay.above_base(3600.0 + one_way)
        };
        // The sender's clock stood still for three seconds while the path grew a queue of 30 ms.
        assert!(close(take(3.050, 0.070), 0.030));
        assert!(close(take(3.020, 0.040), 0.0));
        // It stood still again, while a queue of 20 ms went with nobody to feed it.
        assert!(close(take(3.040, 0.060), 0.020));
        assert!(close(take(6.020, 0.040), 0.0));
        let mut take = |one_way: f64, round_trip: f64| take(one_way + 3.0, round_trip);
        // A queue of 300 ms is in the round trip, too; and a way back that grows quicker hides none.
        assert!(close(take(3.320, 0.340), 0.300));
        assert!(close(take(3.020, 0.140), 0.0));
    }

    #[test]
    fn a_stall_both_ways_is_a_queue_and_not_a_clock() {
        let (mut delay, mut now) = after([20.0; 30]);
        // The acknowledgement of the first waited, then the others waited on the way there.
        for (one_way, round_trip) in [(0.020, 0.190), (0.170, 0.190), (0.171, 0.195), (0.170, 0.190)] {
            now += 0.01;
            delay.measure(round_trip, 3600.0 + one_way, now);
            assert!(close(delay.above_base(3600.0 + one_way), one_way - 0.020), "{one_way}");
        }
        // A clock that jumps while the way back is held up is known when it is not any more.
        for (one_way, round_trip, queue) in [(0.420, 0.390, 0.400), (0.420, 0.190, 0.150), (0.270, 0.040, 0.0)] {
            now += 0.01;
            delay.measure(round_trip, 3600.0 + one_way, now);
            assert!(close(delay.above_base(3600.0 + one_way), queue), "{one_way} {queue}");
        }
    }

    #[test]
    fn a_clock_that_went_back_hides_no_queue_and_a_slow_way_back_makes_none() {
        for (before, round_trip, queue) in [(0.070, 0.090, 0.050), (0.020, 0.140, 0.0), (0.070, 0.040, 0.0)] {
            let (mut delay, now) = after([20.0; 30]);
            delay.measure(before + 0.020, 3600.0 + before, now + 0.01);
            delay.measure(round_trip, 3590.0 + 0.020 + queue, now + 0.02);
            assert!(close(delay.above_base(3590.0 + 0.020 + queue), queue), "{before} {round_trip}");
        }
    }

    #[test]
    fn in_company_the_path_is_remembered_for_a_minute() {
        let (mut delay, now) = after([20.0; 30].into_iter().chain([100.0; 4000]));
        assert!(close(delay.above_base(3600.1), 0.0));
        delay.set_company(true);
        assert!(close(delay.above_base(3600.1), 0.08));
        assert!(delay.queue(now).is_some());
    }

    #[test]
    fn the_interval_follows_the_peers_rhythm() {
        let (delay, _) = after([20.0; 200]);
        assert!((delay.feedback_interval() - 0.01).abs() < 1e-4);
    }
}
