//! The failures that end the demo at its start.

use std::io;
use std::net::SocketAddr;

use slipgate_cli::Failure;
use slipgate_os::listen;

/// Returns the failure of a program that gets no signals.
pub(super) fn cannot_register(error: &io::Error) -> Failure {
    Failure::run_time(format!("cannot register signal handlers: {error}"))
}

/// Returns the failure of a program part that cannot listen on its address.
pub(super) fn cannot_listen(part: &str, protocol: &str, bind: SocketAddr, error: &io::Error) -> Failure {
    let reason = listen::reason(error);
    Failure::run_time(format!("the {part} cannot listen on {bind} ({protocol}): {reason}"))
}
