//! Waiting for datagrams, with a minimum delay between wakeups under load.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::Sockets;
use super::coalesce::COALESCE_DELAY;

/// A wait that returns earlier than this found data that was already queued. A system call takes less.
const MIN_WAIT: Duration = Duration::from_micros(100);

/// Whether a wait shows how long datagrams have been queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wakeup {
    /// Nothing had arrived before the end of the wait.
    Fresh,
    /// Datagrams may have been queued before.
    Uncertain,
}

/// Waits until a datagram arrives or the timeout ends. Returns at once while datagrams wait.
///
/// If datagrams end waits more than 8,000 times a second, each wait begins with a sleep of 0.5 ms, so that one wakeup
/// handles a batch; see `coalesce`. A [`Waker`](super::Waker) does not end that sleep.
///
/// # Errors
/// The error of the system's poll.
pub fn poll_coalesced(sockets: &mut Sockets, timeout: Duration) -> io::Result<Wakeup> {
    let coalesces = sockets.coalescer.begin(Instant::now()) && sockets.is_drained();
    let delay = if coalesces { COALESCE_DELAY.min(timeout) } else { Duration::ZERO };
    if coalesces {
        thread::sleep(delay);
    }
    let (was_drained, wait_began_at) = (sockets.is_drained(), Instant::now());
    sockets.wait(timeout.saturating_sub(delay))?;
    let woken_at = Instant::now();
    // A wakeup by another thread does not count as one by datagrams.
    if was_drained && !sockets.is_drained() {
        sockets.coalescer.on_wake(woken_at);
    }
    // If datagrams arrived during the delay, the wait itself returned at once.
    let has_waited = was_drained && woken_at.duration_since(wait_began_at) >= MIN_WAIT;
    Ok(if has_waited { Wakeup::Fresh } else { Wakeup::Uncertain })
}

#[cfg(test)]
mod tests {
    use super::super::ReceiveBatch;
    use super::*;
    use std::net::{Ipv4Addr, UdpSocket};

    #[test]
    fn wait_that_finds_queued_datagrams_is_uncertain() {
        let mut sockets = Sockets::bind(&[(Ipv4Addr::LOCALHOST, 0).into()]).unwrap();
        let wait = |sockets: &mut Sockets| poll_coalesced(sockets, Duration::from_millis(5)).unwrap();
        assert_eq!(wait(&mut sockets), Wakeup::Fresh);
        // The datagram arrives before the wait. The system may delay single attempts, but not all of them.
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut batch = ReceiveBatch::default();
        let found_waiting = (0..20).any(|_| {
            sender.send_to(b"early", sockets.local_addresses()[0]).unwrap();
            let wakeup = wait(&mut sockets);
            sockets.receive(&mut batch);
            wakeup == Wakeup::Uncertain
        });
        assert!(found_waiting);
    }

    #[test]
    fn rapid_wakeups_are_coalesced_until_traffic_drops() {
        let mut sockets = Sockets::bind(&[(Ipv4Addr::LOCALHOST, 0).into()]).unwrap();
        let (sender, mut batch) = (UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), ReceiveBatch::default());
        let rapid = Instant::now();
        (0..8).for_each(|_| sockets.coalescer.on_wake(rapid));
        for datagrams in [10, 10, 1] {
            for _ in 0..datagrams {
                sender.send_to(b"early", sockets.local_addresses()[0]).unwrap();
            }
            let began_at = Instant::now();
            assert_eq!(poll_coalesced(&mut sockets, Duration::from_secs(5)).unwrap(), Wakeup::Uncertain);
            let slept = began_at.elapsed();
            assert!(slept >= COALESCE_DELAY && slept < Duration::from_secs(5), "{slept:?}");
            while !sockets.is_drained() {
                sockets.receive(&mut batch);
            }
        }
        assert!(!sockets.coalescer.begin(Instant::now()), "one datagram in a delay ends coalescing");
    }
}
