//! The command `slipgate`: demo, keys, tokens, network conditioner, load, benchmark, congestion laboratory, and tools
//! for running servers.

mod api_key;
mod bench;
mod conditioner;
mod demo;
mod doctor;
mod group;
mod http_port;
mod key_text;
mod keygen;
mod keys;
mod lab;
mod load;
mod secret_file;
mod token;
mod top;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use slipgate_cli::core_dumps::CoreDumps;
use slipgate_cli::{Failure, usage};

/// Secure game networking: demo and tools
#[derive(Parser)]
#[command(name = "slipgate", version)]
struct Arguments {
    #[command(flatten)]
    core_dumps: CoreDumps,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure the CPU time of a server, compared with plain sockets
    #[command(after_help = bench::AFTER_HELP)]
    Bench(slipgate_bench::flags::BenchFlags),
    /// Run a token issuer, a dedicated server and clients in one process, and verify every message
    Demo(demo::DemoFlags),
    /// Impair the network between real programs: a UDP proxy with delay, loss, reordering and more
    Conditioner(Box<conditioner::ConditionerFlags>),
    /// Check a deployment from outside: clocks, addresses, keys, packet sizes and timeouts
    #[command(after_help = doctor::AFTER_HELP)]
    Doctor(doctor::DoctorFlags),
    /// Create a private key for issuer and servers, or an API key for a backend
    Keygen(keygen::KeygenFlags),
    /// Measure congestion control and game state in simulators
    #[command(subcommand)]
    Lab(lab::LabCommand),
    /// Connect thousands of clients to an echo server and measure the echoes
    #[command(after_help = load::AFTER_HELP)]
    Load(load::LoadFlags),
    /// Rotate private keys, and list their ids
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Mint and inspect connect tokens
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Watch a server by its admin port, in the terminal
    #[command(after_help = top::AFTER_HELP)]
    Top(top::TopFlags),
}

fn main() -> ExitCode {
    match usage::parse().and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report("slipgate"),
    }
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    // Ignored: these commands are short, and have no log for a warning.
    let _ = arguments.core_dumps.apply();
    match arguments.command {
        Command::Bench(flags) => bench::run(&flags),
        Command::Demo(flags) => demo::run(&flags),
        Command::Conditioner(flags) => conditioner::run(&flags),
        Command::Doctor(flags) => doctor::run(&flags),
        Command::Keygen(flags) => keygen::run(&flags),
        Command::Lab(command) => lab::run(&command),
        Command::Load(flags) => load::run(&flags),
        Command::Keys(command) => keys::run(&command),
        Command::Token(command) => token::run(&command),
        Command::Top(flags) => top::run(&flags),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_line_definition_is_valid() {
        Arguments::command().debug_assert();
    }
}
