//! The programs as processes: flags, settings, signals, and what they print.

mod client;
mod command_line;
mod conditioner_command;
mod issuer;
mod server;
