//! A sender and a receiver over real sockets, with the congestion avoidance of a session.

use std::io::{ErrorKind, Result};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant as Clock};

use slipgate_lab::report::{Receiver, Report};
use slipgate_lab::scenarios::ACK_POLICY;
use slipgate_lab::sender::{OutgoingPacket, Sender};
use slipgate_lab::source::{Application, Source};
use slipgate_netcode::time::Instant;
use slipgate_session::congestion::{CongestionConfig, CongestionState, PacketShape};
use slipgate_session::wire::reliable::Sequence;

/// The headers that the kernel adds to a packet, in bytes: Ethernet, IPv4 and UDP.
const HEADERS: u32 = 14 + 20 + 8;

/// The maximum duration of a punctual sleep of one millisecond.
const PUNCTUAL: Duration = Duration::from_millis(3);

/// A packet that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// The time since the start.
    pub(crate) at: Duration,
    /// The latency.
    pub(crate) delay: Duration,
    /// Its bytes on the path.
    pub(crate) bytes: u32,
}

/// The results of a run.
pub(crate) struct Played {
    pub(crate) arrivals: Vec<Arrival>,
    /// The share of the time in which the sender was ready to run and the machine was busy.
    pub(crate) kept_waiting: f64,
}

/// Sends for `duration`, and returns the arrivals.
pub(crate) fn play(sockets: &(UdpSocket, UdpSocket), source: Source, duration: Duration) -> Result<Played> {
    let (start, done) = (Clock::now(), AtomicBool::new(false));
    thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&sockets.1, start, &done));
        let sent = send(&sockets.0, source, duration, start);
        done.store(true, Ordering::Relaxed);
        let arrivals = receiving.join().unwrap_or_else(|_| Err(ErrorKind::Other.into()));
        Ok(Played { kept_waiting: sent?.as_secs_f64() / duration.as_secs_f64(), arrivals: arrivals? })
    })
}

fn now(start: Clock) -> Instant {
    Instant::from_start(start.elapsed())
}

/// Returns the time without the processor.
fn send(socket: &UdpSocket, source: Source, duration: Duration, start: Clock) -> Result<Duration> {
    socket.set_nonblocking(true)?;
    let mut kept_waiting = Duration::ZERO;
    let shape = PacketShape { packets_per_second: 60.0, packet_bytes: 1200, header_bytes: HEADERS };
    let congestion = CongestionState::from(CongestionConfig { shape, ..CongestionConfig::default() });
    let mut sender = Sender::new(congestion, Application::new(source, now(start)));
    while start.elapsed() < duration {
        receive_reports(socket, &mut sender, start)?;
        sender.tick(now(start), |_| {});
        while let Some(leaving) = sender.next_packet(now(start)) {
            put(socket, leaving, now(start))?;
        }
        let next = sender.next_departure(now(start)).unwrap_or(Instant::NEVER);
        let asleep = Clock::now();
        thread::sleep(next.since(now(start)).clamp(Duration::from_micros(50), Duration::from_millis(1)));
        kept_waiting += asleep.elapsed().saturating_sub(PUNCTUAL);
    }
    Ok(kept_waiting)
}

fn receive_reports(socket: &UdpSocket, sender: &mut Sender, start: Clock) -> Result<()> {
    let mut bytes = [0; Report::BYTES];
    loop {
        match socket.recv(&mut bytes) {
            Ok(Report::BYTES) => sender.on_report(&Report::from_bytes(&bytes), now(start)),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Sends a packet: its number, its time, and padding.
fn put(socket: &UdpSocket, leaving: OutgoingPacket, now: Instant) -> Result<()> {
    let mut bytes = vec![0; leaving.bytes.saturating_sub(HEADERS).max(10) as usize];
    bytes[..2].copy_from_slice(&leaving.sequence.0.to_le_bytes());
    bytes[2..10].copy_from_slice(&(now.since_start().as_nanos() as u64).to_le_bytes());
    match socket.send(&bytes) {
        // A datagram that the kernel refuses is lost, as on any path.
        Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}

fn receive(socket: &UdpSocket, start: Clock, done: &AtomicBool) -> Result<Vec<Arrival>> {
    socket.set_read_timeout(Some(Duration::from_millis(2)))?;
    let mut receiver = Receiver::new(ACK_POLICY);
    let (mut arrivals, mut reported_at, mut bytes) = (Vec::new(), Instant::default(), [0; 2048]);
    while !done.load(Ordering::Relaxed) {
        let mut due = false;
        match socket.recv(&mut bytes) {
            Ok(length) if length >= 10 => {
                due = {
                    let (packet, now) = (Sequence(u16::from_le_bytes([bytes[0], bytes[1]])), now(start));
                    receiver.receive(packet, now, Duration::ZERO, now)
                };
                arrivals.push(arrival(&bytes, length as u32, start));
            }
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
        let now = now(start);
        if due || now.reached(reported_at, receiver.interval()) {
            reported_at = if due { reported_at } else { now };
            if let Some(report) = receiver.report(now) {
                let _ = socket.send(&report.to_bytes());
            }
        }
    }
    Ok(arrivals)
}

fn arrival(bytes: &[u8], length: u32, start: Clock) -> Arrival {
    let mut left = [0; 8];
    left.copy_from_slice(&bytes[2..10]);
    let at = start.elapsed();
    Arrival { at, delay: at.saturating_sub(Duration::from_nanos(u64::from_le_bytes(left))), bytes: length + HEADERS }
}
