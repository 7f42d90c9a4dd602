//! Divides the uplink of a server over its clients, over its shards, and over the sources of a frame for all clients.
//!
//! ```text
//!  per client   Uplink ─────── each tick, bytes by weight over the clients that have something to send
//!  per shard    SharedUplink ─ each tick, one server's bytes over its shards, by the weights of their clients
//!  per frame    JoinLimit ──── which actions enter a frame that every client receives (lock-step games)
//! ```
//!
//! The rate that one path can carry is decided by [`congestion`](crate::congestion).

mod join_limit;
mod shared_uplink;
mod uplink;

pub use self::join_limit::{FrameTurn, JoinLimit, can_join, frame_limit};
pub use self::shared_uplink::SharedUplink;
pub(crate) use self::uplink::Uplink;
pub use self::uplink::Weight;
