//! The messages of the server to each client: the thesis's snapshots and states, and the messages of `slipgate-sync`.

use slipgate_lab::sync::cube_fields;
use slipgate_lab::sync::thesis::ThesisPriorities;
use slipgate_server::{ChannelEvent, ClientHandle, DeliveryStatus};
use slipgate_sync::{InputBuffer, InputLog, ObjectId, Replicator, ResyncRequest, ViewerId};
use slipgate_worlds::{CubeWorld, PLAYERS, PlayerInput, STEPS_PER_SECOND};

use super::knobs::{Knobs, THESIS_SNAPSHOTS, TICKS};
use super::messages::{MESSAGE_BYTES, write_keys, write_snapshot, write_state};
use super::pane::PaneKind;

const SNAPSHOT_TICKS: u32 = TICKS / THESIS_SNAPSHOTS;
/// The bits of a receipt's tag for the tag of a state message. Above them is the tick up to which the message has keys,
/// or 0.
const TAG_BITS: u32 = 40;
/// The most messages of a state for a client.
const MAX_MESSAGES: usize = 8;
/// The least bytes of states in a message, behind keys that leave little room, or on a path that carries little.
const MIN_STATE_BYTES: usize = 100;

/// The connections over which messages leave.
pub(super) trait Outlet {
    /// Returns the bytes of a message that the connection carries up to the next tick.
    fn room(&mut self, client: ClientHandle) -> usize;

    /// Sends a message with the tag of its receipt. Returns whether it was taken.
    fn post(&mut self, client: ClientHandle, message: &[u8], tag: Option<u64>) -> bool;
}

/// A client, and what it needs.
struct Receiver {
    client: ClientHandle,
    kind: PaneKind,
    viewer: Option<ViewerId>,
    /// The keys of all players, from the first one on that the client has not confirmed.
    logs: [InputLog; PLAYERS],
    /// The bytes that were sent until the last measurement.
    sent_bytes: u64,
}

pub(super) struct CubeMessages {
    knobs: Knobs,
    receivers: Vec<Receiver>,
    /// Poses, and velocities at low rates, for clients that only show.
    shown: Replicator,
    /// Whole states, for clients that simulate.
    simulated: Replicator,
    thesis: ThesisPriorities,
    message: Vec<u8>,
}

impl CubeMessages {
    pub(super) fn new(knobs: Knobs) -> Self {
        let replicator = |(schema, kind)| {
            let mut replicator =
                Replicator::new(schema, knobs.objects, PaneKind::CLIENTS.len() as u16, STEPS_PER_SECOND as u32);
            (0..knobs.objects).for_each(|id| replicator.spawn(ObjectId(id), kind).map(drop).expect("a free id"));
            replicator
        };
        Self {
            knobs,
            receivers: Vec::new(),
            shown: replicator(knobs.snapshot_schema()),
            simulated: replicator(cube_fields::simulated()),
            thesis: ThesisPriorities::new(knobs.objects.into()),
            message: Vec::new(),
        }
    }

    /// Returns the replicator of a client's method.
    fn replicator(&mut self, kind: PaneKind) -> Option<&mut Replicator> {
        match kind {
            PaneKind::OurSnapshots => Some(&mut self.shown),
            PaneKind::OurStates | PaneKind::Predicted => Some(&mut self.simulated),
            _ => None,
        }
    }

    pub(super) fn on_connected(&mut self, client: ClientHandle, id: u64) {
        let Some(kind) = PaneKind::CLIENTS.into_iter().find(|kind| kind.client_id() == id) else { return };
        let viewer = self.replicator(kind).and_then(|replicator| replicator.add_viewer().ok());
        let logs = [(); PLAYERS].map(|()| InputLog::new());
        self.receivers.push(Receiver { client, kind, viewer, logs, sent_bytes: 0 });
    }

    pub(super) fn on_disconnected(&mut self, client: ClientHandle) {
        let Some(index) = self.receivers.iter().position(|receiver| receiver.client == client) else { return };
        let Receiver { kind, viewer, .. } = self.receivers.swap_remove(index);
        if let (Some(replicator), Some(viewer)) = (self.replicator(kind), viewer) {
            replicator.remove_viewer(viewer);
        }
    }

    /// Returns whether a client moves the first player's cube.
    pub(super) fn owns_cube(&self, client: ClientHandle) -> bool {
        self.receivers.iter().any(|receiver| receiver.client == client && receiver.kind == PaneKind::Predicted)
    }

    /// Returns all clients with the bytes that were sent until the last measurement.
    pub(super) fn sent_bytes(&mut self) -> impl Iterator<Item = (ClientHandle, PaneKind, &mut u64)> {
        self.receivers.iter_mut().map(|receiver| (receiver.client, receiver.kind, &mut receiver.sent_bytes))
    }

    pub(super) fn on_receipt(&mut self, client: ClientHandle, event: &ChannelEvent) {
        let ChannelEvent::Receipt { tag, status, .. } = event else { return };
        let Some(receiver) = self.receivers.iter_mut().find(|receiver| receiver.client == client) else { return };
        let has_arrived = matches!(status, DeliveryStatus::Arrived | DeliveryStatus::ArrivedLate);
        if has_arrived {
            let keys_up_to = (tag >> TAG_BITS) as u32;
            receiver.logs.iter_mut().for_each(|log| log.on_confirmed(keys_up_to));
        }
        let (kind, viewer) = (receiver.kind, receiver.viewer);
        let tag = tag & ((1 << TAG_BITS) - 1);
        if let (Some(replicator), Some(viewer)) = (self.replicator(kind), viewer) {
            if has_arrived { replicator.on_acknowledged(viewer, tag) } else { replicator.on_lost(viewer, tag) }
        }
    }

    /// Notes the keys of a tick, and the states of one that is sent.
    pub(super) fn on_tick(&mut self, tick: u32, world: &CubeWorld, inputs: &[PlayerInput; PLAYERS]) {
        for receiver in &mut self.receivers {
            receiver.logs.iter_mut().zip(inputs).for_each(|(log, input)| log.push(tick, input.0, None));
        }
        if !tick.is_multiple_of(self.knobs.between_states()) {
            return;
        }
        for (id, state) in (0..).map(ObjectId).zip(world.states()) {
            if let Some(mut object) = self.shown.object(id) {
                cube_fields::set_shown(&mut object, &state).expect("the fields of a cube");
            }
            if let Some(mut object) = self.simulated.object(id) {
                cube_fields::set_simulated(&mut object, &state).expect("the fields of a cube");
            }
        }
        self.shown.commit(tick).and_then(|()| self.simulated.commit(tick)).expect("ticks increase");
    }

    /// Sends the messages of a tick. `own` has the inputs of the client with its own cube.
    pub(super) fn send(&mut self, tick: u32, world: &CubeWorld, own: &mut InputBuffer, outlet: &mut impl Outlet) {
        let is_state = tick.is_multiple_of(self.knobs.between_states());
        for index in 0..self.receivers.len() {
            let Some(Receiver { client, kind, viewer, .. }) = self.receivers.get(index) else { return };
            let (client, kind, viewer) = (*client, *kind, *viewer);
            match kind {
                PaneKind::ThesisSnapshots if tick.is_multiple_of(SNAPSHOT_TICKS) => {
                    write_snapshot(tick, world.states(), &mut self.message);
                    outlet.post(client, &self.message, None);
                }
                PaneKind::ThesisStates if is_state => {
                    self.write_thesis(tick, world);
                    outlet.post(client, &self.message, None);
                }
                _ if is_state && viewer.is_some() => self.send_ours(index, tick, own, outlet),
                _ => {}
            }
        }
    }

    /// Writes the thesis's message: 20 states, and no keys, which the thesis does not send.
    fn write_thesis(&mut self, tick: u32, world: &CubeWorld) {
        self.message.clear();
        self.message.extend(tick.to_le_bytes());
        let states: Vec<_> = world.states().collect();
        for id in self.thesis.choose(&states) {
            states.get(id).into_iter().for_each(|state| write_state(id, state, &mut self.message));
        }
    }

    /// Obeys the request of a client that refused a message.
    pub(super) fn resync(&mut self, client: ClientHandle, request: ResyncRequest) {
        let Some(receiver) = self.receivers.iter().find(|receiver| receiver.client == client) else { return };
        let (kind, viewer) = (receiver.kind, receiver.viewer);
        if let (Some(replicator), Some(viewer)) = (self.replicator(kind), viewer) {
            replicator.resync(viewer, request);
        }
    }

    /// Sends what a client of `slipgate-sync` lacks, as far as its connection carries it: keys, then states.
    fn send_ours(&mut self, index: usize, tick: u32, own: &mut InputBuffer, outlet: &mut impl Outlet) {
        let mut room = self.receivers.get(index).map_or(0, |receiver| outlet.room(receiver.client));
        let mut message = std::mem::take(&mut self.message);
        for number in 0..MAX_MESSAGES {
            let Some(Receiver { client, kind, viewer: Some(viewer), logs, .. }) = self.receivers.get(index) else {
                break;
            };
            let (client, kind, viewer) = (*client, *kind, *viewer);
            // The first message of a tick always leaves, so that silence is no loss.
            if number > 0 && room < MIN_STATE_BYTES {
                break;
            }
            message.clear();
            if kind != PaneKind::OurSnapshots {
                // The other messages of a tick repeat no keys.
                if number == 0 { write_keys(logs, &mut message) } else { message.extend([0; PLAYERS]) }
            }
            let start = message.len();
            message.resize(MESSAGE_BYTES.min(room).max(start + MIN_STATE_BYTES), 0);
            let Some(replicator) = self.replicator(kind) else { break };
            if number == 0 && kind == PaneKind::Predicted {
                replicator.set_report(viewer, own.report());
            }
            let rest = message.get_mut(start..).unwrap_or(&mut []);
            let Some(written) = replicator.write(viewer, rest) else { break };
            message.truncate(start + written.bytes);
            let keys_up_to = if number == 0 { tick } else { 0 };
            let tag = u64::from(keys_up_to) << TAG_BITS | written.tag;
            room = room.saturating_sub(message.len());
            if !outlet.post(client, &message, Some(tag)) {
                replicator.on_lost(viewer, written.tag);
                break;
            }
        }
        self.message = message;
    }
}

#[cfg(test)]
mod tests {
    use super::super::messages::{STATE, take_keys};
    use super::*;

    const CLIENT: ClientHandle = ClientHandle::from_bits(1);

    /// A client that simulates a world which takes more than one message.
    fn messages() -> (CubeMessages, CubeWorld) {
        let knobs = Knobs { objects: 504, rate: 60, loss: 0.0, runs: 0, latency: 0, jitter: 0 };
        let mut messages = CubeMessages::new(knobs);
        messages.on_connected(CLIENT, PaneKind::OurStates.client_id());
        (messages, CubeWorld::new(504))
    }

    /// A connection with room for this number of bytes, and what was sent.
    struct Sent(usize, Vec<(Vec<u8>, u64)>);

    impl Outlet for Sent {
        fn room(&mut self, _: ClientHandle) -> usize {
            self.0
        }

        fn post(&mut self, _: ClientHandle, message: &[u8], tag: Option<u64>) -> bool {
            self.1.push((message.to_vec(), tag.unwrap()));
            true
        }
    }

    /// Sends a tick over a connection with this room. Returns its messages with their tags.
    fn send_within(room: usize, messages: &mut CubeMessages, world: &CubeWorld, tick: u32) -> Vec<(Vec<u8>, u64)> {
        let mut outlet = Sent(room, Vec::new());
        messages.on_tick(tick, world, &[PlayerInput(tick); PLAYERS]);
        messages.send(tick, world, &mut InputBuffer::new(0), &mut outlet);
        outlet.1
    }

    fn send(messages: &mut CubeMessages, world: &CubeWorld, tick: u32) -> Vec<(Vec<u8>, u64)> {
        send_within(usize::MAX, messages, world, tick)
    }

    fn keys_of(message: &[u8]) -> usize {
        take_keys(&mut &*message).unwrap().iter().map(|keys| keys.len()).sum()
    }

    #[test]
    fn messages_fill_what_the_connection_carries() {
        for (room, count) in [(0, 1), (700, 1), (1500, 2), (3000, 3), (usize::MAX, MAX_MESSAGES)] {
            let (mut messages, world) = messages();
            let sent = send_within(room, &mut messages, &world, 1);
            let bytes: usize = sent.iter().map(|(message, _)| message.len()).sum();
            assert_eq!(sent.len(), count, "room for {room}");
            assert!(bytes <= room.max(200) && (room > 3000 || bytes + 200 >= room), "{bytes} bytes, room for {room}");
        }
    }

    #[test]
    fn keys_of_a_lost_message_are_sent_again() {
        for lost in [0, 1] {
            let (mut messages, world) = messages();
            let sent = send(&mut messages, &world, 1);
            assert!(sent.len() > 1 && keys_of(&sent[0].0) > 0 && keys_of(&sent[1].0) == 0);
            for (number, (_, tag)) in sent.iter().enumerate() {
                let status = if number == lost { DeliveryStatus::Lost } else { DeliveryStatus::Arrived };
                messages.on_receipt(CLIENT, &ChannelEvent::Receipt { channel: STATE, tag: *tag, status });
            }
            // The keys of the two ticks differ, so that both take more bytes than one.
            let next = send(&mut messages, &world, 2);
            let has_both = keys_of(&next[0].0) > keys_of(&sent[0].0);
            assert_eq!(has_both, lost == 0, "message {lost} is lost");
        }
    }
}
