//! The command line `slipgate`: the demo, and the tools around keys and tokens.

mod bench;
mod conditioner;
mod demo;
mod keygen;
mod lab;
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
    /// Measures what a server costs in CPU time, beside plain sockets
    #[command(after_help = bench::AFTER_HELP)]
    Bench(slipgate_bench::flags::Flags),
    /// Shows all three places at work: an issuer, a dedicated server, and clients that connect and play
    Demo(demo::Flags),
    /// Spoils a network on purpose: a UDP proxy with delay, loss and whatever else lines do
    Conditioner(Box<conditioner::Flags>),
    /// Makes a private key for issuer and servers, or an API key for a backend
    Keygen(keygen::Flags),
    /// Measures congestion avoidance in a simulator
    #[command(subcommand)]
    Lab(lab::Command),
    /// Mints and inspects connect tokens
    #[command(subcommand)]
    Token(token::Command),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Bench(flags) => bench::run(&flags),
        Command::Demo(flags) => demo::run(&flags),
        Command::Conditioner(flags) => conditioner::run(&flags),
        Command::Keygen(flags) => keygen::run(&flags),
        Command::Lab(command) => lab::run(&command),
        Command::Token(command) => token::run(&command),
    };
    result.map_or_else(|failure| failure.report("slipgate"), |()| ExitCode::SUCCESS)
}

/// Writes a line to standard output. A closed pipe is the reader's wish, and no reason to fail.
fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{line}");
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }
}
