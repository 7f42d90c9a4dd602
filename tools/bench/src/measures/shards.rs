//! Shards: echoes per second of wall-clock time, with one shard and with two.
//!
//! Both cores belong to the shards while they work: the driver fills their sockets before, sleeps, and collects the
//! replies afterwards. It therefore takes no time from them on a machine with two cores either. A speed-up below two is
//! the effect of the shards on each other: caches, kernel locks, and the core itself if both are hardware threads of
//! one.

use std::io;
use std::time::Duration;

use crate::cpu::Sharing;
use crate::load::{LoadGenerator, TICK};
use crate::measures::{microseconds, row};
use crate::row::{Baseline, BenchRow, Cell, ColumnRole, FigureLimit};
use crate::runner::{Setup, TestBed};
use crate::server_thread::ServerThread;
use crate::shard_group::ShardGroup;
use crate::slipgate::SLIPGATE;
use crate::subject::{PAYLOAD_BYTES, Workload};

/// The number of clients of all shards.
const CLIENTS: usize = 256;
/// The number of pairs in a full round.
const PAIRS: usize = 65_536;

/// Starts a server with this number of shards and connects its clients.
fn test_bed(setup: &Setup, shards: u16) -> io::Result<TestBed> {
    let cores = [setup.cores.server, setup.cores.driver];
    let start = move |slots| ShardGroup::start(slots, shards, &cores);
    let server_thread = ServerThread::start_by("shards", start, CLIENTS, setup.cores, setup.probe)?;
    let load = LoadGenerator::new(&server_thread, SLIPGATE.protocol, CLIENTS, &setup.sockets);
    let mut test_bed = TestBed { subject: SLIPGATE, server_thread, load, clients: CLIENTS };
    test_bed.load.connect_clients(CLIENTS, &test_bed.server_thread)?;
    Ok(test_bed)
}

/// Returns thousands of pairs per second of wall-clock time, and the CPU time of all shards in microseconds for each
/// pair.
fn echo(test_bed: &mut TestBed, pairs: usize, burst: usize) -> io::Result<[f64; 2]> {
    let (mut wall, mut cpu, mut sent, mut received) = (Duration::ZERO, Duration::ZERO, 0, 0);
    let copies = (burst / CLIENTS).max(1) as u32;
    while sent < pairs as u64 {
        sent += test_bed.load.send_messages(0..CLIENTS, &[7; PAYLOAD_BYTES], copies)?;
        let now = test_bed.load.now();
        let (before, after) = test_bed.server_thread.ask(move |server| {
            let before = server.times();
            server.turn(Workload::Echo, now);
            (before, server.times())
        })?;
        wall += after.wall.saturating_sub(before.wall);
        cpu += after.cpu.saturating_sub(before.cpu);
        received += test_bed.load.receive_messages(0..CLIENTS);
        test_bed.load.advance(TICK);
    }
    if received * 10 < sent * 9 {
        return Err(io::Error::other(format!("only {received} of {sent} echoes arrived")));
    }
    Ok([received as f64 / wall.as_secs_f64() / 1000.0, microseconds(cpu.as_nanos() as f64 / received as f64)])
}

/// Measures the rate of one shard and of two in the same rounds, and the CPU time of a pair.
///
/// # Errors
/// `Other` if clients do not connect or replies are lost.
pub fn measure(setup: &Setup) -> io::Result<[BenchRow; 4]> {
    let pairs = setup.effort.of(PAIRS);
    let mut test_beds = [test_bed(setup, 1)?, test_bed(setup, 2)?];
    let mut figures: [[Vec<f64>; 2]; 2] = Default::default();
    for round in 0..=setup.rounds {
        for (test_bed, figures) in test_beds.iter_mut().zip(&mut figures) {
            for (all, figure) in figures.iter_mut().zip(echo(test_bed, pairs, setup.burst)?) {
                // The first round is a warm-up.
                all.extend((round > 0).then_some(figure));
            }
        }
    }
    let [[one, one_cpu], [two, two_cpu]] = figures;
    let where_to = match setup.cores.sharing() {
        Sharing::Everything => ", on one core",
        Sharing::Core => ", on two threads of one core",
        Sharing::Nothing => ", on two cores",
    };
    let what = format!("echo by the wall clock, {CLIENTS} clients");
    let cells = |ours: &Vec<f64>| {
        let cell =
            |role| if role == ColumnRole::Ours { Cell::Rounds(ours.clone()) } else { Cell::Blank(String::new()) };
        setup.subjects.iter().map(|subject| cell(subject.role)).collect()
    };
    let named = format!("{what}, 1 shard");
    let mut rows = [
        row(named.clone(), "1000/s", cells(&one)),
        row(format!("{what}, 2 shards{where_to}"), "1000/s", cells(&two))
            .with_target(Baseline::Ours { named, rounds: one }, FigureLimit::AtLeast(1.8)),
        row(format!("echo, {CLIENTS} clients, 1 shard: CPU"), "us/pair", cells(&one_cpu)),
        row(format!("echo, {CLIENTS} clients, 2 shards: CPU of both"), "us/pair", cells(&two_cpu)),
    ];
    rows.iter_mut().take(2).for_each(|row| row.more_is_better = true);
    Ok(rows)
}
