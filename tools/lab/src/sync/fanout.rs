//! One server, 1,000 objects and 200 clients: what encodings are shared, and how far behind each client is.

use std::time::Duration;

use slipgate_sim::Random;

use super::crowd::{self, CrowdClient, CrowdRoom, MAX_MESSAGES, STATE_TIME};
use super::crowd_client::{CrowdReader, compare};
use super::crowd_world::CrowdWorld;
use super::percentile::Errors;

/// The number of objects, and of clients (issue: 1,000 objects, 200 clients, 20 states a second).
pub const OBJECTS: usize = 1000;
/// The number of clients.
pub const CLIENTS: usize = 200;
/// The share of objects that move: that of the prototype with 1,001 cubes.
pub const MOVING: f64 = 0.83;
/// States before the measurement starts: two seconds.
const WARM_UP: usize = 40;
/// States of a run, after which the world stands still: five seconds.
pub const STATES: usize = WARM_UP + 60;
/// The most states in which clients get the rest: ten seconds.
const MAX_REST: usize = 200;
/// Each client is compared with the server at one of this number of states.
const STATES_OF_COMPARISON: usize = 4;

/// How a state is sent to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanoutMethod {
    /// `slipgate-sync`, with this number of messages for each state at most.
    Shared(usize),
    /// All objects as a whole with the same precision, encoded once for all clients: as many of them in each state as
    /// this number of messages holds, by turns.
    Whole(usize),
}

impl FanoutMethod {
    /// All methods: room for all that moved, for two messages, and for one.
    pub const ALL: [Self; 6] = [
        Self::Shared(MAX_MESSAGES),
        Self::Whole(MAX_MESSAGES),
        Self::Shared(2),
        Self::Whole(2),
        Self::Shared(1),
        Self::Whole(1),
    ];

    /// Returns the text for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shared(1) => "slipgate-sync, one message",
            Self::Shared(2) => "slipgate-sync, two messages",
            Self::Shared(_) => "slipgate-sync, all that moved",
            Self::Whole(1) => "whole objects by turns, one message",
            Self::Whole(2) => "whole objects by turns, two messages",
            Self::Whole(_) => "whole objects, all to everyone",
        }
    }
}

/// The figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FanoutFigures {
    /// How often objects are encoded for a state.
    pub encodings: f64,
    /// The records that all clients are sent for a state: as often they would be encoded if each client had its own.
    pub records: f64,
    /// The payload of a client and state, in bytes.
    pub bytes: f64,
    /// How long ago a newer state could have replaced the oldest object of a client: the 99th percentile over clients
    /// and states, in milliseconds.
    pub oldest: f64,
    /// The same of the worst client and state.
    pub oldest_of_all: f64,
    /// The 99th percentile of the distance between an object of a client and the server's object in the newest state
    /// that could be there, in centimetres.
    pub error: f64,
    /// The clients that have another pose of any object when the world has stopped.
    pub differing: f64,
}

/// Returns the clients: one way takes 25 to 150 ms.
#[must_use]
pub fn clients(count: usize, loss: f64, room: CrowdRoom) -> Vec<CrowdClient> {
    let client = |index: usize| CrowdClient {
        one_way: Duration::from_millis(25 * (1 + index as u64 % 6)),
        loss,
        room,
        joins: 0,
        pause: 0..0,
        leaves: false,
        stream: index as u64,
    };
    (0..count).map(client).collect()
}

/// Runs a method on a world. All clients lose this share of their messages.
#[must_use]
pub fn run(world: &CrowdWorld, method: FanoutMethod, loss: f64, seed: u64) -> FanoutFigures {
    match method {
        FanoutMethod::Shared(messages) => shared(world, messages, loss, seed),
        FanoutMethod::Whole(messages) => whole(world, messages, loss, seed),
    }
}

/// Returns the newest state that could be at a client: it was sent long enough ago.
fn newest_state(now: usize, one_way: Duration) -> Option<usize> {
    let at = (STATE_TIME * now as u32).checked_sub(one_way)?;
    Some((at.as_micros() / STATE_TIME.as_micros()) as usize)
}

#[derive(Default)]
struct FanoutMeasure {
    oldest: Errors,
    errors: Errors,
    differing: usize,
}

impl FanoutMeasure {
    fn figures(mut self, encodings: f64, records: f64, bytes: f64) -> FanoutFigures {
        FanoutFigures {
            encodings,
            records,
            bytes,
            oldest: self.oldest.percentile(99),
            oldest_of_all: self.oldest.percentile(100),
            error: self.errors.percentile(99) * 100.0,
            differing: self.differing as f64,
        }
    }
}

fn shared(world: &CrowdWorld, messages: usize, loss: f64, seed: u64) -> FanoutFigures {
    let clients = clients(CLIENTS, loss, CrowdRoom::Messages(messages));
    let run = crowd::run(world, &clients, seed, world.states, Some(MAX_REST));
    let mut measure = FanoutMeasure::default();
    for (index, (client, log)) in clients.iter().zip(&run.logs).enumerate() {
        let mut reader = CrowdReader::new(world, log);
        for state in WARM_UP..world.states {
            let now = STATE_TIME * state as u32;
            while reader.read(now).is_some() {}
            if !(state + index).is_multiple_of(STATES_OF_COMPARISON) {
                continue;
            }
            let Some(newest) = newest_state(state, client.one_way) else { continue };
            let oldest = compare(world, newest, |id| reader.state_of(id), |error| measure.errors.add(error));
            measure.oldest.add(oldest);
        }
        while reader.read(Duration::MAX).is_some() {}
        measure.differing += usize::from(reader.differing(world.states) > 0);
    }
    let states = (world.states - WARM_UP) as f64;
    let sum = |counts: &[u64]| counts.get(WARM_UP..world.states).unwrap_or(&[]).iter().sum::<u64>() as f64;
    let sent = run.logs.iter().flat_map(|log| log.sent.get(WARM_UP..world.states).unwrap_or(&[]));
    let bytes = sent.sum::<usize>() as f64;
    measure.figures(sum(&run.encodings) / states, sum(&run.records) / states, bytes / states / CLIENTS as f64)
}

/// Sends whole objects by turns. A client has the newest message that arrived of each part of the objects.
fn whole(world: &CrowdWorld, messages: usize, loss: f64, seed: u64) -> FanoutFigures {
    let all = crowd::whole_world(world, 0);
    let parts = all.datagrams.max(1);
    let (per_part, messages) = (world.objects.div_ceil(parts), messages.min(parts));
    let mut measure = FanoutMeasure::default();
    for (index, client) in clients(CLIENTS, loss, CrowdRoom::Messages(messages)).iter().enumerate() {
        let mut random = Random::new(seed, client.stream << 8 | 0x4e);
        let mut newest_of_parts: Vec<Option<usize>> = vec![None; parts];
        let mut sent = 0;
        for state in 0..world.states {
            let Some(newest) = newest_state(state, client.one_way) else { continue };
            while sent <= newest {
                for message in 0..messages {
                    let part = newest_of_parts.get_mut((sent * messages + message) % parts);
                    part.filter(|_| random.fraction() >= loss).into_iter().for_each(|part| *part = Some(sent));
                }
                sent += 1;
            }
            if state >= WARM_UP && (state + index).is_multiple_of(STATES_OF_COMPARISON) {
                let known = |id: usize| newest_of_parts.get(id / per_part).copied().flatten();
                measure.oldest.add(compare(world, newest, known, |error| measure.errors.add(error)));
            }
        }
    }
    let share = messages as f64 / parts as f64;
    let encodings = world.objects as f64 * share;
    measure.figures(encodings, encodings * CLIENTS as f64, all.bytes as f64 * share)
}
