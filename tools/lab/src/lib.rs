//! A deterministic simulator of paths, and the scenarios on which congestion avoidance is measured.
//!
//! Time is virtual and randomness comes from a seed: nothing here reads a clock or draws entropy, so that the same seed
//! gives the same run, packet by packet, on every machine.
//!
//! ```text
//! source -> sender -> policer -> bottleneck (queue, rate) -> loss -> delay, jitter -> receiver
//!             ^                                                                          |
//!             +-------------------------- delay <- loss <- acknowledgement <-------------+
//! ```
//!
//! A [`scenario`] says which path and which flows; [`world`] plays it; [`measure`] says what came of it; [`table`] plays
//! all of them and prints what stands in `specs/congestion-table.md`.

#![forbid(unsafe_code)]

pub mod link;
pub mod log;
pub mod measure;
pub mod path;
pub mod play;
pub mod random;
pub mod random_paths;
pub mod report;
pub mod rival;
pub mod rules;
pub mod scenario;
pub mod scenarios;
pub mod sender;
pub mod source;
pub mod specification;
pub mod table;
pub mod targets;
pub mod trace;
pub mod world;
