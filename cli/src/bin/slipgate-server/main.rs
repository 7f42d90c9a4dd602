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
mod key_reloads;
mod serve;
mod settings;
mod sharded;
mod start;
mod steering;
mod stop;
mod supervision;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory, FromArgMatches};
use slipgate_cli::signals::Signals;
use slipgate_cli::{Failure, core_dumps, descriptors, log, usage};

use crate::flags::Flags;
use crate::key_reloads::KeyReloads;
use crate::serve::Service;
use crate::settings::Settings;
use crate::supervision::Supervision;

/// File descriptors of the server as a whole: the history with its lock and its successor, key and statistics files.
const DESCRIPTORS: usize = 8;
/// File descriptors of a shard: two sockets, the poll, its waker, and as many to spare.
const DESCRIPTORS_PER_SHARD: usize = 8;
/// File descriptors of the admin service: 32 connections, the listener and the runtime.
const DESCRIPTORS_OF_ADMIN: usize = 40;
/// File descriptors of the drivers of the life cycle: connections to Agones, to hooks and to systemd.
const DESCRIPTORS_OF_FLEET: usize = 12;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report("slipgate-server"),
    }
}

fn run() -> Result<(), Failure> {
    let matches = usage::matches(Flags::command())?;
    let flags = Flags::from_arg_matches(&matches).map_err(|error| Failure::usage(error.to_string()))?;
    let core_dumps = flags.core_dumps.apply();
    let settings = Settings::gather(flags, &matches)?;
    let of_admin = settings.admin.map_or(0, |_| DESCRIPTORS_OF_ADMIN);
    let of_fleet = if settings.fleet.has_driver() { DESCRIPTORS_OF_FLEET } else { 0 };
    let of_shards = usize::from(settings.shards) * DESCRIPTORS_PER_SHARD;
    descriptors::require(DESCRIPTORS + of_admin + of_fleet + of_shards)?;
    let signals = Signals::listen_for_reload().map_err(|error| start::not_registered(&error))?;
    let (signals, admin_token) = (Arc::new(signals), start::read_admin_token(&settings)?);
    let keys = KeyReloads::start(&settings, admin_token.clone(), Arc::clone(&signals))?;
    // Dropped last: the error of a failed start is written after the log's lines.
    let _flush = log::start(settings.log)?;
    core_dumps::log(core_dumps);
    // Before the server, so that it reports a start that takes long.
    let admin = settings.admin.map(|bind| start::start_admin(bind, admin_token)).transpose()?;
    let fleet = start::start_fleet(&settings)?;
    if let Some(admin) = &admin {
        start::show_fleet(admin, &fleet, &settings);
    }
    let (mut servers, clock) = start::start(&settings, admin.as_ref(), &signals)?;
    start::report_ready(&fleet, &servers, &settings)?;
    let supervision = Supervision { admin, fleet };
    match servers.pop() {
        Some(server) if servers.is_empty() => {
            Service::new(server, clock, &settings, keys, supervision).run(&signals);
            Ok(())
        }
        last => {
            let servers = servers.into_iter().chain(last).collect();
            sharded::serve(servers, clock, &settings, (&signals, &keys), &supervision)
        }
    }
}
