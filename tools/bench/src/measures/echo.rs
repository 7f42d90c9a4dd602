//! The echo: one datagram in and one out, from every client in turn.
//!
//! The driver sends a burst, the server runs its turns under the CPU clock, and the driver collects the replies. The
//! server therefore finds a queue as on a busy port, the driver's speed does not matter, and no waiting is measured.

use std::io;

use crate::load::TICK;
use crate::measures::{microseconds, row};
use crate::row::{Baseline, BenchRow, ColumnRole, FigureLimit};
use crate::runner::{Runner, Setup, TestBed};
use crate::server_thread::Cost;
use crate::slipgate::SLIPGATE;
use crate::subject::{PAYLOAD_BYTES, Workload};

/// The number of pairs in a full round.
const PAIRS: usize = 16_384;
/// Bursts of fewer clients are so short that fewer pairs must suffice.
const FEW: usize = 64;

/// Runs this number of pairs. Returns their cost and the number of replies.
///
/// # Errors
/// [`ThreadEnded`](crate::server_thread::ThreadEnded) if the server has panicked; `Other` if replies are lost.
pub fn echo(test_bed: &mut TestBed, pairs: usize, burst: usize) -> io::Result<(Cost, u64)> {
    let (mut cost, mut sent, mut received, mut index) = (Cost::default(), 0, 0, 0);
    while sent < pairs as u64 {
        let group = index..test_bed.clients.min(index + burst);
        let asked = test_bed.load.send_messages(group.clone(), &[7; PAYLOAD_BYTES], 1)?;
        cost.add(test_bed.server_thread.turns(Workload::Echo, asked, test_bed.load.now())?);
        sent += asked;
        received += test_bed.load.receive_messages(group.clone());
        index = group.end;
        if index >= test_bed.clients {
            index = 0;
            test_bed.load.advance(TICK);
        }
    }
    if received * 10 < sent * 9 {
        return Err(io::Error::other(format!("only {received} of {sent} echoes arrived")));
    }
    Ok((cost, received))
}

fn pairs(setup: &Setup, clients: usize) -> usize {
    let full = if clients < FEW { PAIRS / 8 } else { PAIRS };
    setup.effort.of(full).max(clients)
}

/// Returns the row with this number of clients.
#[must_use]
pub fn measure(setup: &Setup, runner: &mut Runner, clients: usize) -> BenchRow {
    let (pairs, burst) = (pairs(setup, clients), setup.burst);
    let [cells] = runner.play(|test_bed| {
        let (cost, received) = echo(test_bed, pairs, burst)?;
        Ok([microseconds(cost.nanoseconds_each(received))])
    });
    let row = row(format!("echo, {clients} clients"), "us/pair", cells);
    if clients != 256 {
        return row;
    }
    row.with_target(Baseline::Plain, FigureLimit::AtMost(1.0)).with_target(Baseline::BestPeer, FigureLimit::AtMost(0.5))
}

/// Returns the row with this number of clients, with a target relative to fewer clients in the same rounds.
///
/// # Errors
/// `Other` if the fewer clients do not connect.
pub fn measure_with_baseline(setup: &Setup, runner: &mut Runner, clients: usize, fewer: usize) -> io::Result<BenchRow> {
    let burst = setup.burst;
    let mut fewer_test_bed = TestBed::full(setup, SLIPGATE, fewer)?;
    let mut rounds = Vec::with_capacity(setup.rounds + 1);
    let [cells] = runner.play(|test_bed| {
        let (cost, received) = echo(test_bed, pairs(setup, clients), burst)?;
        if test_bed.subject.role == ColumnRole::Ours {
            let (cost, received) = echo(&mut fewer_test_bed, pairs(setup, fewer), burst)?;
            rounds.push(microseconds(cost.nanoseconds_each(received)));
        }
        Ok([microseconds(cost.nanoseconds_each(received))])
    });
    // The first round is a warm-up.
    let rounds = rounds.into_iter().skip(1).collect();
    let named = format!("echo, {fewer} clients");
    Ok(row(format!("echo, {clients} clients"), "us/pair", cells)
        .with_target(Baseline::Ours { named, rounds }, FigureLimit::AtMost(1.25)))
}

/// Returns the row of allocations per echo.
#[must_use]
pub fn allocations(setup: &Setup, runner: &mut Runner, clients: usize) -> BenchRow {
    let (pairs, burst, counted) = (pairs(setup, clients), setup.burst, setup.probe.is_some());
    let cells = runner.once(|test_bed| {
        if !counted {
            return Err(io::Error::other(super::memory::UNCOUNTED));
        }
        let (cost, received) = echo(test_bed, pairs, burst)?;
        Ok(cost.allocations as f64 / received.max(1) as f64)
    });
    row(format!("allocations of an echo, {clients} clients"), "each", cells)
        .with_target(Baseline::Itself, FigureLimit::AtMost(0.0))
}
