//! A run of all selected measures.

use std::io::{self, Write};
use std::rc::Rc;

use crate::channels::CHANNELS;
use crate::cpu::{self, Cores};
use crate::driver_socket::{DriverSockets, GsoDelivery};
use crate::flags::BenchFlags;
use crate::measures::flood::FloodKind;
use crate::measures::rejects::{Filter, Hostile};
use crate::measures::{connects, echo, flood, idle, joined, memory, real_time, rejects, seals, shards, tick};
use crate::plain::{BATCHED, PLAIN};
use crate::row::{Baseline, BenchRow, Column, FigureLimit, Target};
use crate::runner::{Effort, Runner, Setup};
use crate::server_thread::AllocationProbe;
use crate::slipgate::SLIPGATE;
use crate::subject::Subject;
use crate::table::BenchReport;
use crate::{driver_socket, machine};

/// The maximum burst, in datagrams.
const BURST: usize = 1024;
/// The numbers of clients with which only the echo is measured.
const ECHOES: [usize; 4] = [1, 64, 1000, 4000];
/// The largest number of clients.
const MANY: usize = 10_000;
/// The number of clients of most measures.
const SOME: usize = 256;

/// Measures Slipgate, the plain echoes and the given peers. `probe` reads the counters of the allocator, if the program
/// has them.
///
/// # Errors
/// The error of the system if a thread cannot be pinned or a socket cannot be opened. An error of a subject becomes a
/// blank cell with the reason.
pub fn run(flags: &BenchFlags, peers: &[Subject], probe: Option<AllocationProbe>) -> io::Result<BenchReport> {
    let effort = if flags.quick { Effort::Quick } else { Effort::Full };
    let setup = setup(effort, flags.rounds(), peers, probe)?;
    let rows = rows(&setup, flags)?;
    Ok(report(&setup, rows))
}

/// Returns the setup of a run on this machine. The calling thread becomes the driver.
///
/// # Errors
/// The errors of [`run`].
pub fn setup(effort: Effort, rounds: usize, peers: &[Subject], probe: Option<AllocationProbe>) -> io::Result<Setup> {
    let cores = Cores::choose()?;
    cpu::pin(cores.driver)?;
    let subjects = [SLIPGATE, CHANNELS, PLAIN, BATCHED].iter().chain(peers).copied().collect();
    let sockets = Rc::new(DriverSockets::open(GsoDelivery::Segmented)?);
    Ok(Setup {
        subjects,
        cores,
        probe,
        rounds,
        effort,
        sockets,
        burst: BURST.min(driver_socket::max_queued_datagrams()?),
    })
}

/// Returns the report of measured rows.
#[must_use]
pub fn report(setup: &Setup, rows: Vec<BenchRow>) -> BenchReport {
    let column = |subject: &Subject| Column { name: subject.name.into(), role: subject.role };
    BenchReport {
        machine: machine::line(),
        cores: setup.cores.to_string(),
        sockets: setup.sockets.count(),
        rounds: setup.rounds,
        columns: setup.subjects.iter().map(column).collect(),
        rows,
    }
}

/// Measures all selected rows.
///
/// # Errors
/// The errors of [`run`].
pub fn rows(setup: &Setup, flags: &BenchFlags) -> io::Result<Vec<BenchRow>> {
    let mut rows = Vec::new();
    let echoes = ECHOES.into_iter().filter(|clients| flags.includes_clients(*clients));
    for clients in echoes.filter(|clients| flags.includes("echo") && (!flags.quick || *clients < 1000)) {
        report_progress(&format!("echo, {clients} clients"));
        rows.push(echo::measure(setup, &mut Runner::full(setup, clients), clients));
    }
    rows.extend(rows_with_some(setup, flags));
    if flags.includes("tick") && flags.includes_clients(SOME) {
        rows.push(tick_with_gro(setup)?);
    }
    rows.extend(rows_with_many(setup, flags)?);
    if flags.includes("connects") {
        report_progress("connects");
        rows.push(connects::measure(setup));
    }
    if flags.includes("seals") {
        report_progress("seals");
        rows.extend(seals::measure(setup)?);
    }
    if flags.includes("joined") {
        report_progress("joined");
        rows.extend(joined::measure(setup)?);
    }
    if flags.includes("flood") {
        report_progress("flood");
        rows.extend(FloodKind::ALL.into_iter().flat_map(|kind| flood::measure(setup, kind)));
    }
    if flags.includes("spread") {
        report_progress("spread");
        rows.extend(real_time::measure_spread(setup)?);
    }
    if flags.includes("closed") {
        report_progress("closed");
        rows.push(real_time::measure_closed(setup)?);
    }
    if flags.includes("shards") {
        report_progress("shards");
        rows.extend(shards::measure(setup)?);
    }
    Ok(rows)
}

/// Returns the rows with 256 clients, which share one set of servers.
fn rows_with_some(setup: &Setup, flags: &BenchFlags) -> Vec<BenchRow> {
    let mut rows = Vec::new();
    let measures = ["echo", "tick", "rejects", "idle", "memory"];
    if !flags.includes_clients(SOME) || !measures.into_iter().any(|measure| flags.includes(measure)) {
        return rows;
    }
    report_progress(&format!("{SOME} clients"));
    let mut runner = Runner::full(setup, SOME);
    if flags.includes("echo") {
        rows.push(echo::measure(setup, &mut runner, SOME));
        rows.push(echo::allocations(setup, &mut runner, SOME));
    }
    if flags.includes("memory") {
        rows.push(memory::measure(&mut runner, SOME));
    }
    if flags.includes("tick") {
        rows.extend(tick::measure(setup, &mut runner, SOME, 1));
        let [mut each, share] = tick::measure(setup, &mut runner, SOME, 4);
        each.targets.push(Target { baseline: Baseline::Plain, limit: FigureLimit::AtMost(0.6) });
        rows.extend([each, share]);
    }
    if flags.includes("idle") {
        rows.push(idle::measure(setup, &mut runner, SOME));
    }
    if flags.includes("rejects") {
        for filter in [Filter::Off, Filter::On] {
            report_progress(&format!("rejects, filter {filter:?}"));
            rows.extend(Hostile::ALL.map(|hostile| rejects::measure(setup, &mut runner, hostile, filter)));
        }
    }
    rows
}

/// Measures the tick of several packets with clients that receive messages unsegmented, so that the kernel does not
/// segment for them. They use other sockets, because such sockets slow the delivery to all sockets of a machine a
/// little.
fn tick_with_gro(setup: &Setup) -> io::Result<BenchRow> {
    report_progress(&format!("{SOME} clients with UDP_GRO"));
    let setup = setup.with_sockets(DriverSockets::open(GsoDelivery::Coalesced)?);
    let [mut each, _] = tick::measure(&setup, &mut Runner::full(&setup, SOME), SOME, 4);
    each.what.push_str(", receivers with UDP_GRO");
    Ok(each)
}

/// Returns the rows with 10,000 clients.
fn rows_with_many(setup: &Setup, flags: &BenchFlags) -> io::Result<Vec<BenchRow>> {
    let mut rows = Vec::new();
    let measures = ["echo", "tick", "idle", "memory"];
    if !flags.includes_clients(MANY) || !measures.into_iter().any(|measure| flags.includes(measure)) {
        return Ok(rows);
    }
    report_progress(&format!("{MANY} clients"));
    let mut runner = Runner::full(setup, MANY);
    if flags.includes("echo") {
        rows.push(echo::measure_with_baseline(setup, &mut runner, MANY, SOME)?);
    }
    if flags.includes("memory") {
        rows.push(memory::measure(&mut runner, MANY));
    }
    if flags.includes("tick") {
        rows.extend(tick::measure(setup, &mut runner, MANY, 1));
    }
    if flags.includes("idle") {
        rows.push(idle::measure(setup, &mut runner, MANY));
    }
    Ok(rows)
}

/// Reports the current measure on stderr.
fn report_progress(what: &str) {
    let _ = writeln!(io::stderr(), "measuring: {what}");
}
