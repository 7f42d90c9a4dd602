//! `slipgate-server`: a dedicated server that admits holders of connect tokens and carries their payloads.
//!
//! ```text
//!  flags ─┐                          ┌─ sockets                         ┌▶ drain ─▶ exit 0
//!  env   ─┼▶ settings (checked) ─▶ start ─ history ─▶ serve ─▶ SIGTERM ─┤
//!  file  ─┘                          └─ keys ◀── SIGHUP                 └▶ again: at once
//! ```
//!
//! What it refuses is one sentence on stderr, and status 2 for a wrong configuration or 1 for what the system refuses.

#![forbid(unsafe_code)]

mod app;
mod crew;
mod file;
mod flags;
mod serve;
mod settings;
mod start;

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
    // Before the first line of the log: who reads it there may send a signal at once.
    let signals = Signals::listen()
        .map_err(|error| Failure::run_time(format!("the system refuses to report signals: {error}")))?;
    log::start(settings.log);
    let (mut servers, clock) = start::start(&settings)?;
    match servers.pop() {
        Some(server) if servers.is_empty() => {
            Service::new(server, clock, settings).run(&signals);
            Ok(())
        }
        last => crew::serve(servers.into_iter().chain(last).collect(), clock, &settings, &signals),
    }
}
