//! Slipgate's benchmark: the CPU time of a server, compared with plain sockets and other implementations of netcode
//! 1.02.
//!
//! ```text
//!   run ──▶ measures ──▶ rows ──▶ table: text, JSON
//!              │
//!              ▼                             one core             another core
//!            runner: a test bed for each     server thread        driver: the load generator
//!            subject, in alternating turns   server  ◀──UDP──▶    clients, each with its own address
//! ```
//!
//! A measure alternates: the driver sends a burst, the server works under the CPU clock of its thread, and the driver
//! collects and checks the replies. No waiting time is measured, and the driver's cost is not part of any figure. Time
//! is an argument of the servers and advances at 60 ticks a second, however long a round takes.
//!
//! The benchmark needs Linux: for thread CPU clocks, core pinning, and 127.0.0.0/8 as client addresses.

#![forbid(unsafe_code)]

pub mod figures;
pub mod flags;
pub mod row;
pub mod table;

#[cfg(target_os = "linux")]
pub mod channels;
#[cfg(target_os = "linux")]
pub mod cpu;
#[cfg(target_os = "linux")]
pub mod driver_socket;
#[cfg(target_os = "linux")]
pub mod load;
#[cfg(target_os = "linux")]
pub mod machine;
#[cfg(target_os = "linux")]
pub mod measures;
#[cfg(target_os = "linux")]
pub mod plain;
#[cfg(target_os = "linux")]
pub mod run;
#[cfg(target_os = "linux")]
pub mod runner;
#[cfg(target_os = "linux")]
pub mod server_thread;
#[cfg(target_os = "linux")]
mod shard_group;
#[cfg(target_os = "linux")]
pub mod slipgate;
#[cfg(target_os = "linux")]
pub mod subject;
