//! A message that many connections send: its bytes are stored once.

use alloc::sync::Arc;
use core::fmt;

/// The bytes of a message for many clients. Clones share the memory, and so do the queues of all clients that
/// [`SessionServer::broadcast`](crate::server::SessionServer::broadcast) sends the message to.
///
/// Each queue still counts the bytes against its own limit. Creating a shared message allocates once.
#[derive(Clone)]
pub struct SharedMessage(Arc<[u8]>);

impl SharedMessage {
    /// Returns the message's bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl<T: Into<Arc<[u8]>>> From<T> for SharedMessage {
    fn from(bytes: T) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Debug for SharedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMessage").field("bytes", &self.0.len()).finish()
    }
}
