//! The programs as processes: flags, settings, signals, and what they print.

mod client;
mod conditioner;
mod issuer;
mod server;
mod slipgate;
