//! Wakes a thread that waits for datagrams, from another thread.

use std::io;
use std::sync::Arc;

use mio::{Poll, Token};

/// The poll token of a wakeup by another thread.
pub(super) const WAKER: Token = Token(2);

/// Ends the wait of a server's or client's [`Sockets`](super::Sockets) early. Clones refer to the same sockets.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use slipgate_udp::Sockets;
///
/// # fn main() -> std::io::Result<()> {
/// let mut sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()])?;
/// let waker = sockets.waker()?;
/// std::thread::spawn(move || waker.wake());
/// sockets.wait(Duration::from_secs(60))?; // returns as soon as the thread has run
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Waker(Arc<mio::Waker>);

impl Waker {
    pub(super) fn of(poll: &Poll) -> io::Result<Self> {
        mio::Waker::new(poll.registry(), WAKER).map(Arc::new).map(Self)
    }

    /// Ends the current wait, or the next one. It costs a system call, so call it once for a batch of work.
    pub fn wake(&self) {
        // It fails only if the sockets were dropped, and then no thread waits.
        let _ = self.0.wake();
    }
}
