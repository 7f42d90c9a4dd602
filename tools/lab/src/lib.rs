//! The congestion laboratory: scenarios on simulated paths in which congestion controllers are measured and compared.
//!
//! Time is virtual and a seed decides all randomness: nothing here reads a clock or draws entropy. A seed gives the
//! same run on every machine, packet by packet. `slipgate-sim` provides queues, loss, policers and random numbers.
//!
//! ```text
//! source -> sender -> policer -> bottleneck (queue, rate) -> loss -> delay, jitter -> receiver
//!             ^                                                                          |
//!             +-------------------------- delay <- loss <- acknowledgement <-------------+
//! ```
//!
//! A [`scenario`] defines a path and its flows, [`world`] runs it, and [`measure`] computes the figures. [`table`] runs
//! all scenarios and prints the table in `specs/congestion-table.md`. [`sync`] measures game state.

#![forbid(unsafe_code)]

pub mod controllers;
pub mod goals;
pub mod link;
pub mod log;
pub mod measure;
pub mod packet;
pub mod path;
pub mod play;
pub mod random_paths;
pub mod report;
pub mod rival;
pub mod scenario;
pub mod scenarios;
pub mod sender;
pub mod source;
pub mod specification;
#[cfg(feature = "cubes")]
pub mod sync;
pub mod table;
pub mod targets;
pub mod trace;
pub mod world;
