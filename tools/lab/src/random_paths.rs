//! Paths that nobody chose: drawn by a seed, and what a controller makes of them in shares of all.

use core::time::Duration;

use serde::Serialize;

use crate::measure::Figures;
use crate::path::{Change, Jitter, Loss, Path};
use crate::play::{Run, play_all};
use crate::random::Random;
use crate::report::Rhythm;
use crate::rules::Rule;
use crate::scenario::{Figure, Ruler, Scenario};
use crate::scenarios::{against, alone};
use crate::source::{Game, Source};

/// What is tried on each path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trial {
    /// As much as it may.
    Bulk,
    /// A game that needs 30 % of the path.
    Game,
    /// A game that needs 10 % of the path, and CUBIC beside it.
    GameAgainstCubic,
    /// Bulk, while the rate falls to an eighth for 15 s.
    Fall,
}

impl Trial {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Bulk, Self::Game, Self::GameAgainstCubic, Self::Fall];

    /// What it is, for people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::Game => "game of 30 % of the path",
            Self::GameAgainstCubic => "game of 10 % of the path, against CUBIC",
            Self::Fall => "bulk, for 15 s an eighth of the rate",
        }
    }

    /// What the default controller has to reach: on a path that nobody chose bulk uses 90 % at 35 ms, and what else was
    /// reached must not be lost. Beside CUBIC the delay is CUBIC's.
    #[must_use]
    pub const fn goal(self) -> Goal {
        let (served_p5_p50, delay_p90_ms) = match self {
            Self::Bulk => ([0.90, 0.99], Some(35.0)),
            Self::Game => ([0.99, 0.995], Some(2.0)),
            Self::GameAgainstCubic => ([0.55, 0.99], None),
            Self::Fall => ([0.84, 0.95], Some(80.0)),
        };
        Goal { served_p5_p50, delay_p90_ms }
    }
}

/// What has to come of a trial.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Goal {
    /// Served or used: what 95 % of the paths exceed, and half of them, at least.
    pub served_p5_p50: [f64; 2],
    /// Of the queueing delays that 95 % of a path's packets did not exceed: what 90 % of the paths do not exceed, at most,
    /// in milliseconds, if it is in the controller's hands.
    pub delay_p90_ms: Option<f64>,
}

/// What came of a trial on all paths.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// What was tried.
    pub trial: Trial,
    /// How many paths.
    pub paths: usize,
    /// Served or used: what 95 % of the paths exceed, and half of them.
    pub served_p5_p50: [f64; 2],
    /// Of the queueing delays that 95 % of a path's packets did not exceed: what half of the paths and 90 % of them do
    /// not exceed, in milliseconds.
    pub delay_p50_p90_ms: [f64; 2],
}

impl Spread {
    /// Whether the trial's [`Goal`] is reached.
    #[must_use]
    pub fn reaches_its_goal(&self) -> bool {
        let Goal { served_p5_p50, delay_p90_ms } = self.trial.goal();
        let [_, delay] = self.delay_p50_p90_ms;
        let serves = self.served_p5_p50.iter().zip(served_p5_p50).all(|(served, least)| *served >= least);
        serves && delay_p90_ms.is_none_or(|most| delay <= most)
    }
}

/// Plays all trials on so many paths.
#[must_use]
pub fn spreads(paths: u64, rule: Rule, threads: usize) -> Vec<Spread> {
    let one = |trial: Trial| {
        let scenarios: Vec<Scenario> = (1..=paths).map(|path| scenario(path, trial)).collect();
        let runs: Vec<Run<'_>> =
            scenarios.iter().zip(1..).map(|(scenario, seed)| Run { scenario, rule, seed }).collect();
        spread(trial, &play_all(&runs, threads))
    };
    Trial::ALL.into_iter().map(one).collect()
}

fn spread(trial: Trial, figures: &[Figures]) -> Spread {
    let sorted = |figure: fn(&Figures) -> f64| {
        let mut values: Vec<f64> = figures.iter().map(figure).collect();
        values.sort_unstable_by(f64::total_cmp);
        values
    };
    let at = |values: &[f64], share: f64| {
        let index = (share * values.len() as f64) as usize;
        values.get(index.min(values.len().saturating_sub(1))).copied().unwrap_or(0.0)
    };
    let (served, delays) = (sorted(|figures| figures.served), sorted(|figures| figures.p95_ms));
    Spread {
        trial,
        paths: figures.len(),
        served_p5_p50: [at(&served, 0.05), at(&served, 0.5)],
        delay_p50_p90_ms: [at(&delays, 0.5), at(&delays, 0.9)],
    }
}

/// A trial on a path that is drawn: 0.3 to 50 Mbit/s, 10 to 300 ms, a buffer of 40 to 1,500 ms, up to 6 ms of jitter, up
/// to 5 % of loss, 10 to 60 reports per second.
#[must_use]
pub fn scenario(path: u64, trial: Trial) -> Scenario {
    let random = &mut Random::new(path, 100);
    let rate = random.between_in_proportion(0.3e6, 50e6);
    let round_trip = random.between_in_proportion(10.0, 300.0) as u64;
    let buffer = random.between_in_proportion(40.0, 1500.0) as u64;
    // Half of the paths have no jitter worth the name, and half lose nothing.
    let jitter = (random.between(-6.0, 6.0)).max(0.0);
    let loss = (random.between(-0.05, 0.05)).max(0.0);
    let every = Duration::from_secs_f64(1.0 / random.between(10.0, 60.0));
    let drawn = Path {
        jitter: Jitter::InOrder(Duration::from_secs_f64(jitter / 1000.0)),
        loss: Loss::Random(loss),
        ..Path::new(rate, round_trip, buffer)
    };
    let game = |share: f64| Source::Game(Game::of(share * rate));
    let named = |path: u64, source| {
        let scenario = alone(&format!("random {path}"), trial.title(), drawn.clone(), source);
        Scenario { rhythm: Rhythm { every, packets: 16 }, ..scenario }
    };
    match trial {
        Trial::Bulk => Scenario { duration: Duration::from_secs(25), ..named(path, Source::Bulk) },
        Trial::Game => Scenario { duration: Duration::from_secs(25), ..named(path, game(0.3)) },
        Trial::GameAgainstCubic => {
            Scenario { duration: Duration::from_secs(45), ..against(Ruler::Cubic, named(path, game(0.1))) }
        }
        Trial::Fall => falling(named(path, Source::Bulk)),
    }
}

fn falling(scenario: Scenario) -> Scenario {
    let (from, until) = (Duration::from_secs(15), Duration::from_secs(30));
    let steps = vec![(from, scenario.path.rate / 8.0), (until, scenario.path.rate)];
    let path = Path { change: Change::Steps(steps), ..scenario.path };
    Scenario { path, duration: Duration::from_secs(45), figure: Some(Figure::Drop { from, until }), ..scenario }
}

/// The spreads as a table in Markdown, with what has to be reached, which people read at a terminal as well.
#[must_use]
pub fn markdown(spreads: &[Spread]) -> String {
    let mut text = "| trial | paths | served p5/p50 % | at least | p95 delay p50/p90 ms | at most |\n".to_owned();
    text += "|---|---|---|---|---|---|\n";
    for spread in spreads {
        let Goal { served_p5_p50, delay_p90_ms } = spread.trial.goal();
        let ([served, least], [half, most]) =
            ([spread.served_p5_p50, served_p5_p50].map(percent), spread.delay_p50_p90_ms);
        let at_most = delay_p90_ms.map_or_else(String::new, |ms| format!("-/{ms:.0} "));
        let (title, paths) = (spread.trial.title(), spread.paths);
        text += &format!("| {title} | {paths} | {served} | {least} | {half:.0}/{most:.0} | {at_most}|\n");
    }
    text
}

fn percent([low, middle]: [f64; 2]) -> String {
    format!("{:.1}/{:.1}", 100.0 * low, 100.0 * middle)
}
