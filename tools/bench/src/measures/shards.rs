//! Shards: how many echoes there are in a second by the clock on the wall, by one shard and by two.
//!
//! Both cores belong to the shards while they work: the driver fills their sockets before, sleeps, and collects the answers
//! afterwards. So it takes nothing from them on a machine of two cores either, and what is missing to twice as many is what
//! the shards take from each other: caches, the kernel's locks, and the core itself where the two are threads of one.

use std::io;
use std::time::Duration;

use crate::arena::{Corner, Rig};
use crate::contestant::{Game, PAYLOAD_BYTES};
use crate::cpu::Sharing;
use crate::crowd::{Crowd, TICK};
use crate::measures::{microseconds, row};
use crate::ours::OURS;
use crate::row::{Against, Cell, Limit, Role, Row};
use crate::stage::Stage;
use crate::team::Team;

/// Clients, over all shards.
const CLIENTS: usize = 256;
/// Pairs of a full round.
const PAIRS: usize = 65_536;

/// A server of so many shards, with its clients connected.
fn corner(rig: &Rig, shards: u16) -> io::Result<Corner> {
    let cores = [rig.cores.server, rig.cores.driver];
    let start = move |slots| Team::start(slots, shards, &cores);
    let stage = Stage::start_by("shards", start, CLIENTS, rig.cores, rig.probe)?;
    let crowd = Crowd::new(&stage, OURS.speech, CLIENTS, &rig.ports);
    let mut corner = Corner { contestant: OURS, stage, crowd, clients: CLIENTS };
    corner.crowd.admit(CLIENTS, &corner.stage)?;
    Ok(corner)
}

/// Thousands of pairs in a second by the wall clock, and microseconds of CPU time of all shards for each.
fn echo(corner: &mut Corner, pairs: usize, burst: usize) -> io::Result<[f64; 2]> {
    let (mut wall, mut cpu, mut sent, mut heard) = (Duration::ZERO, Duration::ZERO, 0, 0);
    let copies = (burst / CLIENTS).max(1) as u32;
    while sent < pairs as u64 {
        sent += corner.crowd.speak(0..CLIENTS, &[7; PAYLOAD_BYTES], copies)?;
        let now = corner.crowd.now();
        let (before, after) = corner.stage.ask(move |server| {
            let before = server.times();
            server.turn(Game::Echo, now);
            (before, server.times())
        })?;
        wall += after.wall.saturating_sub(before.wall);
        cpu += after.cpu.saturating_sub(before.cpu);
        heard += corner.crowd.listen(0..CLIENTS);
        corner.crowd.pass(TICK);
    }
    if heard * 10 < sent * 9 {
        return Err(io::Error::other(format!("of {sent} answers only {heard} came")));
    }
    Ok([heard as f64 / wall.as_secs_f64() / 1000.0, microseconds(cpu.as_nanos() as f64 / heard as f64)])
}

/// Rows of one shard and of two, in the same rounds, and what a pair costs them in CPU time.
///
/// # Errors
/// When the clients do not get in, or answers get lost.
pub fn measure(rig: &Rig) -> io::Result<[Row; 4]> {
    let pairs = rig.effort.of(PAIRS);
    let mut corners = [corner(rig, 1)?, corner(rig, 2)?];
    let mut figures: [[Vec<f64>; 2]; 2] = Default::default();
    for round in 0..=rig.rounds {
        for (corner, figures) in corners.iter_mut().zip(&mut figures) {
            for (all, figure) in figures.iter_mut().zip(echo(corner, pairs, rig.burst)?) {
                // The first round is to warm up.
                all.extend((round > 0).then_some(figure));
            }
        }
    }
    let [[one, one_cpu], [two, two_cpu]] = figures;
    let where_to = match rig.cores.sharing() {
        Sharing::Everything => ", on one core",
        Sharing::Core => ", on two threads of one core",
        Sharing::Nothing => ", on two cores",
    };
    let what = format!("echo by the wall clock, {CLIENTS} clients");
    let cells = |ours: &Vec<f64>| {
        let cell = |role| if role == Role::Ours { Cell::Rounds(ours.clone()) } else { Cell::Blank(String::new()) };
        rig.contestants.iter().map(|contestant| cell(contestant.role)).collect()
    };
    let named = format!("{what}, 1 shard");
    let mut rows = [
        row(named.clone(), "1000/s", cells(&one)),
        row(format!("{what}, 2 shards{where_to}"), "1000/s", cells(&two))
            .judged(Against::Ours { named, rounds: one }, Limit::AtLeast(1.8)),
        row(format!("echo, {CLIENTS} clients, 1 shard: CPU"), "us/pair", cells(&one_cpu)),
        row(format!("echo, {CLIENTS} clients, 2 shards: CPU of both"), "us/pair", cells(&two_cpu)),
    ];
    rows.iter_mut().take(2).for_each(|row| row.more_is_better = true);
    Ok(rows)
}
