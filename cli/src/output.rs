//! Output of the programs: whole lines that never fail.

use std::io::{self, Write};
use std::sync::OnceLock;

use crate::Failure;
use crate::line_queue::{FlushGuard, LineQueue, LossReport};
use crate::log::LogFormat;
use crate::streams::{stderr_stream, stdout_stream};

static QUEUES: OnceLock<Queues> = OnceLock::new();

struct Queues {
    out: LineQueue,
    errors: LineQueue,
}

/// Queues what this module prints from now on: a reader that is slow or absent costs lines and never stops the program.
/// For programs that serve or play in the thread that prints. `format` is that of the lines on stdout.
///
/// Dropping the guards waits up to 1 s for each stream, until the last lines are written.
///
/// # Errors
/// Returns a failure if a thread cannot be started.
pub fn queue_lines(format: LogFormat) -> Result<[FlushGuard; 2], Failure> {
    let start = |stream, report| {
        LineQueue::start(stream, report)
            .map_err(|error| Failure::run_time(format!("cannot start a thread for the output: {error}")))
    };
    let (out, flush_out) = start(stdout_stream(), loss_report(format))?;
    let (errors, flush_errors) = start(stderr_stream(), loss_report(LogFormat::Text))?;
    // Fails only if the lines are queued already.
    let _ = QUEUES.set(Queues { out, errors });
    Ok([flush_out, flush_errors])
}

fn loss_report(format: LogFormat) -> LossReport {
    Box::new(move |lost| match format {
        LogFormat::Text => {
            format!("({lost} lines are missing here: they were not read fast enough, or could not be written)\n").into()
        }
        LogFormat::Json => format!("{{\"event\":\"lost\",\"lost_lines\":{lost}}}\n").into_bytes(),
    })
}

/// Writes a line to standard output. Errors are ignored: a reader that closes the pipe has seen enough.
pub fn print_line(line: &str) {
    match QUEUES.get() {
        Some(queues) => queues.out.push(format!("{line}\n").as_bytes()),
        None => drop(writeln!(io::stdout(), "{line}")),
    }
}

/// Writes a line to standard error. Errors are ignored, as for [`print_line`].
pub fn print_error_line(line: &str) {
    match QUEUES.get() {
        Some(queues) => queues.errors.push(format!("{line}\n").as_bytes()),
        None => drop(writeln!(io::stderr(), "{line}")),
    }
}

/// Writes a frame of several lines to standard output. Errors are ignored, as for [`print_line`].
pub fn print_frame(frame: &[u8]) {
    match QUEUES.get() {
        Some(queues) => queues.out.push(frame),
        None => drop(io::stdout().write_all(frame).and_then(|()| io::stdout().flush())),
    }
}

/// Writes a frame of several lines to standard error. Errors are ignored, as for [`print_line`].
pub fn print_error_frame(frame: &[u8]) {
    match QUEUES.get() {
        Some(queues) => queues.errors.push(frame),
        None => drop(io::stderr().write_all(frame)),
    }
}
