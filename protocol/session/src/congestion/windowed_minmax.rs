//! The minimum or maximum of a sliding window.
//!
//! The window is cut into slices, each of which stores its extreme only. Memory does not grow with the rate of
//! values, and a value expires at most one slice earlier than the window says.

use alloc::boxed::Box;
use alloc::vec;
use core::time::Duration;

/// The number of slices of a window: 1 s each for 20 s.
const SLICES: u32 = 20;

/// The minimum or maximum of a sliding window; times are in seconds. A value costs a comparison, a new slice a pass
/// over all.
#[derive(Clone, Debug)]
pub(super) struct WindowedMinMax {
    extremum: Extremum,
    slice: f64,
    window: f64,
    /// The start of each slice, and its extreme.
    slices: Box<[Option<(f64, f64)>]>,
    newest: usize,
    value: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
enum Extremum {
    Min,
    Max,
}

impl Extremum {
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Min => a.min(b),
            Self::Max => a.max(b),
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
        let slices = vec![None; SLICES as usize].into_boxed_slice();
        Self { extremum, slice: window / f64::from(SLICES), window, slices, newest: 0, value: None }
    }

    pub(super) fn value(&self) -> Option<f64> {
        self.value
    }

    pub(super) fn push(&mut self, value: f64, now: f64) {
        let extremum = self.extremum;
        match self.slices.get_mut(self.newest) {
            // The usual case: the value falls into the newest slice.
            Some(Some((since, extreme))) if now < *since + self.slice => *extreme = extremum.of(*extreme, value),
            _ => {
                self.newest = (self.newest + 1) % self.slices.len();
                if let Some(slot) = self.slices.get_mut(self.newest) {
                    *slot = Some((now, value));
                }
                // The slice that was overwritten may have held the extreme.
                self.expire(now);
            }
        }
        self.value = Some(self.value.map_or(value, |extreme| extremum.of(extreme, value)));
    }

    /// Drops everything but `value`.
    pub(super) fn restart(&mut self, value: f64, now: f64) {
        self.slices.fill(None);
        self.value = None;
        self.push(value, now);
    }

    /// Drops the slices that started longer ago than the window.
    fn expire(&mut self, now: f64) {
        for slot in &mut self.slices {
            *slot = slot.filter(|(since, _)| now < *since + self.window);
        }
        let extremum = self.extremum;
        self.value = self.slices.iter().flatten().map(|(_, value)| *value).reduce(|a, b| extremum.of(a, b));
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
