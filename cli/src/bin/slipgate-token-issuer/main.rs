//! `slipgate-token-issuer`: hands out connect tokens over HTTP.
//!
//! ```text
//!  flags ─┐
//!  env   ─┼▶ settings ─▶ config (checked) ─▶ service ─▶ SIGTERM, SIGINT ─▶ exit 0
//!  file  ─┘
//! ```
//!
//! What it refuses is one sentence on stderr, and status 2 for a wrong configuration or 1 for what the system refuses.

mod config;
mod file;
mod flags;
mod run;
mod signals;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use slipgate_cli::{Failure, log};

use crate::config::Config;
use crate::flags::Flags;

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report("slipgate-token-issuer"),
    }
}

fn start() -> Result<(), Failure> {
    let matches = Flags::command().get_matches();
    let flags = Flags::from_arg_matches(&matches).map_err(|error| Failure::usage(error.to_string()))?;
    let config = Config::gather(flags, &matches)?;
    log::start(config.log);
    run::run(config)
}
