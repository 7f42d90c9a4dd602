//! The interface of a store.

use core::fmt;
use core::future::Future;
use core::net::SocketAddr;
use core::pin::Pin;
use core::time::Duration;

use super::name::RegistryName;
use super::status::ServerStatus;
use super::types::{Heartbeat, ReservedServer, ServerInstance, SlotRequest};
use crate::callers::Scopes;

/// Why a store could not do what it was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RegistryError {
    /// No server of the group is alive, admits clients, and has a free slot without a reservation.
    NoFreeSlots,
    /// No server of the group is registered.
    NoServers,
    /// A server with this id is registered in a group or game that the scopes do not include.
    OutOfScope,
    /// Another server with this id has registered since, has these addresses, and is alive.
    Replaced(Vec<SocketAddr>),
    /// A later heartbeat or removal of the same run was recorded already.
    Late,
    /// The registry has [`MAX_REGISTERED_SERVERS`](super::MAX_REGISTERED_SERVERS) servers.
    Full,
    /// The store does not respond, or failed. No slot was reserved.
    Unavailable,
    /// The store failed during the operation, which may be recorded: slots may be reserved until their reservation
    /// ends.
    Unconfirmed,
    /// The store has started, or lost its data. For this time, issuers write their reservations again.
    Recovering(Duration),
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Replaced(by) => {
                let by: Vec<_> = by.iter().map(ToString::to_string).collect();
                return write!(f, "another server with this id has registered since: {}", by.join(", "));
            }
            Self::NoFreeSlots => "no server of this group is alive, admits clients and has a free slot",
            Self::NoServers => "no server of this group is registered",
            Self::OutOfScope => "a server with this id is registered in a group or game that this API key may not use",
            Self::Late => "a later heartbeat or removal of this run of the server was recorded already",
            Self::Full => "the registry has its maximum number of servers",
            Self::Recovering(_) => {
                "the store of the registry has started or lost its data, and issuers write their reservations again"
            }
            Self::Unavailable | Self::Unconfirmed => "the store of the registry does not respond",
        })
    }
}

impl core::error::Error for RegistryError {}

/// The future of a store's operation.
pub type RegistryFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, RegistryError>> + Send + 'a>>;

/// A store of registrations and reservations. The HTTP service shares one among all requests.
pub trait Registry: Send + Sync {
    /// Records a heartbeat, which registers the server if it is new. The caller has checked that the scopes include
    /// its group and game. A heartbeat with the number of the last one is that one again, and changes nothing.
    ///
    /// # Errors
    /// [`RegistryError::OutOfScope`] if the scopes do not include the group and game from which it would move,
    /// [`RegistryError::Late`] if a later heartbeat or removal of the same run was recorded,
    /// [`RegistryError::Replaced`] if another instance has taken the id and is alive, [`RegistryError::Full`] for a new
    /// server beyond the maximum, [`RegistryError::Unavailable`] or [`RegistryError::Unconfirmed`] if the store failed.
    fn register<'a>(&'a self, heartbeat: Heartbeat, scopes: &'a Scopes) -> RegistryFuture<'a, ()>;

    /// Removes a server, unless another instance than the given one has its id, or the instance has sent a later
    /// heartbeat. Its reservations stay until they end. Earlier heartbeats of the instance do not register the server
    /// again for a minute. Returns whether it was removed.
    ///
    /// # Errors
    /// [`RegistryError::OutOfScope`] if the scopes do not include its group and game, [`RegistryError::Unavailable`] or
    /// [`RegistryError::Unconfirmed`] if the store failed.
    fn remove<'a>(
        &'a self,
        id: RegistryName,
        instance: Option<ServerInstance>,
        scopes: &'a Scopes,
    ) -> RegistryFuture<'a, bool>;

    /// Returns all servers in the order of their ids.
    ///
    /// # Errors
    /// [`RegistryError::Unavailable`] if the store does not respond.
    fn servers(&self) -> RegistryFuture<'_, Vec<ServerStatus>>;

    /// Reserves a slot on 1 to [`SlotRequest::server_count`] servers, the best first.
    ///
    /// # Errors
    /// [`RegistryError::NoFreeSlots`] if no server has room, [`RegistryError::NoServers`] if the group has none,
    /// [`RegistryError::Unavailable`] if the store did not respond before the reservation,
    /// [`RegistryError::Unconfirmed`] if it failed during it, [`RegistryError::Recovering`] if it may lack
    /// reservations: then no slot may be given out.
    fn reserve(&self, request: SlotRequest) -> RegistryFuture<'_, Vec<ReservedServer>>;

    /// Checks whether slots could be reserved at the last operation or check of the store.
    ///
    /// # Errors
    /// [`RegistryError::Unavailable`] if the store did not respond, [`RegistryError::Recovering`] if it may lack
    /// reservations.
    fn check(&self) -> Result<(), RegistryError>;
}
