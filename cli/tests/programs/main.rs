//! The programs as processes: flags, settings, signals, and what they print.

mod browser;
mod client;
mod conditioner;
mod cubes;
mod cubes_page;
#[cfg(unix)]
mod demo;
#[cfg(unix)]
mod deploy;
#[cfg(unix)]
mod documents;
mod fleet;
#[cfg(unix)]
mod fleet_proof;
#[cfg(unix)]
mod fleet_world;
mod issuer;
mod private_authority;
mod process;
#[cfg(unix)]
mod pseudo_terminal;
#[cfg(unix)]
mod redirect;
#[cfg(unix)]
mod rotation;
#[cfg(unix)]
#[path = "../../../tests/src/scale.rs"]
#[allow(unreachable_pub, reason = "the file is a module of the test library")]
mod scale;
mod server;
mod slipgate;
#[cfg(target_os = "linux")]
mod small_pipe;
mod tools;
#[cfg(unix)]
mod usage;
#[cfg(target_os = "linux")]
mod volume;
