//! `slipgate demo --world cubes`: one world of cubes, and five clients that see it over the same bad path, each with
//! another method.
//!
//! ```text
//!                                     ┌─▶ thesis: snapshots
//!                                     ├─▶ slipgate-sync: snapshots
//!   server ──▶ UDP ──▶ conditioner ───┼─▶ thesis: states             ──▶ panes ──▶ page, table or JSON
//!     ▲                               ├─▶ slipgate-sync: states
//!     └────────── keys ───────────────┴── slipgate-sync: own cube predicted
//! ```
//!
//! Each client is a thread with a connection of its own. All figures compare what a client shows with the server's
//! cubes at the tick shown; nothing else of the server's memory reaches a client.

mod client;
mod controls;
mod cube_messages;
mod flags;
mod keyboard;
mod knobs;
mod messages;
mod meter;
mod packed_pose;
mod page;
mod pane;
mod server;
mod show;
mod stage;
mod truth;
mod views;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use slipgate_cli::Failure;

use self::controls::Controls;
pub(crate) use self::flags::CubeFlags;
use self::keyboard::Keyboard;
use self::knobs::Knobs;
use self::page::CubePage;
use self::show::CubeScreen;
use self::stage::CubeStage;
use super::flags::{DemoFlags, Playtime, UNATTENDED_TIME};
use super::interrupts::Interrupts;
use super::show::Style;

/// The interval at which changes of knobs and the end are noticed.
const TURN: Duration = Duration::from_millis(50);
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// The running demo: its stage starts again when a knob needs another world.
struct CubeDemo {
    stage: CubeStage,
    /// The knobs of the stage.
    knobs: Knobs,
    controls: Arc<Controls>,
}

impl CubeDemo {
    fn start(knobs: Knobs) -> Result<Self, Failure> {
        let keyboard = Arc::<Keyboard>::default();
        let stage = CubeStage::start(knobs, &keyboard)?;
        let controls = Arc::new(Controls::new(Arc::clone(&stage.panes), knobs, keyboard));
        Ok(Self { stage, knobs, controls })
    }

    /// Applies the knobs that the page has set.
    fn apply_knobs(mut self) -> Result<Self, Failure> {
        let knobs = self.controls.knobs();
        if knobs == self.knobs {
            return Ok(self);
        }
        if knobs.needs_restart(self.knobs) {
            self.stage.stop()?;
            self.stage = CubeStage::start(knobs, &self.controls.keyboard)?;
            self.controls.set_panes(Arc::clone(&self.stage.panes));
        } else {
            self.stage.set_conditions(knobs);
        }
        self.knobs = knobs;
        Ok(self)
    }
}

pub(super) fn run(flags: &DemoFlags, interrupts: &Interrupts) -> Result<(), Failure> {
    let knobs = flags.cubes.knobs(flags.rate).map_err(Failure::usage)?;
    interrupts.may_exit_at_second_signal()?;
    let mut demo = CubeDemo::start(knobs)?;
    let page = if flags.cubes.no_page { None } else { Some(CubePage::start(Arc::clone(&demo.controls))?) };
    let style = Style::of_output(flags.json);
    let mut screen = CubeScreen::new(style);
    screen.introduce(knobs, page.as_ref().map(CubePage::url));
    let default = if style == Style::Live { Playtime::Ever } else { Playtime::For(UNATTENDED_TIME) };
    let end = match flags.duration.unwrap_or(default) {
        Playtime::For(span) => Some(Instant::now() + span.0),
        Playtime::Ever => None,
    };
    let mut next_line = Instant::now() + LINE_INTERVAL;
    let is_over = || interrupts.interrupted.load(Ordering::Relaxed) || end.is_some_and(|end| Instant::now() >= end);
    while !is_over() && !demo.stage.has_failed() {
        std::thread::sleep(TURN);
        let knobs = demo.knobs;
        demo = demo.apply_knobs()?;
        if demo.knobs != knobs {
            screen.change(demo.knobs);
        }
        if Instant::now() >= next_line {
            next_line += LINE_INTERVAL;
            screen.progress(&demo.stage.panes);
        }
    }
    let panes = Arc::clone(&demo.stage.panes);
    drop(page);
    demo.stage.stop()?;
    screen.summarise(&panes, demo.knobs)
}
