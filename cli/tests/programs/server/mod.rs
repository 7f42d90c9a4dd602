//! The program as an operator and as players meet it: real processes, real datagrams.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test panics when something is wrong")]
#![cfg(unix)]

mod apps;
mod history;
mod hostile;
mod player;
mod program;
mod settings;
mod shards;
mod signals;
