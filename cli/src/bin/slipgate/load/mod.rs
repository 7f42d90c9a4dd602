//! `slipgate load`: thousands of clients in one process, which send payloads to an echo server and measure the echoes.
//!
//! ```text
//!  token threads ── token of the next client, when its turn of the ramp comes ──▶ load threads: sockets, clients
//!                                                                                    │
//!  main thread: progress bar, signals, report ◀── counters and latencies ────────────┘
//! ```

mod client;
mod flags;
mod payload;
mod plan;
mod report;
mod tokens;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use slipgate_cli::output::print_line;
use slipgate_cli::signals::Signals;
use slipgate_cli::{Failure, descriptors};
use slipgate_os::clock::Clock;

pub(crate) use self::flags::LoadFlags;
use self::plan::LoadPlan;
use self::report::{LoadReport, SharedReport};
use self::tokens::{TokenSource, start_tokens};
use self::worker::LoadWorker;

pub(crate) const AFTER_HELP: &str = "\
The server must echo: slipgate-server --app echo. Tokens come from an issuer (--issuer), or are minted with the \
private key (--key-file with --protocol-id and --server). Each client has one socket.

Latency is the time from sending a payload to reading its echo. With --preset, both directions of each client pass a \
simulated line of its own first, so that the time on that line is a part of it.

Exit status: 0 if all clients were connected until the end and no echo was wrong, 5 otherwise; 1 if the system refuses \
something, 2 if a flag is wrong.";

/// The time between two updates of the progress bar.
const UPDATE_INTERVAL: Duration = Duration::from_millis(100);
/// The time for the last echoes after the last payload.
const LAST_ECHOES: Duration = Duration::from_secs(1);
/// File descriptors beside the clients' sockets.
const OTHER_DESCRIPTORS: usize = 64;

pub(crate) fn run(flags: &LoadFlags) -> Result<(), Failure> {
    let source = TokenSource::of(flags)?;
    let signals = Signals::listen().map_err(|error| Failure::run_time(format!("cannot register signals: {error}")))?;
    descriptors::require(flags.clients as usize + OTHER_DESCRIPTORS)?;
    let (clock, stop) = (Clock::start(), Arc::new(AtomicBool::new(false)));
    let plan = LoadPlan::of(flags, clock);
    let shared = Arc::new(SharedReport::default());
    let (mut senders, mut workers) = (Vec::new(), Vec::new());
    for number in 0..flags.threads() {
        let (sender, tokens) = sync_channel(256);
        let worker = LoadWorker::new(plan.clone(), tokens, Arc::clone(&shared), Arc::clone(&stop))
            .map_err(|error| Failure::run_time(format!("cannot wait for sockets: {error}")))?;
        let run = thread::Builder::new().name(format!("load-{number}")).spawn(move || worker.run());
        workers.push(run.map_err(|error| Failure::run_time(format!("cannot start a thread: {error}")))?);
        senders.push(sender);
    }
    start_tokens(&source, &plan, senders, &shared, &stop)?;
    watch(flags, &plan, &shared, &signals, &stop);
    let mut report = LoadReport::new(flags.clients, plan.sending_time(clock.monotonic()));
    for worker in workers {
        match worker.join() {
            Ok(Ok(part)) => report.add(&part),
            Ok(Err(error)) => return Err(Failure::run_time(format!("a load thread failed: {error}"))),
            Err(_) => return Err(Failure::run_time("a load thread panicked")),
        }
    }
    report.finish(&shared);
    if flags.json {
        let text = serde_json::to_string(&report).map_err(|error| Failure::run_time(error.to_string()))?;
        print_line(&text);
    } else {
        report.lines().iter().for_each(|line| print_line(line));
    }
    report.outcome()
}

/// Shows the progress until the load is over, a signal arrives, or all clients have ended.
fn watch(flags: &LoadFlags, plan: &LoadPlan, shared: &SharedReport, signals: &Signals, stop: &AtomicBool) {
    let target = if flags.json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(Some(plan.total().as_millis() as u64), target);
    let style = ProgressStyle::with_template("{bar:32} {percent:>3} %  {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let end = plan.start.after(plan.total() + LAST_ECHOES);
    loop {
        let now = plan.clock.monotonic();
        if signals.take_stop() || now >= end || shared.ended() >= flags.clients {
            break;
        }
        let passed = now.since(plan.start);
        bar.set_position(passed.as_millis() as u64);
        bar.set_message(shared.progress(flags.clients, passed));
        thread::sleep(UPDATE_INTERVAL);
    }
    stop.store(true, Ordering::Relaxed);
    bar.finish_and_clear();
}
