//! The libraries on real sockets, through the kernel.

#![allow(clippy::duplicate_mod, reason = "both programs of the example have its shared module")]

mod arena;
mod arena_budget;
#[path = "../../../examples/arena_client.rs"]
#[allow(dead_code, reason = "its `main`")]
mod arena_client;
#[path = "../../../examples/arena_server.rs"]
#[allow(dead_code, reason = "its `main`")]
mod arena_server;
mod channels;
mod channels_live;
mod client_floods;
mod closed_gaps;
mod datapaths;
mod honest_uploads;
mod host_and_play;
#[cfg(target_os = "linux")]
mod kernel;
#[cfg(target_os = "linux")]
mod kernel_filter;
#[cfg(target_os = "linux")]
mod kernel_paths;
#[cfg(target_os = "linux")]
mod lock_step;
mod lock_step_join;
mod proxy;
#[path = "../../../server/examples/lock_step/relay.rs"]
mod relay;
#[cfg(target_os = "linux")]
mod sharded_server;
#[cfg(target_os = "linux")]
mod shards;
#[cfg(target_os = "linux")]
mod shards_uplink;
mod slow_loops;
mod tag;
#[path = "../../../examples/tag_client.rs"]
#[allow(dead_code, reason = "its `main`")]
mod tag_client;
#[path = "../../../examples/tag_server.rs"]
#[allow(dead_code, reason = "its `main`")]
mod tag_server;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod transfer_memory;

use slipgate_tests::counting::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
