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
    /// 1 for a maximum. A minimum is the maximum of values times -1.
    sign: f64,
    slice: f64,
    window: f64,
    recent: f64,
    /// The newest slice. It lies beside the older ones, because nearly every value falls into it and changes nothing.
    newest: Slice,
    /// When it ends.
    newest_ends_at: f64,
    /// The older slices that matter. The maximum of each is also that of all behind it: a slice before a larger one
    /// will never have the maximum again. The first has the maximum of the window.
    older: VecDeque<Slice>,
    /// How many of them, the oldest, are not in the shorter window.
    before_recent: usize,
    /// The extremes of the window and of the shorter one, so that a query searches nothing.
    extremes: [f64; 2],
}

/// The start of a slice, and the maximum of its values times the sign.
#[derive(Clone, Copy, Debug)]
struct Slice {
    since: f64,
    max: f64,
}

/// The newest slice before the first value.
const NONE: Slice = Slice { since: f64::NEG_INFINITY, max: 0.0 };

impl WindowedMinMax {
    /// Creates the minimum over `window`, and over the shorter window `recent`.
    pub(super) fn min(window: Duration, recent: Duration) -> Self {
        Self::new(-1.0, window, recent)
    }

    /// Creates the maximum over `window`, and over the shorter window `recent`.
    pub(super) fn max(window: Duration, recent: Duration) -> Self {
        Self::new(1.0, window, recent)
    }

    fn new(sign: f64, window: Duration, recent: Duration) -> Self {
        let (window, recent) = (window.as_secs_f64(), recent.as_secs_f64());
        let slice = window / SLICES as f64;
        Self {
            sign,
            slice,
            window,
            recent,
            newest: NONE,
            newest_ends_at: f64::NEG_INFINITY,
            older: VecDeque::new(),
            before_recent: 0,
            extremes: [0.0; 2],
        }
    }

    /// Returns the extreme of the window; `None` before the first value.
    #[inline]
    pub(super) fn value(&self) -> Option<f64> {
        self.over(false)
    }

    /// Returns the extreme of the shorter window; `None` before the first value.
    #[inline]
    pub(super) fn recent(&self) -> Option<f64> {
        self.over(true)
    }

    /// Returns the extreme of the shorter window or of the whole one; `None` before the first value.
    #[inline]
    pub(super) fn over(&self, is_recent: bool) -> Option<f64> {
        let [extreme, recent] = self.extremes;
        (self.newest_ends_at > f64::NEG_INFINITY).then_some(if is_recent { recent } else { extreme })
    }

    #[inline]
    pub(super) fn push(&mut self, value: f64, now: f64) {
        let value = self.sign * value;
        // The usual case: the value is not the extreme of the newest slice.
        if now >= self.newest_ends_at || value > self.newest.max {
            self.set_max(value, now);
        }
    }

    #[inline(never)]
    fn set_max(&mut self, value: f64, now: f64) {
        if now < self.newest_ends_at {
            self.newest.max = value;
        } else {
            self.begin_slice(value, now);
        }
        while self.older.back().is_some_and(|older| older.max <= value) {
            self.older.pop_back();
        }
        self.find_extremes();
    }

    fn find_extremes(&mut self) {
        let max = |older: usize| self.older.get(older).unwrap_or(&self.newest).max;
        self.extremes = [0, self.before_recent].map(|older| self.sign * max(older));
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
        self.begin_newest(value, now);
    }

    fn begin_newest(&mut self, value: f64, now: f64) {
        self.newest = Slice { since: now, max: value };
        self.newest_ends_at = now + self.slice;
    }

    /// Adds `by` to all values.
    pub(super) fn shift(&mut self, by: f64) {
        self.older.iter_mut().chain([&mut self.newest]).for_each(|slice| slice.max += self.sign * by);
        self.find_extremes();
    }

    /// Drops everything but `value`.
    pub(super) fn restart(&mut self, value: f64, now: f64) {
        self.older.clear();
        self.begin_newest(self.sign * value, now);
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
