//! Measures the server's share of a core for game state: `cargo bench -p slipgate-tests --bench game_state`.
//!
//! 1,000 objects, of which 83 % move, for 200 clients, 20 states a second. Each client has another round trip of 50 to
//! 300 ms and loses 2 % of its messages. The figure is the CPU time of the calls of the `Replicator`, without the game
//! and the sockets.
//! With `--json`, which `cargo bench -p slipgate-tests -- --json` passes to every benchmark, the lines go to stderr.

#![allow(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used, reason = "a program for developers")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use slipgate_sim::Random;
use slipgate_sync::{Field, ObjectId, Replicator, Schema, ViewerId};

const OBJECTS: u16 = 1000;
const CLIENTS: u16 = 200;
const STATES_PER_SECOND: u32 = 20;
const TICKS_PER_STATE: u32 = 3;
const MOVING_SHARE: f64 = 0.83;
const LOSS: f64 = 0.02;
const MESSAGE_BYTES: usize = 1100;
const ROUNDS: usize = 5;
const STATES_PER_ROUND: u32 = 60;
/// The goal, in percent of a core.
const GOAL: f64 = 30.0;

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

/// A body that flies around and changes its speed a little at each state, as colliding ones do.
struct Body {
    position: [f32; 3],
    velocity: [f32; 3],
    is_moving: bool,
}

struct World {
    replicator: Replicator,
    bodies: Vec<Body>,
    random: Random,
    clients: Vec<Client>,
    tick: u32,
    bytes: usize,
}

struct Client {
    viewer: ViewerId,
    round_trip: usize,
    /// The messages of the last states.
    sent: VecDeque<Vec<(u64, bool)>>,
}

impl World {
    fn new(messages: usize) -> Self {
        let mut schema = Schema::builder();
        let area = [-16.0..16.0, 0.0..16.0, -16.0..16.0];
        let kind = schema.add(&[Field::vector(area, 512), Field::rotation(9)]);
        let mut replicator = Replicator::new(Arc::new(schema.build().unwrap()), OBJECTS, CLIENTS);
        let mut random = Random::new(7, 1);
        let bodies = (0..OBJECTS).map(|id| {
            replicator.spawn(ObjectId(id), kind).unwrap();
            let position = [-15.0, 0.0, -15.0].map(|low| random.between(low, 15.0) as f32);
            Body { position, velocity: [1.0; 3], is_moving: random.fraction() < MOVING_SHARE }
        });
        let bodies = bodies.collect();
        let clients = (0..usize::from(CLIENTS)).map(|index| Client {
            viewer: replicator.add_viewer().unwrap(),
            round_trip: 1 + index % 6,
            sent: (0..8).map(|_| Vec::with_capacity(messages)).collect(),
        });
        let clients = clients.collect();
        Self { replicator, bodies, random, clients, tick: 0, bytes: 0 }
    }

    fn step(&mut self) {
        for (id, body) in (0..).zip(&mut self.bodies).filter(|(_, body)| body.is_moving) {
            for (place, speed) in body.position.iter_mut().zip(&mut body.velocity) {
                *speed = (*speed + self.random.between(-0.2, 0.2) as f32).clamp(-4.0, 4.0);
                *place += *speed / STATES_PER_SECOND as f32;
                if !(-15.0..15.0).contains(place) {
                    (*place, *speed) = (place.clamp(-15.0, 15.0), -*speed);
                }
            }
            let [x, y, z] = body.position.map(|part| part / 60.0);
            let mut object = self.replicator.object(ObjectId(id)).unwrap();
            object.set_vector(0, body.position).unwrap();
            object.set_rotation(1, [x, y, z, (1.0 - x * x - y * y - z * z).sqrt()]).unwrap();
        }
    }

    /// Sends one state to all clients, each of which has room for this many messages. Returns the time that it took.
    fn send(&mut self, messages: usize) -> Duration {
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
            self.replicator.plan(client.viewer, messages, MESSAGE_BYTES);
            for _ in 0..messages {
                let Some(message) = self.replicator.write(client.viewer, &mut buf) else { break };
                sent.push((message.tag, self.random.fraction() < LOSS));
                self.bytes += message.bytes;
            }
            client.sent.push_front(sent);
        }
        cpu_time() - start
    }
}

fn main() {
    for (name, messages) in [("all that moved", 16), ("two messages a state", 2)] {
        let mut world = World::new(messages);
        (0..100).for_each(|_| _ = world.send(messages));
        world.bytes = 0;
        let rounds = (0..ROUNDS).map(|_| (0..STATES_PER_ROUND).map(|_| world.send(messages)).sum::<Duration>());
        let best = rounds.min().unwrap().as_secs_f64() / f64::from(STATES_PER_ROUND);
        let states = ROUNDS as f64 * f64::from(STATES_PER_ROUND) * f64::from(CLIENTS);
        let kilobits = world.bytes as f64 / states * 8.0 * f64::from(STATES_PER_SECOND) / 1000.0;
        let share = best * f64::from(STATES_PER_SECOND) * 100.0;
        say(&format!("{name}: {share:.1} % of a core (goal {GOAL}), {kilobits:.0} kbit/s a client"));
    }
}
