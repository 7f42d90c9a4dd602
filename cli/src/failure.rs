//! Failures of the programs: one message on stderr and an exit status.

use std::io::{self, Write};
use std::process::ExitCode;

/// An error that ends a program.
#[derive(Debug)]
pub struct Failure {
    message: String,
    status: u8,
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

    /// Writes the message to stderr, prefixed with the program's name, and returns the exit status.
    #[must_use]
    pub fn report(&self, program: &str) -> ExitCode {
        // Ignored: a closed stderr leaves no way to report the failure.
        let _ = writeln!(io::stderr(), "{program}: {}", self.message);
        ExitCode::from(self.status)
    }
}
