//! Sleeping until something arrives, and knowing afterwards whether what came has waited.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use super::Sockets;
use super::wakes::GATHER;

/// Who came back from sleeping sooner has not slept: something had been waiting. A system call takes less.
const BLINK: Duration = Duration::from_micros(100);

/// What is known of what arrived, after a sleep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woke {
    /// Until now nothing had arrived.
    Fresh,
    /// Something may have been waiting before.
    Unsure,
}

/// Sleeps until a datagram has arrived or the time is over. It does not sleep while datagrams wait.
///
/// When datagrams wake it more than 8,000 times a second, it lets them gather for half a millisecond at a time, so that a
/// batch of them costs one wake: see `wakes`. A [`Waker`](super::Waker) does not end that moment.
///
/// # Errors
/// When the system cannot wait.
pub fn nap(sockets: &mut Sockets, timeout: Duration) -> io::Result<Woke> {
    let gathers = sockets.wakes.begin(Instant::now()) && sockets.is_drained();
    let gathered = if gathers { GATHER.min(timeout) } else { Duration::ZERO };
    if gathers {
        thread::sleep(gathered);
    }
    let (was_drained, lay_down_at) = (sockets.is_drained(), Instant::now());
    sockets.wait(timeout.saturating_sub(gathered))?;
    let awake_at = Instant::now();
    // Who was woken by another thread was not woken by datagrams.
    if was_drained && !sockets.is_drained() {
        sockets.wakes.note_wake(awake_at);
    }
    // While datagrams gathered, some may have come: then the wait behind it was none.
    let slept = was_drained && awake_at.duration_since(lay_down_at) >= BLINK;
    Ok(if slept { Woke::Fresh } else { Woke::Unsure })
}

#[cfg(test)]
mod tests {
    use super::super::ReceiveBatch;
    use super::*;
    use std::net::{Ipv4Addr, UdpSocket};

    #[test]
    fn who_slept_until_something_came_woke_fresh_and_who_found_it_waiting_did_not() {
        let mut sockets = Sockets::bind(&[(Ipv4Addr::LOCALHOST, 0).into()]).unwrap();
        let sleep = |sockets: &mut Sockets| nap(sockets, Duration::from_millis(5)).unwrap();
        assert_eq!(sleep(&mut sockets), Woke::Fresh);
        // A datagram that is there before: one try may be held up by the system, not all of them.
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut batch = ReceiveBatch::default();
        let found_waiting = (0..20).any(|_| {
            sender.send_to(b"early", sockets.local_addresses()[0]).unwrap();
            let woke = sleep(&mut sockets);
            sockets.receive(&mut batch);
            woke == Woke::Unsure
        });
        assert!(found_waiting);
    }

    #[test]
    fn under_load_datagrams_gather_before_they_wake_and_a_lone_one_ends_that() {
        let mut sockets = Sockets::bind(&[(Ipv4Addr::LOCALHOST, 0).into()]).unwrap();
        let (sender, mut batch) = (UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(), ReceiveBatch::default());
        let rapid = Instant::now();
        (0..8).for_each(|_| sockets.wakes.note_wake(rapid));
        for datagrams in [10, 10, 1] {
            for _ in 0..datagrams {
                sender.send_to(b"early", sockets.local_addresses()[0]).unwrap();
            }
            let lay_down_at = Instant::now();
            assert_eq!(nap(&mut sockets, Duration::from_secs(5)).unwrap(), Woke::Unsure);
            let slept = lay_down_at.elapsed();
            assert!(slept >= GATHER && slept < Duration::from_secs(5), "{slept:?}");
            while !sockets.is_drained() {
                sockets.receive(&mut batch);
            }
        }
        assert!(!sockets.wakes.begin(Instant::now()), "it was not worth it");
    }
}
