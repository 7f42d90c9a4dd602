//! `slipgate-token-issuer` as a process: flags, messages and signals.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]
#![cfg(unix)]

mod docs_page;
mod fleet;
pub(crate) mod program;
mod refusals;
mod reload;
#[cfg(target_os = "linux")]
mod secrets;
mod servers;
mod service;
mod settings;
mod transports;
#[cfg(target_os = "linux")]
mod unread_log;
