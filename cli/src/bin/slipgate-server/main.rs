//! `slipgate-server`: a dedicated server that accepts clients with valid connect tokens and handles their payloads.
//!
//! ```text
//!  flags ─┐                          ┌─ sockets                         ┌▶ drain ─▶ exit 0
//!  env   ─┼▶ settings (checked) ─▶ start ─ history ─▶ serve ─▶ SIGTERM ─┤
//!  file  ─┘                          └─ keys ◀── SIGHUP                 └▶ again: at once
//! ```
//!
//! An error is one sentence on stderr: exit status 2 for a wrong configuration, 1 if the system refuses something.

#![forbid(unsafe_code)]

mod app;
mod config_file;
mod flags;
mod serve;
mod settings;
mod sharded;
mod start;
mod steering;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use slipgate_cli::signals::Signals;
use slipgate_cli::{Failure, log};

use crate::flags::Flags;
use crate::serve::Service;
use crate::settings::Settings;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report("slipgate-server"),
    }
}

fn run() -> Result<(), Failure> {
    let matches = Flags::command().get_matches();
    let flags = Flags::from_arg_matches(&matches).map_err(|error| Failure::usage(error.to_string()))?;
    let settings = Settings::gather(flags, &matches)?;
    // Must precede the first log line: a supervisor that sees the line may send a signal at once.
    let signals =
        Signals::listen().map_err(|error| Failure::run_time(format!("cannot register signal handlers: {error}")))?;
    log::start(settings.log);
    let (mut servers, clock) = start::start(&settings)?;
    match servers.pop() {
        Some(server) if servers.is_empty() => {
            Service::new(server, clock, settings).run(&signals);
            Ok(())
        }
        last => sharded::serve(servers.into_iter().chain(last).collect(), clock, &settings, &signals),
    }
}
