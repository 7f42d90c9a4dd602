//! The tables of many clients: what a server encodes for them, and how they join a running world.

use std::fmt::Write as _;

use slipgate_sim::Random;
use slipgate_sync::Field;

use super::bodies::{Bodies, STATES_PER_SECOND};
use super::crowd_world::CrowdWorld;
use super::cubes::CubeRecording;
use super::fanout::{self, FanoutFigures, FanoutMethod, MOVING, OBJECTS};
use super::figure_row::{FigureRow, mean};
use super::joining::{self, JoinFigures, JoinKind, JoinRuns, JoinSetup, OtherFigures};
use super::recording::{Recording, STEPS_PER_STATE};
use super::seeds::{Seeds, for_seeds};
use super::sync_goals::SyncGoal;
use super::wrapped::wrap;

/// The losses of the clients of a fan-out: those of the benchmark `game_state`.
const LOSSES: [f64; 2] = [0.02, 0.13];
/// A join takes at most this number of times as long as the bytes of one whole state.
const SHARE_OF_TRANSFER: f64 = 1.3;
/// The numbers of cubes that clients join.
const CUBES: [usize; 3] = [104, 504, 1001];

/// Returns a world of 1,000 bodies.
#[must_use]
pub fn bodies(seed: u64, states: usize) -> CrowdWorld {
    let fields = Bodies::new(OBJECTS, &mut Random::new(1, 1)).fields();
    CrowdWorld::new(&Recording::of_bodies(OBJECTS, MOVING, seed, states), &fields, states)
}

/// Returns a world of cubes.
fn cubes(recording: &CubeRecording, states: usize) -> CrowdWorld {
    let fields = [Field::vector([-16.0..16.0, 0.0..16.0, -16.0..16.0], 512), Field::rotation(9)];
    CrowdWorld::new(&Recording::of_cubes(recording, states), &fields, states)
}

/// The runs of 1,000 objects and 200 clients.
pub struct FanoutRuns {
    rows: Vec<(FanoutMethod, f64, Vec<FanoutFigures>)>,
}

impl FanoutRuns {
    /// Runs these seeds.
    #[must_use]
    pub fn new(seeds: impl Into<Seeds>) -> Self {
        let setups = || LOSSES.into_iter().flat_map(|loss| FanoutMethod::ALL.map(|method| (method, loss)));
        let runs = for_seeds(seeds, |seed| {
            let world = bodies(seed, fanout::STATES);
            let figures: Vec<FanoutFigures> =
                setups().map(|(method, loss)| fanout::run(&world, method, loss, seed)).collect();
            figures
        });
        let row = |(index, (method, loss))| {
            (method, loss, runs.iter().filter_map(|figures| figures.get(index).copied()).collect())
        };
        Self { rows: setups().enumerate().map(row).collect() }
    }

    /// Returns the table.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::from(
            "| lost | method | encodings a state | worst | records a state | worst | bytes a client and state | worst \
             | oldest object p99, ms | worst | oldest of all, ms | worst | error, cm | worst | clients that differ at \
             the end | worst |\n\
             | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
        );
        let parts: [fn(&FanoutFigures) -> f64; 7] = [
            |figures| figures.encodings,
            |figures| figures.records,
            |figures| figures.bytes,
            |figures| figures.oldest,
            |figures| figures.oldest_of_all,
            |figures| figures.error,
            |figures| figures.differing,
        ];
        for (method, loss, runs) in &self.rows {
            let cells = format!("{:.0} % | {}", loss * 100.0, method.name());
            text.push_str(&FigureRow::new(cells, runs, &parts).line());
        }
        text
    }

    /// Returns the goals of these runs, and figures for comparison.
    #[must_use]
    pub fn goals(&self) -> Vec<SyncGoal> {
        let mut goals = Vec::new();
        for (method, loss, runs) in &self.rows {
            let FanoutMethod::Shared(_) = method else { continue };
            let what = format!("1000 objects, 200 clients, {}, {:.0} % lost", method.name(), loss * 100.0);
            let mut compare = |figure: &str, part: fn(&FanoutFigures) -> f64| {
                goals.push(SyncGoal::comparison(&format!("{figure}: {what}"), runs, part));
            };
            compare("encodings a state", |run| run.encodings);
            compare("encodings a state without sharing", |run| run.records);
            compare("kbit/s a client", |run| run.bytes * 8.0 * f64::from(STATES_PER_SECOND) / 1000.0);
            compare("oldest object p99, ms", |run| run.oldest);
            compare("error p99, cm", |run| run.error);
            let figure = format!("clients that differ when the world has stopped: {what}");
            goals.push(SyncGoal::new(&figure, 0.0, runs, |run| run.differing));
        }
        goals
    }

    /// Returns the sentences about these figures.
    #[must_use]
    pub fn notes(&self) -> String {
        let mut text = String::new();
        for (method, loss, runs) in &self.rows {
            if *method == FanoutMethod::ALL[0] {
                let (encodings, records) = (mean(runs, |run| run.encodings), mean(runs, |run| run.records));
                let (share, loss) = (records / encodings, loss * 100.0);
                let _ = write!(text, " At {loss:.0} % loss one encoding serves {share:.1} records of all that moved.");
            }
        }
        wrap(&text, "")
    }
}

/// The runs of clients that join one world.
pub struct JoinWorld {
    /// The text for tables.
    name: String,
    /// The runs of each seed.
    runs: Vec<JoinRuns>,
}

/// Runs clients that join a recorded world of cubes.
#[must_use]
pub fn join_cubes(recording: &CubeRecording, seed: u64) -> JoinRuns {
    joining::run_cubes(&cubes(recording, joining::STATES), seed)
}

impl JoinWorld {
    /// Returns the runs in worlds with this number of cubes.
    #[must_use]
    pub fn of_cubes(objects: usize, runs: Vec<JoinRuns>) -> Self {
        Self { name: format!("{objects} cubes, {} clients", joining::OTHERS_OF_CUBES), runs }
    }

    /// Records a world with this number of cubes for each seed, and runs clients that join it.
    #[must_use]
    pub fn cubes(objects: usize, seeds: impl Into<Seeds>) -> Self {
        let ticks = joining::STATES * STEPS_PER_STATE;
        let run = |seed| join_cubes(&CubeRecording::new(objects, seed, ticks), seed);
        Self::of_cubes(objects, for_seeds(seeds, run))
    }

    /// Runs clients that join 1,000 bodies and other clients.
    #[must_use]
    pub fn crowd(seeds: impl Into<Seeds>) -> Self {
        let run = |seed| joining::run_crowd(&bodies(seed, joining::STATES), seed);
        Self { name: format!("{OBJECTS} bodies, {} clients", fanout::CLIENTS), runs: for_seeds(seeds, run) }
    }

    /// Returns the figures of each setup.
    fn joins(&self) -> Vec<(JoinSetup, Vec<JoinFigures>)> {
        let setups = self.runs.first().map_or(&[][..], |run| &run.joins);
        let of = |index: usize| self.runs.iter().filter_map(move |run| run.joins.get(index).map(|(_, join)| *join));
        setups.iter().enumerate().map(|(index, (setup, _))| (*setup, of(index).collect())).collect()
    }

    /// Returns the figures of the other clients.
    fn others(&self) -> Vec<(JoinKind, Vec<OtherFigures>)> {
        let arrivals = self.runs.first().map_or(&[][..], |run| &run.others);
        let of = |index: usize| self.runs.iter().filter_map(move |run| run.others.get(index).map(|(_, other)| *other));
        arrivals.iter().enumerate().map(|(index, (kind, _))| (*kind, of(index).collect())).collect()
    }

    fn join_rows(&self) -> String {
        let parts: [fn(&JoinFigures) -> f64; 5] = [
            |figures| figures.time,
            |figures| figures.whole,
            JoinFigures::share_of_transfer,
            |figures| figures.sent / figures.useful,
            |figures| figures.shown,
        ];
        let row = |(setup, runs): &(JoinSetup, Vec<JoinFigures>)| {
            let JoinSetup { kind, rate, loss } = setup;
            let cells = format!("{} | {} | {} | {:.0} %", self.name, kind.name(), rate / 1000, loss * 100.0);
            FigureRow::new(cells, runs, &parts).line()
        };
        self.joins().iter().map(row).collect()
    }

    fn other_rows(&self) -> String {
        let parts: [fn(&OtherFigures) -> f64; 4] = [
            |figures| figures.bytes,
            |figures| figures.changed,
            |figures| figures.encodings,
            |figures| figures.encodings_without,
        ];
        let row = |(kind, runs): &(JoinKind, Vec<OtherFigures>)| {
            FigureRow::new(format!("{} | {}", self.name, kind.name_of_group()), runs, &parts).line()
        };
        self.others().iter().map(row).collect()
    }

    fn goals(&self) -> Vec<SyncGoal> {
        let mut goals = Vec::new();
        for (JoinSetup { kind, rate, loss }, runs) in &self.joins() {
            let (rate, lost, name) = (rate / 1000, loss * 100.0, kind.name());
            let figure = format!("time to join, of that of a whole state: {}, {name}, {rate} kbit/s", self.name);
            match kind {
                JoinKind::Joins | JoinKind::Rejoins if *loss == 0.0 => {
                    goals.push(SyncGoal::new(&figure, SHARE_OF_TRANSFER, runs, JoinFigures::share_of_transfer));
                }
                _ => {
                    let figure = format!("{figure}, {lost:.0} % lost");
                    goals.push(SyncGoal::comparison(&figure, runs, JoinFigures::share_of_transfer));
                }
            }
        }
        for (kind, runs) in &self.others() {
            let figure = format!("messages of others that change: {}, {}", self.name, kind.name_of_group());
            goals.push(SyncGoal::new(&figure, 0.0, runs, |run| run.changed));
        }
        goals
    }
}

/// Returns the tables of clients that join.
#[must_use]
pub fn join_tables(worlds: &[JoinWorld]) -> String {
    let mut text = String::from(
        "| world | client | kbit/s | lost | has all, ms | worst | whole state, ms | worst | share | worst | bytes, \
         of a whole state | worst | shows all, ms | worst |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    worlds.iter().for_each(|world| text.push_str(&world.join_rows()));
    text.push_str(
        "\n| world | come | bytes of another client and state | worst | messages that change | worst | most encodings \
         a state | worst | without them | worst |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    worlds.iter().for_each(|world| text.push_str(&world.other_rows()));
    text
}

/// Returns the goals of clients that join.
#[must_use]
pub fn join_goals(worlds: &[JoinWorld]) -> Vec<SyncGoal> {
    worlds.iter().flat_map(JoinWorld::goals).collect()
}

/// Runs clients that join each world.
#[must_use]
pub fn join_worlds(seeds: Seeds) -> Vec<JoinWorld> {
    CUBES.into_iter().map(|objects| JoinWorld::cubes(objects, seeds)).chain([JoinWorld::crowd(seeds)]).collect()
}
