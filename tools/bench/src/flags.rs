//! What a run can be told.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, value_parser};

/// The measures, by the names that `--only` takes.
pub const MEASURES: [&str; 10] =
    ["echo", "tick", "rejects", "idle", "memory", "connects", "seals", "joined", "flood", "shards"];

/// The numbers of clients that `--clients` takes.
pub const CLIENTS: [&str; 6] = ["1", "64", "256", "1000", "4000", "10000"];

/// The fewest rounds whose median is a figure: the slowest two of five may be the machine's fault.
pub const LEAST_ROUNDS: u8 = 5;
/// The most rounds.
pub const MOST_ROUNDS: u8 = 15;
/// Rounds if nobody says otherwise, and the run is no quick one.
const DEFAULT_ROUNDS: u8 = 7;

/// Flags of `slipgate bench` and of `cargo bench`.
#[derive(Args, Clone, Debug, Default)]
pub struct Flags {
    /// A run of less than a minute: shorter rounds, fewer rows
    #[arg(long)]
    pub quick: bool,

    /// How often everybody has a turn, 5 to 15: 7, or 5 in a quick run, if left out
    #[arg(long, value_name = "N",
        value_parser = value_parser!(u8).range(i64::from(LEAST_ROUNDS)..=i64::from(MOST_ROUNDS)))]
    pub rounds: Option<u8>,

    /// Only these measures
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = PossibleValuesParser::new(MEASURES))]
    pub only: Vec<String>,

    /// Of those that are made with several numbers of clients, only with these
    #[arg(long, value_name = "N", value_delimiter = ',',
        value_parser = PossibleValuesParser::new(CLIENTS).try_map(|number| number.parse::<usize>()))]
    pub clients: Vec<usize>,

    /// Prints every figure of every round as JSON
    #[arg(long)]
    pub json: bool,
}

impl Flags {
    /// How often everybody has a turn.
    #[must_use]
    pub fn rounds(&self) -> usize {
        usize::from(self.rounds.unwrap_or(if self.quick { LEAST_ROUNDS } else { DEFAULT_ROUNDS }))
    }

    /// Whether a number of clients was asked for.
    #[must_use]
    pub fn wants_with(&self, clients: usize) -> bool {
        self.clients.is_empty() || self.clients.contains(&clients)
    }

    /// Whether a measure was asked for.
    #[must_use]
    pub fn wants(&self, measure: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == measure)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        flags: Flags,
    }

    #[test]
    fn a_run_has_five_rounds_at_least_a_quick_one_too() {
        let rounds = |flags: &[&str]| {
            let program = Program::try_parse_from(std::iter::once(&"bench").chain(flags));
            program.ok().map(|program| program.flags.rounds())
        };
        for (flags, expected) in [
            (&[][..], Some(7)),
            (&["--quick"], Some(5)),
            (&["--rounds", "5"], Some(5)),
            (&["--quick", "--rounds", "15"], Some(15)),
            (&["--rounds", "4"], None),
            (&["--quick", "--rounds", "1"], None),
            (&["--rounds", "16"], None),
        ] {
            assert_eq!(rounds(flags), expected, "{flags:?}");
        }
    }

    #[test]
    fn without_names_everything_is_wanted_and_with_some_nothing_else() {
        let all = Flags::default();
        let some = Flags { only: vec!["echo".into()], clients: vec![64, 256], ..Flags::default() };
        for (measure, clients, wanted) in [("echo", 64, true), ("tick", 256, false), ("echo", 1, false)] {
            assert!(all.wants(measure) && all.wants_with(clients));
            assert_eq!(some.wants(measure) && some.wants_with(clients), wanted, "{measure}, {clients}");
        }
    }
}
