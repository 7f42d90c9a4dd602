//! Sleeping until something arrives, and knowing afterwards whether what came has waited.

use std::io;
use std::time::{Duration, Instant};

use super::Sockets;

/// Who came back from sleeping sooner has not slept: something had been waiting. A system call takes less.
const BLINK: Duration = Duration::from_micros(100);

/// How the last sleep was.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nap {
    slept: bool,
}

impl Nap {
    /// Sleeps until a datagram has arrived or the time is over. It does not sleep while datagrams wait.
    ///
    /// # Errors
    /// When the system cannot wait.
    pub fn take(&mut self, sockets: &mut Sockets, timeout: Duration) -> io::Result<()> {
        let lay_down_at = Instant::now();
        let result = sockets.wait(timeout);
        self.slept = result.is_ok() && lay_down_at.elapsed() >= BLINK;
        result
    }

    /// Whether nothing had arrived before the program woke just now; once.
    pub fn woke_fresh(&mut self) -> bool {
        core::mem::take(&mut self.slept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, UdpSocket};

    #[test]
    fn who_slept_until_something_came_woke_fresh_and_who_found_it_waiting_did_not() {
        let mut sockets = Sockets::bind(&[(Ipv4Addr::LOCALHOST, 0).into()]).unwrap();
        let mut nap = Nap::default();
        assert!(!nap.woke_fresh(), "who never slept");
        nap.take(&mut sockets, Duration::from_millis(5)).unwrap();
        assert!(nap.woke_fresh() && !nap.woke_fresh());
        // A datagram that is there before: one try may be held up by the system, not all of them.
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let found_waiting = (0..20).any(|_| {
            sender.send_to(b"early", sockets.local_addresses()[0]).unwrap();
            nap.take(&mut sockets, Duration::from_millis(5)).unwrap();
            !nap.woke_fresh()
        });
        assert!(found_waiting);
    }
}
