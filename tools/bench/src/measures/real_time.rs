//! Loops in real time: clients that send at an even spacing, and clients that send as soon as they have a reply.
//!
//! The CPU clock of the server's thread runs while the loop waits, so that a figure includes the cost of wakeups.

use std::io;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use crate::cpu;
use crate::driver_socket::DriverSockets;
use crate::figures::quantile;
use crate::load::TICK;
use crate::measures::{not_applicable, row};
use crate::row::{Baseline, BenchRow, Cell, ColumnRole, FigureLimit};
use crate::runner::{Effort, Runner, Setup, TestBed};
use crate::server_thread::ThreadEnded;
use crate::subject::{GameLoop, PAYLOAD_BYTES};

/// The number of clients that send at an even spacing.
const SPREAD: usize = 256;
/// The number of clients in a closed loop.
const CLOSED: usize = 8;
/// The time for the last reply.
const AFTERWARDS: Duration = Duration::from_millis(50);
/// A client in a closed loop sends again after this time without a reply.
const RESEND: Duration = Duration::from_millis(50);

/// Starts the loop of a server. The receiver gets its share of a core.
///
/// # Errors
/// [`ThreadEnded`] if the thread of the server has panicked.
pub(crate) fn start(test_bed: &TestBed, game_loop: GameLoop, time: Duration) -> Result<Receiver<f64>, ThreadEnded> {
    let base = test_bed.load.now();
    test_bed.server_thread.begin(move |server| {
        let (start, cpu) = (Instant::now(), cpu::thread_time());
        server.run(game_loop, base, time);
        cpu::thread_time().saturating_sub(cpu).as_secs_f64() / start.elapsed().as_secs_f64()
    })
}

const fn duration(setup: &Setup) -> Duration {
    Duration::from_millis(match setup.effort {
        Effort::Smoke => 100,
        Effort::Quick => 300,
        Effort::Full => 1000,
    })
}

/// Sends from every client 60 times a second, at an even spacing. Returns the server's share of a core in percent, and
/// the p50 and p99 of the delays of replies in milliseconds.
fn spread(test_bed: &mut TestBed, game_loop: GameLoop, time: Duration) -> io::Result<[f64; 3]> {
    let server = start(test_bed, game_loop, time + AFTERWARDS)?;
    let (base, clients) = (test_bed.load.now(), test_bed.clients);
    let (start, spacing) = (Instant::now(), TICK / clients.max(1) as u32);
    let (mut sent, mut next) = (0, Duration::ZERO);
    let (mut sent_at, mut delays) = (vec![Duration::ZERO; clients], Vec::new());
    loop {
        let elapsed = start.elapsed();
        if elapsed >= time + AFTERWARDS {
            break;
        }
        test_bed.load.advance((base + elapsed).saturating_sub(test_bed.load.now()));
        if elapsed < time && elapsed >= next {
            let client = sent as usize % clients;
            sent += test_bed.load.send_messages(client..client + 1, &[7; PAYLOAD_BYTES], 1)?;
            sent_at.iter_mut().skip(client).take(1).for_each(|at| *at = elapsed);
            next += spacing;
        }
        if let Some((client, 1..)) = test_bed.load.receive_next(0) {
            let asked_at = sent_at.get(client).copied().unwrap_or_default();
            delays.push((start.elapsed().saturating_sub(asked_at)).as_secs_f64() * 1000.0);
        }
    }
    let share = server.recv().map_err(|_| ThreadEnded)?;
    if (delays.len() as u64) * 10 < sent * 9 {
        return Err(io::Error::other(format!("only {} of {sent} echoes arrived", delays.len())));
    }
    let [p50, p99] = [0.5, 0.99].map(|share| quantile(&delays, share).unwrap_or_default());
    Ok([share * 100.0, p50, p99])
}

/// Returns the rows of evenly spaced clients: CPU time and delay with both loops.
///
/// # Errors
/// The error of the system if no socket can be opened.
pub fn measure_spread(setup: &Setup) -> io::Result<[BenchRow; 5]> {
    let (setup, time) = (setup.with_sockets(DriverSockets::open_one()?), duration(setup));
    let figures = Runner::full(&setup, SPREAD).play(|test_bed| {
        let role = test_bed.subject.role;
        let none = [0.0; 3];
        let (by_ticks, by_events) = match role {
            ColumnRole::Batched => return Err(not_applicable()),
            ColumnRole::Plain => (none, spread(test_bed, GameLoop::Event, time)?),
            ColumnRole::Peer => (spread(test_bed, GameLoop::Tick, time)?, none),
            _ => (spread(test_bed, GameLoop::Tick, time)?, spread(test_bed, GameLoop::Event, time)?),
        };
        let ([tick_cpu, tick_p50, _], [cpu, p50, p99]) = (by_ticks, by_events);
        Ok([tick_cpu, tick_p50, cpu, p50, p99])
    });
    // Plain sockets have no ticks, and the peers have no loop that wakes for arrivals.
    let [tick_cpu, tick_p50, cpu, p50, p99] = figures.map(without_zeros);
    let ours = setup.subjects.iter().zip(&tick_cpu).find(|(subject, _)| subject.role == ColumnRole::Ours);
    let rounds = ours.map(|(_, cell)| cell.rounds().to_vec()).unwrap_or_default();
    let what = |game_loop: &str| format!("{SPREAD} clients at 60 Hz, evenly spaced, {game_loop} loop");
    let named = format!("{}: CPU", what("tick"));
    Ok([
        row(named.clone(), "% of a core", tick_cpu).with_target(Baseline::BestPeer, FigureLimit::AtMost(0.6)),
        row(format!("{}: delay, p50", what("tick")), "ms", tick_p50)
            .with_target(Baseline::Itself, FigureLimit::AtMost(10.0)),
        row(format!("{}: CPU", what("event")), "% of a core", cpu)
            .with_target(Baseline::Ours { named, rounds }, FigureLimit::AtMost(1.2)),
        row(format!("{}: delay, p50", what("event")), "ms", p50)
            .with_target(Baseline::Itself, FigureLimit::AtMost(1.0)),
        row(format!("{}: delay, p99", what("event")), "ms", p99)
            .with_target(Baseline::Itself, FigureLimit::AtMost(3.0)),
    ])
}

/// Blanks the figures of subjects without such a loop.
fn without_zeros(cells: Vec<Cell>) -> Vec<Cell> {
    let blank = |cell: Cell| if cell.rounds().contains(&0.0) { Cell::Blank(String::new()) } else { cell };
    cells.into_iter().map(blank).collect()
}

/// Sends from each client as soon as it has a reply. Returns thousands of replies per second.
fn closed(test_bed: &mut TestBed, time: Duration) -> io::Result<f64> {
    let server = start(test_bed, GameLoop::Event, time)?;
    let (base, start) = (test_bed.load.now(), Instant::now());
    let (mut replies, mut sent_at) = (0, [None; CLOSED]);
    loop {
        let elapsed = start.elapsed();
        if elapsed >= time {
            break;
        }
        test_bed.load.advance((base + elapsed).saturating_sub(test_bed.load.now()));
        if let Some((client, 1..)) = test_bed.load.receive_next(0) {
            replies += 1;
            sent_at.iter_mut().skip(client).take(1).for_each(|at| *at = None);
        }
        for (client, at) in sent_at.iter_mut().enumerate() {
            if at.is_none_or(|at| elapsed.saturating_sub(at) >= RESEND) {
                *at = Some(elapsed);
                test_bed.load.send_messages(client..client + 1, &[7; PAYLOAD_BYTES], 1)?;
            }
        }
        // No further message: what waited for the pacer leaves.
        test_bed.load.send_messages(0..CLOSED, &[], 0)?;
    }
    server.recv().map_err(|_| ThreadEnded)?;
    Ok(f64::from(replies) / time.as_secs_f64() / 1000.0)
}

/// Returns the row of clients in a closed loop.
///
/// # Errors
/// The error of the system if no socket can be opened.
pub fn measure_closed(setup: &Setup) -> io::Result<BenchRow> {
    let (setup, time) = (setup.with_sockets(DriverSockets::open_one()?), duration(setup));
    let [cells] = Runner::full(&setup, CLOSED).play(|test_bed| match test_bed.subject.role {
        ColumnRole::Batched | ColumnRole::Peer => Err(not_applicable()),
        _ => Ok([closed(test_bed, time)?]),
    });
    let mut row = row(format!("{CLOSED} clients in a closed loop, event loop: replies"), "1000/s", cells);
    row.more_is_better = true;
    Ok(row.with_target(Baseline::Plain, FigureLimit::AtLeast(0.8)))
}
