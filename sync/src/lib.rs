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
//! [`PlayoutClock`] and [`PlayoutSamples`] show smooth motion on the client, a little in the past. A client that
//! simulates too has a [`StateQueue`], [`LateKeys`] and [`Smoothing`]. Inputs go the other way: [`InputLog`],
//! [`InputClock`] and the server's [`InputBuffer`]. [`Predictor`] simulates the own player ahead, and [`Rewind`]
//! finds what a client saw.
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

mod arrivals;
mod bits;
mod commits;
mod header;
mod input_clock;
mod inputs;
mod late_keys;
mod object;
mod object_set;
mod playout;
mod pose;
mod predict;
mod priority;
mod quantize;
mod read_error;
mod record;
mod release;
mod replica;
mod replicator;
mod resync;
mod rewind;
mod samples;
mod schema;
mod smooth;
mod snap;
#[cfg(test)]
mod tests;

pub use header::StateHeader;
pub use input_clock::InputClock;
pub use inputs::{InputBuffer, InputLog, InputReport, Keys, MAX_INPUT_BYTES, MAX_INPUTS, TickKeys};
pub use late_keys::LateKeys;
pub use object::{ObjectId, ObjectMut, ObjectRef, WrongField};
pub use playout::PlayoutClock;
pub use pose::{Pose, PoseSample, TickRate};
pub use predict::{MAX_SAVES, PredictOrder, Predictor};
pub use priority::Priorities;
pub use read_error::StateReadError;
pub use release::StateQueue;
pub use replica::{GoneReason, Replica, ReplicaChange};
pub use replicator::{Look, Replicator, ReplicatorError, StateMessage, ViewerId};
pub use resync::ResyncRequest;
pub use rewind::{MAX_REWIND, Rewind, RewoundPose};
pub use samples::{PlayoutSamples, ShownBy};
pub use schema::{Field, MAX_FIELDS, MAX_KINDS, MAX_WORDS, ObjectKind, Schema, SchemaBuilder, SchemaError};
pub use smooth::{Smoothing, SmoothingDecay};
