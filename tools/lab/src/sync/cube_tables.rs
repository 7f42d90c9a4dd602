//! The tables of the world of cubes: what clients show and simulate, how far behind they are, and inputs in time.

use std::fmt::Write as _;
use std::time::Duration;

use slipgate_sync::SmoothingDecay;

use super::cubes::CubeRecording;
use super::figure_row::{FigureRow, mean};
use super::input_timing::{self, InputFigures};
use super::lossy::MessageLoss;
use super::peer_formats::{self, PeerFormat};
use super::playout::{self, PlayoutFigures, PlayoutRun};
use super::predicting::{self, PredictionFigures, PredictionRun};
use super::rewinding::{self, RewindFigures};
use super::seeds::{Seeds, for_seeds};
use super::states::{self, StateFigures, StateMethod, StateRun};
use super::sync_goals::SyncGoal;

/// Ticks of a run in which both simulate: 25 seconds.
const STATE_TICKS: usize = 1500;
/// Ticks of a run of clients that only show: half a minute in which the clock settles, and a minute that is measured.
pub const PLAYOUT_TICKS: usize = playout::WARM_UP + 3600;
/// The losses of clients that only show.
const LOSSES: [f64; 5] = [0.0, 0.01, 0.05, 0.08, 0.13];
/// The goal of starved frames, in percent.
const STARVED: f64 = 0.6;
/// The goal of the payload of poses alone, in kbit/s.
const POSES: f64 = 25.0;
/// Cubes of the thesis: 100, and those of four players.
const CUBES: usize = 104;
/// The mean length of runs of losses.
pub const RUN: Duration = Duration::from_millis(100);
/// The snapshots of the thesis in a second.
const THESIS_RATE: u32 = 10;
const JITTER: Duration = Duration::from_millis(10);
/// By how much the delay of a path grows each second that gets slower.
const GROWTH: Duration = Duration::from_millis(10);

/// Records a world for each seed, and runs all setups on it. Returns the figures of each setup, in the order of seeds.
fn on_recordings<S: Sync, F: Send>(
    (objects, ticks): (usize, usize),
    seeds: impl Into<Seeds>,
    setups: &[S],
    run: impl Fn(&CubeRecording, &S, u64) -> F + Sync,
) -> Vec<Vec<F>> {
    // One world at a time for each thread: all of them do not fit into memory.
    let of_seeds = for_seeds(seeds, |seed| {
        let recording = CubeRecording::new(objects, seed, ticks);
        let figures: Vec<F> = setups.iter().map(|setup| run(&recording, setup, seed)).collect();
        figures
    });
    let mut of_setups: Vec<Vec<F>> = setups.iter().map(|_| Vec::new()).collect();
    for figures in of_seeds {
        of_setups.iter_mut().zip(figures).for_each(|(all, figures)| all.push(figures));
    }
    of_setups
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
jump, cm | worst | delay, ms | worst | astray, s | worst |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
";

/// The runs of both methods in which server and clients simulate.
pub struct StateRuns {
    setups: Vec<StateRun>,
    /// The figures of each seed, for each setup.
    runs: Vec<Vec<StateFigures>>,
}

impl StateRuns {
    /// Runs these seeds.
    #[must_use]
    pub fn new(seeds: impl Into<Seeds>) -> Self {
        let setups = state_setups().into_iter().flat_map(|(per_second, loss, has_inputs)| {
            [StateMethod::Thesis, our_method()].map(|method| StateRun { method, per_second, loss, has_inputs })
        });
        let setups: Vec<StateRun> = setups.collect();
        let runs = on_recordings((CUBES, STATE_TICKS), seeds, &setups, |recording, setup, seed| {
            states::run(recording, *setup, seed)
        });
        Self { setups, runs }
    }

    /// Returns the table.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = STATES_HEAD.to_owned();
        for (setup, runs) in self.setups.iter().zip(&self.runs) {
            let name = if setup.method == StateMethod::Thesis { "thesis" } else { "slipgate-sync" };
            let parts: [fn(&StateFigures) -> f64; 6] = [
                |figures| figures.path_rate,
                |figures| figures.simulated,
                |figures| figures.shown,
                |figures| figures.jump,
                |figures| figures.delay,
                |figures| figures.astray,
            ];
            text.push_str(&FigureRow::new(format!("{} | {name}", path_cells(setup)), runs, &parts).line());
        }
        text + &self.worse_seeds()
    }

    /// Returns the sentence on the seeds in which a row of `slipgate-sync` is worse than that of the thesis above it.
    fn worse_seeds(&self) -> String {
        let (mut text, mut worse, mut pairs) = (String::new(), 0, 0);
        for (setups, runs) in self.setups.chunks_exact(2).zip(self.runs.chunks_exact(2)) {
            let ([StateRun { per_second, loss, .. }, _], [thesis, ours]) = (setups, runs) else { continue };
            let count = thesis.iter().zip(ours).filter(|(thesis, ours)| ours.simulated > thesis.simulated).count();
            (worse, pairs) = (worse + count, pairs + thesis.len());
            if let MessageLoss::Runs(..) = loss {
                let _ =
                    write!(text, "\nIn runs of losses at {per_second} a second these are {count} of {}.", ours.len());
            }
        }
        format!(
            "\nThe simulated error is larger than the thesis's in {worse} of {pairs} pairs of runs with one seed.\
             {text}\n"
        )
    }

    /// Returns the mean simulated error of the thesis with keys, in centimetres.
    #[must_use]
    pub fn thesis_error(&self, per_second: u32, share: f64) -> f64 {
        let loss = MessageLoss::Random(share);
        let setup = StateRun { method: StateMethod::Thesis, per_second, loss, has_inputs: true };
        mean(self.of(setup), |run| run.simulated)
    }

    fn of(&self, setup: StateRun) -> &[StateFigures] {
        let index = self.setups.iter().position(|other| *other == setup);
        index.and_then(|index| self.runs.get(index)).map_or(&[], Vec::as_slice)
    }

    /// Returns the goals of these runs, and what was reached.
    #[must_use]
    pub fn goals(&self) -> Vec<SyncGoal> {
        let of = |method, per_second, loss, has_inputs| self.of(StateRun { method, per_second, loss, has_inputs });
        let at = |per_second, share, has_inputs| of(our_method(), per_second, MessageLoss::Random(share), has_inputs);
        let thesis = |per_second, share| of(StateMethod::Thesis, per_second, MessageLoss::Random(share), true);
        let mut goals = Vec::new();
        // The last figure is what the method of the thesis erred by in the prototype.
        for (per_second, loss, loss_of_thesis, prototype) in [(20, 0.45, 0.13, 7.6), (60, 0.58, 0.37, 1.3)] {
            let (ours, thesis) = (at(per_second, loss, true), thesis(per_second, loss_of_thesis));
            let what = format!("at {:.0} % loss, {per_second} a second", loss * 100.0);
            let of_thesis = |part: fn(&StateFigures) -> f64| mean(thesis, part);
            let name = format!("simulated error {what}, cm: that of the thesis at {:.0} %", loss_of_thesis * 100.0);
            goals.push(SyncGoal::new(&name, of_thesis(|run| run.simulated), ours, |run| run.simulated));
            let pairs: Vec<_> = thesis.iter().zip(ours).collect();
            let name = format!("share of seeds with a larger one than the thesis at {:.0} %", loss_of_thesis * 100.0);
            goals.push(SyncGoal::comparison(&name, &pairs, is_larger));
            let name = format!("simulated error {what}, cm: that of the thesis in the prototype");
            goals.push(SyncGoal::new(&name, prototype, ours, |run| run.simulated));
            let name = format!("path {what}, kbit/s: 75 % of the thesis's");
            goals.push(SyncGoal::new(&name, 0.75 * of_thesis(|run| run.path_rate), ours, |run| run.path_rate));
        }
        let (with_keys, without) = (at(20, 0.13, true), at(20, 0.13, false));
        let mut add = |name: &str, goal, runs: &[StateFigures], part: fn(&StateFigures) -> f64| {
            goals.push(SyncGoal::new(name, goal, runs, part));
        };
        add("simulated error at 13 % loss, 20 a second, cm", 1.0, with_keys, |run| run.simulated);
        add("the same without keys, cm", 7.5, without, |run| run.simulated);
        add("without keys at 37 % loss, 60 a second, cm", 3.0, at(60, 0.37, false), |run| run.simulated);
        add("shown error at 13 % loss, 20 a second, cm", 4.0, with_keys, |run| run.shown);
        add("jump at 13 % loss, 20 a second, cm", 7.0, with_keys, |run| run.jump);
        for (per_second, share) in [(20, 0.13), (60, 0.37)] {
            for (method, name) in [(our_method(), "slipgate-sync"), (StateMethod::Thesis, "thesis")] {
                let runs = of(method, per_second, MessageLoss::Random(share), false);
                let loss = share * 100.0;
                let name = format!("shown error without keys at {loss:.0} % loss, {per_second} a second, cm: {name}");
                goals.push(SyncGoal::comparison(&name, runs, |run| run.shown));
            }
        }
        for per_second in [20, 60] {
            let runs = |method| of(method, per_second, MessageLoss::Runs(0.37, RUN), true);
            let name = format!("simulated error in runs of 100 ms, {per_second} a second, cm: that of the thesis");
            let goal = mean(runs(StateMethod::Thesis), |run| run.simulated);
            goals.push(SyncGoal::new(&name, goal, runs(our_method()), |run| run.simulated));
            let pairs: Vec<_> = runs(StateMethod::Thesis).iter().zip(runs(our_method())).collect();
            let name = format!("share of seeds with a larger one, {per_second} a second");
            goals.push(SyncGoal::new(&name, 0.0, &pairs, is_larger));
        }
        goals
    }
}

/// Returns 1 if the simulated error of a run is larger than that of the thesis's with the same seed.
fn is_larger((thesis, ours): &(&StateFigures, &StateFigures)) -> f64 {
    f64::from(u8::from(ours.simulated > thesis.simulated))
}

fn our_method() -> StateMethod {
    StateMethod::Ours(SmoothingDecay::default())
}

/// Returns the cells that describe a path.
fn path_cells(setup: &StateRun) -> String {
    format!("{} | {} | {}", setup.per_second, loss_cell(setup.loss), if setup.has_inputs { "yes" } else { "no" })
}

fn loss_cell(loss: MessageLoss) -> String {
    match loss {
        MessageLoss::Random(share) => format!("{:.0} %", share * 100.0),
        MessageLoss::Runs(share, length) => format!("{:.0} % in runs of {} ms", share * 100.0, length.as_millis()),
    }
}

const PLAYOUT_HEAD: &str = "\
| cubes | seeds | awake | states a second | lost | method | payload, kbit/s | worst | starved at first, % | worst | \
starved early, % | worst | delay early, ms | worst | starved, % | worst | delay, ms | worst | error, cm | worst |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | \
--- |
";

/// The runs of clients that only show.
pub struct PlayoutRuns {
    rows: Vec<PlayoutRow>,
}

/// A path, and the states that are sent over it.
#[derive(Clone, Copy)]
struct PlayoutSetup {
    loss: MessageLoss,
    /// By how much the delay of the path grows each second.
    growth: Duration,
    /// 10 a second is the thesis.
    per_second: u32,
}

struct PlayoutRow {
    objects: usize,
    setup: PlayoutSetup,
    awake: f64,
    runs: Vec<PlayoutFigures>,
}

impl PlayoutRuns {
    /// Runs 104 cubes with all losses and rates.
    #[must_use]
    pub fn new(seeds: impl Into<Seeds>) -> Self {
        Self::run(
            CUBES,
            seeds,
            &LOSSES.map(|share| (MessageLoss::Random(share), Duration::ZERO)),
            &[THESIS_RATE, 20, 60],
        )
    }

    /// Runs 104 cubes over paths that lose in runs, or get slower.
    #[must_use]
    pub fn paths(seeds: impl Into<Seeds>) -> Self {
        let paths = [
            (MessageLoss::Runs(0.13, RUN), Duration::ZERO),
            (MessageLoss::Random(0.0), GROWTH),
            (MessageLoss::Random(0.13), GROWTH),
        ];
        Self::run(CUBES, seeds, &paths, &[20, 60])
    }

    /// Runs more cubes, with the loss of the goals and 20 states a second.
    #[must_use]
    pub fn many_of(recording: &CubeRecording, seed: u64) -> PlayoutSeed {
        run_playout(recording, &MANY, seed)
    }

    /// Returns the runs with more cubes: those of all seeds.
    #[must_use]
    pub fn of_many(objects: usize, runs: Vec<PlayoutSeed>) -> Self {
        Self { rows: vec![PlayoutRow::new(objects, MANY, runs)] }
    }

    /// Returns all of these runs.
    #[must_use]
    pub fn together(parts: impl IntoIterator<Item = Self>) -> Self {
        Self { rows: parts.into_iter().flat_map(|part| part.rows).collect() }
    }

    fn run(objects: usize, seeds: impl Into<Seeds>, paths: &[(MessageLoss, Duration)], rates: &[u32]) -> Self {
        let setups = paths.iter().flat_map(|(loss, growth)| {
            rates.iter().map(|rate| PlayoutSetup { loss: *loss, growth: *growth, per_second: *rate })
        });
        let setups: Vec<PlayoutSetup> = setups.collect();
        let runs = on_recordings((objects, PLAYOUT_TICKS), seeds, &setups, run_playout);
        let rows = setups.into_iter().zip(runs).map(|(setup, runs)| PlayoutRow::new(objects, setup, runs));
        Self { rows: rows.collect() }
    }

    /// Returns the table.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = PLAYOUT_HEAD.to_owned();
        for PlayoutRow { objects, setup, awake, runs } in &self.rows {
            let name = if setup.per_second == THESIS_RATE { "thesis" } else { "slipgate-sync" };
            let (seeds, awake, rate, path) = (runs.len(), awake * 100.0, setup.per_second, setup.path());
            let cells = format!("{objects} | {seeds} | {awake:.0} % | {rate} | {path} | {name}");
            let parts: [fn(&PlayoutFigures) -> f64; 7] = [
                |figures| figures.payload,
                |figures| figures.starved_at_first,
                |figures| figures.starved_early,
                |figures| figures.delay_early,
                |figures| figures.starved,
                |figures| figures.delay,
                |figures| figures.error,
            ];
            text.push_str(&FigureRow::new(cells, runs, &parts).line());
        }
        text
    }

    /// Returns the mean of a figure of 104 cubes on a path, at this number of states a second.
    #[must_use]
    pub fn mean_of(&self, loss: MessageLoss, per_second: u32, part: fn(&PlayoutFigures) -> f64) -> f64 {
        let is_row = |row: &&PlayoutRow| {
            let PlayoutSetup { loss: other, growth, per_second: rate } = row.setup;
            row.objects == CUBES && growth == Duration::ZERO && (other, rate) == (loss, per_second)
        };
        self.rows.iter().find(is_row).map_or(0.0, |row| mean(&row.runs, part))
    }

    /// Returns the goals of these runs, and what was reached. Losses in runs and paths that get slower have no goal.
    #[must_use]
    pub fn goals(&self) -> Vec<SyncGoal> {
        self.rows.iter().filter(|row| row.setup.per_second != THESIS_RATE).flat_map(PlayoutRow::goals).collect()
    }
}

/// The figures of a seed, and the share of cubes that are awake.
pub type PlayoutSeed = (PlayoutFigures, f64);

/// The path and the states of more cubes.
const MANY: PlayoutSetup = PlayoutSetup { loss: MessageLoss::Random(0.13), growth: Duration::ZERO, per_second: 20 };

fn run_playout(recording: &CubeRecording, setup: &PlayoutSetup, seed: u64) -> PlayoutSeed {
    let PlayoutSetup { loss, growth, per_second } = *setup;
    let figures = match per_second {
        THESIS_RATE => playout::thesis(recording, loss, JITTER, seed),
        rate => playout::ours(recording, PlayoutRun { growth, ..PlayoutRun::new(rate, loss, JITTER, seed) }),
    };
    (figures, recording.awake_share())
}

impl PlayoutSetup {
    /// Returns the cell that describes the path.
    fn path(&self) -> String {
        loss_cell(self.loss) + &self.growth()
    }

    fn growth(&self) -> String {
        match self.growth.as_millis() {
            0 => String::new(),
            growth => format!(", delay grows by {growth} ms a second"),
        }
    }
}

impl PlayoutRow {
    fn new(objects: usize, setup: PlayoutSetup, runs: Vec<PlayoutSeed>) -> Self {
        let awake = mean(&runs, |(_, awake)| *awake);
        Self { objects, setup, awake, runs: runs.into_iter().map(|(figures, _)| figures).collect() }
    }

    fn goals(&self) -> Vec<SyncGoal> {
        let PlayoutSetup { loss, growth, per_second } = self.setup;
        let (lost, slower) = (loss_cell(loss), self.setup.growth());
        let what = format!("{} cubes, {lost} lost{slower}, {per_second} a second", self.objects);
        let has_goals = matches!(loss, MessageLoss::Random(_)) && growth == Duration::ZERO;
        let goal = |figure: &str, goal, part: fn(&PlayoutFigures) -> f64| {
            let figure = format!("{figure}: {what}");
            if has_goals {
                SyncGoal::new(&figure, goal, &self.runs, part)
            } else {
                SyncGoal::comparison(&figure, &self.runs, part)
            }
        };
        let delay = if per_second == 20 { 165.0 } else { 65.0 };
        let mut goals = vec![
            goal("starved frames, %", STARVED, |run| run.starved),
            goal("starved frames of the first 5 s, %", STARVED, |run| run.starved_at_first),
            goal("starved frames from 5 to 30 s, %", STARVED, |run| run.starved_early),
            goal("delay, ms", delay, |run| run.delay),
            goal("delay from 5 to 30 s, ms", delay, |run| run.delay_early),
        ];
        let payload = match self.objects {
            CUBES => 24.0,
            504 => 310.0,
            _ => 640.0,
        };
        if per_second == 20 && has_goals {
            goals.push(goal("payload, kbit/s", payload, |run| run.payload));
        }
        goals
    }
}

/// The runs of the formats of other libraries, and of `slipgate-sync`: 104 cubes, 20 states a second, no losses.
pub struct FormatRuns {
    /// The payload of each seed. `None` stands for `slipgate-sync`.
    rows: Vec<(Option<PeerFormat>, Vec<f64>)>,
}

impl FormatRuns {
    /// Runs these seeds.
    #[must_use]
    pub fn new(seeds: impl Into<Seeds>) -> Self {
        let formats: Vec<Option<PeerFormat>> = PeerFormat::ALL.into_iter().map(Some).chain([None]).collect();
        let runs = on_recordings((CUBES, PLAYOUT_TICKS), seeds, &formats, |recording, format, seed| {
            let run = PlayoutRun::new(20, MessageLoss::Random(0.0), JITTER, seed);
            let ours = || playout::ours(recording, run).payload;
            format.map_or_else(ours, |format| peer_formats::payload(recording, format))
        });
        Self { rows: formats.into_iter().zip(runs).collect() }
    }

    /// Returns the table.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::from("| format | payload, kbit/s | worst |\n| --- | --- | --- |\n");
        for (format, runs) in &self.rows {
            let name = format.map_or("slipgate-sync", PeerFormat::name);
            text.push_str(&FigureRow::new(name.to_owned(), runs, &[|payload| *payload]).line());
        }
        text
    }

    /// Returns the payload of each format, that of `slipgate-sync` with its goal.
    #[must_use]
    pub fn goals(&self) -> Vec<SyncGoal> {
        let goal = |(format, runs): &(Option<PeerFormat>, Vec<f64>)| match format {
            None => SyncGoal::new("poses alone, kbit/s: slipgate-sync", POSES, runs, |payload| *payload),
            Some(format) => {
                SyncGoal::comparison(&format!("poses alone, kbit/s: {}", format.name()), runs, |payload| *payload)
            }
        };
        self.rows.iter().map(goal).collect()
    }
}

/// Returns the table of a client that predicts its own cube.
#[must_use]
pub fn prediction_table(seeds: impl Into<Seeds>) -> String {
    let loss = MessageLoss::Random(0.13);
    // Messages a second, whether the keys of the others are known at once, and whether both ends round.
    let setups = [(20, false, false), (20, false, true), (60, false, true), (20, true, true)];
    let setups =
        setups.map(|(per_second, knows_keys, is_rounded)| PredictionRun { per_second, loss, knows_keys, is_rounded });
    let runs = for_seeds(seeds, |seed| {
        let recordings = [CubeRecording::new, CubeRecording::rounded].map(|record| record(CUBES, seed, STATE_TICKS));
        let [plain, rounded] = &recordings;
        setups.map(|setup| predicting::run(if setup.is_rounded { rounded } else { plain }, setup, seed))
    });
    let mut text = String::from(
        "| states a second | lost | keys of others | both round | simulated, cm | worst | shown, cm | worst | \
         corrections a second | worst | own cube differs, a second | worst | repeated ticks a second | worst |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for (index, PredictionRun { per_second, loss, knows_keys, is_rounded }) in setups.iter().enumerate() {
        let runs: Vec<PredictionFigures> = runs.iter().filter_map(|of_seed| of_seed.get(index).copied()).collect();
        let parts: [fn(&PredictionFigures) -> f64; 5] = [
            |figures| figures.simulated,
            |figures| figures.shown,
            |figures| figures.corrections,
            |figures| figures.own_corrections,
            |figures| figures.repeated,
        ];
        let keys = if *knows_keys { "at once" } else { "as sent" };
        let rounding = if *is_rounded { "yes" } else { "no" };
        let cells = format!("{per_second} | {:.0} % | {keys} | {rounding}", loss.share() * 100.0);
        text.push_str(&FigureRow::new(cells, &runs, &parts).line());
    }
    text
}

/// The factors of the times of [`SmoothingDecay`] that are compared.
const DECAY_FACTORS: [f32; 7] = [0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0];

/// Returns the table of quicker and slower corrections: 20 states a second, 13 % loss, no keys.
#[must_use]
pub fn smoothing_table(seeds: impl Into<Seeds>) -> String {
    let setups = DECAY_FACTORS.map(|factor| {
        let SmoothingDecay { small, medium, large } = SmoothingDecay::default();
        let decay = SmoothingDecay { small: small * factor, medium: medium * factor, large: large * factor };
        let loss = MessageLoss::Random(0.13);
        StateRun { method: StateMethod::Ours(decay), per_second: 20, loss, has_inputs: false }
    });
    let runs = on_recordings((CUBES, STATE_TICKS), seeds, &setups, |recording, setup, seed| {
        states::run(recording, *setup, seed)
    });
    let mut text = String::from(
        "| factor of all times | shown error, cm | worst | jump, cm | worst |\n| --- | --- | --- | --- | --- |\n",
    );
    for (factor, runs) in DECAY_FACTORS.iter().zip(&runs) {
        let parts: [fn(&StateFigures) -> f64; 2] = [|figures| figures.shown, |figures| figures.jump];
        text.push_str(&FigureRow::new(factor.to_string(), runs, &parts).line());
    }
    text
}

/// Returns the table of playout with and without the server's velocities at each state.
#[must_use]
pub fn velocities_table(seeds: impl Into<Seeds>) -> String {
    let setups = [6, 10, 20]
        .map(|rate| [(0.0, false), (0.0, true), (0.13, false), (0.13, true)].map(|(share, has)| (rate, share, has)))
        .concat();
    let runs =
        on_recordings((CUBES, PLAYOUT_TICKS), seeds, &setups, |recording, (rate, share, has_velocities), seed| {
            let run = PlayoutRun::new(*rate, MessageLoss::Random(*share), JITTER, seed);
            playout::ours(recording, PlayoutRun { has_velocities: *has_velocities, ..run })
        });
    let mut text = String::from(
        "| states a second | lost | velocities | error, cm | worst | payload, kbit/s | worst |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for ((rate, share, has_velocities), runs) in setups.iter().zip(&runs) {
        let velocities = if *has_velocities { "yes" } else { "no" };
        let cells = format!("{rate} | {:.0} % | {velocities}", share * 100.0);
        let parts: [fn(&PlayoutFigures) -> f64; 2] = [|figures| figures.error, |figures| figures.payload];
        text.push_str(&FigureRow::new(cells, runs, &parts).line());
    }
    text
}

/// Returns the table of lag compensation.
#[must_use]
pub fn rewind_table(seeds: impl Into<Seeds>) -> String {
    let setups = [20, 60].map(|rate| [0.0, 0.01, 0.05, 0.13].map(|share| (rate, share))).concat();
    let runs = on_recordings((CUBES, PLAYOUT_TICKS), seeds, &setups, |recording, (rate, share), seed| {
        rewinding::run(recording, *rate, MessageLoss::Random(*share), JITTER, seed)
    });
    let mut text = String::from(
        "| states a second | lost | error, cm | worst | missed, % | worst | missed without, % | worst | \
         beyond 250 ms, % | worst | late, % | worst | lead, ms | worst |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for ((rate, share), runs) in setups.iter().zip(&runs) {
        let parts: [fn(&RewindFigures) -> f64; 6] = [
            |figures| figures.error,
            |figures| figures.missed,
            |figures| figures.missed_without,
            |figures| figures.cut,
            |figures| figures.late,
            |figures| figures.lead,
        ];
        text.push_str(&FigureRow::new(format!("{rate} | {:.0} %", share * 100.0), runs, &parts).line());
    }
    text
}

/// The runs of inputs: 2 % loss, 20 ms of jitter, clocks that differ by 200 millionths.
pub struct InputRuns {
    of_drifts: [(i32, Vec<InputFigures>); 2],
}

impl InputRuns {
    /// Runs this number of minutes with these seeds.
    #[must_use]
    pub fn new(seeds: impl Into<Seeds>, minutes: u32) -> Self {
        let seeds = seeds.into();
        let run = |drift| for_seeds(seeds, |seed| input_timing::run(minutes, 0.02, 2 * JITTER, drift, seed));
        Self { of_drifts: [200, -200].map(|drift| (drift, run(drift))) }
    }

    /// Returns the table.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::from(
            "| client's clock | late, % | worst | jumps | worst | lead, ms | worst |\n\
             | --- | --- | --- | --- | --- | --- | --- |\n",
        );
        for (drift, runs) in &self.of_drifts {
            let parts: [fn(&InputFigures) -> f64; 3] =
                [|figures| figures.late, |figures| f64::from(figures.jumps), |figures| figures.lead];
            text.push_str(&FigureRow::new(format!("{drift:+} ppm"), runs, &parts).line());
        }
        text
    }

    /// Returns the goals of these runs, and what was reached.
    #[must_use]
    pub fn goals(&self) -> Vec<SyncGoal> {
        let mut goals = Vec::new();
        for (drift, runs) in &self.of_drifts {
            goals.push(SyncGoal::new(&format!("late inputs, {drift:+} ppm, %"), 0.5, runs, |run| run.late));
            goals.push(SyncGoal::new(&format!("jumps, {drift:+} ppm"), 0.0, runs, |run| f64::from(run.jumps)));
        }
        goals
    }
}
