//! What a run can be told.

use clap::{Args, value_parser};

/// Flags of `slipgate bench` and of `cargo bench`.
#[derive(Args, Clone, Debug, Default)]
pub struct Flags {
    /// A run of less than a minute: shorter rounds, fewer rows
    #[arg(long)]
    pub quick: bool,

    /// How often everybody has a turn
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = value_parser!(u8).range(1..=15))]
    pub rounds: u8,

    /// Only measures whose name contains one of these: echo, tick, connects, rejects, idle, memory, seals, flood
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub only: Vec<String>,

    /// Only with so many clients: 1, 64, 256, 1000, 4000, 10000
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub clients: Vec<usize>,

    /// Prints every figure of every round as JSON
    #[arg(long)]
    pub json: bool,
}

impl Flags {
    /// Whether a number of clients was asked for.
    #[must_use]
    pub fn wants_with(&self, clients: usize) -> bool {
        self.clients.is_empty() || self.clients.contains(&clients)
    }

    /// Whether a measure was asked for.
    #[must_use]
    pub fn wants(&self, measure: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| measure.contains(name.as_str()))
    }
}
