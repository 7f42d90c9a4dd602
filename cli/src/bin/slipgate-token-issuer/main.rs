//! `slipgate-token-issuer`: issues connect tokens over HTTP.
//!
//! ```text
//!  flags ─┐
//!  env   ─┼▶ settings (checked) ─▶ service ─▶ SIGTERM, SIGINT ─▶ exit 0
//!  file  ─┘         ▲                │
//!                   └──── SIGHUP ────┘
//! ```
//!
//! An error is one sentence on stderr: exit status 2 for a wrong configuration, 1 if the system refuses something.

mod api_keys;
mod config_file;
mod flags;
mod key_log;
mod listen;
mod players;
mod registry;
mod reload;
mod run;
mod settings;
mod signals;
mod values;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use slipgate_cli::{Failure, core_dumps, log, usage};

use crate::flags::Flags;
use crate::settings::Sources;

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report("slipgate-token-issuer"),
    }
}

fn start() -> Result<(), Failure> {
    let matches = usage::matches(Flags::command())?;
    let flags = Flags::from_arg_matches(&matches).map_err(|error| Failure::usage(error.to_string()))?;
    let core_dumps = flags.core_dumps.apply();
    let sources = Sources { flags, matches };
    let settings = sources.gather()?;
    // Dropped last: the error of a failed start is written after the log's lines.
    let _flush = log::start(settings.fixed.log)?;
    core_dumps::log(core_dumps);
    run::run(settings, sources)
}
