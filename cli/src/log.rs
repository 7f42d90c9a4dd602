//! The log: its format and its destination, stderr.

use std::io::{self, IsTerminal};

use clap::ValueEnum;
use serde::Deserialize;
use tracing_subscriber::filter::LevelFilter;

/// The format of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Lines of text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging to stderr at level INFO. Datagrams from unknown addresses are counted and never logged one by one.
pub fn start(format: LogFormat) {
    // The subscriber would report its own errors with `eprintln!`, which panics if stderr is closed. A closed log must
    // not end a running server.
    let log =
        tracing_subscriber::fmt().with_max_level(LevelFilter::INFO).with_writer(io::stderr).log_internal_errors(false);
    match format {
        LogFormat::Text => log.with_ansi(io::stderr().is_terminal()).init(),
        LogFormat::Json => log.json().init(),
    }
}
