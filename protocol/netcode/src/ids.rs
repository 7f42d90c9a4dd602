//! Identities as types, so that a client id, a slot and a client index cannot be confused.

use core::fmt;

/// The id of a client, which the backend wrote into its token. A server connects each id at most once at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct ClientId(pub u64);

impl From<u64> for ClientId {
    fn from(id: u64) -> Self {
        Self(id)
    }
}

/// The sequence number of a packet in one direction of a connection: a newer packet has a higher one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct PacketNumber(pub u64);

/// The index of a client on its server, over all shards: the lowest one that was free. The client learns it from its
/// first keep-alive (§1.12).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct ClientIndex(pub u32);

impl From<u32> for ClientIndex {
    fn from(index: u32) -> Self {
        Self(index)
    }
}

/// The index of a client's slot on its shard, from 0. A shard fills the lowest free slot first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct SlotIndex(pub u32);

/// Shows identities as their numbers.
macro_rules! shown_as_number {
    ($($id:ident)*) => {$(
        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

shown_as_number! { ClientId PacketNumber ClientIndex SlotIndex }
