//! The queueing delay at the bottleneck (Glide §4.1 to §4.4).
//!
//! It is measured by the one-way delay if the peer reports arrival times, so that a slow return path does not matter,
//! and by the round trip otherwise. The minimum of the window is the base delay of the path; the rest is queueing
//! delay.

use core::time::Duration;

use super::super::ring::Ring;
use super::super::units::{Bounded, Seconds};
use super::super::windowed_minmax::WindowedMinMax;

/// The window of the base delay: as long as a route usually stays.
const BASE_WINDOW: Duration = Duration::from_secs(20);
/// The same while cross traffic keeps the queue full, which rarely shows the base delay.
const COMPETITIVE_BASE_WINDOW: Duration = Duration::from_secs(60);
/// The bounds of the filter, in seconds. A shorter filter takes jitter for a queue; a longer one sees a queue too
/// late.
const MIN_FILTER: Seconds = Seconds(0.05);
const MAX_FILTER: Seconds = Seconds(0.20);
/// The filter's length in round trips, which reacts fast enough, and in feedback intervals, which gives enough samples.
const FILTER_ROUND_TRIPS: f64 = 0.5;
const FILTER_INTERVALS: f64 = 2.5;
/// Entries of the longest filter, each of at least 1/128 of it.
const SAMPLES: usize = 128;
/// Weight of a new sample in the smoothed round trip (RFC 6298, section 2.3).
const ROUND_TRIP_SMOOTHING: f64 = 0.125;
/// The feedback interval before it was measured, in seconds: 30 per second ("Fiedler, Reliability, Ordering and
/// Congestion Avoidance over UDP").
const FEEDBACK_INTERVAL: Seconds = Seconds(0.033);
/// Weight of a new feedback interval.
const INTERVAL_SMOOTHING: f64 = 0.1;
/// The longest interval that counts, in seconds: a longer silence is not the rhythm of the peer.
const MAX_INTERVAL: Seconds = Seconds(0.3);
/// Weight of a new sample in the jitter.
const JITTER_SMOOTHING: f64 = 0.05;
/// The jitter as a multiple of its samples. If delays are independent, the mean of the samples is half of the mean
/// difference between two delays.
const JITTER_SCALE: f64 = 4.0;
/// The minimum time between two delays that are compared, in seconds. On a path that keeps the order of packets a late
/// packet delays those behind it, so delays of packets sent soon after each other hardly differ.
const JITTER_INTERVAL: Seconds = Seconds(0.025);
/// The largest jitter of a sample, in seconds.
const MAX_JITTER: Seconds = Seconds(0.02);
/// Jitter that needs no allowance, in seconds: any path with a scheduler has it.
const FREE_JITTER: Seconds = Seconds(0.001);
/// A clock jump, in seconds: the one-way delay exceeds its minimum by this much more than the round trip does. A
/// queue is in both, but the clock of a suspended machine is not.
const CLOCK_JUMP: Seconds = Seconds(0.1);
/// The share of the jitter that remains after the filter.
const JITTER_LEFT: f64 = 0.35;
/// The same share for the two newest samples, which no filter has smoothed.
const INSTANT_JITTER_LEFT: f64 = 0.70;

/// The delay estimate of a path; all times in seconds.
#[derive(Clone, Debug)]
pub(super) struct DelayEstimator {
    round_trip: Option<f64>,
    feedback_interval: f64,
    last_received_at: Option<f64>,
    /// The smallest one-way delay, and the smallest round trip, each over both windows.
    base: WindowedMinMax,
    base_round_trip: WindowedMinMax,
    competitive: bool,
    recent: Ring<FilterSlice>,
    /// The two newest samples less their socket delay, newest first.
    newest: [Option<f64>; 2],
    /// The delay that jitter was last measured by.
    previous: Option<ComparedDelay>,
    jitter: f64,
    /// The round trip and the one-way delay of the newest packet.
    measured: Option<(f64, f64)>,
}

/// A delay that the next one is compared with.
#[derive(Clone, Copy, Debug)]
struct ComparedDelay {
    at: f64,
    queue: f64,
    /// By how much it exceeded the one before.
    difference: f64,
}

/// The minimum of the samples of one slice.
#[derive(Clone, Copy, Debug)]
struct FilterSlice {
    since: f64,
    queue: f64,
    /// The smallest socket delay of the slice: the most certain sample counts.
    socket_delay: f64,
}

impl DelayEstimator {
    pub(super) fn new() -> Self {
        let base = WindowedMinMax::min(COMPETITIVE_BASE_WINDOW, BASE_WINDOW);
        Self {
            round_trip: None,
            feedback_interval: FEEDBACK_INTERVAL.0,
            last_received_at: None,
            base_round_trip: base.clone(),
            base,
            competitive: false,
            recent: Ring::new(SAMPLES + 2),
            newest: [None; 2],
            previous: None,
            jitter: 0.0,
            measured: None,
        }
    }

    /// Records the arrival of feedback.
    pub(super) fn on_feedback(&mut self, now: f64) {
        if let Some(last_received_at) = self.last_received_at {
            let interval = now - last_received_at;
            // Cap the interval: one long silence must not make the filter insensitive for seconds.
            self.feedback_interval += INTERVAL_SMOOTHING * (interval.at_most(MAX_INTERVAL.0) - self.feedback_interval);
        }
        self.last_received_at = Some(now);
    }

    /// Records the round trip and the one-way delay of a packet, whatever the offset between the clocks.
    pub(super) fn measure(&mut self, round_trip: f64, one_way: f64, now: f64) {
        let previous = self.measured.replace((round_trip, one_way));
        if let Some(further) = previous.and_then(|previous| self.clock_jump((round_trip, one_way), previous)) {
            self.clocks_moved(further);
        }
        // Check for a clock jump before the samples enter the minimum windows.
        let smoothed = self.round_trip.unwrap_or(round_trip);
        self.round_trip = Some(smoothed + ROUND_TRIP_SMOOTHING * (round_trip - smoothed));
        self.base_round_trip.push(round_trip, now);
        self.base.push(one_way, now);
    }

    /// Returns how much the clocks moved apart, if the round trip cannot explain the one-way delay.
    ///
    /// Two samples are not enough: a radio that stalls in both directions delays first an acknowledgement, then the
    /// next packet, so the round trip stays while the one-way delay grows. So both are compared with their minimum,
    /// the round trip with that of a minute, which rarely contains a queue on the return path.
    fn clock_jump(&self, (round_trip, one_way): (f64, f64), previous: (f64, f64)) -> Option<f64> {
        let (above, above_round_trip) = (self.above_base(one_way), round_trip - self.base_round_trip.value()?);
        let (previous_round_trip, previous_one_way) = previous;
        if above - above_round_trip > CLOCK_JUMP.0 {
            // If the round trip grew on the return path, the base delay would be too short, and stay so. Move it by
            // the whole jump if that is more: a base that is too long is corrected by the next smaller sample.
            let jump = (one_way - previous_one_way) - (round_trip - previous_round_trip);
            return Some(jump.at_least(above - above_round_trip));
        }
        // After a jump backwards the base would follow by itself, but hide the queue that exists.
        let queue = self.above_base(previous_one_way).at_most(above_round_trip).at_least(0.0);
        (above < -CLOCK_JUMP.0 && above_round_trip - above > CLOCK_JUMP.0).then_some(above - queue)
    }

    /// Returns the queueing delay of a packet with this one-way delay.
    pub(super) fn above_base(&self, one_way: f64) -> f64 {
        one_way - self.of_route(&self.base).unwrap_or(one_way)
    }

    /// Adds the queueing delay of a packet to the filter; `is_steady` unless the path has just stalled. Up to
    /// `socket_delay` of it may be the time until the peer read its socket. That is no queue of the path, and it
    /// varies: two loops of nearly the same length drift past each other.
    pub(super) fn sample(&mut self, queue: f64, socket_delay: f64, is_steady: bool, now: f64) {
        if self.previous.is_none_or(|previous| now >= previous.at + JITTER_INTERVAL.0) {
            self.compare(queue, is_steady, now);
        }
        let [newest, _] = self.newest;
        self.newest = [Some(queue - socket_delay), newest];
        match self.recent.newest_mut() {
            Some(least) if now < least.since + MAX_FILTER.0 / SAMPLES as f64 => {
                (least.queue, least.socket_delay) =
                    (least.queue.at_most(queue), least.socket_delay.at_most(socket_delay));
            }
            _ => {
                // Not all feedback asks for the queue.
                self.drop_old(now);
                self.recent.push(FilterSlice { since: now, queue, socket_delay });
            }
        }
    }

    /// Compares a delay with the two before it. A queue that grows or drains has differences of one sign, and is no
    /// jitter.
    fn compare(&mut self, queue: f64, is_steady: bool, now: f64) {
        let before = self.previous.unwrap_or(ComparedDelay { at: now, queue, difference: 0.0 });
        let difference = queue - before.queue;
        // The path's usual jitter does not include that of a stall.
        if is_steady {
            let alternates = difference * before.difference < 0.0;
            let least = if alternates { difference.abs().at_most(before.difference.abs()) } else { 0.0 };
            self.jitter += JITTER_SMOOTHING * ((JITTER_SCALE * least).at_most(MAX_JITTER.0) - self.jitter);
        }
        self.previous = Some(ComparedDelay { at: now, queue, difference });
    }

    /// Returns the minimum queueing delay of the filter's time, less the remaining jitter.
    pub(super) fn queue(&mut self, now: f64) -> Option<f64> {
        self.drop_old(now);
        // The smallest socket delay once: each queue sample already contains its own.
        let (queue, socket_delay) = self
            .recent
            .iter()
            .map(|least| (least.queue, least.socket_delay))
            .reduce(|least, slice| (least.0.at_most(slice.0), least.1.at_most(slice.1)))?;
        Some((queue - socket_delay - JITTER_LEFT * self.excess_jitter()).at_least(0.0))
    }

    /// Drops the samples from before the filter's time.
    fn drop_old(&mut self, now: f64) {
        let round_trips = FILTER_ROUND_TRIPS * self.round_trip.unwrap_or(0.0);
        let filter = round_trips.at_least(FILTER_INTERVALS * self.feedback_interval);
        let filter = filter.at_least(MIN_FILTER.0).at_most(MAX_FILTER.0);
        self.recent.drop_while(2, |least, _| least.since < now - filter);
    }

    /// Returns the smaller of the two newest samples, less the remaining jitter.
    pub(super) fn instant_queue(&self) -> Option<f64> {
        let least = self.newest.iter().flatten().copied().reduce(f64::min)?;
        Some((least - INSTANT_JITTER_LEFT * self.excess_jitter()).at_least(0.0))
    }

    /// Returns the jitter beyond what any path has.
    pub(super) fn excess_jitter(&self) -> f64 {
        (self.jitter - FREE_JITTER.0).at_least(0.0)
    }

    /// Returns the smoothed round trip; `None` before the first sample.
    pub(super) fn round_trip(&self) -> Option<f64> {
        self.round_trip
    }

    /// Returns the round trip without queues; `None` before the first sample.
    pub(super) fn base_round_trip(&self) -> Option<f64> {
        self.of_route(&self.base_round_trip)
    }

    pub(super) fn feedback_interval(&self) -> f64 {
        self.feedback_interval
    }

    pub(super) fn last_received_at(&self) -> Option<f64> {
        self.last_received_at
    }

    /// Sets whether cross traffic keeps the queue full, which selects the longer base window.
    pub(super) fn set_competitive(&mut self, competitive: bool) {
        self.competitive = competitive;
    }

    /// Drops the samples of the queue, but not the base delay.
    pub(super) fn forget_queue(&mut self) {
        self.recent.clear();
        self.newest = [None; 2];
    }

    /// Moves the base by `further`, after the clocks moved apart.
    fn clocks_moved(&mut self, further: f64) {
        self.base.shift(further);
        self.forget_queue();
    }

    /// Moves the base by `longer`, because the route became longer.
    pub(super) fn rebase(&mut self, longer: f64, now: f64) {
        // Both windows move: the longer one must not bring the former route back.
        for base in [&mut self.base, &mut self.base_round_trip] {
            if let Some(old) = base.over(!self.competitive) {
                base.restart(old + longer, now);
            }
        }
        self.forget_queue();
    }

    #[inline]
    fn of_route(&self, base: &WindowedMinMax) -> Option<f64> {
        base.over(!self.competitive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Samples of one-way delay in milliseconds, 10 ms apart, from a clock an hour off.
    fn after(delays: impl IntoIterator<Item = f64>) -> (DelayEstimator, f64) {
        let (mut delay, mut now) = (DelayEstimator::new(), 0.0);
        for one_way in delays {
            now += 0.01;
            delay.on_feedback(now);
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
    fn queue_is_the_delay_above_the_minimum() {
        let (mut delay, now) = after([20.0; 30].into_iter().chain([50.0; 1000]));
        assert!((delay.queue(now).unwrap() - 0.030).abs() < 1e-6);
        assert!((delay.instant_queue().unwrap() - 0.030).abs() < 1e-6);
        let (mut idle, now) = after([20.0; 100]);
        assert!(close(idle.queue(now).unwrap(), 0.0));
    }

    #[test]
    fn single_late_packet_is_no_queue() {
        let (mut delay, now) = after([20.0; 300].into_iter().chain([90.0]));
        assert!(close(delay.queue(now).unwrap(), 0.0));
        assert!(close(delay.instant_queue().unwrap(), 0.0));
    }

    #[test]
    fn jitter_is_subtracted() {
        let (mut delay, now) = after((0..2000).map(|packet| 20.0 + f64::from(packet * 2 % 11)));
        assert!(delay.excess_jitter() > 0.002, "{}", delay.excess_jitter());
        assert!(close(delay.queue(now).unwrap(), 0.0));
    }

    #[test]
    fn queue_that_grows_and_drains_is_no_jitter() {
        let steps = (0..400).map(|step| if step % 100 < 50 { step % 50 } else { 50 - step % 50 });
        let (delay, _) = after(steps.map(|step| 20.0 + f64::from(step) * 4.0));
        assert!(delay.excess_jitter() < 0.001, "{}", delay.excess_jitter());
    }

    #[test]
    fn socket_delay_is_no_queue() {
        // Two loops of nearly the same length: the waiting grows to a frame, over minutes.
        let (mut delay, mut now) = (DelayEstimator::new(), 0.0);
        for packet in 0..4000 {
            now += 0.016;
            delay.on_feedback(now);
            let one_way = 3600.0 + f64::from(packet % 1000) * 16e-6;
            delay.measure(0.001, one_way, now);
            let queue = delay.above_base(one_way);
            delay.sample(queue, 0.016, true, now);
            assert!(close(delay.queue(now).unwrap(), 0.0), "{packet}");
            assert!(close(delay.instant_queue().unwrap(), 0.0), "{packet}");
        }
        // A longer delay is a queue.
        for _ in 0..30 {
            now += 0.016;
            delay.sample(0.056, 0.016, true, now);
        }
        assert!((delay.queue(now).unwrap() - 0.040).abs() < 0.002, "{:?}", delay.queue(now));
    }

    #[test]
    fn longer_route_moves_the_base_delay() {
        let (mut delay, now) = after([20.0; 30].into_iter().chain([100.0; 1900]));
        assert!(delay.queue(now).unwrap() > 0.07);
        let (mut late, later) = after([20.0; 30].into_iter().chain([100.0; 2200]));
        assert!(close(late.queue(later).unwrap(), 0.0));
        delay.rebase(0.08, now);
        assert_eq!(delay.queue(now), None);
        assert!(close(delay.above_base(3600.1), 0.0));
    }

    #[test]
    fn clock_that_stopped_is_no_queue() {
        let (mut delay, mut now) = after([20.0; 30]);
        let mut take = |one_way: f64, round_trip: f64| {
            now += 0.01;
            delay.measure(round_trip, 3600.0 + one_way, now);
            delay.above_base(3600.0 + one_way)
        };
        // The sender's clock stood still for three seconds while the path grew a queue of 30 ms.
        assert!(close(take(3.050, 0.070), 0.030));
        assert!(close(take(3.020, 0.040), 0.0));
        // It stopped again, while a queue of 20 ms drained.
        assert!(close(take(3.040, 0.060), 0.020));
        assert!(close(take(6.020, 0.040), 0.0));
        let mut take = |one_way: f64, round_trip: f64| take(one_way + 3.0, round_trip);
        // A queue of 300 ms is in the round trip, too; and a way back that grows quicker hides none.
        assert!(close(take(3.320, 0.340), 0.300));
        assert!(close(take(3.020, 0.140), 0.0));
    }

    #[test]
    fn stall_in_both_directions_is_a_queue() {
        let (mut delay, mut now) = after([20.0; 30]);
        // The acknowledgement of the first waited, then the following packets waited on the way there.
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
    fn clock_that_went_back_hides_no_queue() {
        for (before, round_trip, queue) in [(0.070, 0.090, 0.050), (0.020, 0.140, 0.0), (0.070, 0.040, 0.0)] {
            let (mut delay, now) = after([20.0; 30]);
            delay.measure(before + 0.020, 3600.0 + before, now + 0.01);
            delay.measure(round_trip, 3590.0 + 0.020 + queue, now + 0.02);
            assert!(close(delay.above_base(3590.0 + 0.020 + queue), queue), "{before} {round_trip}");
        }
    }

    #[test]
    fn competitive_base_window_is_a_minute() {
        let (mut delay, now) = after([20.0; 30].into_iter().chain([100.0; 4000]));
        assert!(close(delay.above_base(3600.1), 0.0));
        delay.set_competitive(true);
        assert!(close(delay.above_base(3600.1), 0.08));
        assert!(delay.queue(now).is_some());
    }

    #[test]
    fn feedback_interval_follows_the_peer() {
        let (delay, _) = after([20.0; 200]);
        assert!((delay.feedback_interval() - 0.01).abs() < 1e-4);
    }
}
