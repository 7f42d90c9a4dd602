//! A flood of junk on the server's port, from sockets of its own.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use slipgate_cli::Failure;

use super::game::scramble;

/// Junk datagrams per second.
pub(super) const FLOOD_RATE: u64 = 100_000;
/// The sockets that send it, each with a port of its own.
const SOCKETS: usize = 4;
/// The pause between two bursts.
const PACE: Duration = Duration::from_millis(1);
/// Datagrams in a burst at most. A thread that was held up for longer than 10 ms does not catch up.
const MAX_BURST: u64 = FLOOD_RATE / 100;
/// Different datagrams, made once.
const DATAGRAMS: u64 = 64;
/// The length of the shortest and of the longest datagram. An encrypted packet has at least 19 bytes.
const MIN_BYTES: u64 = 19;
const MAX_BYTES: u64 = 250;
/// The first byte of an encrypted payload: 2 bytes of sequence number, packet type 5 (§1.8 of netcode-1.02).
const PAYLOAD_PREFIX: u8 = 0x25;

/// How many datagrams a flood has sent, and until when by its own clock. A thread that reads this later than it was
/// counted computes the same rate.
#[derive(Clone, Copy)]
pub(super) struct FloodCount {
    pub(super) sent: u64,
    pub(super) until: Instant,
}

/// A running flood. It ends when it is dropped.
pub(super) struct Flood {
    count: Arc<Mutex<FloodCount>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    /// Starts to send junk to this address, which must be on loopback.
    pub(super) fn start(server: SocketAddr) -> Result<Self, Failure> {
        if !server.ip().is_loopback() {
            return Err(Failure::usage(format!("the demo floods loopback addresses only, not {server}")));
        }
        let failed = |error: io::Error| Failure::run_time(format!("the flood cannot start: {error}"));
        let sockets = (0..SOCKETS).map(|_| open(server)).collect::<io::Result<Vec<_>>>().map_err(failed)?;
        let count = Arc::new(Mutex::new(FloodCount { sent: 0, until: Instant::now() }));
        let stop = Arc::<AtomicBool>::default();
        let thread = {
            let (count, stop) = (Arc::clone(&count), Arc::clone(&stop));
            std::thread::Builder::new()
                .name("flood".to_owned())
                .spawn(move || flood(&sockets, &count, &stop))
                .map_err(failed)?
        };
        Ok(Self { count, stop, thread: Some(thread) })
    }

    /// Returns how many datagrams were sent, and until when.
    pub(super) fn count(&self) -> FloodCount {
        *lock(&self.count)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A panicked flood needs no report: it only stops.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Locks the count of a flood.
fn lock(count: &Mutex<FloodCount>) -> MutexGuard<'_, FloodCount> {
    // Poisoning is harmless: the critical sections only copy and replace.
    count.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(server: SocketAddr) -> io::Result<UdpSocket> {
    let from: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::LOCALHOST, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::LOCALHOST, 0).into(),
    };
    let socket = UdpSocket::bind(from)?;
    socket.connect(server)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn flood(sockets: &[UdpSocket], count: &Mutex<FloodCount>, stop: &AtomicBool) {
    let junk: Vec<Vec<u8>> = (0..DATAGRAMS).map(junk).collect();
    let mut datagrams = junk.iter().zip(0_usize..).cycle();
    let (mut last, mut due) = (Instant::now(), 0);
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        // Nanodatagrams: what is less than a whole datagram stays for the next burst.
        due += u64::try_from(now.duration_since(last).as_nanos()).unwrap_or(u64::MAX).saturating_mul(FLOOD_RATE);
        due = due.min(MAX_BURST * 1_000_000_000);
        last = now;
        let burst = (due / 1_000_000_000) as usize;
        due %= 1_000_000_000;
        let mut sent = 0;
        for (datagram, index) in datagrams.by_ref().take(burst) {
            // While the server restarts, the system refuses datagrams to the closed port; they do not count.
            let socket = sockets.get(index % SOCKETS);
            sent += u64::from(socket.is_some_and(|socket| socket.send(datagram).is_ok()));
        }
        // The burst was due by `now`, so both belong together.
        let mut count = lock(count);
        *count = FloodCount { sent: count.sent + sent, until: now };
        drop(count);
        std::thread::sleep(PACE);
    }
}

/// Returns a datagram of junk. Every second one has the shape of an encrypted payload, which the kernel filter passes.
fn junk(index: u64) -> Vec<u8> {
    let length = MIN_BYTES + scramble(index) % (MAX_BYTES - MIN_BYTES + 1);
    let mut bytes: Vec<u8> = (0..length).map(|at| scramble(index << 16 ^ at).to_le_bytes()[0]).collect();
    if index.is_multiple_of(2)
        && let Some(prefix) = bytes.first_mut()
    {
        *prefix = PAYLOAD_PREFIX;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_reaches_loopback_only_and_ends_when_it_is_dropped() {
        assert!(Flood::start("192.0.2.1:40000".parse().expect("an address")).is_err());
        let receiver = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        receiver.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        let flood = Flood::start(receiver.local_addr().expect("an address")).expect("a flood");
        let (mut buf, mut shaped, mut ports) = ([0; 2048], 0, std::collections::BTreeSet::new());
        for _ in 0..1000 {
            let (length, from) = receiver.recv_from(&mut buf).expect("a datagram");
            assert!((MIN_BYTES..=MAX_BYTES).contains(&(length as u64)), "{length}");
            shaped += u32::from(buf[0] == PAYLOAD_PREFIX);
            ports.insert(from.port());
        }
        assert!((300..=700).contains(&shaped), "{shaped} of 1000 have the shape of payloads");
        assert_eq!(ports.len(), SOCKETS);
        drop(flood);
        receiver.set_nonblocking(true).expect("a socket option");
        while receiver.recv(&mut buf).is_ok() {}
        std::thread::sleep(Duration::from_millis(50));
        assert!(receiver.recv(&mut buf).is_err(), "the thread has ended");
    }
}
