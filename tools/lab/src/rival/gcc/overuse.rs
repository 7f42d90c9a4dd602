//! The over-use detector: the arrival filter and the threshold (draft-ietf-rmcat-gcc-02, sections 5.2 to 5.4). Times
//! are in milliseconds, as in the draft.
//!
//! A report states the arrival of one packet, the newest, so a report stands for a group of packets. The gradient is
//! the slope of a line through the last groups, as in WebRTC's "trendline" estimator, instead of the draft's Kalman
//! filter. The Kalman filter returns the change per group and at 30 reports per second would not detect an overload of
//! 20 %. The speed of the threshold is WebRTC's as well, because it belongs to the filter: it falls much faster than in
//! the draft, so that one overload does not hide the next, and yields more to flows that fill the queue.

use std::collections::VecDeque;

/// The number of groups on the line, and their smoothing before (WebRTC's trendline estimator).
const GROUPS: usize = 20;
const SMOOTHING: f64 = 0.1;
/// The gain of the slope per group, up to a maximum number of groups (the same).
const GAIN: f64 = 4.0;
const MAX_GROUPS: f64 = 60.0;
/// The initial threshold (`del_var_th(0)`, section 5.6).
const FIRST_THRESHOLD: f64 = 12.5;
/// The bounds of the threshold (section 5.4).
const THRESHOLDS: (f64, f64) = (6.0, 600.0);
/// The speed at which it rises and falls, per millisecond (WebRTC; 0.01 and 0.00018 as `K_u` and `K_d` in section 5.6).
const RISE: f64 = 0.0087;
const FALL: f64 = 0.039;
/// A gradient that exceeds the threshold by more does not change it (section 5.4).
const OUTLIER: f64 = 15.0;
/// The maximum gap between groups that counts for the threshold, in milliseconds (WebRTC).
const MAX_GAP: f64 = 100.0;
/// How long the gradient must be above the threshold, in milliseconds (`overuse_time_th`, section 5.6).
const SUSTAINED: f64 = 10.0;

/// The state of the path.
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
    group_count: f64,
    gradient: f64,
    threshold: f64,
    over_for: f64,
    usage: Usage,
}

impl Default for Detector {
    fn default() -> Self {
        let groups = VecDeque::with_capacity(GROUPS);
        Self {
            groups,
            group_count: 0.0,
            gradient: 0.0,
            threshold: FIRST_THRESHOLD,
            over_for: 0.0,
            usage: Usage::Normal,
        }
    }
}

impl Detector {
    /// Adds a group with its arrival time and delay.
    pub(in crate::rival) fn update(&mut self, arrival: f64, delay: f64) -> Usage {
        let (before, smoothed) = self.groups.back().copied().unwrap_or((arrival, delay));
        let elapsed = arrival - before;
        if elapsed < 0.0 {
            return self.usage;
        }
        if self.groups.len() == GROUPS {
            self.groups.pop_front();
        }
        self.groups.push_back((arrival, smoothed + SMOOTHING * (delay - smoothed)));
        self.group_count += 1.0;
        let slope = if self.groups.len() == GROUPS { slope(&self.groups) } else { 0.0 };
        self.detect(GAIN * slope * self.group_count.min(MAX_GROUPS), elapsed);
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
            let moved = self.threshold + speed * elapsed.min(MAX_GAP) * beyond;
            self.threshold = moved.clamp(THRESHOLDS.0, THRESHOLDS.1);
        }
    }
}

/// Returns the slope of the least-squares line.
fn slope(points: &VecDeque<(f64, f64)>) -> f64 {
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / count, y + point.1 / count));
    let (above, below) = points.iter().fold((0.0, 0.0), |(above, below), point| {
        let off = point.0 - x;
        (above + off * (point.1 - y), below + off * off)
    });
    if below > 0.0 { above / below } else { 0.0 }
}
