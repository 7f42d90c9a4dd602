//! Game state for many clients: a server replicates its objects, and each client has a replica of what it may see.
//!
//! ```text
//!  game ──▶ Replicator ──▶ message ┄┄ unreliable channel ┄┄▶ message ──▶ Replica ──▶ game
//!               ▲                                                │
//!               └────────────── receipts: arrived, lost ◀────────┘
//! ```
//!
//! A [`Schema`] says which fields each kind of object has, and in how many bits. The [`Replicator`] writes messages
//! that fill a given number of bytes. An object is sent as the difference to a prediction from the newest state that
//! this client is known to have, or as a whole if there is none. Spawns and despawns are in the same messages. Each
//! message can be read by itself, in any order, and messages may get lost: what got lost is sent again in its newest
//! state.
//!
//! The crate has no sockets, clocks, threads or callbacks, and knows neither entities nor physics. It needs nothing
//! else of Slipgate: any transport will do that reports which messages arrived. Memory is bounded by the limits of
//! [`Replicator::new`] and [`Replica::new`]: it grows with the ids that are used and with the messages on their way,
//! and then nothing is allocated.
//!
//! The specification of the format is `specs/sync-1.md`; the code cites its sections: §6.4.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct SyncReadme;

mod bits;
mod commits;
mod object;
mod object_set;
mod priority;
mod quantize;
mod read_error;
mod record;
mod replica;
mod replicator;
mod schema;
#[cfg(test)]
mod tests;

pub use object::{ObjectId, ObjectMut, ObjectRef, WrongField};
pub use priority::Priorities;
pub use read_error::StateReadError;
pub use replica::{GoneReason, Replica, ReplicaChange};
pub use replicator::{Look, Replicator, ReplicatorError, StateMessage, ViewerId};
pub use schema::{Field, MAX_FIELDS, MAX_KINDS, MAX_WORDS, ObjectKind, Schema, SchemaBuilder, SchemaError};
