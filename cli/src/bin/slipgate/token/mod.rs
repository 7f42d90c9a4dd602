//! `slipgate token`: mints and inspects connect tokens.

mod inspect;
mod mint;

use clap::Subcommand;
use slipgate_cli::Failure;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Mint a connect token with the private key, without an issuer
    Mint(mint::Flags),
    /// Show the content of a connect token
    Inspect(inspect::Flags),
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Mint(flags) => mint::run(flags),
        Command::Inspect(flags) => inspect::run(flags),
    }
}
