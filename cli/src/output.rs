//! Output of the programs: whole lines that never fail.

use std::io::{self, Write};

/// Writes a line to standard output. Errors are ignored: a reader that closes the pipe has seen enough.
pub fn print_line(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Writes a line to standard error. Errors are ignored, as for [`print_line`].
pub fn print_error_line(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
