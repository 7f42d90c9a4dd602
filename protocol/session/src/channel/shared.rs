//! A message that many connections send: its bytes are stored once.

use alloc::sync::Arc;
use core::fmt;

/// The bytes of a message for many clients. Clones share the memory, and so do the queues of all connections that the
/// message is sent on with [`Channels::send_shared`](super::Channels::send_shared).
///
/// Each queue still counts the bytes against its own limit. Creating a shared message allocates once.
///
/// # Examples
///
/// ```
/// use slipgate_session::channel::SharedMessage;
///
/// let message = SharedMessage::from(&b"round starts"[..]);
/// assert_eq!(message.bytes(), b"round starts");
/// ```
#[derive(Clone)]
pub struct SharedMessage(Arc<[u8]>);

impl SharedMessage {
    /// Returns the message's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
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
