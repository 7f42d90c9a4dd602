//! The command line `slipgate`: the demo, and the tools around keys and tokens.

mod demo;
mod failure;
mod keygen;
mod secret_file;
mod token;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Secure game networking: connect tokens, dedicated servers, clients.
#[derive(Parser)]
#[command(name = "slipgate", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Shows all three places at work: an issuer, a dedicated server, and clients that connect and play
    Demo(demo::Flags),
    /// Makes a private key for issuer and servers, or an API key for a backend
    Keygen(keygen::Flags),
    /// Mints and inspects connect tokens
    #[command(subcommand)]
    Token(token::Command),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Demo(flags) => demo::run(&flags),
        Command::Keygen(flags) => keygen::run(&flags),
        Command::Token(command) => token::run(&command),
    };
    result.map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}

/// Writes a line to standard output. A closed pipe is the reader's wish, and no reason to fail.
fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Reads a protocol id, decimal or 0x….
fn protocol_id(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let number = digits.map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16));
    number.map_err(|_| "a protocol id is a 64-bit number, decimal or 0x…".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_protocol_id_is_decimal_or_hexadecimal() {
        for (text, id) in
            [("17", Some(17)), ("0x11", Some(17)), ("0XfF", Some(255)), ("18446744073709551615", Some(u64::MAX))]
        {
            assert_eq!(protocol_id(text).ok(), id);
        }
        for text in ["", "0x", "-1", "18446744073709551616", "0x10000000000000000", "1g"] {
            assert!(protocol_id(text).is_err(), "{text}");
        }
    }
}
