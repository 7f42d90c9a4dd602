//! The interface of a store.

use core::fmt;
use core::future::Future;
use core::pin::Pin;

use super::name::RegistryName;
use super::status::ServerStatus;
use super::types::{Heartbeat, ReservedServer, SlotRequest};

/// Why a store could not do what it was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RegistryError {
    /// No server of the group is alive, admits clients, and has a free slot without a reservation.
    NoFreeSlots,
    /// The registry has [`MAX_REGISTERED_SERVERS`](super::MAX_REGISTERED_SERVERS) servers.
    Full,
    /// The store does not respond, or failed.
    Unavailable,
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoFreeSlots => "no server of this group has a free slot",
            Self::Full => "the registry has its maximum number of servers",
            Self::Unavailable => "the store of the registry does not respond",
        })
    }
}

impl core::error::Error for RegistryError {}

/// The future of a store's operation.
pub type RegistryFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, RegistryError>> + Send + 'a>>;

/// A store of registrations and reservations. The HTTP service shares one among all requests.
pub trait Registry: Send + Sync {
    /// Records a heartbeat, which registers the server if it is new.
    ///
    /// # Errors
    /// [`RegistryError::Full`] for a new server beyond the maximum, [`RegistryError::Unavailable`] if it was not
    /// recorded.
    fn register(&self, heartbeat: Heartbeat) -> RegistryFuture<'_, ()>;

    /// Removes a server. Returns whether it was registered.
    ///
    /// # Errors
    /// [`RegistryError::Unavailable`] if the store does not respond.
    fn remove(&self, id: RegistryName) -> RegistryFuture<'_, bool>;

    /// Returns all servers in the order of their ids.
    ///
    /// # Errors
    /// [`RegistryError::Unavailable`] if the store does not respond.
    fn servers(&self) -> RegistryFuture<'_, Vec<ServerStatus>>;

    /// Reserves a slot on 1 to [`SlotRequest::server_count`] servers, the best first.
    ///
    /// # Errors
    /// [`RegistryError::NoFreeSlots`] if no server has room, [`RegistryError::Unavailable`] if the store does not
    /// respond: then no slot may be given out.
    fn reserve(&self, request: SlotRequest) -> RegistryFuture<'_, Vec<ReservedServer>>;

    /// Returns whether the store responded to its last operation or check.
    fn is_available(&self) -> bool;
}
