//! What the default controller has to reach, and what it does not reach yet.

use core::fmt::Write;

use crate::measure::Figures;
use crate::rules::Rule;
use crate::table::Row;

/// A bound of one figure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Bound {
    /// At least this share is served or used.
    Served(f64),
    /// At most this share, because others have a right to the rest.
    ServedAtMost(f64),
    /// At most so many milliseconds of queueing delay, 95 %.
    Delay(f64),
    /// At most this share of packets is dropped.
    Dropped(f64),
    /// So many seconds until a fall of the rate is followed.
    Adapts(f64),
    /// At most so many milliseconds of queueing delay after a fall.
    Peak(f64),
    /// At most so many milliseconds of queueing delay, 95 %, once the fall was followed.
    Then(f64),
    /// So many seconds until a return of the rate is followed.
    Recovers(f64),
    /// At most so many bytes leave per second while the path is dark.
    InTheDark(f64),
    /// At least this share is served or used from one second after that to the fifth.
    ServedThen(f64),
    /// At most so many milliseconds of queueing delay until then.
    PeakThen(f64),
    /// At most so many seconds for the transfer.
    Transfer(f64),
    /// At most this multiple of the first transfer's time for the second.
    TransferAgain(f64),
    /// At least this index of fairness.
    Fairness(f64),
}

impl Bound {
    /// The figure that it bounds, and whether that is within.
    #[must_use]
    pub fn check(self, figures: &Figures) -> (f64, bool) {
        let fall = |figure: fn(&crate::measure::Fall) -> f64| figures.fall.as_ref().map_or(f64::NAN, figure);
        let dark = |figure: fn(&crate::measure::Dark) -> f64| figures.dark.as_ref().map_or(f64::NAN, figure);
        let at_most = |figure: f64, bound: f64| (figure, figure <= bound);
        let at_least = |figure: f64, bound: f64| (figure, figure >= bound);
        match self {
            Self::Served(bound) => at_least(figures.served, bound),
            Self::ServedAtMost(bound) => at_most(figures.served, bound),
            Self::Delay(bound) => at_most(figures.p95_ms, bound),
            Self::Dropped(bound) => at_most(figures.dropped, bound),
            Self::Adapts(bound) => at_most(fall(|fall| fall.adaptation), bound),
            Self::Peak(bound) => at_most(fall(|fall| fall.peak_ms), bound),
            Self::Then(bound) => at_most(fall(|fall| fall.then_p95_ms), bound),
            Self::Recovers(bound) => at_most(fall(|fall| fall.recovery), bound),
            Self::InTheDark(bound) => at_most(dark(|dark| dark.sent), bound),
            Self::ServedThen(bound) => at_least(dark(|dark| dark.then_served), bound),
            Self::PeakThen(bound) => at_most(dark(|dark| dark.then_peak_ms), bound),
            Self::Transfer(bound) => at_most(figures.transfer.unwrap_or(f64::NAN), bound),
            Self::TransferAgain(bound) => {
                let [first, second] = [figures.transfer, figures.transfer_again].map(|time| time.unwrap_or(f64::NAN));
                at_most(second / first, bound)
            }
            Self::Fairness(bound) => at_least(figures.fairness.unwrap_or(f64::NAN), bound),
        }
    }

    /// The bound and a figure, for people.
    fn say(self, figure: f64) -> [String; 2] {
        let percent = |bound: f64| [format!("{:.1} %", 100.0 * bound), format!("{:.2} %", 100.0 * figure)];
        let ms = |bound: f64| [format!("{bound} ms"), format!("{figure:.1} ms")];
        let seconds = |bound: f64| [format!("{bound:.1} s"), format!("{figure:.2} s")];
        let (what, [bound, figure]) = match self {
            Self::Served(bound) => ("serves or uses at least", percent(bound)),
            Self::ServedAtMost(bound) => ("uses at most", percent(bound)),
            Self::Delay(bound) => ("p95 delay at most", ms(bound)),
            Self::Dropped(bound) => ("drops at most", percent(bound)),
            Self::Adapts(bound) => ("adapts within", seconds(bound)),
            Self::Peak(bound) => ("peak at most", ms(bound)),
            Self::Then(bound) => ("then p95 delay at most", ms(bound)),
            Self::Recovers(bound) => ("recovers within", seconds(bound)),
            Self::InTheDark(bound) => {
                ("sends in the dark at most", [bound, figure].map(|bytes| format!("{:.2} kB/s", bytes / 1000.0)))
            }
            Self::ServedThen(bound) => ("then serves or uses at least", percent(bound)),
            Self::PeakThen(bound) => ("then peak at most", ms(bound)),
            Self::Transfer(bound) => ("transfers within", seconds(bound)),
            Self::TransferAgain(bound) => {
                ("the second transfer takes at most", [format!("{bound:.1} times"), format!("{figure:.2} times")])
            }
            Self::Fairness(bound) => ("Jain's index at least", [format!("{bound:.2}"), format!("{figure:.3}")]),
        };
        [format!("{what} {bound}"), figure]
    }
}

/// What leaves whatever the path does, so that the connection lives: 256 bytes each 100 ms, in bytes per second.
const FLOOR: f64 = 2560.0;

/// The targets, by scenario.
pub const TARGETS: &[(&str, &[Bound])] = &[
    ("A1", &[Bound::Served(0.97), Bound::Delay(20.0), Bound::Dropped(0.0)]),
    ("A2", &[Bound::Served(0.97), Bound::Delay(20.0), Bound::Dropped(0.0)]),
    ("A3", &[Bound::Served(0.97), Bound::Delay(20.0), Bound::Dropped(0.0)]),
    ("A4", &[Bound::Served(0.97), Bound::Delay(20.0), Bound::Dropped(0.0)]),
    ("A5", &[Bound::Served(0.97), Bound::Delay(25.0), Bound::Dropped(0.0)]),
    ("A6", &[Bound::Served(0.97), Bound::Delay(20.0), Bound::Dropped(0.0)]),
    ("B1", &[Bound::Served(0.995), Bound::Delay(2.0)]),
    ("B2", &[Bound::Served(0.995), Bound::Delay(2.0)]),
    ("C1", &[Bound::Served(0.98)]),
    ("C2", &[Bound::Served(0.98)]),
    ("C3", &[Bound::Served(0.98)]),
    ("C4", &[Bound::Served(0.95)]),
    ("C5", &[Bound::Served(0.88)]),
    ("C6", &[Bound::Served(0.93)]),
    ("D0", &[Bound::Served(0.9995)]),
    ("D1", &[Bound::Served(0.9995)]),
    ("D2", &[Bound::Served(0.97), Bound::Delay(32.0)]),
    ("D3", &[Bound::Served(0.9995)]),
    ("D4", &[Bound::Served(0.995), Bound::Delay(20.0), Bound::Transfer(5.0)]),
    ("E1", &[Bound::Adapts(1.2), Bound::Peak(900.0), Bound::Then(25.0), Bound::Recovers(2.0)]),
    ("E2", &[Bound::Adapts(1.2), Bound::Peak(900.0), Bound::Then(25.0), Bound::Recovers(2.0)]),
    // At a thirtieth of the rate, what left before anybody could know takes seconds: 60 kB in the first 120 ms.
    ("E3", &[Bound::Served(0.95), Bound::Adapts(6.0), Bound::Peak(3700.0), Bound::Then(35.0), Bound::Recovers(2.2)]),
    ("E4", &[Bound::Served(0.95), Bound::Adapts(6.0), Bound::Peak(3700.0), Bound::Then(35.0), Bound::Recovers(2.2)]),
    ("F1", &[Bound::Served(0.30), Bound::ServedAtMost(0.60)]),
    ("F2", &[Bound::Served(0.25)]),
    ("F3", &[Bound::Served(0.95)]),
    ("F4", &[Bound::Served(0.95)]),
    ("F5", &[Bound::Served(0.90)]),
    ("F6", &[Bound::Served(0.85)]),
    ("F7", &[Bound::Served(0.90)]),
    ("G1", &[Bound::Served(0.99), Bound::Delay(120.0)]),
    ("G2", &[Bound::Served(0.88), Bound::Delay(120.0)]),
    ("G3", &[Bound::Served(0.97), Bound::Delay(33.0)]),
    ("G4", &[Bound::Served(0.80), Bound::Delay(120.0)]),
    ("G5", &[Bound::Served(0.97), Bound::Delay(20.0)]),
    ("H1", &[Bound::Served(0.995), Bound::Delay(25.0)]),
    ("H2", &[Bound::Served(0.95), Bound::Delay(25.0)]),
    ("H3", &[Bound::Served(0.95), Bound::Delay(25.0)]),
    ("I1", &[Bound::Dropped(0.015)]),
    ("J1", &[Bound::Delay(50.0)]),
    ("J2", &[Bound::Fairness(0.97), Bound::Delay(30.0)]),
    ("K1", &[Bound::Served(0.995), Bound::Delay(20.0)]),
    ("K2", &[Bound::Served(0.995), Bound::Delay(20.0)]),
    ("K3", &[Bound::Served(0.995), Bound::Delay(30.0)]),
    ("K4", &[Bound::Served(0.995), Bound::Delay(25.0)]),
    ("K5", &[Bound::Served(0.995)]),
    ("K6", &[Bound::Served(0.995)]),
    ("K7", &[Bound::Transfer(1.5)]),
    ("L1", &[Bound::Served(0.995), Bound::Delay(20.0), Bound::Transfer(3.0)]),
    ("L2", &[Bound::Served(0.995), Bound::TransferAgain(1.3)]),
    ("M1", &[Bound::InTheDark(FLOOR), Bound::ServedThen(0.95), Bound::PeakThen(25.0)]),
    ("M2", &[Bound::InTheDark(FLOOR), Bound::ServedThen(0.95), Bound::PeakThen(25.0)]),
    ("M3", &[Bound::InTheDark(FLOOR), Bound::ServedThen(0.95), Bound::PeakThen(25.0)]),
];

/// What is still to be reached; the day it is, it becomes a target.
pub const OPEN: &[(&str, &[Bound])] = &[
    ("F7", &[Bound::Served(0.95)]),
    ("G3", &[Bound::Served(0.99), Bound::Delay(16.0)]),
    ("K1", &[Bound::Delay(13.5)]),
    ("K3", &[Bound::Delay(25.0)]),
];

/// A target and what was measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Checked {
    /// The scenario.
    pub name: String,
    /// The target.
    pub bound: Bound,
    /// What was measured.
    pub figure: f64,
    /// Whether it is reached.
    pub reached: bool,
}

/// Checks bounds in the rows in which the default controller was measured.
#[must_use]
pub fn check(bounds: &[(&str, &[Bound])], rows: &[Row]) -> Vec<Checked> {
    let check_row = |row: &Row| {
        let figures = row.figures.iter().find(|(rule, _)| *rule == Rule::Glide).map(|(_, figures)| *figures)?;
        let bounds = bounds.iter().find(|(name, _)| *name == row.name)?.1;
        let checked = bounds.iter().map(|bound| {
            let (figure, reached) = bound.check(&figures);
            Checked { name: row.name.clone(), bound: *bound, figure, reached }
        });
        Some(checked.collect::<Vec<_>>())
    };
    rows.iter().filter_map(check_row).flatten().collect()
}

/// The targets as they stand in the specification: how many are reached, and by name those that are not.
#[must_use]
pub fn markdown(rows: &[Row]) -> String {
    let (targets, open) = (check(TARGETS, rows), check(OPEN, rows));
    let reached = targets.iter().filter(|target| target.reached).count();
    let count = targets.len();
    let mut text = format!(
        "{reached} of {count} targets of the default controller, Glide, are reached. Not yet:\n\n\
         | | target | measured |\n|---|---|---|\n"
    );
    for missed in targets.iter().chain(&open).filter(|target| !target.reached) {
        let [bound, figure] = missed.bound.say(missed.figure);
        let _ = writeln!(text, "| {} | {bound} | {figure} |", missed.name);
    }
    text
}
