//! The minimum or maximum of a sliding window.
//!
//! The window is cut into slices, each of which stores its extreme only. Memory does not grow with the rate of
//! values, and a value expires at most one slice earlier than the window says.

use alloc::collections::VecDeque;
use core::time::Duration;

/// The number of slices of a window: 1 s each for 20 s.
const SLICES: usize = 20;

/// The minimum or maximum of a sliding window; times are in seconds. A value costs a few comparisons.
#[derive(Clone, Debug)]
pub(super) struct WindowedMinMax {
    extremum: Extremum,
    slice: f64,
    window: f64,
    /// The start of the newest slice, and its extreme. It lies beside the older ones, because nearly every value falls
    /// into it and changes nothing.
    newest: Slice,
    /// The older slices that matter. The extreme of each is also that of all behind it: a slice before a more extreme
    /// one will never be the extreme again. The first is the extreme of the window.
    older: VecDeque<Slice>,
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
    /// Creates the minimum over `window`.
    pub(super) fn min(window: Duration) -> Self {
        Self::new(Extremum::Min, window)
    }

    /// Creates the maximum over `window`.
    pub(super) fn max(window: Duration) -> Self {
        Self::new(Extremum::Max, window)
    }

    fn new(extremum: Extremum, window: Duration) -> Self {
        let window = window.as_secs_f64();
        Self { extremum, slice: window / SLICES as f64, window, newest: NONE, older: VecDeque::new() }
    }

    #[inline]
    pub(super) fn value(&self) -> Option<f64> {
        let newest = Some(&self.newest).filter(|newest| newest.since > f64::NEG_INFINITY);
        self.older.front().or(newest).map(|slice| slice.extreme)
    }

    #[inline]
    pub(super) fn push(&mut self, value: f64, now: f64) {
        if now < self.newest.since + self.slice {
            // The usual case: the value is not the extreme of the newest slice.
            if !self.extremum.is_beyond(value, self.newest.extreme) {
                return;
            }
            self.newest.extreme = value;
        } else {
            self.begin_slice(value, now);
        }
        while self.older.back().is_some_and(|older| !self.extremum.is_beyond(older.extreme, value)) {
            self.older.pop_back();
        }
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
        self.newest = Slice { since: now, extreme: value };
    }

    /// Drops everything but `value`.
    pub(super) fn restart(&mut self, value: f64, now: f64) {
        self.older.clear();
        self.newest = Slice { since: now, extreme: value };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(20);

    #[test]
    fn extreme_lasts_until_its_slice_leaves_the_window() {
        let mut least = WindowedMinMax::min(WINDOW);
        let mut greatest = WindowedMinMax::max(WINDOW);
        assert_eq!((least.value(), greatest.value()), (None, None));
        for (now, value, expected) in
            [(0.0, 5.0, 5.0), (1.0, 3.0, 3.0), (10.0, 4.0, 3.0), (20.0, 6.0, 3.0), (21.0, 6.0, 4.0)]
        {
            least.push(value, now);
            greatest.push(-value, now);
            assert_eq!((least.value(), greatest.value()), (Some(expected), Some(-expected)), "after {now} s");
        }
    }

    #[test]
    fn only_the_new_value_counts_after_a_long_pause() {
        let mut least = WindowedMinMax::min(WINDOW);
        least.push(1.0, 0.0);
        least.push(9.0, 100.0);
        assert_eq!(least.value(), Some(9.0));
    }

    #[test]
    fn restart_drops_former_values() {
        let mut least = WindowedMinMax::min(WINDOW);
        least.push(1.0, 0.0);
        least.restart(9.0, 5.0);
        assert_eq!(least.value(), Some(9.0));
    }
}
