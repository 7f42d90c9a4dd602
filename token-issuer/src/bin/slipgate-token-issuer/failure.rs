//! How the program fails: one sentence, and a status that says whose turn it is.

use std::io::{self, Write};
use std::process::ExitCode;

/// Why the program does not run.
#[derive(Debug)]
pub(crate) struct Failure {
    sentence: String,
    status: u8,
}

impl Failure {
    /// The configuration is wrong: status 2, as clap's own for wrong flags.
    pub(crate) fn config(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), status: 2 }
    }

    /// The system refuses: status 1.
    pub(crate) fn run_time(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), status: 1 }
    }

    /// Says it on stderr.
    pub(crate) fn report(&self) -> ExitCode {
        // Nobody is left to be told when stderr is closed.
        let _ = writeln!(io::stderr(), "slipgate-token-issuer: {}", self.sentence);
        ExitCode::from(self.status)
    }
}
