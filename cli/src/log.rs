//! The log: what it looks like and where it goes.

use std::io::{self, IsTerminal};

use clap::ValueEnum;
use serde::Deserialize;
use tracing_subscriber::filter::LevelFilter;

/// What the log looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Logs to stderr from now on. Strangers make no line of their own.
pub fn start(format: LogFormat) {
    // Its own errors would be told by a macro that panics when stderr is closed: a log that nobody reads any more must
    // not end a program that serves.
    let log =
        tracing_subscriber::fmt().with_max_level(LevelFilter::INFO).with_writer(io::stderr).log_internal_errors(false);
    match format {
        LogFormat::Text => log.with_ansi(io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().init(),
    }
}
