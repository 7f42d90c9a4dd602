//! Slipgate's benchmark: what a server costs in CPU time, beside plain sockets and whatever else speaks netcode 1.02.
//!
//! ```text
//!   run ──▶ measures ──▶ rows ──▶ table: text, JSON
//!              │
//!              ▼                        one core        another core
//!            arena: for everyone        stage           crowd
//!            a corner, taking turns     server ◀──UDP──▶ its clients, each under an address of its own
//! ```
//!
//! A measure alternates: the driver sends a burst, the server works under its thread's CPU clock, the driver collects and
//! checks the answers. Nobody waits under the clock, and the driver's cost is nobody's figure. Time is an argument of the
//! servers, and passes at 60 ticks a second, however long a round takes.
//!
//! The benchmark needs Linux: for the clock of a thread, cores of its own, and 127.0.0.0/8 full of clients.

#![forbid(unsafe_code)]

pub mod figures;
pub mod flags;
pub mod row;
pub mod table;

#[cfg(target_os = "linux")]
pub mod arena;
#[cfg(target_os = "linux")]
pub mod channels;
#[cfg(target_os = "linux")]
pub mod contestant;
#[cfg(target_os = "linux")]
pub mod cpu;
#[cfg(target_os = "linux")]
pub mod crowd;
#[cfg(target_os = "linux")]
pub mod machine;
#[cfg(target_os = "linux")]
pub mod measures;
#[cfg(target_os = "linux")]
pub mod ours;
#[cfg(target_os = "linux")]
pub mod plain;
#[cfg(target_os = "linux")]
pub mod port;
#[cfg(target_os = "linux")]
pub mod run;
#[cfg(target_os = "linux")]
pub mod stage;
#[cfg(target_os = "linux")]
mod team;
