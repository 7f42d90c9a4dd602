//! The usual mode: the rate follows what the path delivers, so that its queue stays near the target.
//!
//! Here, too, is decided when to ask whose queue it is; the answer is sought beside, in `pulse`.

use super::departures::Departures;
use super::reading::Reading;

/// With an empty queue the rate exceeds the delivery by this share: near where the path's limit was found, and far.
const NEAR: f64 = 0.05;
const FAR: f64 = 0.35;
/// Near is a rate within these shares of that limit.
const NEAR_FROM: f64 = 0.85;
const NEAR_TO: f64 = 1.10;
/// Without a cut for so many seconds, and with a queue below this share of the target, the limit may be elsewhere.
const UNCUT: f64 = 5.0;
const UNCUT_QUEUE: f64 = 0.3;
/// One goes far only below this share of the target, and of a ceiling.
const FAR_QUEUE: f64 = 0.4;
const FAR_OF_CEILING: f64 = 0.9;
/// One grows only if this share of the rate is sent, give or take a packet: on a thin path few leave in the time in which
/// that is measured, and never a part of one.
const USED: f64 = 0.75;
/// The limit is forgotten when the rate may reach less than this share of it.
const FORGET_BELOW: f64 = 0.5;
/// Time constant of the path's limit, in seconds.
const LIMIT_TIME: f64 = 0.5;

/// The least share of the delivery that is sent to drain a queue which is ours, and one of which that is not known.
const LEAST_IF_OURS: f64 = 0.15;
const LEAST_IF_UNKNOWN: f64 = 0.85;
/// The most, above the target: a queue just above it is not pushed down by what jitters.
const MOST_ABOVE_TARGET: f64 = 1.02;
/// Above the target the rate rises by this share each loop at most.
const RISE_ABOVE_TARGET: f64 = 0.1;
/// Whatever the queue, this share of what was delivered early in the episode is sent: others may be filling it.
const EPISODE_SHARE: f64 = 0.5;
/// Early is so many seconds after its begin.
const EARLY: f64 = 0.35;
/// An episode that begins so soon after another is the same one, in seconds: or each would take half of what was left.
const SAME_EPISODE: f64 = 2.0;
/// If what is delivered at once falls below this share of what is sent, with three targets in the queue, it is ours.
const COLLAPSE_SHARE: f64 = 0.5;
const COLLAPSE_TARGETS: f64 = 3.0;
/// So long a queue is known to be ours, in seconds: after a verdict, and after one that ended a competition.
const OURS_TIME: f64 = 1.0;
const OURS_TIME_AFTER_COMPANY: f64 = 3.0;

/// An episode begins above this multiple of the target.
const EPISODE: f64 = 1.2;
/// One asks soon above this multiple and so many seconds.
const ASK: f64 = 1.5;
const ASK_MARGIN: f64 = 0.010;
/// Soon: after so many seconds, for a queue of four targets and for a lesser one.
const ASK_AFTER_HIGH: f64 = 0.15;
const ASK_AFTER: f64 = 0.3;
const HIGH: f64 = 4.0;
/// Between two pulses, in seconds.
const PULSE_INTERVAL: f64 = 1.0;
/// The slow question comes after four round trips, at least so many seconds.
const SLOW_ROUND_TRIPS: f64 = 4.0;
const SLOW: f64 = 1.0;
/// Each answer that the queue is ours doubles the time to the next slow question, so often at most.
const MOST_DOUBLINGS: u32 = 4;
/// The grey zone: a queue above this share of the target that stays, and a rate below this share of the peak.
const GREY_QUEUE: f64 = 0.8;
const GREY_RATE: f64 = 0.8;
/// One asks after eight round trips of it, at least a second.
const GREY_ROUND_TRIPS: f64 = 8.0;
const GREY: f64 = 1.0;
const GREY_DOUBLINGS: u32 = 3;

/// Without an empty queue for so many seconds one is made, so that the path's own delay shows.
const DRAIN_INTERVAL: f64 = 8.0;
/// Empty is below half of the target.
const EMPTY: f64 = 0.5;
/// It is drained at this share of the delivery, as long as that needs, in seconds.
pub(super) const DRAIN_RATE: f64 = 0.6;
const LONGEST_DRAIN: f64 = 0.3;
const DRAIN_MARGIN: f64 = 0.03;

/// What is remembered between feedbacks. Rates in bytes per second, times in seconds.
#[derive(Clone, Debug)]
pub(super) struct Steady {
    /// The path's limit, where it was met last; zero before.
    limit: f64,
    /// A queue was met there, and not something that only looked like a limit: loss, or an application with little to send.
    limit_is_known: bool,
    cut_at: f64,
    grow_after: f64,
    ours_until: f64,
    ask_after: f64,
    ours_in_turn: u32,
    episode: Option<Episode>,
    /// The episode before, and when it ended.
    previous: Option<(f64, Episode)>,
    grey: Option<Grey>,
    empty_at: f64,
    drained_at: f64,
}

/// A queue that stays above the target.
#[derive(Clone, Copy, Debug)]
struct Episode {
    since: f64,
    /// What was sent when it began.
    rate: f64,
    /// Since when it is high enough to ask soon.
    high_since: Option<f64>,
    early_delivery: Option<f64>,
}

/// A queue that never leaves, and a rate that never comes back.
#[derive(Clone, Copy, Debug)]
struct Grey {
    since: f64,
    peak: f64,
}

/// Whether one should ask whose queue it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Question {
    None,
    Ask,
}

/// What the mode needs to know of the rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances {
    /// A rate is being held for some question or drain.
    pub(super) is_held: bool,
    /// A pulse is under way.
    pub(super) is_asking: bool,
    /// How long ago the newest pulse began.
    pub(super) asked_ago: f64,
}

impl Steady {
    pub(super) fn new() -> Self {
        Self {
            limit: 0.0,
            limit_is_known: false,
            cut_at: f64::NEG_INFINITY,
            grow_after: f64::NEG_INFINITY,
            ours_until: f64::NEG_INFINITY,
            ask_after: f64::NEG_INFINITY,
            ours_in_turn: 0,
            episode: None,
            previous: None,
            grey: None,
            empty_at: 0.0,
            drained_at: 0.0,
        }
    }

    /// The mode begins or begins anew, with the path's limit at `limit`.
    pub(super) fn begin(&mut self, limit: f64, reading: &Reading) {
        self.limit = limit;
        self.previous = None;
        self.cut_at = reading.now;
        self.grow_after = reading.now + reading.round_trip;
    }

    /// Others left the queue, or it was ours after all.
    pub(super) fn begin_after_company(&mut self, reading: &Reading, is_ours: bool) {
        self.begin(reading.delivery, reading);
        self.limit_is_known = true;
        self.episode = None;
        if is_ours {
            self.ours_until = reading.now + OURS_TIME_AFTER_COMPANY;
        }
    }

    /// The queue was none.
    pub(super) fn begin_on_longer_path(&mut self, reading: &Reading) {
        self.begin(reading.delivery, reading);
        self.episode = None;
        self.empty_at = reading.now;
    }

    pub(super) fn set_limit(&mut self, limit: f64) {
        self.limit = limit;
        self.limit_is_known = true;
    }

    /// Whether the path's limit has shown. Until then there is no reason to go slowly.
    pub(super) fn knows_limit(&self) -> bool {
        self.limit_is_known
    }

    /// Whoever had little to send for long may send `most`, which is far from where the path's limit was met: what it is
    /// now nobody knows, and it is looked for as at the beginning. Answers whether it was forgotten just now.
    pub(super) fn forgets_limit(&mut self, most: f64) -> bool {
        let forgets = self.limit_is_known && most < FORGET_BELOW * self.limit;
        self.limit_is_known &= !forgets;
        forgets
    }

    /// Takes note of a feedback in any mode.
    pub(super) fn observe(&mut self, reading: &Reading) {
        if reading.queue < EMPTY * reading.target {
            self.empty_at = reading.now;
        }
        if reading.queue > reading.target {
            self.limit_is_known |= !reading.app_limited;
            let weight = if self.limit <= 0.0 { 1.0 } else { (reading.step / LIMIT_TIME).min(1.0) };
            self.limit += (reading.delivery - self.limit) * weight;
        }
    }

    /// The queue is ours.
    pub(super) fn ours(&mut self, reading: &Reading) {
        (self.ours_until, self.ask_after) = (reading.now + OURS_TIME, reading.now + OURS_TIME);
        self.ours_in_turn += 1;
        self.previous = None;
        if let Some(episode) = &mut self.episode {
            episode.early_delivery = Some(reading.delivery);
        }
    }

    /// The queue is that of others.
    pub(super) fn others(&mut self) {
        self.ours_in_turn = 0;
    }

    pub(super) fn is_ours(&self, now: f64) -> bool {
        now < self.ours_until
    }

    /// What was sent when the episode began, if there is one.
    pub(super) fn rate_before_episode(&self) -> Option<f64> {
        self.episode.map(|episode| episode.rate)
    }

    pub(super) fn end_episode(&mut self) {
        self.episode = None;
    }

    /// Follows the queue's episodes, and says when to ask whose it is.
    pub(super) fn ask(&mut self, reading: &Reading, around: &Circumstances, rate: f64) -> Question {
        let free = !reading.is_draining && !around.is_held;
        let mut question = Question::None;
        if reading.queue > EPISODE * reading.target && free {
            question = self.in_episode(reading, around, rate);
        } else if reading.queue < reading.target && !around.is_asking {
            self.previous = self.episode.take().map(|episode| (reading.now, episode)).or(self.previous);
        }
        if question == Question::None {
            question = self.in_grey_zone(reading, around, rate, free);
        }
        question
    }

    fn in_episode(&mut self, reading: &Reading, around: &Circumstances, rate: f64) -> Question {
        let now = reading.now;
        let previous = self.previous.filter(|(ended_at, _)| now - ended_at < SAME_EPISODE);
        let episode = self.episode.get_or_insert_with(|| {
            let rate = rate.min(1.2 * reading.sent);
            let begun = Episode { since: now, rate, high_since: None, early_delivery: None };
            previous.map_or(begun, |(_, episode)| Episode { since: now, high_since: None, ..episode })
        });
        episode.high_since =
            if reading.queue > ASK * reading.target + ASK_MARGIN { episode.high_since.or(Some(now)) } else { None };
        if episode.early_delivery.is_none() && now - episode.since > EARLY {
            episode.early_delivery = Some(reading.delivery);
        }
        let patience = if reading.queue > HIGH * reading.target { ASK_AFTER_HIGH } else { ASK_AFTER };
        let soon = episode.high_since.is_some_and(|since| now - since > patience);
        let slow = now - episode.since > (SLOW_ROUND_TRIPS * reading.round_trip).max(SLOW)
            && around.asked_ago > doubled(1.0, self.ours_in_turn, MOST_DOUBLINGS);
        let may = !around.is_asking && now > self.ask_after && around.asked_ago > PULSE_INTERVAL;
        if may && (soon || slow) { Question::Ask } else { Question::None }
    }

    fn in_grey_zone(&mut self, reading: &Reading, around: &Circumstances, rate: f64, free: bool) -> Question {
        let now = reading.now;
        let is_grey =
            reading.queue > GREY_QUEUE * reading.target && !reading.app_limited && rate < GREY_RATE * reading.peak;
        if !is_grey {
            self.grey = None;
            return Question::None;
        }
        let grey = *self.grey.get_or_insert(Grey { since: now, peak: reading.peak });
        let long = now - grey.since > (GREY_ROUND_TRIPS * reading.round_trip).max(GREY);
        let rested = around.asked_ago > doubled(2.0, self.ours_in_turn, GREY_DOUBLINGS);
        if !(long && rested && free && !around.is_asking) {
            return Question::None;
        }
        let since = self.episode.map_or(now, |episode| episode.since);
        let (high_since, early) =
            self.episode.map_or((None, Some(reading.delivery)), |episode| (episode.high_since, episode.early_delivery));
        self.episode = Some(Episode { since, rate: grey.peak, high_since, early_delivery: early });
        Question::Ask
    }

    /// The rate from now on.
    pub(super) fn steer(&mut self, reading: &Reading, rate: f64, ceiling: f64) -> f64 {
        if reading.queue <= reading.target { self.grow(reading, rate, ceiling) } else { self.drain(reading, rate) }
    }

    fn grow(&mut self, reading: &Reading, rate: f64, ceiling: f64) -> f64 {
        let now = reading.now;
        let sent = reading.sent + Departures::unit(reading.largest_packet, rate);
        if reading.app_limited || now <= self.grow_after || sent <= USED * rate {
            return rate;
        }
        let room = 1.0 - reading.queue / reading.target;
        let elsewhere = now - self.cut_at > UNCUT && reading.queue < UNCUT_QUEUE * reading.target;
        let is_far = rate < NEAR_FROM * self.limit || rate > NEAR_TO * self.limit || elsewhere;
        let may_go_far = reading.queue < FAR_QUEUE * reading.target && rate < FAR_OF_CEILING * ceiling;
        let share = if is_far && may_go_far { FAR } else { NEAR };
        let loops = reading.step / reading.loop_time();
        let target = reading.delivery * (1.0 + share * room) + reading.least_growth();
        if target >= rate {
            (rate * (1.0 + share * room * loops) + reading.least_growth() * loops).min(target)
        } else {
            rate + (target - rate) * loops.min(1.0)
        }
    }

    fn drain(&mut self, reading: &Reading, rate: f64) -> f64 {
        let now = reading.now;
        let delivery =
            if reading.has_collapsed { reading.arrivals_at_once.min(reading.delivery) } else { reading.delivery };
        if reading.queue_at_once > COLLAPSE_TARGETS * reading.target
            && reading.arrivals_at_once < COLLAPSE_SHARE * reading.sent
        {
            self.ours_until = self.ours_until.max(now + OURS_TIME);
        }
        let least = if now < self.ours_until { LEAST_IF_OURS } else { LEAST_IF_UNKNOWN };
        let share = 1.0 - (reading.queue_left - reading.target) / reading.drain_time();
        let mut target = delivery * share.clamp(least, MOST_ABOVE_TARGET) + reading.least_growth();
        if let Some(Episode { rate, early_delivery: Some(early), .. }) = self.episode {
            target = target.max(EPISODE_SHARE * early.min(rate));
        }
        if target < rate {
            self.cut_at = now;
            return target;
        }
        (rate * (1.0 + RISE_ABOVE_TARGET * reading.step / reading.loop_time())).min(target)
    }

    /// Whether the queue must be emptied once, so that the path's own delay shows; and for how long, in seconds.
    pub(super) fn drain_once(&mut self, reading: &Reading) -> Option<f64> {
        let now = reading.now;
        let due = now - self.empty_at > DRAIN_INTERVAL && now - self.drained_at > DRAIN_INTERVAL;
        if !due || reading.app_limited {
            return None;
        }
        self.drained_at = now;
        Some((reading.queue / (1.0 - DRAIN_RATE)).min(LONGEST_DRAIN) + DRAIN_MARGIN)
    }
}

/// `seconds`, doubled so many times, at most `most`.
fn doubled(seconds: f64, times: u32, most: u32) -> f64 {
    seconds * f64::from(1_u32 << times.min(most))
}

#[cfg(test)]
mod tests;
