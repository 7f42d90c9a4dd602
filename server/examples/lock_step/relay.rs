//! A relay for lock-step games: it sends the actions of all clients to every client, in one frame per tick.
//!
//! A client that comes back from a stall sends hundreds of actions at once, and each goes to every client ("Factorio,
//! Friday Facts 302"). Therefore a frame has at most the size that the uplink carries to all clients in a tick, and
//! clients take turns to put actions into it. A burst delays only its own client: no action is lost, and none overtakes
//! an earlier one of its client.

use std::collections::VecDeque;
use std::time::Duration;

use slipgate_server::congestion::BytesPerSecond;
use slipgate_server::scheduling::{FrameTurn, JoinLimit, can_join, frame_limit};
use slipgate_server::{Channel, ChannelId, Event, Inbox, Instant, Layout, Now, Server, Traffic};

/// The actions of a client, in order. A message is one action of 1 to 255 bytes.
pub(crate) const ACTIONS: ChannelId = ChannelId(0);
/// Frames to every client, one per tick, in order. A frame has its number (4 bytes), and for each action the slot of
/// its client (2 bytes), its length (1 byte), and its bytes.
pub(crate) const FRAMES: ChannelId = ChannelId(1);

const NUMBER_BYTES: u64 = 4;
const ACTION_HEADER_BYTES: usize = 3;
/// The headers of each packet of a frame: IPv4 and UDP, netcode, packet, and message.
const PACKET_HEADER_BYTES: u64 = 28 + 21 + 9 + 5 + 5;
const PACKET_BYTES: u64 = 1200;
/// Actions of one client that may wait for frames: 30 s at 60 per second.
const MAX_WAITING: usize = 1800;
/// Frames that may be in flight to a client: it may stall for this many ticks without having to join again.
const MAX_FRAMES: u16 = 2048;
/// The weight of a new frame in the mean frame size is 1 / 64.
const MEAN_FRAMES: f64 = 64.0;

/// Returns the traffic of both sides.
///
/// # Panics
/// Never: the settings are constants.
pub(crate) fn traffic() -> Traffic {
    let mut layout = Layout::builder();
    let actions = layout.add(Channel::reliable_ordered("actions").max_message_bytes(255).queue(1 << 16, 1024));
    let frames = layout.add(Channel::reliable_ordered("frames").queue(1 << 21, MAX_FRAMES));
    assert_eq!((actions, frames), (ACTIONS, FRAMES));
    Traffic::channels(layout.build().expect("two channels with valid settings"))
}

/// The actions that wait for frames, and the time of the next frame.
pub(crate) struct Relay {
    uplink: BytesPerSecond,
    tick: Duration,
    next_frame: Instant,
    join_limit: JoinLimit,
    /// The waiting actions of each slot, oldest first.
    waiting: Vec<VecDeque<Box<[u8]>>>,
    frame: Vec<u8>,
    number: u32,
    /// The mean size of a frame with all headers.
    mean_bytes: f64,
}

impl Relay {
    /// Creates a relay for a server on this uplink, with one frame per `tick`.
    pub(crate) fn new(server: &mut Server, uplink: BytesPerSecond, tick: Duration) -> Self {
        // Retransmissions and joining clients use what new frames leave of the uplink.
        server.set_uplink(Some(uplink));
        let slots = server.config().slots as usize;
        Self {
            uplink,
            tick,
            next_frame: Instant::default(),
            join_limit: JoinLimit::new(slots),
            waiting: vec![VecDeque::new(); slots],
            frame: Vec::new(),
            number: 0,
            mean_bytes: 0.0,
        }
    }

    /// Runs one turn of the server. A tick may have several turns.
    pub(crate) fn turn(&mut self, server: &mut Server, inbox: &mut Inbox, now: Now) {
        server.begin_turn(now);
        while let Some(event) = inbox.next(server) {
            self.on_event(&event, server);
        }
        if self.next_frame <= now.monotonic {
            // Missed ticks are skipped: making up for them would be a burst.
            let next = self.next_frame.after(self.tick);
            self.next_frame = if next > now.monotonic { next } else { now.monotonic.after(self.tick) };
            self.send_frame(server);
        }
        server.end_turn();
    }

    fn on_event(&mut self, event: &Event<'_>, server: &mut Server) {
        match event {
            Event::Message { client, channel: ACTIONS, bytes, .. } if !bytes.is_empty() => {
                let slot = client.slot().0 as usize;
                let Some(waiting) = self.waiting.get_mut(slot) else { return };
                if waiting.len() < MAX_WAITING {
                    waiting.push_back((*bytes).into());
                    self.join_limit.add_source(slot);
                } else {
                    // `Gone` is impossible: the client has just sent a message.
                    let _ = server.kick(*client, "Your game sent too many actions.");
                }
            }
            Event::Disconnected { client, .. } => {
                if let Some(waiting) = self.waiting.get_mut(client.slot().0 as usize) {
                    waiting.clear();
                }
            }
            _ => {}
        }
    }

    /// Sends the same frame to every client, and accepts new ones only if the uplink can carry theirs. A client that
    /// joins gets the frames from now on; the game must send it the state of the world.
    fn send_frame(&mut self, server: &mut Server) {
        let clients = server.connected_count() as usize;
        let limit = frame_limit(self.uplink, clients, self.tick);
        let bytes = self.compose(limit);
        server.for_each_client(|mut client| {
            if client.send_message(FRAMES, &self.frame).is_err() {
                let _ = client.kick("Your connection is too slow. Please join again.");
            }
        });
        self.mean_bytes += (bytes as f64 - self.mean_bytes) / MEAN_FRAMES;
        server.accept_new_clients(can_join(self.mean_bytes as u64, self.uplink, clients, self.tick));
    }

    /// Composes a frame of at most `limit` bytes with all headers, and returns its size.
    fn compose(&mut self, limit: u64) -> u64 {
        let Self { join_limit, waiting, frame, .. } = self;
        let headers = |bytes: u64| bytes.div_ceil(PACKET_BYTES - PACKET_HEADER_BYTES) * PACKET_HEADER_BYTES;
        frame.clear();
        frame.extend_from_slice(&self.number.to_le_bytes());
        self.number = self.number.wrapping_add(1);
        let max_bytes = limit.saturating_sub(limit.div_ceil(PACKET_BYTES) * PACKET_HEADER_BYTES + NUMBER_BYTES);
        join_limit.fill_frame(max_bytes, |slot, left| {
            let Some(waiting) = waiting.get_mut(slot) else { return FrameTurn::Empty };
            let Some(action) = waiting.front() else { return FrameTurn::Empty };
            let bytes = (ACTION_HEADER_BYTES + action.len()) as u32;
            if u64::from(bytes) > left {
                return FrameTurn::TooLarge(bytes);
            }
            frame.extend_from_slice(&(slot as u16).to_le_bytes());
            frame.push(action.len() as u8);
            frame.extend_from_slice(action);
            waiting.pop_front();
            FrameTurn::Took(bytes)
        });
        let bytes = frame.len() as u64;
        bytes + headers(bytes)
    }
}
