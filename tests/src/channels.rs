//! Two ends with channels over acknowledged packets, and the path between them, in virtual time.

mod promises;

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_session::channel::{Arrival, ChannelEvent, ChannelId, Channels, Layout, ReadAt, SendOptions};
use slipgate_session::reliability::{Acceptance, Config, Endpoint, Event, MemoryBudget, SendError, Sink};
use slipgate_session::wire::reliable::Sequence;
use slipgate_sim::{Conditions, Path};

pub use self::promises::{Expectation, message, number_of};
pub use crate::path::End;

/// A tick of both programs: 60 a second, roughly.
pub const TICK: Duration = Duration::from_millis(16);
/// How many newer packets must be acknowledged for one that is not to count as lost (RFC 9002, section 6.1.1).
const REORDERED: usize = 3;

/// One end, and what its application saw.
pub struct Side {
    /// The channels under test.
    pub channels: Channels,
    /// What became of its blocks, and of the peer's.
    pub events: Vec<ChannelEvent>,
    /// The most bytes that its messages took of memory.
    pub peak_bytes: usize,
    /// Packets that left.
    pub packets: u64,
    /// What its peer promises it.
    pub expectation: Expectation,
    endpoint: Endpoint,
    scratch: Vec<u8>,
    /// Packets under way, the oldest first, and whether each was acknowledged.
    under_way: Vec<(Sequence, bool)>,
    quiet: u32,
}

/// Two ends.
pub struct Pair {
    sides: [Side; 2],
    /// The one from A to B, and the other way.
    paths: [Path; 2],
    /// Bytes of a packet's payload.
    pub payload_bytes: usize,
    /// How many packets an end may send in a tick.
    pub packets_per_tick: usize,
    now: Duration,
}

impl Pair {
    /// Two ends with this layout. The seed decides all that happens by chance.
    #[must_use]
    pub fn new(seed: u64, layout: &Arc<Layout>, conditions: Conditions, memory: Option<&MemoryBudget>) -> Self {
        let side = || Side {
            channels: Channels::new(Arc::clone(layout), memory.cloned()),
            events: Vec::new(),
            peak_bytes: 0,
            packets: 0,
            expectation: Expectation::new(layout),
            endpoint: Endpoint::new(Config::default()).expect("settings to run with"),
            scratch: Vec::new(),
            under_way: Vec::new(),
            quiet: 0,
        };
        Self {
            sides: [side(), side()],
            paths: [seed, !seed].map(|seed| Path::new(conditions, seed)),
            payload_bytes: 1200,
            packets_per_tick: 16,
            now: Duration::from_secs(1000),
        }
    }

    /// One of the ends.
    pub fn side(&mut self, end: End) -> &mut Side {
        &mut self.sides[end as usize]
    }

    /// The monotonic clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_start(self.now)
    }

    /// Changes both directions of the path.
    pub fn set_conditions(&mut self, conditions: Conditions) {
        let now = self.now();
        for path in &mut self.paths {
            path.set_conditions(conditions, now);
        }
    }

    /// Sends the next message of so many bytes, if there is room in the queue; answers whether there was.
    pub fn send(&mut self, from: End, channel: ChannelId, bytes: usize) -> bool {
        let now = self.now();
        let number = self.side(from.other()).expectation.sent(channel);
        let side = self.side(from);
        let free = side.channels.free(channel);
        let sent = side.channels.send(channel, &message(channel, number, bytes), SendOptions::default(), now);
        let fits = free.messages > 0 && free.bytes as usize >= bytes;
        assert_eq!(sent.is_ok(), fits, "{sent:?} with {free:?} for {bytes} bytes");
        if fits {
            self.side(from.other()).expectation.note_sent(channel);
        }
        fits
    }

    /// One tick of both programs: what is due arrives, and what waits leaves.
    pub fn tick(&mut self) {
        self.now += TICK;
        let now = self.now();
        for end in End::BOTH {
            let (side, path) = (&mut self.sides[end as usize], &mut self.paths[end.other() as usize]);
            while let Some(arrival) = path.pop_due(now) {
                side.take(arrival.bytes, now);
            }
            side.hear();
            side.channels.begin_tick(now);
            let mut road = Road { path: &mut self.paths[end as usize], room: vec![0; self.payload_bytes], now };
            side.pack(self.packets_per_tick, now, &mut road);
            side.endpoint.tick(now);
            side.endpoint.transmit(now, &mut road);
            side.peak_bytes = side.peak_bytes.max(side.channels.memory_bytes());
        }
    }

    /// Ticks until `done`, at most for `limit`; answers whether it was.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        while self.now < end {
            self.tick();
            if done(self) {
                return true;
            }
        }
        false
    }

    /// Whether nothing waits at either end.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.sides.iter().all(|side| !side.channels.wants_to_send())
    }
}

impl Side {
    /// Takes a datagram.
    fn take(&mut self, datagram: &[u8], now: Instant) {
        let Self { endpoint, channels, scratch, expectation, .. } = self;
        let accept = |payload: &[u8]| if channels.can_take(payload) { Acceptance::Take } else { Acceptance::Refuse };
        let Ok(Some(packet)) = endpoint.handle_if(datagram, now, |packet| accept(packet.payload)) else { return };
        let mut at = ReadAt::default();
        while let Some(arrival) = channels.next(packet.payload, &mut at, scratch, now).expect("an honest peer") {
            let Arrival::Message { channel, place } = arrival else { continue };
            expectation.received(channel, place.bytes(packet.payload, scratch));
        }
    }

    /// Hears what became of its packets.
    fn hear(&mut self) {
        let mut heard = false;
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Acked { sequence, .. } => {
                    self.channels.on_acked(sequence);
                    if let Some(packet) = self.under_way.iter_mut().find(|packet| packet.0 == sequence) {
                        packet.1 = true;
                    }
                    heard = true;
                }
                Event::Lost { sequence } => {
                    self.channels.on_lost(sequence);
                    self.under_way.retain(|packet| packet.0 != sequence);
                }
            }
        }
        self.quiet = if heard || self.under_way.is_empty() { 0 } else { self.quiet + 1 };
        if self.quiet > 20 {
            self.channels.on_probe();
            self.quiet = 0;
        }
        self.call_lost();
        while let Some(event) = self.channels.poll_event() {
            self.events.push(event);
        }
    }

    /// Calls a packet lost when enough newer ones have been acknowledged: that may be wrong on a path that reorders.
    fn call_lost(&mut self) {
        let Self { under_way, channels, .. } = self;
        let mut acked_behind = under_way.iter().filter(|packet| packet.1).count();
        under_way.retain(|(sequence, acked)| {
            acked_behind -= usize::from(*acked);
            if !acked && acked_behind >= REORDERED {
                channels.on_lost(*sequence);
                return false;
            }
            !acked || acked_behind > 0
        });
        while under_way.first().is_some_and(|packet| packet.1) {
            under_way.remove(0);
        }
    }

    fn pack(&mut self, packets: usize, now: Instant, road: &mut Road<'_>) {
        for _ in 0..packets {
            if !self.channels.wants_to_send() {
                break;
            }
            let (channels, sequence) = (&mut self.channels, self.endpoint.next_sequence());
            match self.endpoint.send_with(now, road, |room| channels.write(sequence, now, room)) {
                Ok(sequence) => {
                    self.packets += 1;
                    self.under_way.push((sequence, false));
                }
                Err(SendError::Empty) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// The way of datagrams onto the path.
struct Road<'a> {
    path: &'a mut Path,
    room: Vec<u8>,
    now: Instant,
}

impl Sink for Road<'_> {
    fn rooms(&self) -> usize {
        usize::MAX
    }

    fn room(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.room)
    }

    fn commit(&mut self, bytes: usize) {
        self.path.push(&self.room[..bytes], self.now);
    }
}
