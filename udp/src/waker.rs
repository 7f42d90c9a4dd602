//! Waking a thread that waits for datagrams, from another one.

use std::io;
use std::sync::Arc;

use mio::Poll;

use super::WAKER;

/// Ends the wait of a server's or client's [`Sockets`](super::Sockets) early. Clones wake the same one.
#[derive(Clone, Debug)]
pub struct Waker(Arc<mio::Waker>);

impl Waker {
    pub(super) fn of(poll: &Poll) -> io::Result<Self> {
        mio::Waker::new(poll.registry(), WAKER).map(Arc::new).map(Self)
    }

    /// Ends the wait that is going on, or the next one. It costs a system call: once for a batch of work, not for each
    /// piece.
    pub fn wake(&self) {
        // It can fail only when the sockets are gone, and nobody waits any more.
        let _ = self.0.wake();
    }
}
