//! The figures of a view: errors, jumps, delay and starved frames, over the last seconds and since the start.

use std::collections::VecDeque;

use hdrhistogram::Histogram;
use serde::Serialize;

/// The seconds of the figures that the page shows.
const WINDOW: usize = 5;
/// Frames of a second.
const FRAMES: u32 = 60;
/// Steps of a centimetre in histograms, and the largest length in steps: 100 m.
const STEPS: f64 = 100.0;
const MAX_STEPS: u64 = 1_000_000;

/// The figures of a view. Lengths are in centimetres. `None` where nothing was compared or shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct PaneFigures {
    /// Errors of the last seconds.
    pub(super) error_p50: Option<f64>,
    pub(super) error_p99: Option<f64>,
    /// How far cubes moved within a frame beyond the server's motion.
    pub(super) jump_p99: Option<f64>,
    /// How far what is shown is behind the server's newest tick, in milliseconds; negative for predictions.
    pub(super) delay: Option<f64>,
    /// Frames that showed a moment later than the newest state, in percent.
    pub(super) starved: Option<f64>,
    /// The 99th percentile of all errors since the start of the measurement.
    pub(super) total_p99: Option<f64>,
    pub(super) total_starved: Option<f64>,
    /// Frames since the start of the measurement.
    pub(super) frames: u64,
    /// Frames since the start of the measurement in which at least one cube was compared with the server's.
    pub(super) compared: u64,
}

/// The measures of a second, or since the start.
struct Measures {
    errors: Histogram<u32>,
    jumps: Histogram<u32>,
    frames: u64,
    compared: u64,
    /// Whether a cube of the newest frame was compared.
    is_compared: bool,
    starved: u64,
    delay: f64,
}

impl Measures {
    fn new() -> Self {
        let lengths = || Histogram::new_with_bounds(1, MAX_STEPS, 2).expect("valid bounds");
        Self { errors: lengths(), jumps: lengths(), frames: 0, compared: 0, is_compared: false, starved: 0, delay: 0.0 }
    }

    fn clear(&mut self) {
        self.errors.reset();
        self.jumps.reset();
        (self.frames, self.compared, self.starved, self.delay) = (0, 0, 0, 0.0);
        self.is_compared = false;
    }

    fn add(&mut self, other: &Self) {
        let result = self.errors.add(&other.errors).and_then(|()| self.jumps.add(&other.jumps));
        debug_assert!(result.is_ok(), "histograms of one size");
        self.frames += other.frames;
        self.compared += other.compared;
        self.starved += other.starved;
        self.delay += other.delay;
    }

    /// Returns the mean of a sum over all frames, if there are any.
    fn mean(&self, sum: f64) -> Option<f64> {
        (self.frames > 0).then(|| sum / self.frames as f64)
    }

    fn starved_percent(&self) -> Option<f64> {
        self.mean(self.starved as f64 * 100.0)
    }
}

/// Returns a percentile in centimetres, if there are any lengths.
fn percentile(lengths: &Histogram<u32>, percent: f64) -> Option<f64> {
    (!lengths.is_empty()).then(|| lengths.value_at_percentile(percent) as f64 / STEPS)
}

fn record(lengths: &mut Histogram<u32>, metres: f32) {
    lengths.saturating_record((f64::from(metres) * 100.0 * STEPS).round() as u64);
}

pub(super) struct Meter {
    /// The last seconds, oldest first; the last one is not over.
    seconds: VecDeque<Measures>,
    total: Measures,
    /// The difference of each cube to the server's, in the frame before.
    differences: Vec<[f32; 3]>,
}

impl Meter {
    pub(super) fn new() -> Self {
        Self { seconds: VecDeque::from([Measures::new()]), total: Measures::new(), differences: Vec::new() }
    }

    /// Adds a frame: its delay in seconds, and whether it showed a moment without a state.
    pub(super) fn add_frame(&mut self, delay: f64, is_starved: bool) {
        if self.seconds.back().is_some_and(|second| second.frames >= u64::from(FRAMES)) {
            self.start_second();
        }
        let Some(second) = self.seconds.back_mut() else { return };
        second.frames += 1;
        second.is_compared = false;
        second.starved += u64::from(is_starved);
        second.delay += delay * 1000.0;
    }

    fn start_second(&mut self) {
        if let Some(second) = self.seconds.back() {
            self.total.add(second);
        }
        let next = if self.seconds.len() > WINDOW { self.seconds.pop_front() } else { None };
        let mut next = next.unwrap_or_else(Measures::new);
        next.clear();
        self.seconds.push_back(next);
    }

    /// Adds a cube of this frame, with its difference to the server's cube. Returns its error in metres.
    pub(super) fn add_cube(&mut self, id: usize, difference: [f32; 3]) -> f32 {
        if self.differences.len() <= id {
            self.differences.resize(id + 1, difference);
        }
        let Some(before) = self.differences.get_mut(id) else { return 0.0 };
        let mut jump = difference;
        jump.iter_mut().zip(*before).for_each(|(part, before)| *part -= before);
        *before = difference;
        let error = length(difference);
        if let Some(second) = self.seconds.back_mut() {
            second.compared += u64::from(!std::mem::replace(&mut second.is_compared, true));
            record(&mut second.errors, error);
            record(&mut second.jumps, length(jump));
        }
        error
    }

    /// Starts the measurement again.
    pub(super) fn reset(&mut self) {
        self.seconds.iter_mut().for_each(Measures::clear);
        self.total.clear();
    }

    pub(super) fn figures(&self) -> PaneFigures {
        let (mut window, mut total) = (Measures::new(), Measures::new());
        self.seconds.iter().for_each(|second| window.add(second));
        total.add(&self.total);
        self.seconds.back().into_iter().for_each(|second| total.add(second));
        PaneFigures {
            error_p50: percentile(&window.errors, 50.0),
            error_p99: percentile(&window.errors, 99.0),
            jump_p99: percentile(&window.jumps, 99.0),
            delay: window.mean(window.delay),
            starved: window.starved_percent(),
            total_p99: percentile(&total.errors, 99.0),
            total_starved: total.starved_percent(),
            frames: total.frames,
            compared: total.compared,
        }
    }
}

/// Returns the way from the server's position to the shown one.
pub(super) fn difference(shown: [f32; 3], truth: [f32; 3]) -> [f32; 3] {
    let mut difference = shown;
    difference.iter_mut().zip(truth).for_each(|(part, truth)| *part -= truth);
    difference
}

fn length(vector: [f32; 3]) -> f32 {
    vector.iter().map(|part| part * part).sum::<f32>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_forgets_what_the_total_keeps() {
        let mut meter = Meter::new();
        for frame in 0..600 {
            meter.add_frame(0.1, frame < 60);
            let error = if frame < 60 { 1.0 } else { 0.01 };
            assert!((meter.add_cube(0, [error, 0.0, 0.0]) - error).abs() < 1e-6);
        }
        let figures = meter.figures();
        let is_near = |figure: Option<f64>, other: f64| (figure.unwrap() - other).abs() < 0.02 * other;
        assert!(is_near(figures.error_p99, 1.0) && is_near(figures.total_p99, 100.0), "{figures:?}");
        assert!(is_near(figures.delay, 100.0), "{figures:?}");
        assert_eq!((figures.starved, figures.total_starved, figures.frames), (Some(0.0), Some(10.0), 600));
        meter.reset();
        assert_eq!(meter.figures(), PaneFigures::default());
    }

    #[test]
    fn frames_without_a_known_truth_are_not_compared() {
        let mut meter = Meter::new();
        for frame in 0..100 {
            meter.add_frame(0.0, false);
            // A view that is ahead of the server has nothing to compare; the others have several cubes.
            (0..4).filter(|_| frame % 2 == 0).for_each(|id| assert!(meter.add_cube(id, [0.1; 3]) > 0.1));
        }
        let figures = meter.figures();
        assert_eq!((figures.frames, figures.compared), (100, 50));
        // Nothing was compared: there is no error, and not one of zero.
        meter.reset();
        meter.add_frame(-0.1, false);
        let figures = meter.figures();
        assert_eq!(
            (figures.error_p50, figures.error_p99, figures.jump_p99, figures.total_p99),
            (None, None, None, None)
        );
        assert_eq!((figures.delay, figures.total_starved), (Some(-100.0), Some(0.0)));
    }

    #[test]
    fn cube_that_errs_evenly_does_not_jump() {
        let mut meter = Meter::new();
        for _ in 0..60 {
            meter.add_frame(0.0, false);
            meter.add_cube(3, [0.5, 0.0, 0.0]);
        }
        assert_eq!(meter.figures().jump_p99, Some(0.0));
        meter.add_cube(3, [0.5, 0.2, 0.0]);
        assert!(meter.figures().jump_p99 > Some(19.0));
    }
}
