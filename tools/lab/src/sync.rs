//! Game state on lossy paths: what it costs and how wrong clients are, with `slipgate-sync` and with the methods of a
//! bachelor thesis.
//!
//! ```text
//! world -> recording -> method -> loss, delay -> client -> error against the recording
//! ```
//!
//! A [`recording`] is a simulated world of cubes and players. A [`replay`] sends it over a path with one method, and
//! measures bytes and errors. [`cube_tables`] are measured in the world of cubes: [`states`], which both ends
//! simulate, [`playout`], [`predicting`], [`rewinding`], [`peer_formats`], and [`input_timing`]. [`document`] runs
//! all of it and prints `specs/sync-table.md`. [`sync_goals`] are the figures to reach.

pub mod cube_fields;
pub mod cube_tables;
pub mod cubes;
pub mod document;
pub mod input_timing;
pub mod lossy;
pub mod peer_formats;
pub mod percentile;
pub mod playout;
pub mod predicted_world;
pub mod predicting;
pub mod recording;
pub mod replay;
pub mod rewinding;
pub mod seeds;
pub mod simulating;
pub mod states;
pub mod sync_figures;
pub mod sync_goals;
pub mod thesis;
