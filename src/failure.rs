//! How the program fails: one sentence, and a status that says whose turn it is.

use std::io::{self, Write};
use std::process::ExitCode;

/// Why the program did not do what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    sentence: String,
    status: u8,
}

impl Failure {
    /// The system, or what was read, is the reason: status 1.
    pub(crate) fn run_time(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), status: 1 }
    }

    /// What was asked for cannot be: status 2, as clap's own for wrong flags.
    pub(crate) fn usage(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), status: 2 }
    }

    /// Says it on stderr.
    pub(crate) fn report(&self) -> ExitCode {
        // Nobody is left to be told when stderr is closed.
        let _ = writeln!(io::stderr(), "slipgate: {}", self.sentence);
        ExitCode::from(self.status)
    }
}
