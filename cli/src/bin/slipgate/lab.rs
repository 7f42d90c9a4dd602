//! `slipgate lab`: measures congestion avoidance in a simulator with virtual time.

use std::num::NonZeroU64;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde::Serialize;
use slipgate_cli::Failure;
use slipgate_lab::random_paths::{self, Spread};
use slipgate_lab::rules::Rule;
use slipgate_lab::scenario::Scenario;
use slipgate_lab::table::{self, Row, SEEDS};
use slipgate_lab::{scenarios, specification};

use crate::say;

const AFTER_HELP: &str = "\
Each cell is the share that was served (of a game's demand) or used (of the path's capacity), in percent, and the \
queueing delay that 95 % of the packets did not exceed, in milliseconds: means over the seeds.

Time is virtual and all randomness comes from the seed: the same command gives the same figures everywhere. Play it \
with a release build; the whole table takes some minutes.

  slipgate lab congestion --scenario E1,E2 --controller glide,cubic
  slipgate lab congestion --controller glide --random-paths 300
  slipgate lab congestion --markdown > specs/congestion-table.md";

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Plays the scenarios of congestion avoidance with several controllers, and prints a table
    Congestion(Flags),
}

#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Flags {
    /// Only these scenarios, as A1,E2; all of them if left out
    #[arg(long = "scenario", value_name = "NAME", value_delimiter = ',')]
    scenarios: Vec<String>,

    /// Only these controllers; all of them if left out
    #[arg(long = "controller", value_name = "NAME", value_delimiter = ',',
        value_parser = PossibleValuesParser::new(Rule::ALL.map(Rule::name)))]
    controllers: Vec<String>,

    /// One seed instead of several
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    seed: Option<u64>,

    /// How many seeds, from 1 on
    #[arg(long, value_name = "N", default_value_t = SEEDS.len() as u64, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,

    /// Instead of the scenarios, so many paths that are drawn at random
    #[arg(long, value_name = "N", conflicts_with_all = ["scenarios", "seed", "seeds"])]
    random_paths: Option<NonZeroU64>,

    /// How many threads play
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,

    /// Prints the figures as JSON, unrounded
    #[arg(long)]
    json: bool,

    /// Prints the whole document that stands in specs/congestion-table.md
    #[arg(long, conflicts_with_all = ["json", "scenarios", "controllers", "seed", "seeds", "random_paths"])]
    markdown: bool,
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    let Command::Congestion(flags) = command;
    let threads = usize::from(flags.threads);
    if flags.markdown {
        say(specification::document(threads).trim_end());
        return Ok(());
    }
    let rules = rules(&flags.controllers);
    if let Some(paths) = flags.random_paths {
        return on_random_paths(paths.get(), &rules, threads, flags.json);
    }
    let seeds: Vec<u64> = flags.seed.map_or_else(|| (1..=flags.seeds).collect(), |seed| vec![seed]);
    let rows: Vec<Row> = table::rows(&chosen(&flags.scenarios)?, &rules, &seeds, threads);
    if flags.json { print_json(&rows) } else { print(&table::text(&rows)) }
}

fn rules(names: &[String]) -> Vec<Rule> {
    Rule::ALL.into_iter().filter(|rule| names.is_empty() || names.iter().any(|name| name == rule.name())).collect()
}

fn chosen(names: &[String]) -> Result<Vec<Scenario>, Failure> {
    let all = scenarios::all();
    if let Some(unknown) = names.iter().find(|name| !all.iter().any(|scenario| scenario.name == **name)) {
        let known: Vec<&str> = all.iter().map(|scenario| scenario.name.as_str()).collect();
        return Err(Failure::usage(format!("there is no scenario {unknown}; there are {}", known.join(", "))));
    }
    Ok(all.into_iter().filter(|scenario| names.is_empty() || names.contains(&scenario.name)).collect())
}

fn on_random_paths(paths: u64, rules: &[Rule], threads: usize, json: bool) -> Result<(), Failure> {
    let spreads: Vec<(&str, Vec<Spread>)> =
        rules.iter().map(|rule| (rule.name(), random_paths::spreads(paths, *rule, threads))).collect();
    if json {
        return print_json(&spreads);
    }
    for (name, spreads) in spreads {
        say(&format!("{name}\n{}", random_paths::markdown(&spreads)));
    }
    Ok(())
}

fn print(text: &str) -> Result<(), Failure> {
    say(text.trim_end());
    Ok(())
}

fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(value).map_err(|error| Failure::run_time(error.to_string()))?;
    print(&json)
}
