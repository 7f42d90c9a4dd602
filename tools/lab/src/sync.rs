//! Game state on lossy paths: what it costs and how wrong clients are, with `slipgate-sync` and with the methods of a
//! bachelor thesis.
//!
//! ```text
//! world -> recording -> method -> loss, delay -> client -> error against the recording
//! ```
//!
//! A [`recording`] is a simulated world of balls and players. A [`replay`] sends it over a path with one method, and
//! measures bytes and errors. [`document`] runs all of it and prints `specs/sync-table.md`.

pub mod document;
pub mod recording;
pub mod replay;
