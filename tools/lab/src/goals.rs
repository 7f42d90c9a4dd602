//! Goals on harder paths: tails over many seeds, none of which is a seed of the table. They are goals and no bounds of
//! a test: a goal that is missed is printed as missed.

use core::fmt::Write;
use core::ops::RangeInclusive;
use core::time::Duration;

use crate::controllers::ControllerKind;
use crate::log::{FlowLog, QueueWait};
use crate::measure::measure;
use crate::path::{DelayVariation, PathSpec};
use crate::play::{Run, in_parallel};
use crate::random_paths::{Trial, harder_scenario};
use crate::scenario::{FlowController, Scenario};
use crate::scenarios::{against, alone};
use crate::source::{Game, Source};

/// The first seed. The seeds before it serve for development.
pub const FIRST_SEED: u64 = 1001;
/// A seed that gets less than this share of its demand starves.
const STARVING: f64 = 0.10;
/// The second at which competing flows arrive; see [`against`].
const ARRIVAL: usize = 10;
/// The first seconds of a transfer over a satellite.
const FIRST_SECONDS: f32 = 3.0;
/// A fall is adapted to this long after its start.
const ADAPTED_AFTER: Duration = Duration::from_secs(4);

/// The figure of one run.
#[derive(Clone, PartialEq, Debug)]
enum Measure {
    /// The share served or used.
    Served,
    /// Whether the flow starves: 1 or 0.
    Starves,
    /// The least share of the demand that is sent in one of these seconds after the arrival of a competing flow, and
    /// arrives.
    LeastSecond(RangeInclusive<usize>),
    /// The seconds until this number of bytes has left the bottleneck, plus half a round trip.
    Transfer(f64),
    /// The same as a rate, in megabytes per second.
    TransferRate(f64),
    /// The share of this number of bytes that arrives in the first three seconds.
    FirstSeconds(f64),
    /// The 95th percentile of the queueing delay in milliseconds, until this number of bytes has left.
    Delay(f64),
    /// The same from four seconds after a fall on.
    DelayAfterFall(Duration),
    /// The maximum bytes sent beyond those to a receiver that reports true delays.
    Excess,
}

/// How the figures of all runs are combined.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Summary {
    /// The 5th percentile is at least this.
    P5(f64),
    /// The 90th percentile is at most this.
    P90(f64),
    /// The 95th percentile is at most this.
    P95(f64),
    /// The maximum is at most this.
    Max(f64),
    /// The sum is at most this.
    Sum(f64),
}

/// A group of runs and the goals for their figures.
struct Group {
    name: String,
    title: String,
    /// The scenario of each run, by seed.
    scenario: Box<dyn Fn(u64) -> Scenario + Sync>,
    goals: Vec<(Measure, Summary)>,
}

/// A measured goal.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct GoalResult {
    /// The name of its runs, as `N1`.
    pub name: String,
    /// Their description.
    pub title: String,
    /// The figure and its goal.
    pub goal: String,
    /// The measured figure.
    pub figure: f64,
    /// Whether the goal is reached.
    pub reached: bool,
}

fn group(scenario: Scenario, goals: Vec<(Measure, Summary)>) -> Group {
    let (name, title) = (scenario.name.clone(), scenario.title.clone());
    Group { name, title, scenario: Box::new(move |_| scenario.clone()), goals }
}

/// Returns all groups.
fn groups() -> Vec<Group> {
    [beside_rivals(), jittering(), starting(), false_delays(), random_paths()].into_iter().flatten().collect()
}

/// Returns the runs of a game beside a competing flow, in the seconds after its arrival and later.
fn beside_rivals() -> Vec<Group> {
    let cases = [("N1", "BBR", FlowController::Bbr), ("N2", "CUBIC", FlowController::Cubic)];
    let game = |(name, rival, controller): (&str, &str, FlowController), round_trip: u64| {
        let title = format!("game of 1M against {rival}, 10M, {round_trip} ms");
        let path = PathSpec::new(10e6, round_trip, 250);
        let scenario = alone(&format!("{name}-{round_trip}"), &title, path, Source::Game(Game::of(1e6)));
        let goals = vec![
            (Measure::Served, Summary::P5(0.85)),
            (Measure::Starves, Summary::Sum(0.0)),
            (Measure::LeastSecond(1..=10), Summary::P5(0.70)),
            (Measure::LeastSecond(3..=10), Summary::P5(0.90)),
        ];
        group(against(controller, scenario), goals)
    };
    cases.iter().flat_map(|case| [20, 40, 80].map(|round_trip| game(*case, round_trip))).collect()
}

/// Returns the runs of bulk on paths whose delay varies, in order.
fn jittering() -> Vec<Group> {
    let jitter = |(rate, mean): (f64, u64)| {
        let title = format!("in-order exponential jitter of {mean} ms, bulk, {:.0}M", rate / 1e6);
        let jitter = DelayVariation::InOrderExponential(Duration::from_millis(mean));
        let path = PathSpec { jitter, ..PathSpec::new(rate, 40, 250) };
        let scenario = alone(&format!("N3-{:.0}-{mean}", rate / 1e6), &title, path, Source::Bulk);
        let scenario = Scenario { duration: Duration::from_secs(20), ..scenario };
        group(scenario, vec![(Measure::Served, Summary::P5(0.85))])
    };
    [(17e6, 4), (17e6, 6), (25e6, 5), (50e6, 4), (50e6, 6)].into_iter().map(jitter).collect()
}

/// Returns the transfers of new connections. A connection is established before, in two round trips.
fn starting() -> Vec<Group> {
    let transfer = |name: &str, title: &str, path: PathSpec, bytes: f64, seconds: u64, goals| {
        let game = Game { rate: 2000.0, ticks: 10.0 };
        let source = Source::GameAndTransfer { game, from: Duration::ZERO, bytes, again: None };
        let scenario = alone(name, title, path, source);
        group(Scenario { duration: Duration::from_secs(seconds), ..scenario }, goals)
    };
    let mib = f64::from(1 << 20);
    let short = vec![(Measure::Transfer(mib), Summary::P95(0.75)), (Measure::Delay(mib), Summary::P95(40.0))];
    let long = vec![(Measure::TransferRate(64.0 * mib), Summary::P5(11.5))];
    let far = vec![
        (Measure::FirstSeconds(2.0 * mib), Summary::P5(0.22)),
        (Measure::Transfer(2.0 * mib), Summary::P95(6.0)),
        (Measure::Delay(2.0 * mib), Summary::P95(300.0)),
    ];
    vec![
        transfer("N4", "1 MiB, 20M, 50 ms", PathSpec::new(20e6, 50, 250), mib, 4, short),
        transfer("N5", "64 MiB, 100M, 20 ms", PathSpec::new(100e6, 20, 100), 64.0 * mib, 9, long),
        transfer("N6", "2 MiB, satellite, 10M, 600 ms", PathSpec::new(10e6, 600, 600), 2.0 * mib, 12, far),
    ]
}

/// Returns the runs with receivers that acknowledge correctly and report the shortest delay for each packet.
fn false_delays() -> Vec<Group> {
    let bulk = |mbit: u64| {
        let path = PathSpec::new(mbit as f64 * 1e6, 40, 250);
        let title = format!("false delays, bulk, {mbit}M");
        let scenario = alone(&format!("N7-{mbit}"), &title, path, Source::Bulk);
        let scenario = Scenario { duration: Duration::from_secs(9), counts_from: Duration::ZERO, ..scenario };
        group(scenario, vec![(Measure::Excess, Summary::Max(65_536.0))])
    };
    [1, 4, 20].into_iter().map(bulk).collect()
}

/// Returns the runs on random paths with long round trips, jitter with and without reordering, and losses in both
/// directions.
fn random_paths() -> Vec<Group> {
    let on = |name: &str, trial: Trial, goal| Group {
        name: name.to_owned(),
        title: format!("harder random paths, {}", trial.title()),
        scenario: Box::new(move |path| harder_scenario(path, trial)),
        goals: vec![goal],
    };
    vec![
        on("N8", Trial::Bulk, (Measure::Served, Summary::P5(0.90))),
        on("N9", Trial::GameAgainstCubic, (Measure::Served, Summary::P5(0.85))),
        on("N10", Trial::Fall, (Measure::DelayAfterFall(Duration::from_secs(15)), Summary::P90(150.0))),
    ]
}

/// Measures the goals whose names start with one of `names`, or all, over this number of seeds.
#[must_use]
pub fn results(names: &[String], controller: ControllerKind, seeds: &[u64], threads: usize) -> Vec<GoalResult> {
    let wanted = |group: &Group| {
        let is_named = |name: &String| group.name == *name || group.name.starts_with(&format!("{name}-"));
        names.is_empty() || names.iter().any(is_named)
    };
    groups()
        .iter()
        .filter(|group| wanted(group))
        .flat_map(|group| group_results(group, controller, seeds, threads))
        .collect()
}

fn group_results(group: &Group, controller: ControllerKind, seeds: &[u64], threads: usize) -> Vec<GoalResult> {
    let figures: Vec<Vec<f64>> = in_parallel(seeds, threads, |seed| run_figures(group, controller, *seed));
    let result = |(index, (measure, summary)): (usize, &(Measure, Summary))| {
        let mut values: Vec<f64> = figures.iter().filter_map(|run| run.get(index).copied()).collect();
        let (figure, reached) = summary.evaluate(&mut values);
        let (name, title) = (group.name.clone(), group.title.clone());
        GoalResult { name, title, goal: describe(measure, *summary), figure, reached }
    };
    group.goals.iter().enumerate().map(result).collect()
}

/// Returns the figure of each goal for one seed.
fn run_figures(group: &Group, controller: ControllerKind, seed: u64) -> Vec<f64> {
    let scenario = (group.scenario)(seed);
    let log = Run { scenario: &scenario, controller, seed }.play().log;
    let served = measure(&scenario, &log).served;
    let Some(flow) = log.flows.first() else { return Vec::new() };
    let figure = |measure: &Measure| match measure {
        Measure::Served => served,
        Measure::Starves => f64::from(u8::from(served < STARVING)),
        Measure::LeastSecond(seconds) => least_second(flow, &scenario, seconds.clone()),
        Measure::Transfer(bytes) => transfer_seconds(flow, &scenario, *bytes),
        Measure::TransferRate(bytes) => bytes / 1e6 / transfer_seconds(flow, &scenario, *bytes),
        Measure::FirstSeconds(bytes) => {
            let until = FIRST_SECONDS - scenario.path.round_trip.as_secs_f32() / 2.0;
            let passed = flow.waits.iter().take_while(|wait| wait.left_at < until);
            passed.map(|wait| f64::from(wait.bytes)).sum::<f64>() / bytes
        }
        Measure::Delay(bytes) => delay_p95(flow.waits.get(..packets_of(flow, *bytes)).unwrap_or_default()),
        Measure::DelayAfterFall(from) => {
            let from = (*from + ADAPTED_AFTER).as_secs_f32();
            delay_p95(flow.waits.get(flow.waits.partition_point(|wait| wait.left_at < from)..).unwrap_or_default())
        }
        Measure::Excess => excess(&scenario, flow, controller, seed),
    };
    group.goals.iter().map(|(measure, _)| figure(measure)).collect()
}

/// Returns the least share of the demand that was sent in one of these seconds after the arrival, and arrived.
fn least_second(flow: &FlowLog, scenario: &Scenario, seconds: RangeInclusive<usize>) -> f64 {
    let demand = scenario.flows.first().and_then(|flow| flow.source.rate()).unwrap_or(f64::INFINITY);
    let sent_in = |second: usize| {
        let from = (ARRIVAL + second - 1) as f32;
        let sent = flow.waits.iter().filter(|wait| (from..from + 1.0).contains(&(wait.left_at - wait.waited)));
        sent.map(|wait| f64::from(wait.bytes)).sum::<f64>() / demand
    };
    seconds.map(sent_in).fold(f64::INFINITY, f64::min)
}

/// Returns the number of packets that carry this number of bytes.
fn packets_of(flow: &FlowLog, bytes: f64) -> usize {
    let mut left = bytes;
    let has_left = |wait: &&QueueWait| {
        let more = left > 0.0;
        left -= f64::from(wait.bytes);
        more
    };
    flow.waits.iter().take_while(has_left).count()
}

fn transfer_seconds(flow: &FlowLog, scenario: &Scenario, bytes: f64) -> f64 {
    let packets = packets_of(flow, bytes);
    let carried: f64 = flow.waits.iter().take(packets).map(|wait| f64::from(wait.bytes)).sum();
    let ends = [flow.waits.first(), packets.checked_sub(1).and_then(|last| flow.waits.get(last))];
    let [Some(first), Some(last)] = ends else { return f64::INFINITY };
    if carried < bytes {
        return f64::INFINITY;
    }
    f64::from(last.left_at - first.left_at) + scenario.path.round_trip.as_secs_f64() / 2.0
}

/// Returns the 95th percentile of the queueing delay, in milliseconds.
fn delay_p95(waits: &[QueueWait]) -> f64 {
    let mut waits: Vec<f64> = waits.iter().map(|wait| 1000.0 * f64::from(wait.waited)).collect();
    quantile(&mut waits, 0.95)
}

/// Returns the maximum bytes sent beyond `honest` to a receiver with false delays.
fn excess(scenario: &Scenario, honest: &FlowLog, controller: ControllerKind, seed: u64) -> f64 {
    let scenario = Scenario { false_delays: true, ..scenario.clone() };
    let log = Run { scenario: &scenario, controller, seed }.play().log;
    let Some(malicious) = log.flows.first() else { return 0.0 };
    let slices = crate::log::slice_of(scenario.duration);
    let ahead = (0..slices).scan(0.0, |ahead, slice| {
        *ahead += malicious.sent_bytes.at(slice) - honest.sent_bytes.at(slice);
        Some(*ahead)
    });
    ahead.fold(0.0, f64::max)
}

/// Returns a quantile; zero without values.
fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let index = (share * values.len() as f64) as usize;
    values.get(index.min(values.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

impl Summary {
    /// Returns the figure, and whether the goal is reached.
    fn evaluate(self, values: &mut [f64]) -> (f64, bool) {
        match self {
            Self::P5(least) => {
                let figure = quantile(values, 0.05);
                (figure, figure >= least)
            }
            Self::P90(most) => at_most(quantile(values, 0.90), most),
            Self::P95(most) => at_most(quantile(values, 0.95), most),
            Self::Max(most) => at_most(quantile(values, 1.0), most),
            Self::Sum(most) => at_most(values.iter().sum(), most),
        }
    }
}

fn at_most(figure: f64, most: f64) -> (f64, bool) {
    (figure, figure <= most)
}

fn describe(measure: &Measure, summary: Summary) -> String {
    let measured = match measure {
        Measure::Served => "share".to_owned(),
        Measure::Starves => "seeds that starve".to_owned(),
        Measure::LeastSecond(seconds) => format!("least of seconds {} to {}", seconds.start(), seconds.end()),
        Measure::Transfer(_) => "seconds".to_owned(),
        Measure::TransferRate(_) => "MB/s".to_owned(),
        Measure::FirstSeconds(_) => "share in 3 s".to_owned(),
        Measure::Delay(_) => "queue p95 in ms".to_owned(),
        Measure::DelayAfterFall(_) => "queue p95 in ms, 4 s after the fall".to_owned(),
        Measure::Excess => "bytes beyond honest".to_owned(),
    };
    match summary {
        Summary::P5(least) => format!("{measured}, p5 >= {least}"),
        Summary::P90(most) => format!("{measured}, p90 <= {most}"),
        Summary::P95(most) => format!("{measured}, p95 <= {most}"),
        Summary::Max(most) => format!("{measured}, all <= {most}"),
        Summary::Sum(most) => format!("{measured} <= {most}"),
    }
}

/// Returns the results as a Markdown table, readable at a terminal as well.
#[must_use]
pub fn markdown(results: &[GoalResult]) -> String {
    let mut text = "| | runs | goal | measured | |\n|---|---|---|---|---|\n".to_owned();
    for result in results {
        let GoalResult { name, title, goal, figure, reached } = result;
        let digits = if *figure >= 100.0 { 0 } else { 3 };
        let mark = if *reached { "reached" } else { "missed" };
        let _ = writeln!(text, "| {name} | {title} | {goal} | {figure:.digits$} | {mark} |");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a flow that sends 1,000 bytes each 10 ms and nothing in the twelfth second.
    fn flow() -> FlowLog {
        let mut flow = FlowLog::default();
        for step in (0..2000_u16).filter(|step| !(1200..1300).contains(step)) {
            let left_at = f32::from(step) / 100.0 + 0.055;
            flow.waits.push(QueueWait { left_at, waited: 0.05, bytes: 1000 });
        }
        flow
    }

    fn scenario() -> Scenario {
        alone("T", "test", PathSpec::new(10e6, 40, 250), Source::Game(Game { rate: 1e5, ticks: 60.0 }))
    }

    #[test]
    fn least_second_counts_by_the_time_of_sending() {
        assert!(least_second(&flow(), &scenario(), 1..=5) < 0.02);
        assert!((least_second(&flow(), &scenario(), 1..=2) - 1.0).abs() < 0.02);
    }

    #[test]
    fn transfer_ends_with_its_last_byte() {
        assert!((transfer_seconds(&flow(), &scenario(), 1e5) - 1.01).abs() < 0.001);
        assert!(transfer_seconds(&flow(), &scenario(), 1e9).is_infinite());
        assert!((delay_p95(&flow().waits) - 50.0).abs() < 0.01);
    }

    #[test]
    fn summaries_are_tails() {
        let mut values: Vec<f64> = (0..100).map(f64::from).collect();
        assert_eq!(Summary::P5(5.0).evaluate(&mut values), (5.0, true));
        assert_eq!(Summary::P90(89.0).evaluate(&mut values), (90.0, false));
        assert_eq!(Summary::Max(99.0).evaluate(&mut values), (99.0, true));
        assert_eq!(Summary::Sum(1.0).evaluate(&mut [1.0, 1.0]), (2.0, false));
    }
}
