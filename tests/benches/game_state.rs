//! Measures the server's share of a core for game state: `cargo bench -p slipgate-tests --bench game_state`.
//!
//! First, 1,000 objects, of which 83 % move, for 200 clients, 20 states a second. Each client has another round trip of
//! 50 to 300 ms, loses 2 % or 13 % of its messages, and has room for all that moved, for two messages of 1,100 bytes a
//! state, or for one. The figure is the CPU time of the calls of the `Replicator`, without the
//! game and the sockets: the median and the worst of five rounds, beside the goals. The exit status is 1 if a median
//! misses its goal. Then a turn of a server with 65,535 objects: mean and longest one of 128 turns. With `--json`, as
//! in `cargo bench -p slipgate-tests -- --json`, which passes it to every benchmark, the lines go to stderr.

#![allow(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used, reason = "a program for developers")]

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use slipgate_lab::sync::bodies::{Bodies, STATES_PER_SECOND};
use slipgate_sim::Random;
use slipgate_sync::{Look, ObjectId, Replicator, Schema, ViewerId};
use slipgate_tests::counting::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const TICKS_PER_STATE: u32 = 3;
const MESSAGE_BYTES: usize = 1100;
const ROUNDS: usize = 5;
const STATES_PER_ROUND: u32 = 60;
/// The goals of 1,000 objects and 200 clients: percent of a core, and allocations of a round.
const MAX_SHARE: f64 = 30.0;
const MAX_ALLOCATIONS: f64 = 0.0;
/// States before the first round, 15 s: the histories of all objects grow to their full length in them.
const WARM_UP_STATES: usize = 300;
/// Turns of a large world: more than a tick can be before it is too old for a baseline.
const TURNS: usize = 128;

/// A world and its clients.
#[derive(Clone, Copy)]
struct Setup {
    objects: u16,
    clients: u16,
    /// The share of objects that move.
    moving: f64,
    /// The most messages of a state for each client.
    messages: usize,
    /// The share of messages that get lost.
    loss: f64,
    /// How far a client sees, in metres; all objects with `None`.
    sight: Option<f32>,
}

fn say(line: &str) {
    if std::env::args().any(|argument| argument == "--json") {
        eprintln!("{line}");
    } else {
        println!("{line}");
    }
}

/// Returns the CPU time of this thread; the time of day where the system does not tell.
fn cpu_time() -> Duration {
    #[cfg(target_os = "linux")]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
    #[cfg(not(target_os = "linux"))]
    std::time::UNIX_EPOCH.elapsed().unwrap()
}

struct World {
    setup: Setup,
    replicator: Replicator,
    bodies: Bodies,
    random: Random,
    clients: Vec<Client>,
    tick: u32,
    bytes: usize,
}

struct Client {
    viewer: ViewerId,
    round_trip: usize,
    place: [f32; 3],
    /// The messages of the last states.
    sent: VecDeque<Vec<(u64, bool)>>,
}

impl World {
    fn new(setup: Setup) -> Self {
        let mut random = Random::new(7, 1);
        let mut bodies = Bodies::new(setup.objects.into(), &mut random);
        let client_places: Vec<[f32; 3]> = (0..setup.clients).map(|_| bodies.random_place(&mut random)).collect();
        bodies.set_moving(setup.moving, &mut random);
        let mut schema = Schema::builder();
        let kind = schema.add(&bodies.fields());
        let mut replicator = Replicator::new(Arc::new(schema.build().unwrap()), setup.objects, setup.clients, 60);
        for (id, (pose, _)) in (0..=u16::MAX).zip(bodies.poses()) {
            replicator.spawn(ObjectId(id), kind).unwrap().set_vector(0, pose.position).unwrap();
        }
        let clients = client_places.into_iter().enumerate().map(|(index, place)| Client {
            viewer: replicator.add_viewer().unwrap(),
            round_trip: 1 + index % 6,
            place,
            sent: (0..8).map(|_| Vec::with_capacity(setup.messages)).collect(),
        });
        let clients = clients.collect();
        Self { setup, replicator, bodies, random, clients, tick: 0, bytes: 0 }
    }

    fn step(&mut self) {
        self.bodies.step(&mut self.random);
        for (id, (pose, is_moving)) in (0..=u16::MAX).zip(self.bodies.poses()) {
            if is_moving {
                let mut object = self.replicator.object(ObjectId(id)).unwrap();
                object.set_vector(0, pose.position).unwrap();
                object.set_rotation(1, pose.rotation).unwrap();
            }
        }
    }

    /// Sends one state to all clients. Returns the time that it took.
    fn send(&mut self) -> Duration {
        let messages = self.setup.messages;
        self.step();
        self.tick += TICKS_PER_STATE;
        let (start, mut buf) = (cpu_time(), [0; MESSAGE_BYTES]);
        self.replicator.commit(self.tick).unwrap();
        for client in &mut self.clients {
            for (tag, is_lost) in client.sent.get(client.round_trip).into_iter().flatten() {
                if *is_lost {
                    self.replicator.on_lost(client.viewer, *tag);
                } else {
                    self.replicator.on_acknowledged(client.viewer, *tag);
                }
            }
            let mut sent = client.sent.pop_back().unwrap();
            sent.clear();
            if let Some(radius) = self.setup.sight {
                self.replicator.look(client.viewer, Some(Look::around(client.place, radius).leaving(1.2 * radius)));
            }
            self.replicator.plan(client.viewer, messages, MESSAGE_BYTES);
            for _ in 0..messages {
                let Some(message) = self.replicator.write(client.viewer, &mut buf) else { break };
                sent.push((message.tag, self.random.fraction() < self.setup.loss));
                self.bytes += message.bytes;
            }
            client.sent.push_front(sent);
        }
        cpu_time() - start
    }
}

/// The figures of a kind in each round.
struct Rounds([f64; ROUNDS]);

impl Rounds {
    fn new(mut figures: [f64; ROUNDS]) -> Self {
        figures.sort_by(f64::total_cmp);
        Self(figures)
    }

    fn median(&self) -> f64 {
        self.0[ROUNDS / 2]
    }

    fn worst(&self) -> f64 {
        self.0[ROUNDS - 1]
    }
}

/// Measures the share of a core of 1,000 objects and 200 clients. Returns whether the median share reaches its goal and
/// no round allocated.
fn measure_share(name: &str, messages: usize, loss: f64) -> bool {
    let mut world = World::new(Setup { objects: 1000, clients: 200, moving: 0.83, messages, loss, sight: None });
    (0..WARM_UP_STATES).for_each(|_| _ = world.send());
    world.bytes = 0;
    let encoded_before = world.replicator.encoded_count();
    let rounds = [(); ROUNDS].map(|()| {
        let mut time = Duration::ZERO;
        let count = allocations(|| time = (0..STATES_PER_ROUND).map(|_| world.send()).sum());
        let share = time.as_secs_f64() / f64::from(STATES_PER_ROUND) * f64::from(STATES_PER_SECOND) * 100.0;
        (share, count as f64)
    });
    let (shares, counts) = (Rounds::new(rounds.map(|round| round.0)), Rounds::new(rounds.map(|round| round.1)));
    let states = ROUNDS as f64 * f64::from(STATES_PER_ROUND);
    let encodings = (world.replicator.encoded_count() - encoded_before) as f64 / states;
    let bytes = world.bytes as f64 / states / world.clients.len() as f64;
    let kilobits = bytes * 8.0 * f64::from(STATES_PER_SECOND) / 1000.0;
    let is_reached = shares.median() <= MAX_SHARE && counts.worst() <= MAX_ALLOCATIONS;
    say(&format!(
        "{name}, {:.0} % lost: {:.1} % of a core, worst {:.1} (goal {MAX_SHARE}); {} allocations a round, worst {} \
         (goal {MAX_ALLOCATIONS}): {}; {encodings:.0} encodings of objects a state; {kilobits:.0} kbit/s a client",
        loss * 100.0,
        shares.median(),
        shares.worst(),
        counts.median(),
        counts.worst(),
        if is_reached { "reached" } else { "missed" },
    ));
    is_reached
}

/// Measures turns of 65,535 objects, after this number of turns.
fn measure_turns(name: &str, setup: Setup, warm_up: usize) {
    let mut world = World::new(setup);
    (0..warm_up).for_each(|_| _ = world.send());
    let turns: Vec<f64> = (0..TURNS).map(|_| world.send().as_secs_f64() * 1000.0).collect();
    let (mean, longest) = (turns.iter().sum::<f64>() / TURNS as f64, turns.iter().fold(0.0, |a: f64, b| a.max(*b)));
    say(&format!("65,535 objects, {name}: {mean:.2} ms a turn, longest {longest:.2} ms"));
}

fn main() -> ExitCode {
    let budgets = [("all that moved", 16), ("two messages a state", 2), ("one message a state", 1)];
    let rows = [0.02, 0.13].into_iter().flat_map(|loss| budgets.map(|(name, messages)| (name, messages, loss)));
    let missed = rows.filter(|(name, messages, loss)| !measure_share(name, *messages, *loss)).count();
    let large = Setup { objects: u16::MAX, clients: 16, moving: 0.01, messages: 2, loss: 0.02, sight: Some(12.0) };
    let everywhere = Setup { messages: 16, sight: None, ..large };
    measure_turns("1 % move, 16 clients see 12 m", large, 300);
    measure_turns("1 % move, 16 clients see all", everywhere, 300);
    measure_turns("none moves, 16 clients see all", Setup { moving: 0.0, ..everywhere }, 300);
    measure_turns("16 clients join and see all", Setup { messages: 2, ..everywhere }, 10);
    measure_turns("all move, 16 clients see 12 m", Setup { moving: 1.0, ..large }, 20);
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
