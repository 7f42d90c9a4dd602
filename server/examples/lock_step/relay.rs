//! A relay for lock-step games: what clients do goes to all of them, in one frame each tick.
//!
//! Who comes back from a stall brings hundreds of actions at once, and each goes to everybody ("Factorio, Friday Facts
//! 302"). So a frame has at most the size that the uplink carries to everybody in a tick, and clients put their actions into
//! it by turns: an action is never lost and overtakes none of its client's, and a burst waits at its own expense.

use std::collections::VecDeque;
use std::time::Duration;

use slipgate_server::congestion::{Admission, Turn, frame_limit, may_join};
use slipgate_server::{
    BytesPerSecond, ChannelConfig, ChannelId, Event, Inbox, Instant, Kind, Layout, Now, Server, Traffic,
};

/// From a client: what it does, in order. A message is an action of 1 to 255 bytes.
pub(crate) const ACTIONS: ChannelId = ChannelId(0);
/// To every client: a frame each tick, in order. Its number in 4 bytes, and of each action its client's slot in 2, its length
/// in 1, and itself.
pub(crate) const FRAMES: ChannelId = ChannelId(1);

const NUMBER_BYTES: u64 = 4;
const ACTION_HEAD_BYTES: usize = 3;
/// What each packet of a frame takes on the path beside it: IPv4, UDP, netcode, and the headers of packet and message.
const PACKET_HEADER_BYTES: u64 = 28 + 21 + 9 + 5 + 5;
const PACKET_BYTES: u64 = 1200;
/// Actions of one client that may wait for frames: half a minute of 60 in a second.
const MOST_WAITING: usize = 1800;
/// Frames that may be under way to a client: it may be out for as long, and need not join anew.
const MOST_FRAMES: u16 = 2048;
/// The mean size of frames is that of about so many.
const MEAN_OF: f64 = 64.0;

/// What the payloads of such a game's clients carry, on both sides.
///
/// # Panics
/// Never: the layout is sound.
pub(crate) fn traffic() -> Traffic {
    let actions =
        ChannelConfig { queue_messages: 1024, max_message_bytes: 255, ..ChannelConfig::new(Kind::ReliableOrdered) };
    let frames = ChannelConfig {
        queue_messages: MOST_FRAMES,
        queue_bytes: 1 << 21,
        ..ChannelConfig::new(Kind::ReliableOrdered)
    };
    Traffic::channels(Layout::new(vec![actions, frames]).expect("two channels of sound settings"))
}

/// The actions that wait for frames, and when the next one is due.
pub(crate) struct Relay {
    uplink: BytesPerSecond,
    tick: Duration,
    next_frame: Instant,
    admission: Admission,
    /// Of each slot, the oldest first.
    waiting: Vec<VecDeque<Box<[u8]>>>,
    frame: Vec<u8>,
    number: u32,
    /// With all headers.
    mean_bytes: f64,
}

impl Relay {
    /// A relay for a server on this uplink, with a frame each `tick`.
    pub(crate) fn new(server: &mut Server, uplink: BytesPerSecond, tick: Duration) -> Self {
        // Frames sent anew to one who was out, and all that joins, come out of what frames leave.
        server.set_uplink(Some(uplink));
        let slots = server.config().slots as usize;
        Self {
            uplink,
            tick,
            next_frame: Instant::default(),
            admission: Admission::new(slots),
            waiting: vec![VecDeque::new(); slots],
            frame: Vec::new(),
            number: 0,
            mean_bytes: 0.0,
        }
    }

    /// A turn of the server, several of which may come in a tick.
    pub(crate) fn turn(&mut self, server: &mut Server, inbox: &mut Inbox, now: Now) {
        server.begin_turn(now);
        while let Some(event) = inbox.next(server) {
            self.note(&event, server);
        }
        if self.next_frame <= now.monotonic {
            // A loop that was held up does not make up for it: that would be a burst as well.
            let next = self.next_frame.after(self.tick);
            self.next_frame = if next > now.monotonic { next } else { now.monotonic.after(self.tick) };
            self.send_frame(server);
        }
        server.end_turn();
    }

    fn note(&mut self, event: &Event<'_>, server: &mut Server) {
        match event {
            Event::Message { client, channel: ACTIONS, bytes } if !bytes.is_empty() => {
                let slot = client.slot() as usize;
                let Some(waiting) = self.waiting.get_mut(slot) else { return };
                if waiting.len() < MOST_WAITING {
                    waiting.push_back((*bytes).into());
                    self.admission.wait(slot);
                } else {
                    server.kick(*client, "More is done here than anybody does.");
                }
            }
            Event::Disconnected { client, .. } => {
                if let Some(waiting) = self.waiting.get_mut(client.slot() as usize) {
                    waiting.clear();
                }
            }
            _ => {}
        }
    }

    /// Sends everybody the same frame, and lets nobody join for whom there would be no room. Who joins gets the frames from
    /// now on; how it learns of the world so far is the game's affair.
    fn send_frame(&mut self, server: &mut Server) {
        let clients = server.connected() as usize;
        let limit = frame_limit(self.uplink, clients, self.tick);
        let bytes = self.compose(limit);
        for client in server.clients().collect::<Vec<_>>() {
            if server.send_message(client, FRAMES, &self.frame).is_err() {
                server.kick(client, "Too far behind: join anew.");
            }
        }
        self.mean_bytes += (bytes as f64 - self.mean_bytes) / MEAN_OF;
        server.set_admitting(may_join(self.mean_bytes as u64, self.uplink, clients, self.tick));
    }

    /// Composes a frame of at most `limit` bytes on the path, and answers how many it takes.
    fn compose(&mut self, limit: u64) -> u64 {
        let Self { admission, waiting, frame, .. } = self;
        let headers = |bytes: u64| bytes.div_ceil(PACKET_BYTES - PACKET_HEADER_BYTES) * PACKET_HEADER_BYTES;
        frame.clear();
        frame.extend_from_slice(&self.number.to_le_bytes());
        self.number = self.number.wrapping_add(1);
        let room = limit.saturating_sub(limit.div_ceil(PACKET_BYTES) * PACKET_HEADER_BYTES + NUMBER_BYTES);
        admission.admit(room, |slot, room| {
            let Some(waiting) = waiting.get_mut(slot) else { return Turn::Empty };
            let Some(action) = waiting.front() else { return Turn::Empty };
            let bytes = (ACTION_HEAD_BYTES + action.len()) as u32;
            if u64::from(bytes) > room {
                return Turn::TooLarge(bytes);
            }
            frame.extend_from_slice(&(slot as u16).to_le_bytes());
            frame.push(action.len() as u8);
            frame.extend_from_slice(action);
            waiting.pop_front();
            Turn::Took(bytes)
        });
        let bytes = frame.len() as u64;
        bytes + headers(bytes)
    }
}
