//! Numbers as lines of the log show them.

use std::time::Duration;

/// Returns a number with at most three decimals.
pub(crate) fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

/// Returns a time in seconds with at most three decimals.
pub(crate) fn seconds(time: Duration) -> f64 {
    rounded(time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_lines_have_three_decimals_at_most() {
        assert_eq!(seconds(Duration::from_nanos(20_105_560_302)).to_string(), "20.106");
        assert_eq!(seconds(Duration::from_secs_f32(1.007_05)).to_string(), "1.007");
        assert_eq!(rounded(45.0).to_string(), "45");
    }
}
