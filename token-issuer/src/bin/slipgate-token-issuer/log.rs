//! The log: what it looks like and where it goes.

use std::io;

use clap::ValueEnum;
use serde::Deserialize;
use tracing::Level;

/// What the log looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Logs lifecycles and minted tokens to stderr from now on. Strangers make no line of their own.
pub(crate) fn start(format: LogFormat) {
    let log = tracing_subscriber::fmt().with_max_level(Level::INFO).with_writer(io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).init(),
        LogFormat::Json => log.json().init(),
    }
}
