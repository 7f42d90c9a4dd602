//! The registry of dedicated servers: which are alive, how many free slots they have, and which of these are reserved.
//!
//! ```text
//!  heartbeat of a server ──▶ register ─▶┌──────────┐
//!                                       │  store   │ memory, a file, or Redis for several issuers
//!  request for a group ────▶ reserve ──▶└──────────┘──▶ servers for the token, a slot reserved on each
//! ```
//!
//! A reservation counts until its token has expired and a handshake that began in time has ended, or until the server
//! reports that the client got a slot. So concurrent issuers never give out more slots than a server has. It outlives
//! the registration of its server, which may be started again and accept the token. A restarted server that refuses
//! earlier tokens ends their reservations, and those of a dead server are not listed.
//!
//! No step of a wall clock frees or keeps slots: a store in memory or in a file follows the monotonic clock of its
//! issuer, and Redis its own clock without the steps.
//!
//! Stores keep these rules; the HTTP service parses requests and mints.

mod clock;
#[cfg(feature = "registry-file")]
mod file;
mod instances;
mod memory;
mod name;
mod order;
mod placement;
#[cfg(feature = "redis")]
mod redis;
mod reservations;
mod status;
mod store;
#[cfg(any(feature = "redis", feature = "registry-file"))]
mod stored;
mod table;
mod types;

#[cfg(feature = "registry-file")]
pub use self::file::{FileRegistry, FileRegistryError};
pub use self::memory::MemoryRegistry;
pub use self::name::{MAX_NAME_BYTES, NameError, RegistryName};
#[cfg(feature = "redis")]
pub use self::redis::{RedisRegistry, RegistryUrlError};
pub use self::status::{RegistryState, ServerStatus};
pub use self::store::{Registry, RegistryError, RegistryFuture};
pub use self::types::{
    DEAD_AFTER, FORGOTTEN_AFTER, HEARTBEAT_INTERVAL, Heartbeat, MAX_ADDRESSES_PER_SERVER, MAX_ADMITTED_PER_HEARTBEAT,
    MAX_REGIONS, MAX_REGISTERED_SERVERS, MAX_SERVERS_PER_GROUP_TOKEN, MAX_SLOTS, MISSED_HEARTBEATS, RESERVATION_GRACE,
    RESTART_MARGIN, Registration, ReservedServer, ServerInstance, SlotRequest,
};
