//! Waiting for datagrams, with a delay under load.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::Sockets;

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
/// Under load each wait begins with a sleep of at most 1.8 ms, so that one wakeup handles a batch; see
/// [`WakePolicy`](super::WakePolicy). A [`Waker`](super::Waker) does not end that sleep.
///
/// # Errors
/// The error of the system's poll.
pub fn poll_coalesced(sockets: &mut Sockets, timeout: Duration) -> io::Result<Wakeup> {
    let (was_drained, began_at) = (sockets.is_drained(), Instant::now());
    let delay = sockets.coalescer.begin(began_at).min(timeout);
    if !was_drained {
        sockets.wait(Duration::ZERO)?;
        sockets.coalescer.on_wake(began_at);
        return Ok(Wakeup::Uncertain);
    }
    if !delay.is_zero() {
        thread::sleep(delay);
    }
    if look_for_datagrams(sockets, delay, timeout)? {
        let woken_at = Instant::now();
        sockets.coalescer.on_wake(woken_at);
        if delay.is_zero() {
            sockets.coalescer.on_wait(false, woken_at.duration_since(began_at));
        }
        return Ok(Wakeup::Uncertain);
    }
    let (wait_began_at, rest) = (Instant::now(), timeout.saturating_sub(delay));
    if !rest.is_zero() {
        sockets.wait(rest)?;
    }
    let woken_at = Instant::now();
    sockets.coalescer.on_wake(woken_at);
    if delay.is_zero() {
        sockets.coalescer.on_wait(true, woken_at.duration_since(wait_began_at));
    }
    Ok(Wakeup::Fresh)
}

/// Looks for datagrams once, or for some microseconds if they are expected and the wait had no delay. Returns whether
/// some have arrived.
fn look_for_datagrams(sockets: &mut Sockets, delay: Duration, timeout: Duration) -> io::Result<bool> {
    let spin = if delay.is_zero() { sockets.coalescer.spin() } else { Duration::ZERO };
    let (began_at, time) = (Instant::now(), spin.min(timeout));
    loop {
        sockets.wait(Duration::ZERO)?;
        // A waker ends it, too.
        if !sockets.events.is_empty() {
            return Ok(true);
        }
        if began_at.elapsed() >= time {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ReceiveBatch, WakePolicy};
    use super::*;
    use std::net::{Ipv4Addr, UdpSocket};

    #[test]
    fn wait_that_finds_queued_datagrams_is_uncertain() {
        let mut sockets = Sockets::bind(&[(Ipv4Addr::LOCALHOST, 0).into()]).unwrap();
        let wait = |sockets: &mut Sockets| poll_coalesced(sockets, Duration::from_millis(5)).unwrap();
        assert_eq!(wait(&mut sockets), Wakeup::Fresh);
        // The datagram arrives before the wait.
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut batch = ReceiveBatch::default();
        let found_waiting = (0..20).any(|_| {
            sender.send_to(b"early", sockets.local_addresses()[0]).unwrap();
            thread::sleep(Duration::from_millis(20));
            let wakeup = wait(&mut sockets);
            sockets.receive(&mut batch);
            wakeup == Wakeup::Uncertain
        });
        assert!(found_waiting);
    }

    #[test]
    fn load_delays_waits_within_their_timeout() {
        let mut sockets = Sockets::bind(&[(Ipv4Addr::LOCALHOST, 0).into()]).unwrap();
        let (sender, mut batch) = (UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), ReceiveBatch::default());
        let mut send = |sockets: &mut Sockets| {
            while !sockets.is_drained() {
                sockets.receive(&mut batch);
            }
            sender.send_to(b"early", sockets.local_addresses()[0]).unwrap();
            thread::sleep(Duration::from_millis(5));
        };
        let (delay, timeout) = (Duration::from_micros(250), Duration::from_secs(5));
        // A pause of the system between two lines ends the delays, so that an attempt says nothing.
        let is_delayed = (0..20).any(|_| {
            // A window with many datagrams, whose clients did not wait for replies.
            poll_coalesced(&mut sockets, Duration::ZERO).unwrap();
            sockets.coalescer.on_read(1_000_000);
            thread::sleep(Duration::from_millis(60));
            send(&mut sockets);
            let began_at = Instant::now();
            assert_eq!(poll_coalesced(&mut sockets, timeout).unwrap(), Wakeup::Uncertain);
            let slept = began_at.elapsed();
            assert!(slept < timeout, "{slept:?}");
            slept >= delay
        });
        assert!(is_delayed);
        sockets.set_wake_policy(WakePolicy::Immediate);
        assert_eq!(sockets.wake_policy(), WakePolicy::Immediate);
        send(&mut sockets);
        assert_eq!(sockets.coalescer.begin(Instant::now()), Duration::ZERO);
    }
}
