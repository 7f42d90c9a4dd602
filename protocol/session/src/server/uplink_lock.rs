//! The lock around the uplink that all shards share. Shards are threads, so it needs the standard library.

#[cfg(feature = "std")]
use alloc::sync::Arc;
#[cfg(feature = "std")]
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::scheduling::SharedUplink;

/// A handle to the uplink that all shards of a server share. All shards lock the same one.
#[cfg(feature = "std")]
#[derive(Clone)]
pub struct UplinkLock(Arc<Mutex<SharedUplink>>);

#[cfg(feature = "std")]
impl UplinkLock {
    /// Locks the uplink while the guard lives. It is held for one statement, and no other lock is taken meanwhile, so
    /// shards cannot deadlock.
    pub(super) fn lock(&self) -> MutexGuard<'_, SharedUplink> {
        // A shard that panicked leaves numbers that the next exchange replaces, so poisoning is harmless.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(feature = "std")]
impl From<SharedUplink> for UplinkLock {
    /// Puts an uplink behind a lock.
    fn from(uplink: SharedUplink) -> Self {
        Self(Arc::new(Mutex::new(uplink)))
    }
}

/// Without the standard library there are no shards, and this type has no values.
#[cfg(not(feature = "std"))]
pub(super) enum UplinkLock {}

#[cfg(not(feature = "std"))]
impl UplinkLock {
    pub(super) fn lock(&self) -> alloc::boxed::Box<SharedUplink> {
        match *self {}
    }
}
