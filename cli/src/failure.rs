//! Failures of the programs: one message on stderr and an exit status.

use std::fmt;
use std::process::ExitCode;

use crate::streams::print_last_line;

/// An error that ends a program.
#[derive(Debug)]
pub struct Failure {
    message: String,
    status: u8,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Failure {
    /// Creates a failure caused by wrong flags or a wrong configuration: exit status 2, the same as clap uses.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), status: 2 }
    }

    /// Creates a failure caused by the system or by data that was read: exit status 1.
    pub fn run_time(message: impl Into<String>) -> Self {
        Self { message: message.into(), status: 1 }
    }

    /// Creates a failure with an exit status of its own.
    pub fn with_status(message: impl Into<String>, status: u8) -> Self {
        Self { message: message.into(), status }
    }

    /// Writes the message to stderr, prefixed with the program's name, and returns the exit status. Waits at most 1 s
    /// for a reader of stderr.
    #[must_use]
    pub fn report(&self, program: &str) -> ExitCode {
        print_last_line(format!("{program}: {}", self.message));
        ExitCode::from(self.status)
    }
}
