//! Game state on lossy paths: what it costs and how wrong clients are, with `slipgate-sync` and with the methods of a
//! bachelor thesis.
//!
//! ```text
//! world -> recording -> method -> loss, delay -> client -> error against the recording
//! ```
//!
//! A [`recording`] is a simulated world of cubes and players. A [`replay`] sends it over a path with one method, and
//! measures bytes and errors. [`cube_tables`] are measured in the world of cubes: [`states`], which both ends
//! simulate, [`playout`], [`predicting`], [`rewinding`], [`peer_formats`], and [`input_timing`]. [`crowd_tables`] are
//! those of many clients: [`fanout`] and [`joining`]. [`document`] runs all of it and prints `specs/sync-table.md`.
//! [`sync_goals`] are the figures to reach.

pub mod bodies;
pub mod crowd;
pub mod crowd_client;
pub mod crowd_tables;
pub mod crowd_world;
pub mod cube_fields;
pub mod cube_pose;
pub mod cube_tables;
pub mod cubes;
pub mod document;
mod document_texts;
pub mod fanout;
mod figure_row;
mod goal_notes;
pub mod input_timing;
pub mod joining;
pub mod lossy;
pub mod many_cubes;
pub mod messages;
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
mod wrapped;
