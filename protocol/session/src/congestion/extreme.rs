//! The least or the greatest of the values of late.
//!
//! The window is cut into slices; each remembers its extreme alone. So memory does not grow with the rate of the
//! values, and a value is forgotten at most one slice earlier than the window says.

use alloc::boxed::Box;
use alloc::vec;
use core::time::Duration;

/// How many slices a window has: 1 s of 20 s.
const SLICES: u32 = 20;

/// The extreme of a sliding window; times are in seconds. A value costs a comparison, a new slice a pass over all.
#[derive(Clone, Debug)]
pub(super) struct Extreme {
    side: Side,
    slice: f64,
    window: f64,
    /// Since when, and the extreme.
    slices: Box<[Option<(f64, f64)>]>,
    newest: usize,
    value: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
enum Side {
    Least,
    Greatest,
}

impl Side {
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Least => a.min(b),
            Self::Greatest => a.max(b),
        }
    }
}

impl Extreme {
    /// The least value of `window`.
    pub(super) fn least(window: Duration) -> Self {
        Self::new(Side::Least, window)
    }

    /// The greatest value of `window`.
    pub(super) fn greatest(window: Duration) -> Self {
        Self::new(Side::Greatest, window)
    }

    fn new(side: Side, window: Duration) -> Self {
        let window = window.as_secs_f64();
        let slices = vec![None; SLICES as usize].into_boxed_slice();
        Self { side, slice: window / f64::from(SLICES), window, slices, newest: 0, value: None }
    }

    pub(super) fn value(&self) -> Option<f64> {
        self.value
    }

    pub(super) fn push(&mut self, value: f64, now: f64) {
        let side = self.side;
        match self.slices.get_mut(self.newest) {
            Some(Some((since, extreme))) if now < *since + self.slice => *extreme = side.of(*extreme, value),
            _ => {
                self.newest = (self.newest + 1) % self.slices.len();
                if let Some(place) = self.slices.get_mut(self.newest) {
                    *place = Some((now, value));
                }
                self.forget(now);
            }
        }
        self.value = Some(self.value.map_or(value, |extreme| side.of(extreme, value)));
    }

    /// Forgets everything but `value`.
    pub(super) fn restart(&mut self, value: f64, now: f64) {
        self.slices.fill(None);
        self.value = None;
        self.push(value, now);
    }

    /// Drops the slices that began longer ago than the window.
    fn forget(&mut self, now: f64) {
        for place in &mut self.slices {
            *place = place.filter(|(since, _)| now < *since + self.window);
        }
        let side = self.side;
        self.value = self.slices.iter().flatten().map(|(_, value)| *value).reduce(|a, b| side.of(a, b));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(20);

    #[test]
    fn an_extreme_rules_until_its_slice_leaves_the_window() {
        let mut least = Extreme::least(WINDOW);
        let mut greatest = Extreme::greatest(WINDOW);
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
    fn after_a_long_silence_only_the_new_value_counts() {
        let mut least = Extreme::least(WINDOW);
        least.push(1.0, 0.0);
        least.push(9.0, 100.0);
        assert_eq!(least.value(), Some(9.0));
    }

    #[test]
    fn a_restart_forgets_what_was() {
        let mut least = Extreme::least(WINDOW);
        least.push(1.0, 0.0);
        least.restart(9.0, 5.0);
        assert_eq!(least.value(), Some(9.0));
    }
}
