//! The least of the values of late.
//!
//! The window is cut into [`SLICES`]; each remembers its least value alone. So memory does not grow with the rate of the
//! values, and a value is forgotten at most one slice earlier than the window says.

use core::time::Duration;

use crate::time::Instant;

/// How many slices a window has: 1 s of 20 s.
const SLICES: usize = 20;

/// The least value of a sliding window. A value costs a comparison, a new slice a pass over twenty.
#[derive(Clone, Debug)]
pub(super) struct Least {
    window: Duration,
    slices: [Option<(Instant, f64)>; SLICES],
    newest: usize,
    value: Option<f64>,
}

impl Least {
    pub(super) fn new(window: Duration) -> Self {
        Self { window, slices: [None; SLICES], newest: 0, value: None }
    }

    pub(super) fn value(&self) -> Option<f64> {
        self.value
    }

    pub(super) fn push(&mut self, value: f64, now: Instant) {
        let slice = self.window / SLICES as u32;
        match self.slices.get_mut(self.newest) {
            Some(Some((since, least))) if !now.reached(*since, slice) => *least = least.min(value),
            _ => {
                self.newest = (self.newest + 1) % SLICES;
                if let Some(place) = self.slices.get_mut(self.newest) {
                    *place = Some((now, value));
                }
                self.forget(now);
            }
        }
        self.value = Some(self.value.map_or(value, |least| least.min(value)));
    }

    /// Drops the slices that began longer ago than the window.
    fn forget(&mut self, now: Instant) {
        for place in &mut self.slices {
            *place = place.filter(|(since, _)| !now.reached(*since, self.window));
        }
        self.value = self.slices.iter().flatten().map(|(_, value)| *value).reduce(f64::min);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_value_rules_until_its_slice_leaves_the_window() {
        let mut least = Least::new(Duration::from_secs(20));
        assert_eq!(least.value(), None);
        for (second, value, expected) in [(0, 5.0, 5.0), (1, 3.0, 3.0), (10, 4.0, 3.0), (20, 6.0, 3.0), (21, 6.0, 4.0)]
        {
            least.push(value, Instant::from_start(Duration::from_secs(second)));
            assert_eq!(least.value(), Some(expected), "after {second} s");
        }
    }

    #[test]
    fn after_a_long_silence_only_the_new_value_counts() {
        let mut least = Least::new(Duration::from_secs(20));
        least.push(1.0, Instant::default());
        least.push(9.0, Instant::from_start(Duration::from_secs(100)));
        assert_eq!(least.value(), Some(9.0));
    }
}
