//! `slipgate token`: minting tokens by hand, and looking into them.

mod inspect;
mod mint;

use clap::Subcommand;
use slipgate_cli::Failure;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Mints a connect token without an issuer, with the private key at hand
    Mint(mint::Flags),
    /// Shows what a connect token says
    Inspect(inspect::Flags),
}

pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Mint(flags) => mint::run(flags),
        Command::Inspect(flags) => inspect::run(flags),
    }
}
