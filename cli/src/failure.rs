//! How a program fails: one sentence, and a status that says whose turn it is.

use std::io::{self, Write};
use std::process::ExitCode;

/// Why a program does not do what it was asked.
#[derive(Debug)]
pub struct Failure {
    sentence: String,
    status: u8,
}

impl Failure {
    /// What was asked for or configured cannot be: status 2, as clap's own for wrong flags.
    pub fn usage(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), status: 2 }
    }

    /// The system, or what was read, is the reason: status 1.
    pub fn run_time(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), status: 1 }
    }

    /// Says it on stderr, in the program's name.
    #[must_use]
    pub fn report(&self, program: &str) -> ExitCode {
        // Nobody is left to be told when stderr is closed.
        let _ = writeln!(io::stderr(), "{program}: {}", self.sentence);
        ExitCode::from(self.status)
    }
}
