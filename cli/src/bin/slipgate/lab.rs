//! `slipgate lab`: measures congestion control and game state in simulators with virtual time.

use std::num::NonZeroU64;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde::Serialize;
use slipgate_cli::Failure;
use slipgate_lab::controllers::ControllerKind;
use slipgate_lab::goals::{self, FIRST_SEED, GoalResult};
use slipgate_lab::random_paths::{self, TrialResult};
use slipgate_lab::scenario::Scenario;
#[cfg(feature = "cubes")]
use slipgate_lab::sync::document;
#[cfg(feature = "cubes")]
use slipgate_lab::sync::seeds::Seeds;
#[cfg(feature = "cubes")]
use slipgate_lab::sync::sync_goals;
use slipgate_lab::table::{self, Row, SEEDS};
use slipgate_lab::{scenarios, specification};

use slipgate_cli::output::print_line;

/// The seeds of a goal.
const GOAL_SEEDS: u64 = 40;
/// The seeds of the tables of game state.
#[cfg(feature = "cubes")]
const SYNC_SEEDS: u64 = 5;
/// The largest first seed: the last one of the most seeds is a number, too.
#[cfg(feature = "cubes")]
const MAX_FIRST_SEED: u64 = u64::MAX - 1000;

const AFTER_HELP: &str = "\
Each cell holds the served share of a game's demand, or the used share of the path's capacity, in percent, and the \
95th percentile of the queueing delay in milliseconds. Both are means over the seeds.

Time is virtual and all randomness comes from the seed, so the same command gives the same figures on every machine. \
Use a release build; the whole table takes several minutes.

  slipgate lab congestion --scenario E1,E2 --controller glide,cubic
  slipgate lab congestion --controller glide --random-paths 300
  slipgate lab congestion --goals --scenario N1,N4
  slipgate lab congestion --markdown > specs/congestion-table.md";

#[derive(Subcommand)]
pub(crate) enum LabCommand {
    /// Run the congestion scenarios with several controllers and print a table
    Congestion(LabFlags),
    /// Measure game state on lossy paths, beside the methods of a bachelor thesis, and print a table
    #[cfg(feature = "cubes")]
    Sync(SyncFlags),
}

#[cfg(feature = "cubes")]
#[derive(Args)]
pub(crate) struct SyncFlags {
    /// Run only these tables [default: all]
    #[arg(long = "experiment", value_name = "NAME", value_delimiter = ',', conflicts_with = "markdown",
        value_parser = PossibleValuesParser::new(document::EXPERIMENTS))]
    experiments: Vec<String>,

    /// Number of seeds; the document has 40 [default: 5; with --goals 40]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,

    /// Print the goals beside what was reached; the exit status is 1 if the mean of all seeds misses one
    #[arg(long, conflicts_with_all = ["experiments", "markdown"])]
    goals: bool,

    /// The first seed; the document begins with 1
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "markdown",
        value_parser = clap::value_parser!(u64).range(..=MAX_FIRST_SEED))]
    first_seed: u64,

    /// Print the rows as JSON, rounded as in the tables
    #[arg(long, conflicts_with = "markdown")]
    json: bool,

    /// Print the whole document specs/sync-table.md
    #[arg(long, conflicts_with = "seeds")]
    markdown: bool,
}

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct LabFlags {
    /// Run only these scenarios, as in A1,E2 [default: all]
    #[arg(long = "scenario", value_name = "NAME", value_delimiter = ',')]
    scenarios: Vec<String>,

    /// Run only these controllers [default: all]
    #[arg(long = "controller", value_name = "NAME", value_delimiter = ',',
        value_parser = PossibleValuesParser::new(ControllerKind::ALL.map(ControllerKind::name)))]
    controllers: Vec<String>,

    /// Use this single seed
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    seed: Option<u64>,

    /// Number of seeds, starting with 1 [default: 5]; with --goals starting with 1001 [default: 40]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,

    /// Run this number of random paths instead of the scenarios
    #[arg(long, value_name = "N", conflicts_with_all = ["scenarios", "seed", "seeds"])]
    random_paths: Option<NonZeroU64>,

    /// Measure the goals on harder paths over 40 seeds from 1001 on, or those chosen by --seed and --seeds; --scenario
    /// selects goals by name, as in N1,N4. The exit status is 1 if one is missed
    #[arg(long, conflicts_with_all = ["markdown", "random_paths"])]
    goals: bool,

    /// Number of threads
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,

    /// Print the figures as JSON, unrounded
    #[arg(long)]
    json: bool,

    /// Print the whole document specs/congestion-table.md
    #[arg(long, conflicts_with_all = ["json", "scenarios", "controllers", "seed", "seeds", "random_paths"])]
    markdown: bool,
}

pub(crate) fn run(command: &LabCommand) -> Result<(), Failure> {
    match command {
        LabCommand::Congestion(flags) => congestion(flags),
        #[cfg(feature = "cubes")]
        LabCommand::Sync(flags) if flags.markdown => print(&document::document()),
        #[cfg(feature = "cubes")]
        LabCommand::Sync(flags) if flags.goals => sync_goals(flags),
        #[cfg(feature = "cubes")]
        LabCommand::Sync(flags) => sync(flags),
    }
}

#[cfg(feature = "cubes")]
fn sync(flags: &SyncFlags) -> Result<(), Failure> {
    let is_chosen = |name: &str| flags.experiments.is_empty() || flags.experiments.iter().any(|chosen| chosen == name);
    let seeds = Seeds { first: flags.first_seed, count: flags.seeds.unwrap_or(SYNC_SEEDS) };
    let mut rows = serde_json::Map::new();
    for name in document::EXPERIMENTS.into_iter().filter(|name| is_chosen(name)) {
        let table = document::experiment(name, seeds).unwrap_or_default();
        if flags.json {
            rows.insert(name.to_owned(), all_rows(&table).into());
        } else {
            print_line(&format!("{name}\n\n{table}"));
        }
    }
    if flags.json { print_json(&rows) } else { Ok(()) }
}

/// Measures the goals of game state. Fails if one is missed.
#[cfg(feature = "cubes")]
fn sync_goals(flags: &SyncFlags) -> Result<(), Failure> {
    let goals = document::all_goals(Seeds { first: flags.first_seed, count: flags.seeds.unwrap_or(GOAL_SEEDS) });
    if flags.json {
        print_json(&goals)?;
    } else {
        print(&(sync_goals::table(&goals) + sync_goals::ELSEWHERE))?;
    }
    goals_outcome(&goals.iter().map(|goal| goal.reached).collect::<Vec<_>>())
}

/// Returns success if each goal is reached.
fn goals_outcome(reached: &[bool]) -> Result<(), Failure> {
    match reached.iter().filter(|reached| !**reached).count() {
        0 => Ok(()),
        missed => Err(Failure::run_time(format!("goals missed: {missed} of {}", reached.len()))),
    }
}

/// Returns the rows of the tables of an experiment, which empty lines separate.
#[cfg(feature = "cubes")]
fn all_rows(tables: &str) -> Vec<serde_json::Value> {
    tables.split("\n\n").flat_map(table_rows).collect()
}

/// Returns the rows of a table in Markdown. A column `worst` has the name of the one before it, too.
#[cfg(feature = "cubes")]
fn table_rows(table: &str) -> Vec<serde_json::Value> {
    let cells =
        |line: &str| -> Vec<String> { line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect() };
    let mut lines = table.lines().filter(|line| line.starts_with('|'));
    let mut names = lines.next().map(cells).unwrap_or_default();
    for index in 1..names.len() {
        if names.get(index).is_some_and(|name| name == "worst")
            && let [.., before, worst] = names.get_mut(..=index).unwrap_or_default()
        {
            *worst = format!("{before}, worst");
        }
    }
    let value = |cell: String| match cell.parse::<f64>() {
        Ok(number) => number.into(),
        Err(_) => serde_json::Value::String(cell),
    };
    let row = |line| names.iter().cloned().zip(cells(line).into_iter().map(value)).collect();
    lines.skip(1).map(row).map(serde_json::Value::Object).collect()
}

#[cfg(all(test, feature = "cubes"))]
mod tests {
    use clap::{Args as _, Command};

    use super::{SyncFlags, all_rows, goals_outcome};

    #[test]
    fn missed_goal_is_a_failure() {
        assert!(goals_outcome(&[true, true]).is_ok());
        let failure = goals_outcome(&[true, false]).unwrap_err();
        assert_eq!(failure.to_string(), "goals missed: 1 of 2");
    }

    #[test]
    fn first_seed_without_room_for_more_is_refused() {
        let parse = |first: u64| {
            let command = SyncFlags::augment_args(Command::new("sync"));
            command.try_get_matches_from(["sync", "--seeds", "1000", "--first-seed", &first.to_string()]).is_ok()
        };
        assert!(parse(1) && parse(u64::MAX - 1000));
        assert!(!parse(u64::MAX) && !parse(u64::MAX - 999));
    }

    #[test]
    fn rows_have_the_names_of_their_columns() {
        let tables = "| a | b, cm | worst |\n| --- | --- | --- |\n| x | 1.5 | 2 |\n\n| c |\n| --- |\n| 3 |\n\nText.\n";
        let first = serde_json::json!({ "a": "x", "b, cm": 1.5, "b, cm, worst": 2.0 });
        assert_eq!(all_rows(tables), [first, serde_json::json!({ "c": 3.0 })]);
    }
}

fn congestion(flags: &LabFlags) -> Result<(), Failure> {
    let threads = usize::from(flags.threads);
    if flags.markdown {
        print_line(specification::document(threads).trim_end());
        return Ok(());
    }
    let rules = rules(&flags.controllers);
    if let Some(paths) = flags.random_paths {
        return on_random_paths(paths.get(), &rules, threads, flags.json);
    }
    let (first, default) = if flags.goals { (FIRST_SEED, GOAL_SEEDS) } else { (1, SEEDS.len() as u64) };
    let count = flags.seeds.unwrap_or(default);
    let seeds: Vec<u64> = flags.seed.map_or_else(|| (first..first + count).collect(), |seed| vec![seed]);
    if flags.goals {
        return on_goals(flags, &rules, &seeds, threads);
    }
    let rows: Vec<Row> = table::rows(&chosen(&flags.scenarios)?, &rules, &seeds, threads);
    if flags.json { print_json(&rows) } else { print(&table::text(&rows)) }
}

fn rules(names: &[String]) -> Vec<ControllerKind> {
    ControllerKind::ALL
        .into_iter()
        .filter(|rule| names.is_empty() || names.iter().any(|name| name == rule.name()))
        .collect()
}

fn chosen(names: &[String]) -> Result<Vec<Scenario>, Failure> {
    let all = scenarios::all();
    if let Some(unknown) = names.iter().find(|name| !all.iter().any(|scenario| scenario.name == **name)) {
        let known: Vec<&str> = all.iter().map(|scenario| scenario.name.as_str()).collect();
        return Err(Failure::usage(format!("unknown scenario {unknown}; known are {}", known.join(", "))));
    }
    Ok(all.into_iter().filter(|scenario| names.is_empty() || names.contains(&scenario.name)).collect())
}

fn on_random_paths(paths: u64, rules: &[ControllerKind], threads: usize, json: bool) -> Result<(), Failure> {
    let results: Vec<(&str, Vec<TrialResult>)> =
        rules.iter().map(|rule| (rule.name(), random_paths::trial_results(paths, *rule, threads))).collect();
    if json {
        return print_json(&results);
    }
    for (name, results) in results {
        print_line(&format!("{name}\n{}", random_paths::markdown(&results)));
    }
    Ok(())
}

/// Measures the goals for the chosen controllers, or for the default one. Fails if one is missed.
fn on_goals(flags: &LabFlags, rules: &[ControllerKind], seeds: &[u64], threads: usize) -> Result<(), Failure> {
    let rules = if flags.controllers.is_empty() { &[ControllerKind::Glide] } else { rules };
    let mut reached = Vec::new();
    for rule in rules {
        let results: Vec<GoalResult> = goals::results(&flags.scenarios, *rule, seeds, threads);
        if results.is_empty() {
            return Err(Failure::usage("no goal has this name".to_owned()));
        }
        if flags.json {
            print_json(&results)?;
        } else {
            print_line(&format!("{}\n{}", rule.name(), goals::markdown(&results)));
        }
        reached.extend(results.iter().map(|result| result.reached));
    }
    goals_outcome(&reached)
}

fn print(text: &str) -> Result<(), Failure> {
    print_line(text.trim_end());
    Ok(())
}

fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(value).map_err(|error| Failure::run_time(error.to_string()))?;
    print(&json)
}
