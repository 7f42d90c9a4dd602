//! An idle turn: no datagram has arrived and nothing is due.

use std::io;
use std::time::Duration;

use crate::measures::echo::echo;
use crate::measures::{microseconds, not_applicable, row};
use crate::row::{Baseline, BenchRow, FigureLimit};
use crate::runner::{Runner, Setup, TestBed};
use crate::subject::Workload;

/// The number of turns in a round.
const TURNS: u32 = 40;
/// The time between them. Their total is shorter than the keep-alive interval.
const BETWEEN: Duration = Duration::from_millis(1);

fn turns(test_bed: &mut TestBed, burst: usize) -> io::Result<f64> {
    if !test_bed.subject.is_netcode() {
        return Err(not_applicable());
    }
    // All clients have just received a packet.
    echo(test_bed, test_bed.clients, burst)?;
    let start = test_bed.load.now();
    let cost = test_bed
        .server_thread
        .measure(move |server| (0..TURNS).map(|turn| server.turn(Workload::Drop, start + BETWEEN * turn)).sum())?;
    test_bed.load.advance(BETWEEN * TURNS);
    Ok(microseconds(cost.nanoseconds_each(u64::from(TURNS))))
}

/// Returns the row with this number of clients.
#[must_use]
pub fn measure(setup: &Setup, runner: &mut Runner, clients: usize) -> BenchRow {
    let burst = setup.burst;
    let [cells] = runner.play(|test_bed| Ok([turns(test_bed, burst)?]));
    let row = row(format!("idle turn, {clients} clients"), "us", cells);
    if clients < 10_000 {
        return row;
    }
    row.with_target(Baseline::Itself, FigureLimit::AtMost(50.0))
        .with_target(Baseline::Channels, FigureLimit::AtMost(60.0))
}
