//! Randomly drawn paths, and the distribution of a controller's figures over them.

use core::time::Duration;

use serde::Serialize;
use slipgate_sim::{Loss, Random, Share, Stalls};

use crate::controllers::ControllerKind;
use crate::measure::Figures;
use crate::path::{DelayVariation, Outage, PathSpec, RateChange};
use crate::play::{Run, play_all};
use crate::report::ReportPolicy;
use crate::scenario::{Figure, FlowController, Scenario};
use crate::scenarios::{against, alone};
use crate::source::{Game, Source};

/// What is run on each path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trial {
    /// As much as the controller permits.
    Bulk,
    /// A game that needs 30 % of the path.
    Game,
    /// A game that needs 10 % of the path, next to CUBIC.
    GameAgainstCubic,
    /// Bulk, while the rate drops to an eighth for 15 s.
    Fall,
    /// A game that needs 30 % of the path, while the rate drops to an eighth for 15 s.
    GameFall,
    /// A game that needs 15 % of the path, while the rate drops to an eighth for 15 s.
    MildFall,
    /// Bulk, and the path loses nothing but all packets of 0.1 to 2 s.
    Outage,
    /// Bulk, and the path loses up to 6 % of the packets in bursts of 1.5 to 7.5 on average.
    Bursts,
    /// Bulk, and packets overtake each other, with a mean jitter of up to 15 ms.
    Reordering,
    /// Bulk, while the rate is a quarter for 5 s of each 10 s.
    Steps,
    /// Bulk, while the rate is multiplied each half second by a random factor of up to 1.5, down to an eighth.
    Walk,
    /// A game that needs 20 % of the path, while its rate walks likewise.
    GameWalk,
    /// Bulk, while nothing leaves the queue for 20 to 200 ms about each second, as on a shared radio channel.
    Stalls,
}

impl Trial {
    /// All trials.
    pub const ALL: [Self; 13] = [
        Self::Bulk,
        Self::Game,
        Self::GameAgainstCubic,
        Self::Fall,
        Self::GameFall,
        Self::MildFall,
        Self::Outage,
        Self::Bursts,
        Self::Reordering,
        Self::Steps,
        Self::Walk,
        Self::GameWalk,
        Self::Stalls,
    ];

    /// Returns the description for people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::Game => "game of 30 % of the path",
            Self::GameAgainstCubic => "game of 10 % of the path, against CUBIC",
            Self::Fall => "bulk, for 15 s an eighth of the rate",
            Self::GameFall => "game of 30 % of the path, for 15 s an eighth of the rate",
            Self::MildFall => "game of 15 % of the path, for 15 s an eighth of the rate",
            Self::Outage => "bulk, outage of 0.1 to 2 s",
            Self::Bursts => "bulk, up to 6 % lost in bursts",
            Self::Reordering => "bulk, reordering by 15 ms on average at most",
            Self::Steps => "bulk, every 5 s to a quarter of the rate or back",
            Self::Walk => "bulk, random walk of the rate",
            Self::GameWalk => "game of 20 % of the path, random walk of the rate",
            Self::Stalls => "bulk, stalls of up to 200 ms",
        }
    }

    /// Returns the goal of the default controller: bulk uses 90 % at 35 ms on a random path, and the other figures must
    /// not get worse. CUBIC determines the delay next to it.
    #[must_use]
    pub const fn goal(self) -> Goal {
        let (served_p5_p50, delay_p90_ms) = match self {
            Self::Bulk => ([0.90, 0.99], Some(35.0)),
            Self::Game => ([0.99, 0.995], Some(2.0)),
            Self::GameAgainstCubic => ([0.85, 0.99], None),
            Self::Fall => ([0.85, 0.95], Some(65.0)),
            Self::GameFall => ([0.86, 0.95], Some(800.0)),
            Self::MildFall => ([0.86, 0.98], Some(200.0)),
            Self::Outage => ([0.95, 0.98], Some(30.0)),
            Self::Bursts => ([0.83, 0.97], Some(45.0)),
            Self::Reordering => ([0.97, 0.99], Some(45.0)),
            Self::Steps => ([0.65, 0.86], Some(215.0)),
            Self::Walk => ([0.80, 0.91], Some(130.0)),
            Self::GameWalk => ([0.86, 0.98], Some(800.0)),
            Self::Stalls => ([0.73, 0.84], Some(170.0)),
        };
        Goal { served_p5_p50, delay_p90_ms }
    }
}

/// The goal of a trial.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Goal {
    /// The minimum 5th percentile and median over the paths of the share served or used.
    pub served_p5_p50: [f64; 2],
    /// The maximum 90th percentile over the paths of each path's 95th percentile of the queueing delay, in
    /// milliseconds; `None` if other flows determine it.
    pub delay_p90_ms: Option<f64>,
}

/// The result of a trial on all paths.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct TrialResult {
    /// The trial.
    pub trial: Trial,
    /// The number of paths.
    pub paths: usize,
    /// The 5th percentile and the median over the paths of the share served or used.
    pub served_p5_p50: [f64; 2],
    /// The median and the 90th percentile over the paths of each path's 95th percentile of the queueing delay, in
    /// milliseconds.
    pub delay_p50_p90_ms: [f64; 2],
}

impl TrialResult {
    /// Returns whether the trial's [`Goal`] is reached.
    #[must_use]
    pub fn reaches_its_goal(&self) -> bool {
        let Goal { served_p5_p50, delay_p90_ms } = self.trial.goal();
        let [_, delay] = self.delay_p50_p90_ms;
        let serves = self.served_p5_p50.iter().zip(served_p5_p50).all(|(served, least)| *served >= least);
        serves && delay_p90_ms.is_none_or(|most| delay <= most)
    }
}

/// Runs all trials on this number of paths.
#[must_use]
pub fn trial_results(paths: u64, controller: ControllerKind, threads: usize) -> Vec<TrialResult> {
    let one = |trial: Trial| {
        let scenarios: Vec<Scenario> = (1..=paths).map(|path| scenario(path, trial)).collect();
        let runs: Vec<Run<'_>> =
            scenarios.iter().zip(1..).map(|(scenario, seed)| Run { scenario, controller, seed }).collect();
        trial_result(trial, &play_all(&runs, threads))
    };
    Trial::ALL.into_iter().map(one).collect()
}

fn trial_result(trial: Trial, figures: &[Figures]) -> TrialResult {
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
    TrialResult {
        trial,
        paths: figures.len(),
        served_p5_p50: [at(&served, 0.05), at(&served, 0.5)],
        delay_p50_p90_ms: [at(&delays, 0.5), at(&delays, 0.9)],
    }
}

/// Returns a trial on a random path: 0.3 to 50 Mbit/s, 10 to 300 ms, a buffer of 40 to 1,500 ms, up to 6 ms of jitter,
/// up to 5 % of loss, 10 to 60 reports per second. Outages, bursts and reordering replace jitter and loss.
#[must_use]
pub fn scenario(path: u64, trial: Trial) -> Scenario {
    let random = &mut Random::new(path, 100);
    let rate = random.log_uniform(0.3e6, 50e6);
    let round_trip = random.log_uniform(10.0, 300.0) as u64;
    let buffer = random.log_uniform(40.0, 1500.0) as u64;
    // Half of the paths have no jitter, and half lose nothing.
    let jitter = (random.between(-6.0, 6.0)).max(0.0);
    let loss = Share::from_fraction((random.between(-0.05, 0.05)).max(0.0)).unwrap_or(Share::NONE);
    let every = Duration::from_secs_f64(1.0 / random.between(10.0, 60.0));
    let drawn = PathSpec {
        jitter: DelayVariation::InOrder(Duration::from_secs_f64(jitter / 1000.0)),
        loss: Loss::Random(loss),
        ..PathSpec::new(rate, round_trip, buffer)
    };
    let game = |share: f64| Source::Game(Game::of(share * rate));
    let named = |path: u64, source| {
        let scenario = alone(&format!("random {path}"), trial.title(), drawn.clone(), source);
        Scenario { ack_policy: ReportPolicy { every, packets: 16 }, ..scenario }
    };
    match trial {
        Trial::Bulk => Scenario { duration: Duration::from_secs(25), ..named(path, Source::Bulk) },
        Trial::Game => Scenario { duration: Duration::from_secs(25), ..named(path, game(0.3)) },
        Trial::GameAgainstCubic => {
            Scenario { duration: Duration::from_secs(45), ..against(FlowController::Cubic, named(path, game(0.1))) }
        }
        Trial::Fall => falling(named(path, Source::Bulk)),
        Trial::GameFall => falling(named(path, game(0.3))),
        Trial::MildFall => falling(named(path, game(0.15))),
        Trial::Outage => dark(named(path, Source::Bulk), random),
        Trial::Bursts => {
            let share = Share::from_fraction(random.between(0.0, 0.06)).unwrap_or(Share::NONE);
            let loss = Loss::bursts(share, random.between(1.5, 7.5)).unwrap_or(Loss::NONE);
            on_changed_path(named(path, Source::Bulk), |path| PathSpec { loss, ..path })
        }
        Trial::Reordering => {
            let mean = Duration::from_secs_f64(random.between(0.0, 0.015));
            let jitter = DelayVariation::Reordering(mean);
            on_changed_path(named(path, Source::Bulk), |path| PathSpec { loss: Loss::NONE, jitter, ..path })
        }
        Trial::Steps => {
            let rates = [drawn.rate / 4.0, drawn.rate].into_iter().cycle();
            let steps = (2..8).map(|step| Duration::from_secs(5 * step)).zip(rates).collect();
            on_drawn_path(named(path, Source::Bulk), |path| PathSpec { change: RateChange::Steps(steps), ..path })
        }
        Trial::Walk | Trial::GameWalk => {
            let (every, low, high) = (Duration::from_millis(500), drawn.rate / 8.0, drawn.rate);
            let change = RateChange::RandomWalk { every, factor: 1.5, low, high };
            let source = if trial == Trial::Walk { Source::Bulk } else { game(0.2) };
            on_drawn_path(named(path, source), |path| PathSpec { change, ..path })
        }
        Trial::Stalls => {
            let [every, shortest, longest] = [1000, 20, 200].map(Duration::from_millis);
            let stalls = Some(Stalls { every, shortest, longest });
            on_drawn_path(named(path, Source::Bulk), |path| PathSpec { stalls, ..path })
        }
    }
}

/// Returns the scenario on a path with this change and otherwise without jitter, measured from 10 to 40 s.
fn on_changed_path(scenario: Scenario, change: impl FnOnce(PathSpec) -> PathSpec) -> Scenario {
    on_drawn_path(scenario, |path| change(PathSpec { jitter: DelayVariation::None, ..path }))
}

/// Returns the scenario on a path with this change, measured from 10 to 40 s.
fn on_drawn_path(scenario: Scenario, change: impl FnOnce(PathSpec) -> PathSpec) -> Scenario {
    let path = change(scenario.path);
    Scenario { path, duration: Duration::from_secs(40), counts_from: Duration::from_secs(10), ..scenario }
}

/// Returns the scenario with an outage, and what is served in the twelve seconds from 10 s on.
fn dark(scenario: Scenario, random: &mut Random) -> Scenario {
    let from = random.duration_between(Duration::from_secs(12), Duration::from_secs(14));
    let until = from + random.duration_between(Duration::from_millis(100), Duration::from_secs(2));
    let outage = Some(Outage { from, until });
    let scenario = on_changed_path(scenario, |path| PathSpec { loss: Loss::NONE, outage, ..path });
    Scenario { duration: Duration::from_secs(22), ..scenario }
}

/// Returns a trial on a harder random path than [`scenario`]: round trips uniform from 10 to 300 ms, a mean jitter of
/// up to 6 ms in order or with reordering, up to 5 % of loss towards the receiver and up to 2 % back, and a fall for
/// good.
#[must_use]
pub fn harder_scenario(path: u64, trial: Trial) -> Scenario {
    let random = &mut Random::new(path, 101);
    let round_trip = random.between(10.0, 300.0);
    let mean = Duration::from_secs_f64(random.between(-0.006, 0.006).max(0.0));
    let jitter = match random.below(3) {
        0 => DelayVariation::InOrder(2 * mean),
        1 => DelayVariation::InOrderExponential(mean),
        _ => DelayVariation::Reordering(mean),
    };
    let back = Share::from_fraction(random.between(-0.02, 0.02).max(0.0)).unwrap_or(Share::NONE);
    let easier = scenario(path, trial);
    let change = match easier.path.change {
        RateChange::Steps(steps) => RateChange::Steps(steps.into_iter().take(1).collect()),
        change => change,
    };
    let round_trip = Duration::from_secs_f64(round_trip / 1000.0);
    let path = PathSpec { change, round_trip, jitter, loss_back: Loss::Random(back), ..easier.path };
    Scenario { path, ..easier }
}

fn falling(scenario: Scenario) -> Scenario {
    let (from, until) = (Duration::from_secs(15), Duration::from_secs(30));
    let steps = vec![(from, scenario.path.rate / 8.0), (until, scenario.path.rate)];
    let path = PathSpec { change: RateChange::Steps(steps), ..scenario.path };
    Scenario { path, duration: Duration::from_secs(45), figure: Some(Figure::Drop { from, until }), ..scenario }
}

/// Returns the results as a Markdown table with their goals, readable at a terminal as well.
#[must_use]
pub fn markdown(trial_results: &[TrialResult]) -> String {
    let mut text = "| trial | paths | served p5/p50 % | at least | p95 delay p50/p90 ms | at most |\n".to_owned();
    text += "|---|---|---|---|---|---|\n";
    for trial_result in trial_results {
        let Goal { served_p5_p50, delay_p90_ms } = trial_result.trial.goal();
        let ([served, least], [half, most]) =
            ([trial_result.served_p5_p50, served_p5_p50].map(percent), trial_result.delay_p50_p90_ms);
        let at_most = delay_p90_ms.map_or_else(String::new, |ms| format!("-/{ms:.0} "));
        let (title, paths) = (trial_result.trial.title(), trial_result.paths);
        text += &format!("| {title} | {paths} | {served} | {least} | {half:.0}/{most:.0} | {at_most}|\n");
    }
    text
}

fn percent([low, middle]: [f64; 2]) -> String {
    format!("{:.1}/{:.1}", 100.0 * low, 100.0 * middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a trial on the paths that it is known to be hard on.
    fn figures(trial: Trial, paths: &[u64]) -> Vec<(u64, Figures)> {
        let scenarios: Vec<Scenario> = paths.iter().map(|path| scenario(*path, trial)).collect();
        let controller = ControllerKind::Glide;
        let runs: Vec<Run<'_>> =
            scenarios.iter().zip(paths).map(|(scenario, seed)| Run { scenario, controller, seed: *seed }).collect();
        paths.iter().copied().zip(play_all(&runs, 2)).collect()
    }

    /// The paths on which an outage cost most while its losses were taken for those of a policer, and its time for a
    /// part of that in which packets arrived: 63 to 76 % were used.
    #[test]
    fn outage_is_not_taken_for_a_policer_or_a_slow_path() {
        for (path, figures) in figures(Trial::Outage, &[60, 70, 251, 296]) {
            assert!(figures.served > 0.9, "path {path}: {}", figures.served);
        }
    }

    /// The paths on which losses of a fall started a policer's test, which held the rate too low: 52 to 82 % were used.
    #[test]
    fn losses_of_a_fall_are_not_taken_for_those_of_a_policer() {
        for (path, figures) in figures(Trial::Fall, &[69, 241, 563]) {
            assert!(figures.served > 0.85, "path {path}: {}", figures.served);
        }
    }

    /// Paths on which a game kept its demand for seconds after the capacity had fallen below it, as beside cross
    /// traffic: the queue grew to 8 s.
    #[test]
    fn game_gives_its_demand_up_on_a_path_that_cannot_carry_it() {
        for (path, figures) in figures(Trial::GameFall, &[8, 9, 24, 31]) {
            assert!(figures.p95_ms < 1000.0, "path {path}: {} ms", figures.p95_ms);
        }
    }

    /// The paths on which the pacer's credit carried the packets of each probe, so that a game kept a demand of up to
    /// 1.6 times the capacity: the queue grew to 2 to 4 s.
    #[test]
    fn game_gives_up_a_demand_just_above_the_capacity() {
        for (trial, paths) in [(Trial::MildFall, &[46, 52, 80, 276]), (Trial::GameWalk, &[81, 138, 154, 277])] {
            for (path, figures) in figures(trial, paths) {
                assert!(figures.p95_ms < 300.0, "{trial:?}, path {path}: {} ms", figures.p95_ms);
            }
        }
    }

    /// The paths on which a capacity that fell during a probe was taken for cross traffic, beside which a buffer of up
    /// to three seconds was filled.
    #[test]
    fn changing_rate_is_not_taken_for_cross_traffic() {
        for (path, figures) in figures(Trial::Walk, &[390, 533]) {
            assert!(figures.p95_ms < 200.0, "path {path}: {} ms", figures.p95_ms);
        }
    }
}
