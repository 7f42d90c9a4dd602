//! Compete mode, beside cross traffic that keeps the queue full: a window like TCP's, because a short queue is
//! impossible there (Glide §9).

use super::super::units::{Bounded, Bytes, Seconds};
use super::cubic::CubicWindow;
use super::path_sample::PathSample;
use super::probe_down::DownProbes;
use crate::congestion::{BytesPerSecond, Feedback};

/// The delays before the next probes, in seconds; the last one repeats.
const PROBE_DELAYS: [Seconds; 4] = [Seconds(1.2), Seconds(2.0), Seconds(4.0), Seconds(8.0)];
/// The first probes may come early, if the queue has grown by this many seconds.
const EARLY_PROBE_SECONDS: Seconds = Seconds(1.2);
const MAX_EARLY_PROBES: usize = 6;
const GROWN: Seconds = Seconds(0.05);
/// The queue has fallen below this share of its peak, and by this many seconds, and its lowest point is this many
/// seconds old. All flows of the queue then probe at the same time.
const FALLEN: f64 = 0.8;
const FALLEN_BY: Seconds = Seconds(0.02);
const AFTER_FALL: Seconds = Seconds(0.6);
/// The maximum window before the first loss, as a multiple of the peak delivery in a round trip.
const MAX_OF_PEAK: f64 = 3.0;
/// Losses up to this multiple of the random loss are ignored.
const TOLERANCE: f64 = 2.0;
/// How long the rate of a former competition is restored, in seconds, and to which share.
const MEMORY: Seconds = Seconds(20.0);
const MEMORY_SHARE: f64 = 0.7;
/// The fall at the probe says how much of the queue is ours: below the first share nothing, below the second little.
const NO_SHARE_FALL: f64 = 0.15;
const SMALL_SHARE_FALL: f64 = 0.25;
const SMALL_SHARE: f64 = 0.7;

/// The window of a competition, and the rate of the one before.
#[derive(Clone, Debug)]
pub(super) struct CompetitiveMode {
    window: CubicWindow,
    probe_count: usize,
    fall: QueueFall,
    left_at: Seconds,
    left_rate: BytesPerSecond,
}

impl CompetitiveMode {
    pub(super) fn new(packet: Bytes) -> Self {
        let window = CubicWindow::new(Bytes(0.0), packet, Seconds(0.0));
        Self {
            window,
            probe_count: 0,
            fall: QueueFall::default(),
            left_at: Seconds::NEVER,
            left_rate: BytesPerSecond(0.0),
        }
    }

    /// Starts compete mode. `fall` is that of the probe that found cross traffic, `before` the rate before the queue
    /// grew; `joined` if the cross traffic was there first.
    pub(super) fn begin(&mut self, sample: &PathSample, fall: f64, before: f64, joined: bool) {
        let mut rate = sample.delivery;
        if fall < NO_SHARE_FALL {
            rate = rate.at_least(before);
        } else if fall < SMALL_SHARE_FALL {
            rate = rate.at_least(SMALL_SHARE * before);
        }
        if Seconds(sample.now) - self.left_at < MEMORY {
            rate = rate.at_least(MEMORY_SHARE * self.left_rate.0);
        }
        (self.probe_count, self.fall) = (0, QueueFall::default());
        let (bytes, packet) = (Bytes(rate * sample.round_trip), Bytes(sample.largest_packet));
        // A joining flow whose probe moved nothing has almost no share yet, and searches for it like a new TCP
        // connection.
        self.window = if joined && fall < NO_SHARE_FALL {
            CubicWindow::in_slow_start(bytes, packet, Seconds(sample.now))
        } else {
            CubicWindow::new(bytes, packet, Seconds(sample.now))
        };
    }

    /// Ends compete mode: the cross traffic ended, or the queue was self-inflicted.
    pub(super) fn end(&mut self, rate: BytesPerSecond, now: Seconds) {
        (self.left_at, self.left_rate) = (now, rate);
    }

    /// Processes feedback and returns the new rate. `may_grow` unless a rate is held.
    pub(super) fn on_feedback(
        &mut self,
        sample: &PathSample,
        feedback: &Feedback<'_>,
        random_loss: f64,
        may_grow: bool,
    ) -> f64 {
        let bytes = Bytes(feedback.acked.iter().map(|packet| f64::from(packet.bytes)).sum());
        // What was in flight before this feedback: losses come from it, however large the window is.
        let used = Bytes(feedback.in_flight as f64) + bytes;
        let now = Seconds(sample.now);
        if !sample.app_limited && bytes > Bytes(0.0) && may_grow {
            self.window.grow(bytes, Seconds(sample.base_round_trip), now);
            // A window beyond the usable rate must not accumulate (RFC 7661).
            self.window.limit_slow_start(Bytes(MAX_OF_PEAK * sample.peak * sample.round_trip));
        }
        let cut_at = self.window.cut_at();
        let losses = feedback.lost.iter().filter(|packet| Seconds::from(packet.sent_at) > cut_at).count() as f64;
        // Random loss is no sign of congestion: cut only for more than a whole window loses by it.
        let expected = random_loss * self.window.bytes().min(used).0 / sample.packet;
        if losses > libm::ceil(TOLERANCE * expected) || losses > 0.0 && sample.has_excess_loss {
            self.window.cut(now);
        }
        self.window.bytes().0 / sample.round_trip.at_least(sample.base_round_trip + sample.instant_queue)
    }

    /// Returns whether to probe again now.
    pub(super) fn should_probe(&mut self, sample: &PathSample, down_probes: &DownProbes) -> bool {
        let age = down_probes.age(sample.now);
        let usual = PROBE_DELAYS.get(self.probe_count).or(PROBE_DELAYS.last()).is_some_and(|after| age > after.0);
        let has_grown = sample.queue > down_probes.queue_before() + GROWN.0;
        let may_be_early = age > EARLY_PROBE_SECONDS.0;
        let soon = self.probe_count < MAX_EARLY_PROBES && may_be_early && has_grown;
        if down_probes.is_active() {
            // The probe makes a fall of its own.
            self.fall = QueueFall::default();
            return false;
        }
        let together = self.fall.is_over(sample.instant_queue, Seconds(sample.now)) && may_be_early;
        let should_probe = usual || soon || together;
        self.probe_count += usize::from(should_probe);
        should_probe
    }

    pub(super) fn window(&self) -> Bytes {
        self.window.bytes()
    }
}

/// The last fall of the queue, as after losses.
///
/// Flows in compete mode that share a queue with none but themselves see cross traffic in each other, and each probes a
/// small part of the queue. But all see the queue fall at the same time. If all probe at a fixed time after that, the
/// queue falls by the whole of it, so all find it self-inflicted.
#[derive(Clone, Copy, Debug, Default)]
struct QueueFall {
    /// The longest queue since the last fall, and the shortest one after it, in seconds.
    peak: f64,
    lowest: f64,
    /// When the queue was the shortest.
    lowest_at: Seconds,
}

impl QueueFall {
    /// Records the queue. Returns whether a fall is over; it returns true once for each fall.
    fn is_over(&mut self, queue: f64, now: Seconds) -> bool {
        let has_fallen = self.lowest < (FALLEN * self.peak).at_most(self.peak - FALLEN_BY.0);
        let is_over = has_fallen && now - self.lowest_at > AFTER_FALL;
        if is_over || (queue > self.peak && !has_fallen) {
            *self = Self { peak: queue, lowest: queue, lowest_at: now };
        } else if queue < self.lowest {
            (self.lowest, self.lowest_at) = (queue, now);
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::vec;

    use super::super::path_sample::queued;
    use super::*;
    use crate::congestion::SentPacket;
    use slipgate_netcode::time::Instant;

    fn sent(at: f64) -> SentPacket {
        SentPacket { sent_at: Instant::from_start(Duration::from_secs_f64(at)), bytes: 1200, ..SentPacket::default() }
    }

    /// Returns feedback beside a full window in flight.
    fn feedback<'a>(acked: &'a [SentPacket], lost: &'a [SentPacket]) -> Feedback<'a> {
        Feedback { now: Instant::default(), newest: None, acked, lost, late: &[], delivered: 0, in_flight: 8_000_000 }
    }

    #[test]
    fn compete_mode_starts_at_the_rate_before_the_queue() {
        let sample = queued(0.2, 100.0);
        for (fall, rate) in [(0.05, 4e6), (0.2, 2.8e6), (0.3, 1e6)] {
            let mut competitive = CompetitiveMode::new(Bytes(1200.0));
            competitive.begin(&sample, fall, 4e6, false);
            assert!((competitive.window().0 - rate * sample.round_trip).abs() < 1.0, "{fall}");
        }
    }

    #[test]
    fn joining_flow_without_a_share_doubles_until_a_loss() {
        for (joined, fall, grown) in [(true, 0.05, 2.0), (true, 0.2, 1.0), (false, 0.05, 1.0)] {
            let mut competitive = CompetitiveMode::new(Bytes(1200.0));
            competitive.begin(&queued(0.2, 100.0), fall, 1e6, joined);
            let before = competitive.window();
            let full = (before / Bytes(1200.0)) as usize;
            let sample = PathSample { app_limited: false, ..queued(0.2, 100.1) };
            competitive.on_feedback(&sample, &feedback(&vec![sent(100.01); full], &[]), 0.0, true);
            assert!(
                (competitive.window() / before - grown).abs() < 0.05,
                "{joined} {fall}: {}",
                competitive.window() / before
            );
            competitive.on_feedback(&sample, &feedback(&[], &[sent(100.05)]), 0.0, true);
            let cut = competitive.window();
            competitive.on_feedback(&sample, &feedback(&vec![sent(100.06); full], &[]), 0.0, true);
            assert!(competitive.window() < 1.2 * cut);
        }
    }

    #[test]
    fn losses_of_one_window_cut_it_once() {
        let mut competitive = CompetitiveMode::new(Bytes(1200.0));
        competitive.begin(&queued(0.2, 100.0), 0.0, 4e6, false);
        let before = competitive.window();
        competitive.on_feedback(&queued(0.2, 100.1), &feedback(&[], &[sent(100.05); 5]), 0.0, true);
        let once = competitive.window();
        assert!((once / before - 0.7).abs() < 0.001);
        competitive.on_feedback(&queued(0.2, 100.2), &feedback(&[], &[sent(100.08)]), 0.0, true);
        assert!(competitive.window() >= once, "that one left before the cut");
        competitive.on_feedback(&queued(0.2, 100.3), &feedback(&[], &[sent(100.2)]), 0.0, true);
        assert!(competitive.window() < once);
    }

    #[test]
    fn random_loss_does_not_cut_the_window() {
        let mut competitive = CompetitiveMode::new(Bytes(1200.0));
        competitive.begin(&queued(0.2, 100.0), 0.0, 4e6, false);
        let before = competitive.window();
        competitive.on_feedback(&queued(0.2, 100.1), &feedback(&[], &[sent(100.05); 5]), 0.05, true);
        assert!(competitive.window() >= before);
    }

    #[test]
    fn random_loss_excuses_losses_of_what_was_in_flight() {
        let missing = [sent(100.05); 19];
        for (in_flight, is_cut) in [(72_000, true), (8_000_000, false)] {
            let mut competitive = CompetitiveMode::new(Bytes(1200.0));
            competitive.begin(&queued(0.2, 100.0), 0.0, 4e6, true);
            let before = competitive.window();
            // At 15 % of loss, twice 9 of 60 packets in flight may be lost.
            let lost = Feedback { in_flight, ..feedback(&[], &missing) };
            competitive.on_feedback(&queued(0.2, 100.1), &lost, 0.15, true);
            assert_eq!(competitive.window() < before, is_cut, "{in_flight} bytes in flight");
        }
        let mut competitive = CompetitiveMode::new(Bytes(1200.0));
        competitive.begin(&queued(0.2, 100.0), 0.0, 4e6, true);
        let before = competitive.window();
        let excess = PathSample { has_excess_loss: true, ..queued(0.2, 100.1) };
        competitive.on_feedback(&excess, &feedback(&[], &missing), 0.15, true);
        assert!(competitive.window() < before, "more than the known random loss");
    }

    #[test]
    fn former_competitive_rate_is_restored() {
        let mut competitive = CompetitiveMode::new(Bytes(1200.0));
        competitive.end(BytesPerSecond(4e6), Seconds(95.0));
        let sample = queued(0.2, 100.0);
        competitive.begin(&sample, 0.3, 1e6, false);
        assert!((competitive.window().0 - 2.8e6 * sample.round_trip).abs() < 1.0);
    }

    #[test]
    fn fall_of_the_queue_is_over_once() {
        let mut fall = QueueFall::default();
        let queues = [0.1, 0.3, 0.5, 0.41, 0.5, 0.38, 0.35, 0.4, 0.5, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6];
        let over: vec::Vec<bool> = queues
            .iter()
            .zip(0..)
            .map(|(queue, step)| fall.is_over(*queue, Seconds(100.0 + 0.15 * f64::from(step))))
            .collect();
        // 0.41 of 0.5 is no fall; the lowest queue of the fall is at step 6.
        assert_eq!(over.iter().position(|over| *over), Some(11), "{over:?}");
        assert_eq!(over.iter().filter(|over| **over).count(), 1, "{over:?}");
    }

    #[test]
    fn probes_repeat_at_growing_intervals() {
        let (mut competitive, mut down_probes) = (CompetitiveMode::new(Bytes(1200.0)), DownProbes::new());
        let mut probed_at = vec::Vec::new();
        down_probes.begin(&queued(0.2, 100.0));
        let mut ended = down_probes.clone();
        for step in 0..300 {
            let sample = queued(0.2, 100.0 + f64::from(step) * 0.1);
            let patient = crate::congestion::glide::send_rate::SendRate::new();
            ended.on_feedback(&sample, &patient, crate::congestion::glide::probe_down::CrossTraffic::Competing);
            if competitive.should_probe(&sample, &ended) {
                ended.begin(&sample);
                probed_at.push(libm::round((sample.now - 100.0) * 10.0) as u32);
            }
        }
        assert!(probed_at.len() >= 4 && probed_at.windows(2).all(|pair| pair[1] - pair[0] >= 12), "{probed_at:?}");
        assert!(probed_at.last().unwrap() - probed_at[probed_at.len() - 2] >= 80, "{probed_at:?}");
    }
}
