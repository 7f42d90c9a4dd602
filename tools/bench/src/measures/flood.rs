//! A flood of junk next to one client, in real time: the share of its packets that get a reply, the longest gap between
//! replies, and the server's CPU load.

use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use crate::load::{TICK, address};
use crate::measures::rejects::{self, SEALED_BYTES};
use crate::measures::{not_applicable, real_time, row};
use crate::row::{Baseline, BenchRow, ColumnRole, FigureLimit};
use crate::runner::{Effort, Runner, Setup, TestBed};
use crate::server_thread;
use crate::subject::{GameLoop, PAYLOAD_BYTES};

/// Junk datagrams per second.
const RATE: u64 = 100_000;
/// The number of different junk datagrams. One of 32 looks like a payload packet, passes the kernel filter and wakes
/// the server. The number of those would be random among a few datagrams.
const KINDS_OF_JUNK: usize = 2048;
/// The maximum number of junk datagrams between two checks of the client.
const MAX_BURST: u64 = 400;
/// The time for the last reply.
const AFTERWARDS: Duration = Duration::from_millis(100);
const FIRST_UNKNOWN_ADDRESS: u32 = u32::from_be_bytes([127, 64, 0, 1]);
/// The length of a junk datagram in bytes: that of a payload packet.
const JUNK_BYTES: usize = SEALED_BYTES;
/// The peer whose CPU time is the baseline.
const RIVAL: &str = "netcode-official";

/// The kind of the junk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FloodKind {
    /// Random bytes from addresses without a client.
    Random,
    /// Packets with the form of a payload from addresses without a client.
    Strangers,
    /// The same under the addresses of 64 clients, with new numbers and wrong tags.
    Clients,
}

impl FloodKind {
    /// All kinds, in the order of the rows.
    pub const ALL: [Self; 3] = [Self::Random, Self::Strangers, Self::Clients];

    const fn name(self) -> &'static str {
        match self {
            Self::Random => "junk",
            Self::Strangers => "packets from strangers",
            Self::Clients => "forged packets of 64 clients",
        }
    }

    /// Returns the number of connected clients.
    const fn clients(self) -> usize {
        if matches!(self, Self::Clients) { 64 } else { 1 }
    }

    /// Gives a datagram its form. Returns its source address.
    fn forge(self, datagram: &mut [u8], clients: usize, number: u64) -> Ipv4Addr {
        if self != Self::Random {
            rejects::give_form(datagram, number);
        }
        match self {
            Self::Clients => address(number as usize % clients.max(1)),
            _ => Ipv4Addr::from(FIRST_UNKNOWN_ADDRESS + (number % 60_000) as u32),
        }
    }
}

/// The observations of the client.
struct FloodResult {
    sent: u64,
    received: u64,
    gap: Duration,
    junk: u64,
}

impl FloodResult {
    fn share(&self) -> f64 {
        100.0 * self.received as f64 / self.sent.max(1) as f64
    }
}

/// Runs for some time. Returns the share of replies in percent, the longest gap in milliseconds, and the server's share
/// of its core in percent.
fn flood(test_bed: &mut TestBed, kind: FloodKind, time: Duration) -> io::Result<[f64; 3]> {
    if !test_bed.subject.is_netcode() || test_bed.subject.role == ColumnRole::Channels {
        // A plain echo would reply to junk, and the column with channels would repeat the other.
        return Err(not_applicable());
    }
    let server = real_time::start(test_bed, GameLoop::Event, time + AFTERWARDS)?;
    let result = drive(test_bed, kind, time)?;
    let load = server.recv().map_err(|_| server_thread::ThreadEnded)?;
    if result.junk * 10 < RATE * time.as_millis() as u64 / 1000 * 9 {
        return Err(io::Error::other("the driver could not send junk at this rate"));
    }
    Ok([result.share(), result.gap.as_secs_f64() * 1000.0, load * 100.0])
}

fn drive(test_bed: &mut TestBed, kind: FloodKind, time: Duration) -> io::Result<FloodResult> {
    let mut junk = vec![0; KINDS_OF_JUNK * JUNK_BYTES];
    test_bed.load.fill(&mut junk);
    let (base, start) = (test_bed.load.now(), Instant::now());
    let mut result = FloodResult { sent: 0, received: 0, gap: Duration::ZERO, junk: 0 };
    let (mut last, mut next) = (Duration::ZERO, Duration::ZERO);
    loop {
        let elapsed = start.elapsed();
        if elapsed >= time + AFTERWARDS {
            break;
        }
        test_bed.load.advance((base + elapsed).saturating_sub(test_bed.load.now()));
        if elapsed < time && elapsed >= next {
            result.sent += test_bed.load.send_messages(0..1, &[7; PAYLOAD_BYTES], 1)?;
            next += TICK;
        }
        let received = test_bed.load.receive_messages(0..1);
        if received > 0 {
            result.received += received;
            result.gap = result.gap.max(elapsed - last);
            last = elapsed;
        }
        let due = (RATE * elapsed.min(time).as_micros() as u64 / 1_000_000).saturating_sub(result.junk);
        for _ in 0..due.min(MAX_BURST) {
            let index = result.junk as usize % KINDS_OF_JUNK;
            let Some(datagram) = junk.chunks_mut(JUNK_BYTES).nth(index) else { break };
            let from = kind.forge(datagram, test_bed.clients, result.junk);
            test_bed.load.send_from(0, from, datagram)?;
            result.junk += 1;
        }
    }
    result.gap = result.gap.max(time.saturating_sub(last));
    Ok(result)
}

/// Returns the three rows.
#[must_use]
pub fn measure(setup: &Setup, kind: FloodKind) -> [BenchRow; 3] {
    let time = Duration::from_millis(match setup.effort {
        Effort::Smoke => 300,
        Effort::Quick => 500,
        Effort::Full => 2000,
    });
    let mut runner = Runner::full(setup, kind.clients());
    let [share, gap, load] = runner.play(|test_bed| flood(test_bed, kind, time));
    let what = format!("{}, 100,000/s, beside a client at 60 Hz", kind.name());
    let mut share = row(format!("{what}: its packets answered"), "%", share);
    share.more_is_better = true;
    let official = setup.subjects.iter().zip(&load).find(|(subject, _)| subject.name == RIVAL);
    let rounds = official.map(|(_, cell)| cell.rounds().to_vec()).unwrap_or_default();
    [
        share.with_target(Baseline::Itself, FigureLimit::AtLeast(95.0)),
        row(format!("{what}: longest gap"), "ms", gap).with_target(Baseline::Itself, FigureLimit::AtMost(100.0)),
        row(format!("{what}: CPU"), "% of a core", load)
            .with_target(Baseline::Ours { named: RIVAL.into(), rounds }, FigureLimit::AtMost(0.9)),
    ]
}
