//! A run: all measures in one go.

use std::io::{self, Write};
use std::rc::Rc;

use crate::arena::{Arena, Effort, Rig};
use crate::channels::CHANNELS;
use crate::contestant::Contestant;
use crate::cpu::{self, Cores};
use crate::flags::Flags;
use crate::measures::rejects::{Filter, Hostile};
use crate::measures::{connects, echo, flood, idle, joined, memory, rejects, seals, shards, tick};
use crate::ours::OURS;
use crate::plain::{BATCHED, PLAIN};
use crate::port::{Ports, Rows};
use crate::row::{Against, Column, Limit, Row, Target};
use crate::stage::Probe;
use crate::table::Report;
use crate::{machine, port};

/// The longest burst.
const BURST: usize = 1024;
/// Numbers of clients at which nothing but the echo is measured.
const ECHOES: [usize; 4] = [1, 64, 1000, 4000];
/// A full house.
const MANY: usize = 10_000;
/// What most measures have.
const SOME: usize = 256;

/// Measures us, the plain echoes and some peers. A probe tells what the allocator counts, where it does.
///
/// # Errors
/// When the machine does not let a thread be pinned to a core, or has no sockets. What goes wrong with a contestant is a
/// blank cell with the reason.
pub fn run(flags: &Flags, peers: &[Contestant], probe: Option<Probe>) -> io::Result<Report> {
    let effort = if flags.quick { Effort::Quick } else { Effort::Full };
    let rig = rig(effort, flags.rounds(), peers, probe)?;
    let rows = rows(&rig, flags)?;
    Ok(report(&rig, rows))
}

/// A run's rig, on this machine's cores: the driver is the calling thread.
///
/// # Errors
/// As [`run`].
pub fn rig(effort: Effort, rounds: usize, peers: &[Contestant], probe: Option<Probe>) -> io::Result<Rig> {
    let cores = Cores::choose()?;
    cpu::pin(cores.driver)?;
    let contestants = [OURS, CHANNELS, PLAIN, BATCHED].iter().chain(peers).copied().collect();
    let ports = Rc::new(Ports::open(Rows::Cut)?);
    Ok(Rig { contestants, cores, probe, rounds, effort, ports, burst: BURST.min(port::room()?) })
}

/// What rows of a rig make.
#[must_use]
pub fn report(rig: &Rig, rows: Vec<Row>) -> Report {
    let column = |contestant: &Contestant| Column { name: contestant.name.into(), role: contestant.role };
    Report {
        machine: machine::line(),
        cores: rig.cores.to_string(),
        sockets: rig.ports.count(),
        rounds: rig.rounds,
        columns: rig.contestants.iter().map(column).collect(),
        rows,
    }
}

/// All rows that were asked for.
///
/// # Errors
/// As [`run`].
pub fn rows(rig: &Rig, flags: &Flags) -> io::Result<Vec<Row>> {
    let mut rows = Vec::new();
    if flags.wants("echo") {
        for clients in
            ECHOES.into_iter().filter(|clients| flags.wants_with(*clients) && (!flags.quick || *clients < 1000))
        {
            tell(&format!("echo, {clients} clients"));
            rows.push(echo::measure(rig, &mut Arena::full(rig, clients), clients));
        }
    }
    rows.extend(some(rig, flags));
    if flags.wants("tick") && flags.wants_with(SOME) {
        rows.push(whole_rows(rig)?);
    }
    rows.extend(many(rig, flags)?);
    if flags.wants("connects") {
        tell("connects");
        rows.push(connects::measure(rig));
    }
    if flags.wants("seals") {
        tell("seals");
        rows.extend(seals::measure(rig)?);
    }
    if flags.wants("joined") {
        tell("joined");
        rows.extend(joined::measure(rig)?);
    }
    if flags.wants("flood") {
        tell("flood");
        rows.extend(flood::measure(rig));
    }
    if flags.wants("shards") {
        tell("shards");
        rows.extend(shards::measure(rig)?);
    }
    Ok(rows)
}

/// What is measured with 256 clients, one set of servers for all of it.
fn some(rig: &Rig, flags: &Flags) -> Vec<Row> {
    let mut rows = Vec::new();
    let measures = ["echo", "tick", "rejects", "idle", "memory"];
    if !flags.wants_with(SOME) || !measures.into_iter().any(|measure| flags.wants(measure)) {
        return rows;
    }
    tell(&format!("{SOME} clients"));
    let mut arena = Arena::full(rig, SOME);
    if flags.wants("echo") {
        rows.push(echo::measure(rig, &mut arena, SOME));
        rows.push(echo::allocations(rig, &mut arena, SOME));
    }
    if flags.wants("memory") {
        rows.push(memory::measure(&mut arena, SOME));
    }
    if flags.wants("tick") {
        rows.extend(tick::measure(rig, &mut arena, SOME, 1));
        let [mut each, share] = tick::measure(rig, &mut arena, SOME, 4);
        each.targets.push(Target { against: Against::Plain, limit: Limit::AtMost(0.6) });
        rows.extend([each, share]);
    }
    if flags.wants("idle") {
        rows.push(idle::measure(rig, &mut arena, SOME));
    }
    if flags.wants("rejects") {
        for filter in [Filter::Off, Filter::On] {
            tell(&format!("rejects, filter {filter:?}"));
            rows.extend(Hostile::ALL.map(|hostile| rejects::measure(rig, &mut arena, hostile, filter)));
        }
    }
    rows
}

/// The tick of several packets once more, for clients that take rows whole: nobody cuts what a server sends them as
/// one. Their sockets are others, for the kernel delivers to all of a machine a little slower while some are such.
fn whole_rows(rig: &Rig) -> io::Result<Row> {
    tell(&format!("{SOME} clients that take rows whole"));
    let rig = rig.with_ports(Ports::open(Rows::Whole)?);
    let [mut each, _] = tick::measure(&rig, &mut Arena::full(&rig, SOME), SOME, 4);
    each.what.push_str(", receivers that take rows whole");
    Ok(each)
}

/// What is measured with a full house.
fn many(rig: &Rig, flags: &Flags) -> io::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let measures = ["echo", "tick", "idle", "memory"];
    if !flags.wants_with(MANY) || !measures.into_iter().any(|measure| flags.wants(measure)) {
        return Ok(rows);
    }
    tell(&format!("{MANY} clients"));
    let mut arena = Arena::full(rig, MANY);
    if flags.wants("echo") {
        rows.push(echo::measure_beside(rig, &mut arena, MANY, SOME)?);
    }
    if flags.wants("memory") {
        rows.push(memory::measure(&mut arena, MANY));
    }
    if flags.wants("tick") {
        rows.extend(tick::measure(rig, &mut arena, MANY, 1));
    }
    if flags.wants("idle") {
        rows.push(idle::measure(rig, &mut arena, MANY));
    }
    Ok(rows)
}

/// Says on stderr what is being measured.
fn tell(what: &str) {
    let _ = writeln!(io::stderr(), "measuring: {what}");
}
