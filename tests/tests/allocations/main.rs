//! Memory: the allocations of each part, and the memory that it holds.

mod acknowledged;
#[cfg(target_os = "linux")]
mod benchmark;
#[cfg(target_os = "linux")]
mod benchmark_smoke;
mod channels;
mod connections;
mod hostile_windows;
mod netcode;
#[cfg(target_os = "linux")]
mod sharded_server;
mod sim;
mod sockets;
mod sync;
mod typed;
mod typed_work;

use slipgate_tests::counting::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
