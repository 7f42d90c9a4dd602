//! The command-line flags of a run.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, value_parser};

/// The measures, by the names that `--only` takes.
pub const MEASURES: [&str; 12] =
    ["echo", "tick", "rejects", "idle", "memory", "connects", "seals", "joined", "flood", "spread", "closed", "shards"];

/// The numbers of clients that `--clients` takes.
pub const CLIENTS: [&str; 6] = ["1", "64", "256", "1000", "4000", "10000"];

/// The minimum number of rounds. The median of five tolerates two rounds that the machine disturbed.
pub const MIN_ROUNDS: u8 = 5;
/// The maximum number of rounds.
pub const MAX_ROUNDS: u8 = 15;
/// The default number of rounds, except of a quick run.
const DEFAULT_ROUNDS: u8 = 7;

/// The flags of `slipgate bench` and of `cargo bench`.
#[derive(Args, Clone, Debug, Default)]
pub struct BenchFlags {
    /// Run for less than a minute: shorter rounds, fewer rows
    #[arg(long)]
    pub quick: bool,

    /// Number of rounds, 5 to 15 [default: 7, or 5 with --quick]
    #[arg(long, value_name = "N",
        value_parser = value_parser!(u8).range(i64::from(MIN_ROUNDS)..=i64::from(MAX_ROUNDS)))]
    pub rounds: Option<u8>,

    /// Run only these measures
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = PossibleValuesParser::new(MEASURES))]
    pub only: Vec<String>,

    /// Run measures that depend on the number of clients only with these numbers
    #[arg(long, value_name = "N", value_delimiter = ',',
        value_parser = PossibleValuesParser::new(CLIENTS).try_map(|number| number.parse::<usize>()))]
    pub clients: Vec<usize>,

    /// Print every figure of every round as JSON
    #[arg(long)]
    pub json: bool,
}

impl BenchFlags {
    /// Returns the number of rounds.
    #[must_use]
    pub fn rounds(&self) -> usize {
        usize::from(self.rounds.unwrap_or(if self.quick { MIN_ROUNDS } else { DEFAULT_ROUNDS }))
    }

    /// Returns whether this number of clients is selected.
    #[must_use]
    pub fn includes_clients(&self, clients: usize) -> bool {
        self.clients.is_empty() || self.clients.contains(&clients)
    }

    /// Returns whether a measure is selected.
    #[must_use]
    pub fn includes(&self, measure: &str) -> bool {
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
        flags: BenchFlags,
    }

    #[test]
    fn run_has_at_least_five_rounds() {
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
    fn flags_select_everything_or_only_the_named() {
        let all = BenchFlags::default();
        let some = BenchFlags { only: vec!["echo".into()], clients: vec![64, 256], ..BenchFlags::default() };
        for (measure, clients, wanted) in [("echo", 64, true), ("tick", 256, false), ("echo", 1, false)] {
            assert!(all.includes(measure) && all.includes_clients(clients));
            assert_eq!(some.includes(measure) && some.includes_clients(clients), wanted, "{measure}, {clients}");
        }
    }
}
