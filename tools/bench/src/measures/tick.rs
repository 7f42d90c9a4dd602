//! The tick of a game: packets of every client arrive, then the game sends to every client.

use std::io;

use crate::load::TICK;
use crate::measures::{microseconds, row};
use crate::row::BenchRow;
use crate::runner::{Runner, Setup, TestBed};
use crate::server_thread::Cost;
use crate::subject::{PAYLOAD_BYTES, Workload};

/// The number of packet pairs in a full round.
const PAIRS: usize = 16_384;
/// Ticks per second.
const RATE: f64 = 60.0;

/// Runs this number of ticks and returns their cost. All packets must get a reply.
fn ticks(test_bed: &mut TestBed, ticks: usize, copies: u32, burst: usize) -> io::Result<Cost> {
    let (mut cost, mut sent, mut received) = (Cost::default(), 0, 0);
    for _ in 0..ticks {
        for index in (0..test_bed.clients).step_by((burst / copies as usize).max(1)) {
            let group = index..test_bed.clients.min(index + (burst / copies as usize).max(1));
            let asked = test_bed.load.send_messages(group, &[7; PAYLOAD_BYTES], copies)?;
            cost.add(test_bed.server_thread.turns(Workload::Listen, asked, test_bed.load.now())?);
            sent += asked;
        }
        let now = test_bed.load.now();
        cost.add(test_bed.server_thread.measure(move |server| {
            server.broadcast(copies, now);
            0
        })?);
        received += test_bed.load.receive_messages(0..test_bed.clients);
        test_bed.load.advance(TICK);
    }
    if received * 10 < sent * 9 {
        return Err(io::Error::other(format!("only {received} of {sent} packets were answered")));
    }
    Ok(cost)
}

/// Returns two rows: the cost of a packet pair, and the share of a core at 60 ticks a second.
#[must_use]
pub fn measure(setup: &Setup, runner: &mut Runner, clients: usize, copies: u32) -> [BenchRow; 2] {
    let pairs = clients * copies as usize;
    let (count, burst) = (setup.effort.of(PAIRS).div_ceil(pairs), setup.burst);
    let [each, share] = runner.play(|test_bed| {
        let cost = ticks(test_bed, count, copies, burst)?;
        let tick = cost.nanoseconds_each(count as u64);
        Ok([microseconds(tick / pairs as f64), tick * RATE / 1e9 * 100.0])
    });
    let what = format!("tick, {clients} clients, {copies} packets each way");
    [row(what.clone(), "us/pair", each), row(format!("{what}, 60 Hz"), "% of a core", share)]
}
