//! The tables of the world of cubes: what clients show and simulate, how far behind they are, and inputs in time.

use std::fmt::Write as _;
use std::time::Duration;

use slipgate_sync::SmoothingDecay;

use super::cubes::CubeRecording;
use super::input_timing::{self, InputFigures};
use super::lossy::MessageLoss;
use super::playout::{self, PlayoutFigures};
use super::states::{self, StateFigures, StateMethod, StateRun};

/// The seeds of each row with 104 cubes.
pub const SEEDS: u64 = 40;
/// The seeds of rows with more cubes: their simulation takes longer.
const SEEDS_OF_MANY: u64 = 5;
/// Ticks of a run: 25 seconds.
const TICKS: usize = 1500;
/// Cubes of the thesis: 100, and those of four players.
const CUBES: usize = 104;
const RUN: Duration = Duration::from_millis(100);
const JITTER: Duration = Duration::from_millis(10);

/// A row: its cells, and mean and worst of each figure.
struct FigureRow {
    cells: String,
    figures: Vec<(f64, f64)>,
}

impl FigureRow {
    fn new<F>(cells: String, runs: &[F], parts: &[fn(&F) -> f64]) -> Self {
        let figure = |part: &fn(&F) -> f64| {
            let mean = runs.iter().map(part).sum::<f64>() / runs.len().max(1) as f64;
            (mean, runs.iter().map(part).fold(0.0, f64::max))
        };
        Self { cells, figures: parts.iter().map(figure).collect() }
    }

    fn line(&self) -> String {
        let mut line = format!("| {} |", self.cells);
        for (mean, worst) in &self.figures {
            let _ = write!(line, " {mean:.2} | {worst:.2} |");
        }
        line + "\n"
    }
}

/// Runs a function for each of the seeds from 1 on, on two threads. The results are in the order of the seeds.
fn for_seeds<F: Send>(seeds: u64, run: impl Fn(u64) -> F + Sync) -> Vec<F> {
    let half = seeds / 2;
    std::thread::scope(|scope| {
        let first = scope.spawn(|| (1..=half).map(&run).collect::<Vec<F>>());
        let second: Vec<F> = (half + 1..=seeds).map(&run).collect();
        let mut all = first.join().expect("a run does not panic");
        all.extend(second);
        all
    })
}

fn recordings(objects: usize, seeds: u64) -> Vec<CubeRecording> {
    for_seeds(seeds, |seed| CubeRecording::new(objects, seed, TICKS))
}

fn on_all<F: Send>(recordings: &[CubeRecording], run: impl Fn(&CubeRecording, u64) -> F + Sync) -> Vec<F> {
    let all = recordings.len() as u64;
    let results = for_seeds(all, |seed| recordings.get(seed as usize - 1).map(|recording| run(recording, seed)));
    results.into_iter().flatten().collect()
}

/// Returns the setups of the table of states: messages a second, losses, and whether clients get keys.
fn state_setups() -> Vec<(u32, MessageLoss, bool)> {
    let runs = MessageLoss::Runs(0.37, RUN);
    vec![
        (20, MessageLoss::Random(0.0), true),
        (20, MessageLoss::Random(0.13), true),
        (20, MessageLoss::Random(0.45), true),
        (20, MessageLoss::Random(0.13), false),
        (20, runs, true),
        (60, MessageLoss::Random(0.37), true),
        (60, MessageLoss::Random(0.58), true),
        (60, MessageLoss::Random(0.37), false),
        (60, runs, true),
    ]
}

const STATES_HEAD: &str = "\
| states a second | lost | keys sent | method | path, kbit/s | worst | simulated, cm | worst | shown, cm | worst | \
jump, cm | worst | delay, ms | worst |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
";

/// Returns the table of both methods in which server and clients simulate.
#[must_use]
pub fn states_table(seeds: u64, limit: usize) -> String {
    let recordings = recordings(CUBES, seeds);
    let mut text = STATES_HEAD.to_owned();
    for (per_second, loss, has_inputs) in state_setups().into_iter().take(limit) {
        let ours = StateMethod::Ours(SmoothingDecay::default());
        for (name, method) in [("thesis", StateMethod::Thesis), ("slipgate-sync", ours)] {
            let setup = StateRun { method, per_second, loss, has_inputs };
            let runs = on_all(&recordings, |recording, seed| states::run(recording, setup, seed));
            let lost = match loss {
                MessageLoss::Random(share) => format!("{:.0} %", share * 100.0),
                MessageLoss::Runs(share, _) => format!("{:.0} % in runs of 100 ms", share * 100.0),
            };
            let cells = format!("{per_second} | {lost} | {} | {name}", if has_inputs { "yes" } else { "no" });
            let parts: [fn(&StateFigures) -> f64; 5] = [
                |figures| figures.path_rate,
                |figures| figures.simulated,
                |figures| figures.shown,
                |figures| figures.jump,
                |figures| figures.delay,
            ];
            text.push_str(&FigureRow::new(cells, &runs, &parts).line());
        }
    }
    text
}

const PLAYOUT_HEAD: &str = "\
| cubes | seeds | awake | states a second | lost | method | payload, kbit/s | worst | starved, % | worst | delay, ms | \
worst | error, cm | worst |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
";

fn playout_rows(objects: usize, seeds: u64, losses: &[f64], text: &mut String) {
    let recordings = recordings(objects, seeds);
    let awake = recordings.iter().map(CubeRecording::awake_share).sum::<f64>() / seeds as f64 * 100.0;
    let rates: &[u32] = if objects == CUBES { &[10, 20, 60] } else { &[20] };
    for share in losses {
        let loss = MessageLoss::Random(*share);
        for per_second in rates {
            let runs = on_all(&recordings, |recording, seed| match per_second {
                10 => playout::thesis(recording, loss, JITTER, seed),
                _ => playout::ours(recording, *per_second, loss, JITTER, seed),
            });
            let name = if *per_second == 10 { "thesis" } else { "slipgate-sync" };
            let share = share * 100.0;
            let cells = format!("{objects} | {seeds} | {awake:.0} % | {per_second} | {share:.0} % | {name}");
            let parts: [fn(&PlayoutFigures) -> f64; 4] = [
                |figures| figures.payload,
                |figures| figures.starved,
                |figures| figures.delay,
                |figures| figures.error,
            ];
            text.push_str(&FigureRow::new(cells, &runs, &parts).line());
        }
    }
}

/// Returns the table of clients that only show, with 104 cubes.
#[must_use]
pub fn playout_table(seeds: u64, losses: &[f64]) -> String {
    let mut text = PLAYOUT_HEAD.to_owned();
    playout_rows(CUBES, seeds, losses, &mut text);
    text
}

/// Returns the table of inputs: 10 minutes, 2 % loss, 20 ms of jitter, clocks that differ by 200 millionths.
#[must_use]
pub fn inputs_table(seeds: u64, minutes: u32) -> String {
    let mut text = String::from(
        "| client's clock | late, % | worst | jumps | worst | lead, ms | worst |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for drift in [200, -200] {
        let runs = for_seeds(seeds, |seed| input_timing::run(minutes, 0.02, 2 * JITTER, drift, seed));
        let parts: [fn(&InputFigures) -> f64; 3] =
            [|figures| figures.late, |figures| f64::from(figures.jumps), |figures| figures.lead];
        text.push_str(&FigureRow::new(format!("{drift:+} ppm"), &runs, &parts).line());
    }
    text
}

const HEAD: &str = "
## The world of cubes

These figures are measured in the world of cubes (`slipgate-worlds`): rigid bodies on a floor of 32 m by 32 m, and four
players that push, attract and repel them. Each run has 25 seconds. Messages take 50 ms. `worst` is the worst seed, the
figures beside it are means. All errors and jumps are 99th percentiles over all cubes, also those at rest.

### Server and clients simulate

The thesis sends 20 states of 54 bytes in each message, chosen by its priorities, and sets them 4 messages after they
arrived. It gets the keys of the players since the message before, which cost it nothing here; the thesis itself sent
none. `slipgate-sync` sends what changed, and all keys that are not confirmed. 104 cubes, 40 seeds. The path has 68
bytes for each datagram. `simulated` is the distance to the server's cube at the same tick, `shown` that with smoothing,
and `jump` how far a corrected cube moves within the frame, without its own motion. The delay is that behind the
quickest messages. The first 5 seconds are not measured.

";

const PLAYOUT_TEXT: &str = "
### Clients only show

The thesis sends 10 snapshots a second, and shows them 100 ms after they arrived. Jitter is up to 10 ms. A frame is
starved if the newest state is older than the moment that it shows. The error is the distance to the server's cube at
the tick shown. The first 10 seconds are not measured.

";

const INPUTS_TEXT: &str = "
### Inputs

A client sends its keys 60 times a second for 10 minutes. 2 % of the messages get lost in both directions, and jitter is
up to 20 ms. The client's clock is quicker or slower than the server's by 200 ppm. 40 seeds. `late` are ticks that the
server plays without their input after the first 30 seconds, `jumps` those of the client's clock, and `lead` is how far
ahead of the server inputs are made, less the path's 50 ms.

";

const GOALS: &str = "
### Goals

| figure | goal | read in |
| --- | --- | --- |
| simulated error at 45 % loss, 20 a second | that of the thesis at 13 %, with 75 % of its bytes | both simulate |
| simulated error at 13 % loss, 20 a second | 1 cm | both simulate |
| simulated error at 58 % loss, 60 a second | that of the thesis at 37 %, with 75 % of its bytes | both simulate |
| no keys sent, 20 and 60 a second | 7.5 and 3 cm | both simulate |
| shown error and jump at 13 % loss, 20 a second | 4 and 7 cm | both simulate |
| runs of 100 ms, 37 % | never worse than the thesis | both simulate |
| starved frames up to 13 % loss | 0.6 % | only show |
| delay at 20 and at 60 a second | 165 and 65 ms | only show |
| payload of 104, 504 and 1,001 cubes at 20 a second, 13 % loss | 24 (150 bytes), 310 and 640 kbit/s | only show |
| late inputs, jumps | 0.5 %, 0 | inputs |

The goals come from a prototype with another world of cubes, in which 68 % of 504 and 83 % of 1,001 cubes were awake.

Not reached: the delay at 60 states a second, by a little, and runs of 100 ms: the means are better than the thesis's,
but the worst seeds are worse.
";

/// Runs everything and returns this part of the document.
#[must_use]
pub fn document() -> String {
    let mut playout = playout_table(SEEDS, &[0.0, 0.05, 0.13]);
    playout_rows(504, SEEDS_OF_MANY, &[0.13], &mut playout);
    playout_rows(1001, SEEDS_OF_MANY, &[0.13], &mut playout);
    let states = states_table(SEEDS, usize::MAX);
    [HEAD, &states, PLAYOUT_TEXT, &playout, INPUTS_TEXT, &inputs_table(SEEDS, 10), GOALS].concat()
}
