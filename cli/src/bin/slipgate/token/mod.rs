//! `slipgate token`: mints and inspects connect tokens.

mod inspect;
mod mint;

use clap::Subcommand;
use slipgate_cli::Failure;

#[derive(Subcommand)]
pub(crate) enum TokenCommand {
    /// Mint a connect token with the private key, without an issuer
    Mint(mint::MintFlags),
    /// Show the content of a connect token
    Inspect(inspect::InspectFlags),
}

pub(crate) fn run(command: &TokenCommand) -> Result<(), Failure> {
    match command {
        TokenCommand::Mint(flags) => mint::run(flags),
        TokenCommand::Inspect(flags) => inspect::run(flags),
    }
}
