//! The statistics of the benchmark: medians, and ratios round by round.

/// Returns the median; `None` without figures.
#[must_use]
pub fn median(figures: &[f64]) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len().is_multiple_of(2) { Some(f64::midpoint(*sorted.get(middle - 1)?, upper)) } else { Some(upper) }
}

/// Returns the smallest figure that is at least as large as this share of all figures; `None` without figures.
#[must_use]
pub fn quantile(figures: &[f64], share: f64) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// Returns the median of the ratios of two subjects, round by round: a slow round of the machine affects both.
///
/// Returns `None` if one of them has no figures or a divisor is zero.
#[must_use]
pub fn ratio(figures: &[f64], to: &[f64]) -> Option<f64> {
    if to.iter().any(|divisor| *divisor <= 0.0) {
        return None;
    }
    let ratios: Vec<f64> = figures.iter().zip(to).map(|(figure, divisor)| figure / divisor).collect();
    median(&ratios)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_does_not_depend_on_the_order() {
        for (figures, middle) in [
            (vec![], None),
            (vec![3.0], Some(3.0)),
            (vec![3.0, 1.0], Some(2.0)),
            (vec![9.0, 1.0, 5.0], Some(5.0)),
            (vec![4.0, 1.0, 1000.0, 2.0], Some(3.0)),
        ] {
            assert_eq!(median(&figures), middle, "{figures:?}");
        }
    }

    #[test]
    fn quantile_is_one_of_the_figures() {
        let figures: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|share| quantile(&figures, share)), [1.0, 100.0, 198.0, 200.0].map(Some));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn ratio_cancels_slow_rounds() {
        assert_eq!(ratio(&[2.0, 20.0, 2.0], &[1.0, 10.0, 1.0]), Some(2.0));
        // The ratio of the medians would be 1.
        assert_eq!(ratio(&[1.0, 2.0, 30.0], &[2.0, 1.0, 3.0]), Some(2.0));
    }

    #[test]
    fn ratio_needs_figures_and_nonzero_divisors() {
        assert_eq!(ratio(&[], &[1.0]), None);
        assert_eq!(ratio(&[1.0], &[]), None);
        assert_eq!(ratio(&[1.0, 1.0], &[0.0, 1.0]), None);
    }
}
