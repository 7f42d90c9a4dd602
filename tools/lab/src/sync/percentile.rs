//! Percentiles of many small numbers, and the distance between two points.

/// Numbers of which percentiles are asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Errors(Vec<f32>);

impl Errors {
    /// Adds a number.
    pub(super) fn add(&mut self, number: f32) {
        self.0.push(number);
    }

    /// Returns the number below which this share of all numbers is, in percent.
    #[must_use]
    pub(super) fn percentile(&mut self, percent: usize) -> f64 {
        let index = self.0.len().saturating_sub(1) * percent / 100;
        if self.0.is_empty() { 0.0 } else { f64::from(*self.0.select_nth_unstable_by(index, f32::total_cmp).1) }
    }
}

/// Returns the distance between two points.
#[must_use]
pub fn distance(one: [f32; 3], two: [f32; 3]) -> f32 {
    libm::sqrtf(one.iter().zip(two).map(|(a, b)| (a - b) * (a - b)).sum())
}
