//! A server with a crowd of clients, each with a path and a budget of its own: what it sends, and what arrives.
//!
//! The reports of messages follow from the paths alone, so the server runs first, and each client reads its messages
//! afterwards: see [`crowd_client`](super::crowd_client).

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use slipgate_sim::Random;
use slipgate_sync::{ObjectId, Replicator, ViewerId};

use super::bodies::STATES_PER_SECOND;
use super::crowd_world::{CrowdWorld, TICKS_PER_STATE};
use super::replay::DATAGRAM_HEADER_BYTES;
use super::sync_figures::Sent;

/// The longest message, in bytes.
pub const MESSAGE_BYTES: usize = 1100;
/// The time between two states.
pub const STATE_TIME: Duration = Duration::from_millis(1000 / STATES_PER_SECOND as u64);
/// The most messages of a state if the path has no limit.
pub const MAX_MESSAGES: usize = 16;

/// What may be sent to a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CrowdRoom {
    /// This number of messages for each state.
    Messages(usize),
    /// This number of bits in a second, with the headers of datagrams. It is also the rate of the path.
    Rate(u64),
}

/// A client of the crowd.
#[derive(Clone, Debug)]
pub struct CrowdClient {
    /// The time of a datagram to the client, and of a report back.
    pub one_way: Duration,
    /// The share of datagrams that get lost.
    pub loss: f64,
    /// What may be sent to it.
    pub room: CrowdRoom,
    /// The state at which it joins.
    pub joins: usize,
    /// The states of which nothing arrives.
    pub pause: Range<usize>,
    /// Whether the server ends the connection for the pause.
    pub leaves: bool,
    /// The stream of its losses.
    pub stream: u64,
}

/// A message that arrived.
pub struct ArrivedMessage {
    /// When it arrived.
    pub at: Duration,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// What a client was sent, and what arrived.
#[derive(Default)]
pub struct ClientLog {
    /// The payload of each state, in bytes.
    pub sent: Vec<usize>,
    /// When each datagram arrived, or would have, and its bytes with headers.
    pub datagrams: Vec<(Duration, usize)>,
    /// In the order of their arrival.
    pub arrived: Vec<ArrivedMessage>,
}

/// What a server did.
pub struct CrowdRun {
    /// Of each client.
    pub logs: Vec<ClientLog>,
    /// How often objects were encoded for each state.
    pub encodings: Vec<u64>,
    /// How many records all clients were sent for each state.
    pub records: Vec<u64>,
}

/// The report of a message: when the server has it, its tag, whether the message arrived, and whether it had objects.
struct CrowdReport {
    due: Duration,
    tag: u64,
    has_arrived: bool,
    has_objects: bool,
}

/// A client as the server sees it.
struct CrowdViewer<'c> {
    client: &'c CrowdClient,
    viewer: Option<ViewerId>,
    random: Random,
    /// The bytes that may be sent now, for a limited rate.
    credit: u64,
    /// When the path has sent all bytes.
    free: Duration,
    reports: VecDeque<CrowdReport>,
    log: ClientLog,
}

/// Returns a server with all objects of a world, as they are at a state.
///
/// # Panics
///
/// Never: the ids are free.
pub(super) fn replicator(world: &CrowdWorld, clients: usize) -> Replicator {
    let ticks = STATES_PER_SECOND * TICKS_PER_STATE;
    let mut replicator = Replicator::new(Arc::clone(&world.schema), world.objects as u16, clients as u16, ticks);
    (0..world.objects as u16).for_each(|id| replicator.spawn(ObjectId(id), world.kind).map(drop).expect("a free id"));
    replicator
}

/// Sets the objects to a state of the world, and commits it.
///
/// # Panics
///
/// Never: the objects exist, and ticks increase.
pub(super) fn commit(replicator: &mut Replicator, world: &CrowdWorld, state: usize, is_first: bool) {
    let before = world.state(state.saturating_sub(1));
    for (id, (before, pose)) in (0..).zip(before.iter().zip(world.state(state))) {
        if is_first || before != pose {
            let mut object = replicator.object(ObjectId(id)).expect("it was spawned");
            object.set_vector(0, pose.position).expect("a place");
            object.set_rotation(1, pose.rotation).expect("a rotation");
        }
    }
    replicator.commit(CrowdWorld::tick(state)).expect("ticks increase");
}

/// Returns what the whole world takes at a state, for a client that has nothing.
#[must_use]
pub fn whole_world(world: &CrowdWorld, state: usize) -> Sent {
    let mut replicator = replicator(world, 1);
    commit(&mut replicator, world, state, true);
    let viewer = replicator.add_viewer().expect("the first client");
    let (mut total, mut buf) = (Sent::default(), [0; MESSAGE_BYTES]);
    replicator.plan(viewer, world.objects, MESSAGE_BYTES);
    while let Some(message) = replicator.write(viewer, &mut buf) {
        total.add(Sent { bytes: message.bytes, datagrams: 1 });
    }
    total
}

/// Sends this number of states to all clients. With `until_quiet`, more follow until all clients have everything, and
/// the server knows it.
///
/// # Panics
///
/// If `slipgate-sync` refuses a call, which is a mistake of ours.
#[must_use]
pub fn run(
    world: &CrowdWorld,
    clients: &[CrowdClient],
    seed: u64,
    states: usize,
    until_quiet: Option<usize>,
) -> CrowdRun {
    let mut server = replicator(world, clients.len());
    let mut viewers: Vec<CrowdViewer<'_>> = clients.iter().map(|client| CrowdViewer::new(client, seed)).collect();
    let (mut encodings, mut all_records) = (Vec::new(), Vec::new());
    for state in 0..states + until_quiet.unwrap_or(0) {
        commit(&mut server, world, state, state == 0);
        let before = server.encoded_count();
        let records: usize = viewers.iter_mut().map(|viewer| viewer.turn(&mut server, state)).sum();
        encodings.push(server.encoded_count() - before);
        all_records.push(records as u64);
        if state >= states && records == 0 && viewers.iter().all(CrowdViewer::is_quiet) {
            break;
        }
    }
    CrowdRun { logs: viewers.into_iter().map(|viewer| viewer.log).collect(), encodings, records: all_records }
}

impl<'c> CrowdViewer<'c> {
    fn new(client: &'c CrowdClient, seed: u64) -> Self {
        Self {
            client,
            viewer: None,
            random: Random::new(seed, client.stream << 8 | 0x43),
            credit: 0,
            free: Duration::ZERO,
            reports: VecDeque::new(),
            log: ClientLog::default(),
        }
    }

    /// Returns whether no object is on its way or waits for a report.
    fn is_quiet(&self) -> bool {
        !self.reports.iter().any(|report| report.has_objects)
    }

    /// Takes reports and sends a state. Returns the number of its records.
    fn turn(&mut self, server: &mut Replicator, state: usize) -> usize {
        let now = STATE_TIME * state as u32;
        let is_away = self.client.leaves && self.client.pause.contains(&state);
        if state < self.client.joins || is_away {
            if let Some(viewer) = self.viewer.take() {
                server.remove_viewer(viewer);
                self.reports.clear();
            }
            self.log.sent.push(0);
            return 0;
        }
        let viewer = *self.viewer.get_or_insert_with(|| server.add_viewer().expect("there is room for all clients"));
        while let Some(report) = self.reports.pop_front_if(|report| report.due <= now) {
            if report.has_arrived {
                server.on_acknowledged(viewer, report.tag);
            } else {
                server.on_lost(viewer, report.tag);
            }
        }
        self.send(server, viewer, state)
    }

    fn send(&mut self, server: &mut Replicator, viewer: ViewerId, state: usize) -> usize {
        let (now, messages) = (STATE_TIME * state as u32, self.messages());
        let (mut buf, mut sent, mut records) = ([0; MESSAGE_BYTES], 0, 0);
        server.plan(viewer, messages, MESSAGE_BYTES);
        for _ in 0..messages {
            let Some(message) = server.write(viewer, &mut buf) else { break };
            records += message.objects;
            sent += message.bytes;
            let bytes = buf.get(..message.bytes).unwrap_or(&[]);
            let on_path = bytes.len() + DATAGRAM_HEADER_BYTES;
            let at = self.arrival(on_path, now);
            self.credit = self.credit.saturating_sub(on_path as u64);
            self.log.datagrams.push((at, on_path));
            let has_arrived = self.random.fraction() >= self.client.loss && !self.client.pause.contains(&state);
            // A loss is known a state later than an arrival.
            let due = at + self.client.one_way + if has_arrived { Duration::ZERO } else { STATE_TIME };
            let has_objects = message.objects > 0;
            let behind = self.reports.iter().rev().take_while(|report| report.due > due).count();
            let report = CrowdReport { due, tag: message.tag, has_arrived, has_objects };
            self.reports.insert(self.reports.len() - behind, report);
            if has_arrived {
                self.log.arrived.push(ArrivedMessage { at, bytes: bytes.to_vec() });
            }
        }
        self.log.sent.push(sent);
        records
    }

    /// Returns the number of messages that may be sent for this state. Credit that is left counts for the next state,
    /// as far as it is less than a message.
    fn messages(&mut self) -> usize {
        let rate = match self.client.room {
            CrowdRoom::Messages(messages) => return messages,
            CrowdRoom::Rate(rate) => rate / 8 / u64::from(STATES_PER_SECOND),
        };
        let datagram = (MESSAGE_BYTES + DATAGRAM_HEADER_BYTES) as u64;
        self.credit = self.credit.min(datagram) + rate;
        (self.credit / datagram) as usize
    }

    /// Returns when a datagram of this size arrives.
    fn arrival(&mut self, bytes: usize, now: Duration) -> Duration {
        if let CrowdRoom::Rate(rate) = self.client.room {
            self.free = self.free.max(now) + transfer_time(bytes, rate);
            return self.free + self.client.one_way;
        }
        now + self.client.one_way
    }
}

/// Returns the time of this number of bytes at this number of bits in a second.
#[must_use]
pub fn transfer_time(bytes: usize, rate: u64) -> Duration {
    Duration::from_micros(bytes as u64 * 8 * 1_000_000 / rate.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::bodies::Bodies;
    use crate::sync::recording::Recording;

    fn world(states: usize) -> CrowdWorld {
        let fields = Bodies::new(300, &mut Random::new(1, 1)).fields();
        CrowdWorld::new(&Recording::of_bodies(300, 1.0, 1, states), &fields, states)
    }

    fn client(room: CrowdRoom, loss: f64) -> CrowdClient {
        let one_way = Duration::from_millis(50);
        CrowdClient { one_way, loss, room, joins: 4, pause: 0..0, leaves: false, stream: 7 }
    }

    #[test]
    fn client_gets_what_its_rate_allows() {
        let rate = 100_000;
        let run =
            run(&world(40), &[client(CrowdRoom::Rate(256_000), 0.0), client(CrowdRoom::Rate(rate), 0.0)], 1, 40, None);
        for (log, rate) in run.logs.iter().zip([256_000, rate]) {
            let bytes: usize = log.datagrams.iter().map(|(_, bytes)| bytes).sum();
            let (least, most) = (rate * 36 / 20 / 8 * 9 / 10, rate * 36 / 20 / 8 + 1168);
            assert!((least..=most).contains(&(bytes as u64)), "{bytes} of {least} to {most}");
            assert!(log.datagrams.is_sorted_by_key(|(at, _)| *at) && log.sent.iter().take(4).all(|sent| *sent == 0));
        }
    }

    #[test]
    fn loss_and_pause_are_no_arrivals() {
        let pause = CrowdClient { pause: 10..20, ..client(CrowdRoom::Messages(2), 0.0) };
        let clients = [client(CrowdRoom::Messages(2), 0.0), client(CrowdRoom::Messages(2), 0.5), pause];
        let run = run(&world(40), &clients, 1, 40, None);
        let [all, half, paused] = &run.logs[..] else { panic!("three clients") };
        assert_eq!(all.arrived.len(), all.datagrams.len());
        assert!(half.arrived.len() * 3 < half.datagrams.len() * 2);
        assert_eq!(paused.arrived.len() + 20, paused.datagrams.len());
    }

    #[test]
    fn run_ends_when_all_clients_have_the_last_state() {
        let run = run(&world(20), &[client(CrowdRoom::Messages(1), 0.3)], 1, 20, Some(200));
        let states = run.records.len();
        assert!((22..200).contains(&states), "{states}");
        assert_eq!(run.records.last(), Some(&0));
    }
}
