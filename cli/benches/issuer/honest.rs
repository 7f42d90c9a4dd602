//! The honest backend: one mint on a new connection, one on a kept-alive connection, in turn.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::attacks::Attack;
use crate::program::{Program, TestFolder};
use crate::requests::Requests;

/// Runs of an attack. The goal must hold in each of them.
pub(crate) const RUNS: usize = 3;
/// Rounds of each kind in a run, quiet and attacked in turn.
const ROUNDS: usize = 4;
/// Mints of each kind of connection in a round. A percentile of a run is of 1,600 of them.
const MINTS: usize = 400;
/// The goal: in a run, the 99th percentile of mints under attack is at most this many times the quiet one.
pub(crate) const MAX_RATIO: f64 = 3.0;
/// A run with a quiet 99th percentile above this many milliseconds is not judged: other programs load the machine.
pub(crate) const MAX_QUIET: f64 = 1.0;
/// The time between two mints of one kind.
const INTERVAL: Duration = Duration::from_millis(2);
/// The time for an attack to open its connections, or for the issuer to close them.
const SETTLE: Duration = Duration::from_millis(500);

/// The kinds of connections of the honest backend.
const NEW: usize = 0;
const KEPT: usize = 1;
const NAMES: [&str; 2] = ["new", "kept alive"];

/// The times of mints.
#[derive(Default)]
struct Times {
    sorted: Vec<Duration>,
    failures: usize,
}

impl Times {
    /// Returns the time that this share of the mints did not exceed, in milliseconds.
    fn quantile(&mut self, share: f64) -> f64 {
        self.sorted.sort_unstable();
        let index = ((self.sorted.len() as f64 * share) as usize).min(self.sorted.len() - 1);
        self.sorted[index].as_secs_f64() * 1000.0
    }

    fn add(&mut self, mut other: Self) {
        self.sorted.append(&mut other.sorted);
        self.failures += other.failures;
    }
}

/// What the runs of an attack show.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum GoalOutcome {
    /// All runs meet the goal.
    Met,
    /// A run misses the goal.
    Missed,
    /// Some runs are not judged, and all others meet the goal.
    NotJudged,
}

/// The worst ratio of the runs of a kind of connections, and the number of runs that are not judged.
#[derive(Clone, Copy, Default)]
struct Ratios {
    worst: f64,
    not_judged: usize,
}

impl Ratios {
    fn add(&mut self, quiet: f64, attacked: f64) {
        if quiet > MAX_QUIET {
            self.not_judged += 1;
        } else {
            self.worst = self.worst.max(attacked / quiet);
        }
    }

    fn outcome(self) -> GoalOutcome {
        match self {
            Self { worst, .. } if worst > MAX_RATIO => GoalOutcome::Missed,
            Self { not_judged: 0, .. } => GoalOutcome::Met,
            _ => GoalOutcome::NotJudged,
        }
    }
}

/// Runs one attack against an issuer of its own, and prints two rows.
pub(crate) fn run(attack: &Attack) -> GoalOutcome {
    let folder = TestFolder::new();
    let program = Program::start_with_log_file(folder.complete(&[]), &folder.path.join("log"));
    let requests = Requests::new(&program, &folder);
    let (is_on, is_over, opened) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    let [mut quiet, mut attacked] = [(); 2].map(|()| [Times::default(), Times::default()]);
    let (mut cores, mut ratios) = (0.0, [Ratios::default(); 2]);
    thread::scope(|scope| {
        scope.spawn(|| attack.run(&requests, &is_on, &is_over, &opened));
        measure(&requests, &mut [Times::default(), Times::default()]);
        for _ in 0..RUNS {
            let [mut quiet_run, mut attacked_run] = [(); 2].map(|()| [Times::default(), Times::default()]);
            for _ in 0..ROUNDS {
                measure(&requests, &mut quiet_run);
                is_on.store(true, Ordering::Relaxed);
                thread::sleep(SETTLE);
                let (cpu, begin) = (cpu_seconds(program.child.id()), Instant::now());
                measure(&requests, &mut attacked_run);
                let spent = cpu_seconds(program.child.id()) - cpu;
                cores += spent / begin.elapsed().as_secs_f64() / (RUNS * ROUNDS) as f64;
                is_on.store(false, Ordering::Relaxed);
                thread::sleep(SETTLE);
            }
            for kind in [NEW, KEPT] {
                ratios[kind].add(quiet_run[kind].quantile(0.99), attacked_run[kind].quantile(0.99));
            }
            add(&mut quiet, quiet_run);
            add(&mut attacked, attacked_run);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    for kind in [NEW, KEPT] {
        let (quiet, attacked) = (&mut quiet[kind], &mut attacked[kind]);
        assert_eq!(quiet.failures, 0, "mints failed without an attack");
        let ratio = attacked.quantile(0.99) / quiet.quantile(0.99);
        let Ratios { worst, not_judged } = ratios[kind];
        let worst = if not_judged < RUNS { format!("{worst:.2}") } else { "none judged".to_owned() };
        println!(
            "{} ({} connects) | {} | {:.2}, {:.2} | {:.2}, {:.2} | {ratio:.2}, {worst} | {not_judged} | {:.1} | \
             {} of {} | {cores:.2}",
            attack.name,
            opened.load(Ordering::Relaxed),
            NAMES[kind],
            attacked.quantile(0.5),
            quiet.quantile(0.5),
            attacked.quantile(0.99),
            quiet.quantile(0.99),
            attacked.quantile(1.0),
            attacked.failures,
            attacked.sorted.len(),
        );
    }
    match ratios.map(Ratios::outcome) {
        [GoalOutcome::Missed, _] | [_, GoalOutcome::Missed] => GoalOutcome::Missed,
        [GoalOutcome::Met, GoalOutcome::Met] => GoalOutcome::Met,
        _ => GoalOutcome::NotJudged,
    }
}

fn add(all: &mut [Times; 2], run: [Times; 2]) {
    all.iter_mut().zip(run).for_each(|(all, run)| all.add(run));
}

fn measure(requests: &Requests, times: &mut [Times; 2]) {
    let mut kept = None;
    for _ in 0..MINTS {
        let begin = Instant::now();
        let _ = mint(requests, &mut None, &mut times[NEW]);
        kept = mint(requests, &mut kept, &mut times[KEPT]);
        thread::sleep(INTERVAL.saturating_sub(begin.elapsed()));
    }
}

/// Mints a token. As a backend does, repeats the request on a new connection if the issuer closed the connection; the
/// time of both counts. Returns the connection.
fn mint(requests: &Requests, kept: &mut Option<TcpStream>, times: &mut Times) -> Option<TcpStream> {
    let begin = Instant::now();
    loop {
        let stream = kept.take().map_or_else(|| requests.connect(), Ok);
        if let Ok(mut stream) = stream
            && requests.mint_on(&mut stream)
        {
            times.sorted.push(begin.elapsed());
            return Some(stream);
        }
        times.failures += 1;
    }
}

/// Returns the CPU time of a process so far, in seconds.
fn cpu_seconds(id: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    let fields = stat.rsplit_once(") ").unwrap().1.split(' ');
    fields.skip(11).take(2).map(|field| field.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}
