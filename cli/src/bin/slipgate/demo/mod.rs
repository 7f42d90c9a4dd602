//! `slipgate demo`: token issuer, dedicated server and clients in one process, over real HTTP and real UDP.
//!
//! ```text
//!   client threads ──POST /v1/tokens──▶ issuer thread
//!        │  ▲
//!        │  │ connect token
//!        ▼
//!   encrypted UDP ◀── chat, state, a map ──▶ server thread          this thread shows it,
//!          (over a line that may be impaired)    ▲                  and obeys the keys
//!                                                └── junk ── flood thread (key f)
//! ```
//!
//! A terminal gets a live screen with keys. Anything else gets lines of text or JSON, for a fixed time, without keys.

mod clients;
#[cfg(feature = "cubes")]
mod cubes;
mod failures;
mod flags;
mod flood;
mod game;
mod impaired_path;
mod interrupts;
mod issuer;
mod line;
mod live;
mod outcome;
mod player;
mod received;
mod server;
mod server_game;
mod show;
mod snapshot;
mod stage;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use slipgate_cli::log::LogFormat;
use slipgate_cli::output::queue_lines;
use slipgate_cli::{Failure, descriptors};

pub(crate) use self::flags::DemoFlags;
#[cfg(feature = "cubes")]
use self::flags::DemoWorld;
use self::flags::{Playtime, UNATTENDED_TIME};
use self::interrupts::Interrupts;
use self::live::{LiveScreen, Next};
use self::outcome::Ending;
use self::show::{DemoScreen, Style};
use self::stage::{DemoControl, DemoStage};

/// The interval at which the display is updated.
const FRAME: Duration = Duration::from_millis(100);
/// How long the clients may take to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait, without any progress, for messages that are still missing at the end.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the server may take to process all disconnects. A client of which all disconnect packets were lost ends by
/// its timeout.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(clients::TIMEOUT_SECONDS as u64 + 5);

/// File descriptors beside those of the players: output, signals, runtime, issuer, server, and a request for a token.
const OTHER_DESCRIPTORS: usize = 48;
/// File descriptors of a player: its poll, its socket, and its socket at the conditioner.
const DESCRIPTORS_OF_PLAYER: usize = 3;

pub(crate) fn run(flags: &DemoFlags) -> Result<(), Failure> {
    descriptors::require(OTHER_DESCRIPTORS + DESCRIPTORS_OF_PLAYER * flags.clients as usize)?;
    let interrupts = Interrupts::listen()?;
    #[cfg(feature = "cubes")]
    if flags.world == Some(DemoWorld::Cubes) {
        return cubes::run(flags, &interrupts);
    }
    match Style::of_output(flags.json) {
        Style::Live => run_live(flags, &interrupts),
        style => {
            let _flush = queue_lines(if flags.json { LogFormat::Json } else { LogFormat::Text })?;
            run_unattended(flags, DemoScreen::new(style), &interrupts)
        }
    }
}

/// Runs the demo with a live screen, until `q`, the end of the playing time, or a signal.
fn run_live(flags: &DemoFlags, interrupts: &Interrupts) -> Result<(), Failure> {
    let mut stage = DemoStage::start(flags, DemoControl::Keys)?;
    let mut screen = LiveScreen::start(&stage)?;
    let playtime = flags.duration.unwrap_or(Playtime::Ever);
    play(playtime, interrupts, &mut stage, |stage| screen.frame(stage, FRAME))?;
    screen.announce_end();
    let is_interrupted = || interrupts.interrupted.load(Ordering::Relaxed);
    let ending = wait_for_delivery(&mut stage, |stage| match is_interrupted() {
        true => Ok(Next::Quit),
        false => screen.frame(stage, FRAME),
    })?;
    let result = screen.leave();
    // From here on nothing is left to restore, so a second signal may end the program.
    interrupts.may_exit.store(true, Ordering::Relaxed);
    let outcome = end(stage, ending, &DemoScreen::new(Style::Live));
    result.and(outcome)
}

/// Runs the demo without keys, for its playing time or until a signal.
fn run_unattended(flags: &DemoFlags, mut screen: DemoScreen, interrupts: &Interrupts) -> Result<(), Failure> {
    interrupts.may_exit_at_second_signal()?;
    let mut stage = DemoStage::start(flags, DemoControl::Unattended)?;
    screen.introduce(&stage, flags);
    let mut draw = |stage: &mut DemoStage, time| {
        screen.draw(&stage.snapshot());
        std::thread::sleep(time);
        Ok(Next::Continue)
    };
    let playtime = flags.duration.unwrap_or(Playtime::For(UNATTENDED_TIME));
    play(playtime, interrupts, &mut stage, |stage| draw(stage, FRAME))?;
    let ending = wait_for_delivery(&mut stage, |stage| draw(stage, Duration::from_millis(10)))?;
    end(stage, ending, &screen)
}

/// Disconnects the clients, stops everything and prints the summary.
fn end(mut stage: DemoStage, ending: Ending, screen: &DemoScreen) -> Result<(), Failure> {
    let last = stage.snapshot();
    stage.clients.leave();
    wait_until(DISCONNECT_TIMEOUT, || stage.server_report().connected == 0);
    let outcome = screen.summarise(&last, &stage.server_report(), ending);
    stage.end()?;
    outcome
}

/// Shows frames until the playing time is over, all clients ended, a signal arrives, or the person quits.
fn play(
    playtime: Playtime,
    interrupts: &Interrupts,
    stage: &mut DemoStage,
    mut frame: impl FnMut(&mut DemoStage) -> Result<Next, Failure>,
) -> Result<(), Failure> {
    let connecting_until = Instant::now() + CONNECT_TIMEOUT;
    let mut playing_since = None;
    loop {
        let next = frame(stage)?;
        let now = Instant::now();
        if playing_since.is_none() && (stage.clients.are_all_connected() || now >= connecting_until) {
            playing_since = Some(now);
        }
        let is_over = match (playtime, playing_since) {
            (Playtime::For(span), Some(since)) => now >= since + span.0,
            _ => false,
        };
        let has_ended = stage.has_failed() || stage.clients.have_all_ended();
        if is_over || has_ended || next == Next::Quit || interrupts.interrupted.load(Ordering::Relaxed) {
            return Ok(());
        }
    }
}

/// Lets clients send no more, and shows frames until all reliable messages arrived, none arrived for
/// [`DELIVERY_TIMEOUT`], or the person quits.
fn wait_for_delivery(
    stage: &mut DemoStage,
    mut frame: impl FnMut(&mut DemoStage) -> Result<Next, Failure>,
) -> Result<Ending, Failure> {
    stage.clients.stop_sending();
    let (mut progress, mut since) = (stage.clients.progress(), Instant::now());
    while !stage.clients.have_received_all() && since.elapsed() < DELIVERY_TIMEOUT {
        if frame(stage)? == Next::Quit {
            return Ok(Ending::CutShort);
        }
        let newer = stage.clients.progress();
        if newer != progress {
            (progress, since) = (newer, Instant::now());
        }
    }
    Ok(Ending::Complete)
}

fn wait_until(timeout: Duration, done: impl Fn() -> bool) {
    let end = Instant::now() + timeout;
    while !done() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
}
