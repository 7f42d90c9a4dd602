//! Who may change the registry: its only shard, or one shard at a time behind a lock.

use alloc::boxed::Box;
#[cfg(feature = "std")]
use alloc::sync::Arc;
use core::ops::{Deref, DerefMut};
#[cfg(feature = "std")]
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::ClientRegistry;

/// A handle to the registry of a sharded server. All shards lock the same registry.
#[cfg(feature = "std")]
#[derive(Clone)]
pub struct SharedRegistry(Arc<Mutex<ClientRegistry>>);

#[cfg(feature = "std")]
impl SharedRegistry {
    fn lock(&self) -> MutexGuard<'_, ClientRegistry> {
        // A shard that panicked may have left a reservation or a query behind. Both expire, so poisoning is harmless.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "std")]
impl From<ClientRegistry> for SharedRegistry {
    /// Puts a registry behind a lock.
    fn from(registry: ClientRegistry) -> Self {
        Self(Arc::new(Mutex::new(registry)))
    }
}

/// A server's reference to its registry.
pub(in crate::server) enum RegistryRef {
    /// The only shard owns its registry.
    Own(Box<ClientRegistry>),
    #[cfg(feature = "std")]
    Shared(SharedRegistry),
}

impl RegistryRef {
    /// Locks the registry. A response that is admitted takes the lock several times: for its checks, for the claim of
    /// the token and the client index, and for the revert of a claim or the new age of a client that is taken over.
    /// Other shards may change the registry between them, so a claim makes its checks again under its own guard.
    ///
    /// The lock is not reentrant, so a shard never holds two guards. `&mut self` makes the compiler check this. No code
    /// waits, decrypts or writes to a journal under a guard, and no other lock is taken, so shards cannot deadlock.
    pub(in crate::server) fn lock(&mut self) -> RegistryGuard<'_> {
        match self {
            // A single shard pays nothing for the registry.
            Self::Own(registry) => RegistryGuard::Own(registry),
            #[cfg(feature = "std")]
            Self::Shared(registry) => RegistryGuard::Shared(registry.lock()),
        }
    }

    /// Reads from the registry.
    pub(in crate::server) fn read<R>(&self, read: impl FnOnce(&ClientRegistry) -> R) -> R {
        match self {
            Self::Own(registry) => read(registry),
            #[cfg(feature = "std")]
            Self::Shared(registry) => read(&registry.lock()),
        }
    }

    /// Returns whether other shards use the registry, too.
    pub(in crate::server) const fn is_shared(&self) -> bool {
        !matches!(self, Self::Own(_))
    }
}

/// Exclusive access to the registry.
pub(in crate::server) enum RegistryGuard<'a> {
    Own(&'a mut ClientRegistry),
    #[cfg(feature = "std")]
    Shared(MutexGuard<'a, ClientRegistry>),
}

impl Deref for RegistryGuard<'_> {
    type Target = ClientRegistry;

    fn deref(&self) -> &ClientRegistry {
        match self {
            Self::Own(registry) => registry,
            #[cfg(feature = "std")]
            Self::Shared(registry) => registry,
        }
    }
}

impl DerefMut for RegistryGuard<'_> {
    fn deref_mut(&mut self) -> &mut ClientRegistry {
        match self {
            Self::Own(registry) => registry,
            #[cfg(feature = "std")]
            Self::Shared(registry) => registry,
        }
    }
}
