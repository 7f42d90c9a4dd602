//! The programs as processes: flags, settings, signals, and what they print.

mod client;
mod conditioner;
mod issuer;
mod process;
mod server;
mod slipgate;
#[cfg(target_os = "linux")]
mod small_pipe;
