//! The minimum or maximum of a sliding window, and of a shorter one within it.
//!
//! The window is cut into slices, each of which stores its extreme only. Memory does not grow with the rate of
//! values, and a value expires at most one slice earlier than the window says.

use alloc::collections::VecDeque;
use core::time::Duration;

/// The number of slices of a window: 4 s each for 60 s. The shorter windows have a whole number of them.
const SLICES: usize = 15;

/// The minimum or maximum of a sliding window; times are in seconds. A value costs a few comparisons.
#[derive(Clone, Debug)]
pub(super) struct WindowedMinMax {
    extremum: Extremum,
    slice: f64,
    window: f64,
    recent: f64,
    /// The start of the newest slice, and its extreme. It lies beside the older ones, because nearly every value falls
    /// into it and changes nothing.
    newest: Slice,
    /// The older slices that matter. The extreme of each is also that of all behind it: a slice before a more extreme
    /// one will never be the extreme again. The first is the extreme of the window.
    older: VecDeque<Slice>,
    /// How many of them, the oldest, are not in the shorter window.
    before_recent: usize,
    /// The extremes of the window and of the shorter one, so that a query searches nothing.
    extremes: [f64; 2],
}

/// The start of a slice, and its extreme.
#[derive(Clone, Copy, Debug)]
struct Slice {
    since: f64,
    extreme: f64,
}

/// The newest slice before the first value.
const NONE: Slice = Slice { since: f64::NEG_INFINITY, extreme: 0.0 };

#[derive(Clone, Copy, Debug)]
enum Extremum {
    Min,
    Max,
}

impl Extremum {
    /// Returns whether `value` is more extreme than `other`.
    #[inline]
    fn is_beyond(self, value: f64, other: f64) -> bool {
        match self {
            Self::Min => value < other,
            Self::Max => value > other,
        }
    }
}

impl WindowedMinMax {
    /// Creates the minimum over `window`, and over the shorter window `recent`.
    pub(super) fn min(window: Duration, recent: Duration) -> Self {
        Self::new(Extremum::Min, window, recent)
    }

    /// Creates the maximum over `window`, and over the shorter window `recent`.
    pub(super) fn max(window: Duration, recent: Duration) -> Self {
        Self::new(Extremum::Max, window, recent)
    }

    fn new(extremum: Extremum, window: Duration, recent: Duration) -> Self {
        let (window, recent) = (window.as_secs_f64(), recent.as_secs_f64());
        let slice = window / SLICES as f64;
        Self {
            extremum,
            slice,
            window,
            recent,
            newest: NONE,
            older: VecDeque::new(),
            before_recent: 0,
            extremes: [0.0; 2],
        }
    }

    /// Returns the extreme of the window; `None` before the first value.
    #[inline]
    pub(super) fn value(&self) -> Option<f64> {
        let [extreme, _] = self.extremes;
        (self.newest.since > f64::NEG_INFINITY).then_some(extreme)
    }

    /// Returns the extreme of the shorter window; `None` before the first value.
    #[inline]
    pub(super) fn recent(&self) -> Option<f64> {
        let [_, recent] = self.extremes;
        (self.newest.since > f64::NEG_INFINITY).then_some(recent)
    }

    #[inline]
    pub(super) fn push(&mut self, value: f64, now: f64) {
        // The usual case: the value is not the extreme of the newest slice.
        if now >= self.newest.since + self.slice || self.extremum.is_beyond(value, self.newest.extreme) {
            self.set_extreme(value, now);
        }
    }

    #[inline(never)]
    fn set_extreme(&mut self, value: f64, now: f64) {
        if now < self.newest.since + self.slice {
            self.newest.extreme = value;
        } else {
            self.begin_slice(value, now);
        }
        while self.older.back().is_some_and(|older| !self.extremum.is_beyond(older.extreme, value)) {
            self.older.pop_back();
        }
        self.find_extremes();
    }

    fn find_extremes(&mut self) {
        self.extremes = [0, self.before_recent].map(|older| self.older.get(older).unwrap_or(&self.newest).extreme);
    }

    fn begin_slice(&mut self, value: f64, now: f64) {
        if self.newest.since > f64::NEG_INFINITY {
            // At once: one more slice than ever before can occur after hours.
            if self.older.capacity() == 0 {
                self.older.reserve_exact(SLICES);
            }
            self.older.push_back(self.newest);
        }
        // A slice that expires may have held the extreme.
        while self.older.len() >= SLICES || self.older.front().is_some_and(|oldest| now >= oldest.since + self.window) {
            self.older.pop_front();
        }
        self.before_recent = self.older.partition_point(|older| now >= older.since + self.recent);
        self.newest = Slice { since: now, extreme: value };
    }

    /// Adds `by` to all values.
    pub(super) fn shift(&mut self, by: f64) {
        self.older.iter_mut().chain([&mut self.newest]).for_each(|slice| slice.extreme += by);
        self.find_extremes();
    }

    /// Drops everything but `value`.
    pub(super) fn restart(&mut self, value: f64, now: f64) {
        self.older.clear();
        self.newest = Slice { since: now, extreme: value };
        self.find_extremes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fifteen slices of 4 s, of which the shorter window has five.
    const WINDOW: Duration = Duration::from_secs(60);
    const RECENT: Duration = Duration::from_secs(20);

    #[test]
    fn extreme_lasts_until_its_slice_leaves_each_window() {
        let mut least = WindowedMinMax::min(WINDOW, RECENT);
        let mut greatest = WindowedMinMax::max(WINDOW, RECENT);
        assert_eq!((least.value(), least.recent(), greatest.value()), (None, None, None));
        for (now, value, recent, long) in [
            (0.0, 5.0, 5.0, 5.0),
            (4.0, 3.0, 3.0, 3.0),
            (10.0, 4.0, 3.0, 3.0),
            (23.9, 6.0, 3.0, 3.0),
            (28.5, 7.0, 4.0, 3.0),
            (63.9, 8.0, 8.0, 3.0),
            (68.5, 9.0, 8.0, 4.0),
        ] {
            least.push(value, now);
            greatest.push(-value, now);
            assert_eq!((least.recent(), least.value()), (Some(recent), Some(long)), "after {now} s");
            assert_eq!((greatest.recent(), greatest.value()), (Some(-recent), Some(-long)), "after {now} s");
        }
    }

    #[test]
    fn shift_moves_the_values_of_all_slices() {
        let mut least = WindowedMinMax::min(WINDOW, RECENT);
        for (now, value) in [(0.0, 1.0), (30.0, 2.0), (60.0, 3.0)] {
            least.push(value, now);
        }
        least.shift(0.5);
        assert_eq!((least.value(), least.recent()), (Some(2.5), Some(3.5)));
    }

    #[test]
    fn only_the_new_value_counts_after_a_long_pause() {
        let mut least = WindowedMinMax::min(WINDOW, RECENT);
        least.push(1.0, 0.0);
        least.push(9.0, 100.0);
        assert_eq!(least.value(), Some(9.0));
    }

    #[test]
    fn restart_drops_former_values() {
        let mut least = WindowedMinMax::min(WINDOW, RECENT);
        least.push(1.0, 0.0);
        least.restart(9.0, 5.0);
        assert_eq!(least.value(), Some(9.0));
    }
}
