//! The log: its format, its level, and its destination, stderr.
//!
//! A log that is unread or cannot be written loses lines and never stops the program: see
//! [`line_queue`](crate::line_queue).

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::ValueEnum;
use serde::Deserialize;
use tracing::{Dispatch, dispatcher, warn};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::prelude::*;

use crate::Failure;
use crate::line_queue::{FlushGuard, LineQueue, LossReport};
use crate::streams::stderr_stream;

/// The environment variable that sets the level where no setting of the program does.
const LEVEL_VARIABLE: &str = "RUST_LOG";
/// The beginning of the names of this project's crates.
const OWN_TARGETS: &str = "slipgate";

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

/// The least important lines that are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Failures that end the program.
    Error,
    /// What an operator should mend.
    Warn,
    /// Connects, disconnects, refused players, and sums.
    Info,
    /// Each step of a handshake.
    Debug,
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
        }
    }
}

/// The settings of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogSettings {
    /// The format.
    pub format: LogFormat,
    /// The level; without one, the variable `RUST_LOG` or else `info`.
    pub level: Option<LogLevel>,
}

/// Starts logging to stderr. Datagrams from unknown addresses are counted and never logged one by one.
///
/// Dropping the guard waits up to 1 s until the last lines are written.
///
/// # Errors
/// Returns a failure if `RUST_LOG` is needed and wrong, or if the writer's thread cannot be started.
pub fn start(settings: LogSettings) -> Result<FlushGuard, Failure> {
    let variable = std::env::var(LEVEL_VARIABLE).ok().filter(|value| !value.trim().is_empty());
    let targets = targets(settings.level, variable.as_deref())
        .map_err(|reason| Failure::usage(format!("the environment variable {LEVEL_VARIABLE} is wrong: {reason}")))?;
    let has_color = io::stderr().is_terminal();
    let format = settings.format;
    let (queue, guard) = LineQueue::start(stderr_stream(), loss_report(format, has_color))
        .map_err(|error| Failure::run_time(format!("cannot start the log's thread: {error}")))?;
    let log = subscriber(format, has_color, targets, move || queue.clone());
    // Fails only if the process logs already.
    let _ = dispatcher::set_global_default(log);
    Ok(guard)
}

/// Returns the level of each target. Only this project's own lines can be less important than INFO: a dependency could
/// write what it handles, such as API keys.
fn targets(level: Option<LogLevel>, variable: Option<&str>) -> Result<Targets, String> {
    let own =
        |level: LevelFilter| Targets::new().with_default(level.min(LevelFilter::INFO)).with_target(OWN_TARGETS, level);
    let variable = match (level, variable) {
        (Some(level), _) => return Ok(own(level.into())),
        (None, None) => return Ok(own(LevelFilter::INFO)),
        (None, Some(variable)) => variable,
    };
    let given: Targets = variable.parse().map_err(|_| "give a level, or TARGET=LEVEL with commas".to_owned())?;
    let capped = |(target, level): (&str, LevelFilter)| {
        let is_own = target.starts_with(OWN_TARGETS);
        (target.to_owned(), if is_own { level } else { level.min(LevelFilter::INFO) })
    };
    let default = given.default_level().unwrap_or(LevelFilter::ERROR);
    Ok(own(default).with_targets(given.iter().map(capped)))
}

fn subscriber<W>(format: LogFormat, has_color: bool, targets: Targets, writer: W) -> Dispatch
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // The subscriber would report its own errors with `eprintln!`, which panics if stderr is closed. A closed log must
    // not end a running server.
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).log_internal_errors(false);
    let registry = tracing_subscriber::registry().with(targets);
    match format {
        LogFormat::Text => registry.with(lines.with_ansi(has_color)).into(),
        LogFormat::Json => registry.with(lines.json()).into(),
    }
}

/// Returns the formatter of the line that reports lost lines. It has the log's own format.
fn loss_report(format: LogFormat, has_color: bool) -> LossReport {
    Box::new(move |lost| {
        let line = LineBuffer::default();
        let targets = Targets::new().with_default(LevelFilter::WARN);
        let log = subscriber(format, has_color, targets, {
            let line = line.clone();
            move || line.clone()
        });
        dispatcher::with_default(&log, || {
            let reason = "it was not read fast enough, or could not be written";
            warn!(lost_lines = lost, "lines of this log are missing here, because {reason}");
        });
        line.take()
    })
}

/// A buffer for one line.
#[derive(Clone, Default)]
struct LineBuffer(Arc<Mutex<Vec<u8>>>);

impl LineBuffer {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.lock())
    }
}

impl Write for LineBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_lines_can_be_less_important_than_info() {
        use tracing::Level;
        type Expected = &'static [(&'static str, Level, bool)];
        let cases: [(_, _, Expected); 5] = [
            (None, None, &[("slipgate_server", Level::INFO, true), ("slipgate_server", Level::DEBUG, false)]),
            (
                Some(LogLevel::Debug),
                Some("off"),
                &[
                    ("slipgate_server", Level::DEBUG, true),
                    ("hyper", Level::INFO, true),
                    ("hyper", Level::DEBUG, false),
                ],
            ),
            (Some(LogLevel::Error), None, &[("slipgate_server", Level::WARN, false), ("hyper", Level::WARN, false)]),
            (None, Some("debug"), &[("slipgate_os", Level::DEBUG, true), ("hyper", Level::DEBUG, false)]),
            (
                None,
                Some("slipgate_server=debug,hyper=trace"),
                &[
                    ("slipgate_server::report", Level::DEBUG, true),
                    ("slipgate_os", Level::WARN, false),
                    ("hyper", Level::INFO, true),
                    ("hyper", Level::DEBUG, false),
                ],
            ),
        ];
        for (level, variable, expected) in cases {
            let targets = targets(level, variable).unwrap();
            for (target, level, enabled) in expected {
                assert_eq!(targets.would_enable(target, level), *enabled, "{variable:?}: {target} {level}");
            }
        }
        assert!(targets(None, Some("slipgate=loud")).is_err());
    }

    #[test]
    fn report_of_lost_lines_has_the_format_of_the_log() {
        let text = String::from_utf8(loss_report(LogFormat::Text, false)(7)).unwrap();
        assert!(text.contains(" WARN ") && text.ends_with(" lost_lines=7\n"), "{text}");
        let json: serde_json::Value = serde_json::from_slice(&loss_report(LogFormat::Json, false)(7)).unwrap();
        assert_eq!((&json["level"], &json["fields"]["lost_lines"]), (&"WARN".into(), &7.into()));
    }
}
