//! Whose queue is it? One sends less for a moment, and what the queue does in answer tells.
//!
//! If all of the queue's bytes are ours, it falls by exactly as much as we hold back. If others fill it, they hardly
//! notice. Measured: the fall is 1.00 of what was expected alone, 0.0 to 0.35 against CUBIC.

use super::departures::Departures;
use super::reading::Reading;

/// The pulse lasts a quarter of the queue, within these bounds, in seconds.
const QUEUE_SHARE: f64 = 0.25;
const SHORTEST: f64 = 0.08;
const LONGEST: f64 = 0.15;
/// The rate of the pulse, as a share of what is delivered.
pub(super) const DEPTH: f64 = 0.25;
/// The queue before and after is its least over so many intervals of the feedback, at least so many seconds.
const WINDOW_INTERVALS: f64 = 1.2;
const LEAST_WINDOW: f64 = 0.06;
/// Samples of packets that left this share of a window after the pulse's begin still tell of the queue before it.
const OVERLAP: f64 = 0.3;
/// Who waits longer than this for the answer gets none, in seconds.
const PATIENCE: f64 = 3.0;
/// A pulse that should lower the queue by less than this says nothing, in seconds.
const LEAST_FALL: f64 = 0.03;

/// The queue falls by this share of what is expected, or more, when it is ours; when we had believed otherwise.
const OURS: f64 = 0.6;
const OURS_AFTER_ALL: f64 = 0.8;
/// The same when it fell below the target.
const OURS_IF_LOW: f64 = 0.4;
/// A greater fall than was expected has another cause.
const MORE_THAN_POSSIBLE: f64 = 1.3;
/// Between this and [`OURS`] one asks twice, and when delivery moved by more than the next number meanwhile.
const OTHERS: f64 = 0.35;
const UNSTEADY: f64 = 0.35;
/// Asking twice is meant for this long, in seconds.
const DOUBT: f64 = 3.0;
/// So many pulses that could not lower a queue at all are an answer as well.
const DUDS: u32 = 2;
/// A queue that falls to the same floor again and again is no queue: by this share, or seconds.
const SAME_SHARE: f64 = 0.03;
const SAME: f64 = 0.003;
/// How long one remembers that a queue was ours, in seconds.
const PROOF: f64 = 20.0;

/// A pulse under way; all in seconds, on the time of sending.
#[derive(Clone, Copy, Debug)]
struct Pulse {
    begin: f64,
    end: f64,
    window: f64,
    /// What was delivered when it began, in bytes per second.
    delivery: f64,
    before: Option<Sample>,
    after: Option<Sample>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    queue: f64,
    sent: f64,
}

/// What the queue's answer says.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Verdict {
    /// It is ours: sending less lowers it.
    Ours,
    /// Others fill it: sending less gives the path away.
    Others,
    /// It is none: the path got longer by so many seconds.
    LongerPath(f64),
}

/// Whether we currently believe that others fill the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Belief {
    Alone,
    Company,
}

/// Asks whose queue it is, and remembers the answers.
#[derive(Clone, Debug)]
pub(super) struct Pulses {
    under_way: Option<Pulse>,
    begun_at: f64,
    doubted_at: f64,
    duds: u32,
    proven_at: f64,
    /// The queue to which others' pulses fell.
    floor: f64,
    fall: f64,
    queue_before: f64,
}

impl Pulses {
    pub(super) fn new() -> Self {
        Self {
            under_way: None,
            begun_at: f64::NEG_INFINITY,
            doubted_at: f64::NEG_INFINITY,
            duds: 0,
            proven_at: f64::NEG_INFINITY,
            floor: 0.0,
            fall: 0.0,
            queue_before: 0.0,
        }
    }

    /// Begins a pulse. Answers until when its rate must be held.
    pub(super) fn begin(&mut self, reading: &Reading) -> f64 {
        let window = (WINDOW_INTERVALS * reading.feedback_interval).max(LEAST_WINDOW);
        let begin = reading.now;
        let end = begin + (QUEUE_SHARE * reading.queue).clamp(SHORTEST, LONGEST);
        let delivery = reading.delivery;
        self.under_way = Some(Pulse { begin, end, window, delivery, before: None, after: None });
        self.begun_at = begin;
        end + OVERLAP * window
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// How long ago the newest one began.
    pub(super) fn age(&self, now: f64) -> f64 {
        now - self.begun_at
    }

    /// The newest answer's fall, as a share of what was expected of a queue of ours.
    pub(super) fn fall(&self) -> f64 {
        self.fall
    }

    /// The queue before the newest pulse.
    pub(super) fn queue_before(&self) -> f64 {
        self.queue_before
    }

    /// Takes a feedback; the verdict, once there is one.
    pub(super) fn hear(&mut self, reading: &Reading, departures: &Departures, belief: Belief) -> Option<Verdict> {
        let sent = reading.newest_sent?;
        let mut pulse = self.under_way?;
        pulse.take(Sample { queue: reading.newest_queue, sent });
        let is_over = sent > pulse.end + pulse.window || reading.now > pulse.end + PATIENCE;
        self.under_way = Some(pulse).filter(|_| !is_over);
        if !is_over {
            return None;
        }
        self.queue_before = pulse.before.map_or(f64::INFINITY, |before| before.queue);
        let (before, after) = (pulse.before?, pulse.after?);
        let expected = pulse.expected_fall(before, after, departures);
        let fall = if expected > 0.01 { (before.queue - after.queue) / expected } else { -1.0 };
        let moved = (reading.delivery / pulse.delivery - 1.0).abs();
        let verdict = if expected > LEAST_FALL {
            (self.fall, self.duds) = (fall, 0);
            self.weigh(fall, after.queue, moved, reading, belief)
        } else {
            self.dud(before.queue, after.queue, reading, belief)
        };
        self.remember(verdict?, before, after, fall, belief, reading.now)
    }

    fn weigh(&mut self, fall: f64, after: f64, moved: f64, reading: &Reading, belief: Belief) -> Option<Verdict> {
        let enough = if belief == Belief::Company { OURS_AFTER_ALL } else { OURS };
        if after < 0.3 * reading.target || (after < reading.target && fall >= OURS_IF_LOW) {
            return Some(Verdict::Ours);
        }
        if fall > MORE_THAN_POSSIBLE {
            return None;
        }
        if fall >= enough {
            return Some(Verdict::Ours);
        }
        let unclear = belief == Belief::Alone && (fall >= OTHERS || moved > UNSTEADY);
        if unclear && reading.now - self.doubted_at > DOUBT {
            self.doubted_at = reading.now;
            return None;
        }
        Some(Verdict::Others)
    }

    /// We send so little already that a pulse lowers nothing: and still there is a queue.
    fn dud(&mut self, before: f64, after: f64, reading: &Reading, belief: Belief) -> Option<Verdict> {
        if belief == Belief::Company {
            // The window, not the rate, ruled: the queue's answer is that of the bytes that were held back.
            return None;
        }
        if after > 0.85 * before && after > 1.5 * reading.target {
            self.duds += 1;
        }
        if self.duds < DUDS {
            return None;
        }
        (self.duds, self.fall) = (0, 0.0);
        Some(Verdict::Others)
    }

    fn remember(
        &mut self,
        verdict: Verdict,
        before: Sample,
        after: Sample,
        fall: f64,
        belief: Belief,
        now: f64,
    ) -> Option<Verdict> {
        let same_floor = (after.queue - self.floor).abs() < (SAME_SHARE * self.floor).max(SAME);
        let longer = Verdict::LongerPath(self.floor);
        match (belief, verdict) {
            (Belief::Company, verdict) => {
                if verdict == Verdict::Ours {
                    self.proven_at = now;
                }
                let fell = fall > OURS && before.queue - after.queue > 0.010;
                Some(if fell && same_floor { longer } else { verdict })
            }
            (Belief::Alone, Verdict::Others) => {
                let proven = now - self.proven_at < PROOF;
                self.proven_at = f64::NEG_INFINITY;
                if proven && same_floor {
                    return Some(longer);
                }
                self.floor = after.queue;
                Some(Verdict::Others)
            }
            (Belief::Alone, verdict) => Some(verdict),
        }
    }
}

impl Pulse {
    fn take(&mut self, sample: Sample) {
        if sample.sent <= self.begin + OVERLAP * self.window {
            let from = self.begin - self.window;
            let best = self.before.filter(|best| best.sent > from && best.queue <= sample.queue);
            self.before = Some(best.unwrap_or(sample));
        }
        if sample.sent >= self.end && self.after.is_none_or(|after| sample.queue < after.queue) {
            self.after = Some(sample);
        }
    }

    /// By how much a queue of ours falls between the two: by the time that passed, less what we put in.
    fn expected_fall(&self, before: Sample, after: Sample, departures: &Departures) -> f64 {
        let put_in = departures.until(after.sent) - departures.until(before.sent);
        (after.sent - before.sent) - put_in / self.delivery
    }
}

#[cfg(test)]
mod tests;
