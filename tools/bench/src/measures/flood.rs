//! A flood of junk next to one client, in real time: the share of its packets that get a reply, the longest gap between
//! replies, and the server's CPU load.

use std::io;
use std::net::Ipv4Addr;
use std::sync::mpsc::TryRecvError;
use std::thread;
use std::time::{Duration, Instant};

use crate::load::TICK;
use crate::measures::{not_applicable, row};
use crate::row::{Baseline, BenchRow, ColumnRole, FigureLimit};
use crate::runner::{Effort, Runner, Setup, TestBed};
use crate::subject::{PAYLOAD_BYTES, Workload};
use crate::{cpu, server_thread};

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
fn flood(test_bed: &mut TestBed, time: Duration) -> io::Result<[f64; 3]> {
    if !test_bed.subject.is_netcode() || test_bed.subject.role == ColumnRole::Channels {
        // A plain echo would reply to junk, and the column with channels would repeat the other.
        return Err(not_applicable());
    }
    let base = test_bed.load.now();
    let whole = time + AFTERWARDS;
    let server = test_bed.server_thread.begin(move |server| {
        let (start, cpu) = (Instant::now(), cpu::thread_time());
        while start.elapsed() < whole {
            server.turn(Workload::Echo, base + start.elapsed());
            server.wait();
        }
        cpu::thread_time().saturating_sub(cpu).as_secs_f64() / start.elapsed().as_secs_f64()
    })?;
    let result = drive(test_bed, base, time)?;
    let load = loop {
        match server.try_recv() {
            Ok(load) => break load,
            Err(TryRecvError::Empty) => thread::sleep(Duration::from_millis(1)),
            Err(TryRecvError::Disconnected) => return Err(server_thread::ThreadEnded.into()),
        }
    };
    if result.junk * 10 < RATE * time.as_millis() as u64 / 1000 * 9 {
        return Err(io::Error::other("the driver could not send junk at this rate"));
    }
    Ok([result.share(), result.gap.as_secs_f64() * 1000.0, load * 100.0])
}

fn drive(test_bed: &mut TestBed, base: Duration, time: Duration) -> io::Result<FloodResult> {
    let mut junk = vec![0; KINDS_OF_JUNK * PAYLOAD_BYTES];
    test_bed.load.fill(&mut junk);
    let start = Instant::now();
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
        send_junk(test_bed, &junk, due.min(MAX_BURST), &mut result)?;
        if due == 0 {
            thread::sleep(Duration::from_micros(200));
        }
    }
    result.gap = result.gap.max(time.saturating_sub(last));
    Ok(result)
}

/// Sends this number of junk datagrams from changing addresses.
fn send_junk(test_bed: &TestBed, junk: &[u8], count: u64, result: &mut FloodResult) -> io::Result<()> {
    for _ in 0..count {
        let datagram = junk.chunks(PAYLOAD_BYTES).nth(result.junk as usize % KINDS_OF_JUNK).unwrap_or_default();
        let from = Ipv4Addr::from(FIRST_UNKNOWN_ADDRESS + (result.junk % 60_000) as u32);
        test_bed.load.send_from(0, from, datagram)?;
        result.junk += 1;
    }
    Ok(())
}

/// Returns the three rows.
#[must_use]
pub fn measure(setup: &Setup) -> [BenchRow; 3] {
    let time = Duration::from_millis(match setup.effort {
        Effort::Smoke => 300,
        Effort::Quick => 500,
        Effort::Full => 2000,
    });
    let mut runner = Runner::full(setup, 1);
    let [share, gap, load] = runner.play(|test_bed| flood(test_bed, time));
    let what = "junk, 100,000/s, beside a client at 60 Hz";
    let mut share = row(format!("{what}: its packets answered"), "%", share);
    share.more_is_better = true;
    [
        share.with_target(Baseline::Itself, FigureLimit::AtLeast(95.0)),
        row(format!("{what}: longest gap"), "ms", gap).with_target(Baseline::Itself, FigureLimit::AtMost(100.0)),
        row(format!("{what}: CPU"), "% of a core", load),
    ]
}
