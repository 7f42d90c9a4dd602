//! `slipgate-server` as a process, with real clients and datagrams.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]
#![cfg(unix)]

pub(crate) mod admin;
mod apps;
pub(crate) mod client;
mod dashboard;
mod frozen_disk;
mod history;
mod hostile;
pub(crate) mod program;
mod refusals;
mod secrets;
mod settings;
mod shards;
mod signals;
#[cfg(target_os = "linux")]
mod unread_log;
