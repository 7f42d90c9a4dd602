//! The mode among others that keep the queue full: a window as TCP's, because a small queue is not ours to have.

use super::cubic::Window;
use super::pulse::Pulses;
use super::reading::Reading;
use crate::congestion::Departed;

/// One asks again whose queue it is after so many seconds, the first times and then always.
const ASK: [f64; 4] = [1.2, 2.0, 4.0, 8.0];
/// And soon, the first so many times, when the queue has grown by so many seconds since.
const ASK_SOON: f64 = 1.2;
const SOON_TIMES: usize = 6;
const GROWN: f64 = 0.05;
/// Before the first loss the window is at most this multiple of what was delivered at best in a round trip.
const MOST_OF_PEAK: f64 = 3.0;
/// Losses of this multiple of the path's own are no sign.
const TOLERANCE: f64 = 2.0;
/// A rate that was held in company is asked for again for so many seconds, to this share.
const MEMORY: f64 = 20.0;
const MEMORY_SHARE: f64 = 0.7;
/// How far the queue fell at a pulse says how much of it was ours: below the first, none; below the second, little.
const NOT_OURS: f64 = 0.15;
const HARDLY_OURS: f64 = 0.25;
const HARDLY_SHARE: f64 = 0.7;

/// A competition, and the memory of the one before. Rates in bytes per second, times in seconds.
#[derive(Clone, Debug)]
pub(super) struct Company {
    window: Window,
    questions: usize,
    left_at: f64,
    left_rate: f64,
}

impl Company {
    pub(super) fn new(packet: f64) -> Self {
        Self { window: Window::new(0.0, packet, 0.0), questions: 0, left_at: f64::NEG_INFINITY, left_rate: 0.0 }
    }

    /// The competition begins. `fall` is that of the pulse that told so, `before` the rate before the queue grew; `newcomer`
    /// says that others were there first.
    pub(super) fn begin(&mut self, reading: &Reading, fall: f64, before: f64, newcomer: bool) {
        let mut rate = reading.delivery;
        if fall < NOT_OURS {
            rate = rate.max(before);
        } else if fall < HARDLY_OURS {
            rate = rate.max(HARDLY_SHARE * before);
        }
        if reading.now - self.left_at < MEMORY {
            rate = rate.max(MEMORY_SHARE * self.left_rate);
        }
        self.questions = 0;
        let (bytes, packet) = (rate * reading.round_trip, reading.largest_packet);
        // A newcomer that moves nothing by sending less has hardly a share yet, and looks for it as a new TCP would.
        self.window = if newcomer && fall < NOT_OURS {
            Window::in_slow_start(bytes, packet, reading.now)
        } else {
            Window::new(bytes, packet, reading.now)
        };
    }

    /// The others left, or it was our queue after all.
    pub(super) fn end(&mut self, rate: f64, now: f64) {
        (self.left_at, self.left_rate) = (now, rate);
    }

    /// Takes a feedback: the rate from now on. `may_grow` unless a rate is being held.
    pub(super) fn hear(
        &mut self,
        reading: &Reading,
        acked: &[Departed],
        lost: &[Departed],
        inherent: f64,
        may_grow: bool,
    ) -> f64 {
        let bytes: f64 = acked.iter().map(|packet| f64::from(packet.bytes)).sum();
        if !reading.app_limited && bytes > 0.0 && may_grow {
            self.window.grow(bytes, reading.base_round_trip, reading.now);
            // What the rate may not use must not gather in the window (RFC 7661).
            self.window.limit_slow_start(MOST_OF_PEAK * reading.peak * reading.round_trip);
        }
        let cut_at = self.window.cut_at();
        let losses = lost.iter().filter(|packet| packet.sent_at.since_start().as_secs_f64() > cut_at).count() as f64;
        if losses > libm::ceil(TOLERANCE * inherent * self.window.bytes() / reading.packet) {
            self.window.cut(reading.now);
        }
        self.window.bytes() / reading.round_trip.max(reading.base_round_trip + reading.queue_at_once)
    }

    /// Whether to ask again whose queue it is.
    pub(super) fn asks(&mut self, reading: &Reading, pulses: &Pulses) -> bool {
        let age = pulses.age(reading.now);
        let usual = ASK.get(self.questions).or(ASK.last()).is_some_and(|after| age > *after);
        let has_grown = reading.queue > pulses.queue_before() + GROWN;
        let soon = self.questions < SOON_TIMES && age > ASK_SOON && has_grown;
        let asks = (usual || soon) && !pulses.is_under_way();
        self.questions += usize::from(asks);
        asks
    }

    pub(super) fn window(&self) -> f64 {
        self.window.bytes()
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::vec;

    use super::super::reading::queued;
    use super::*;
    use slipgate_netcode::time::Instant;

    fn sent(at: f64) -> Departed {
        Departed { sent_at: Instant::from_start(Duration::from_secs_f64(at)), bytes: 1200 }
    }

    #[test]
    fn one_begins_with_what_was_sent_before_when_the_queue_did_not_move() {
        let reading = queued(0.2, 100.0);
        for (fall, rate) in [(0.05, 4e6), (0.2, 2.8e6), (0.3, 1e6)] {
            let mut company = Company::new(1200.0);
            company.begin(&reading, fall, 4e6, false);
            assert!((company.window() - rate * reading.round_trip).abs() < 1.0, "{fall}");
        }
    }

    #[test]
    fn a_newcomer_that_moved_nothing_doubles_until_the_first_loss() {
        for (newcomer, fall, grown) in [(true, 0.05, 2.0), (true, 0.2, 1.0), (false, 0.05, 1.0)] {
            let mut company = Company::new(1200.0);
            company.begin(&queued(0.2, 100.0), fall, 1e6, newcomer);
            let before = company.window();
            let full = (before / 1200.0) as usize;
            let reading = Reading { app_limited: false, ..queued(0.2, 100.1) };
            company.hear(&reading, &vec![sent(100.01); full], &[], 0.0, true);
            assert!(
                (company.window() / before - grown).abs() < 0.05,
                "{newcomer} {fall}: {}",
                company.window() / before
            );
            company.hear(&reading, &[], &[sent(100.05)], 0.0, true);
            let cut = company.window();
            company.hear(&reading, &vec![sent(100.06); full], &[], 0.0, true);
            assert!(company.window() < 1.2 * cut);
        }
    }

    #[test]
    fn one_loss_answers_for_its_whole_window() {
        let mut company = Company::new(1200.0);
        company.begin(&queued(0.2, 100.0), 0.0, 4e6, false);
        let before = company.window();
        company.hear(&queued(0.2, 100.1), &[], &[sent(100.05); 5], 0.0, true);
        let once = company.window();
        assert!((once / before - 0.7).abs() < 0.001);
        company.hear(&queued(0.2, 100.2), &[], &[sent(100.08)], 0.0, true);
        assert!(company.window() >= once, "that one left before the cut");
        company.hear(&queued(0.2, 100.3), &[], &[sent(100.2)], 0.0, true);
        assert!(company.window() < once);
    }

    #[test]
    fn the_paths_own_loss_is_no_sign() {
        let mut company = Company::new(1200.0);
        company.begin(&queued(0.2, 100.0), 0.0, 4e6, false);
        let before = company.window();
        company.hear(&queued(0.2, 100.1), &[], &[sent(100.05); 5], 0.05, true);
        assert!(company.window() >= before);
    }

    #[test]
    fn a_rate_once_held_is_asked_for_again() {
        let mut company = Company::new(1200.0);
        company.end(4e6, 95.0);
        let reading = queued(0.2, 100.0);
        company.begin(&reading, 0.3, 1e6, false);
        assert!((company.window() - 2.8e6 * reading.round_trip).abs() < 1.0);
    }

    #[test]
    fn one_asks_again_less_and_less_often() {
        let (mut company, mut pulses) = (Company::new(1200.0), Pulses::new());
        let mut asked = vec::Vec::new();
        pulses.begin(&queued(0.2, 100.0));
        let mut ended = pulses.clone();
        for step in 0..300 {
            let reading = queued(0.2, 100.0 + f64::from(step) * 0.1);
            let patient = crate::congestion::glide::departures::Departures::new();
            ended.hear(&reading, &patient, crate::congestion::glide::pulse::Belief::Company);
            if company.asks(&reading, &ended) {
                ended.begin(&reading);
                asked.push(libm::round((reading.now - 100.0) * 10.0) as u32);
            }
        }
        assert!(asked.len() >= 4 && asked.windows(2).all(|pair| pair[1] - pair[0] >= 12), "{asked:?}");
        assert!(asked.last().unwrap() - asked[asked.len() - 2] >= 80, "{asked:?}");
    }
}
