//! Whether a path is over-used: the arrival filter and the over-use detector (draft-ietf-rmcat-gcc-02, sections 5.2 to
//! 5.4). Times are in milliseconds, as there.
//!
//! A report tells the arrival of one packet, the newest, so that a report stands for a group of packets. The gradient is
//! the slope of a line through the last groups, as WebRTC's "trendline" has it, instead of the draft's Kalman filter:
//! this one answers in change per group, and at 30 reports per second would not see an overload of a fifth. How fast the
//! threshold moves is WebRTC's as well, for it goes with the filter: it falls much faster than in the draft, so that one
//! overload does not hide the next, and yields more to flows that fill the queue.

use std::collections::VecDeque;

/// Groups through which the line is drawn, and how they are smoothed before (WebRTC's trendline estimator).
const GROUPS: usize = 20;
const SMOOTHING: f64 = 0.1;
/// What makes a slope comparable with the threshold: this, for each group up to so many (the same).
const GAIN: f64 = 4.0;
const MOST_GROUPS: f64 = 60.0;
/// The threshold at first (`del_var_th(0)`, section 5.6).
const FIRST_THRESHOLD: f64 = 12.5;
/// The bounds of the threshold (section 5.4).
const THRESHOLDS: (f64, f64) = (6.0, 600.0);
/// How fast it rises and falls, per millisecond (WebRTC; 0.01 and 0.00018 as `K_u` and `K_d` in section 5.6).
const RISE: f64 = 0.0087;
const FALL: f64 = 0.039;
/// A gradient that is further above than this does not move it (section 5.4).
const OUTLIER: f64 = 15.0;
/// A gap between groups counts as no longer than this for the threshold (WebRTC).
const LONGEST_GAP: f64 = 100.0;
/// For how long the gradient must be above the threshold (`overuse_time_th`, section 5.6).
const SUSTAINED: f64 = 10.0;

/// What the path is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::rival) enum Usage {
    #[default]
    Normal,
    /// Its queue grows.
    Over,
    /// Its queue empties.
    Under,
}

/// The filter and the detector.
#[derive(Debug)]
pub(in crate::rival) struct Detector {
    /// Arrivals and smoothed delays.
    groups: VecDeque<(f64, f64)>,
    heard: f64,
    gradient: f64,
    threshold: f64,
    over_for: f64,
    usage: Usage,
}

impl Default for Detector {
    fn default() -> Self {
        let groups = VecDeque::with_capacity(GROUPS);
        Self { groups, heard: 0.0, gradient: 0.0, threshold: FIRST_THRESHOLD, over_for: 0.0, usage: Usage::Normal }
    }
}

impl Detector {
    /// Takes a group: when it arrived, and how long it took.
    pub(in crate::rival) fn hear(&mut self, arrival: f64, delay: f64) -> Usage {
        let (before, smoothed) = self.groups.back().copied().unwrap_or((arrival, delay));
        let elapsed = arrival - before;
        if elapsed < 0.0 {
            return self.usage;
        }
        if self.groups.len() == GROUPS {
            self.groups.pop_front();
        }
        self.groups.push_back((arrival, smoothed + SMOOTHING * (delay - smoothed)));
        self.heard += 1.0;
        let slope = if self.groups.len() == GROUPS { slope(&self.groups) } else { 0.0 };
        self.detect(GAIN * slope * self.heard.min(MOST_GROUPS), elapsed);
        self.usage
    }

    fn detect(&mut self, gradient: f64, elapsed: f64) {
        if gradient > self.threshold {
            self.over_for += elapsed;
            if self.over_for > SUSTAINED && gradient >= self.gradient {
                self.usage = Usage::Over;
            }
        } else {
            self.over_for = 0.0;
            self.usage = if gradient < -self.threshold { Usage::Under } else { Usage::Normal };
        }
        self.gradient = gradient;
        let beyond = gradient.abs() - self.threshold;
        if beyond <= OUTLIER {
            let speed = if beyond < 0.0 { FALL } else { RISE };
            let moved = self.threshold + speed * elapsed.min(LONGEST_GAP) * beyond;
            self.threshold = moved.clamp(THRESHOLDS.0, THRESHOLDS.1);
        }
    }
}

/// The slope of the line with the least squares.
fn slope(points: &VecDeque<(f64, f64)>) -> f64 {
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / count, y + point.1 / count));
    let (above, below) = points.iter().fold((0.0, 0.0), |(above, below), point| {
        let off = point.0 - x;
        (above + off * (point.1 - y), below + off * off)
    });
    if below > 0.0 { above / below } else { 0.0 }
}
