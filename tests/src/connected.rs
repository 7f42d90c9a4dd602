//! Two connections with channels, and the path between them, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_session::channel::{Arrival, ChannelEvent, ChannelId, Layout, Place, SendError, SendOptions};
use slipgate_session::reliability::Sink;
use slipgate_session::session::{Config, Connection};
use slipgate_sim::{Conditions, Link};

pub use crate::path::End;

/// A connection, and what its application saw.
pub struct Side {
    /// The connection.
    pub connection: Connection,
    /// Messages that arrived, in order.
    pub messages: Vec<(ChannelId, Vec<u8>)>,
    /// News of the channels.
    pub events: Vec<ChannelEvent>,
    /// Datagrams that left, and their bytes.
    pub sent: (u64, u64),
    /// The largest datagram.
    pub largest: usize,
    scratch: Vec<u8>,
}

impl Side {
    fn new(config: &Config, layout: &Arc<Layout>) -> Self {
        let connection = Connection::new(config, Arc::clone(layout), None).expect("settings to run with");
        Self { connection, messages: Vec::new(), events: Vec::new(), sent: (0, 0), largest: 0, scratch: Vec::new() }
    }

    /// Takes a datagram, and every message in it.
    pub fn take(&mut self, datagram: &[u8], now: Instant) {
        self.take_late(datagram, Duration::ZERO, now);
    }

    /// As [`Side::take`], of one that may have lain unread for so long.
    pub fn take_late(&mut self, datagram: &[u8], unread: Duration, now: Instant) {
        let Ok(Some(mut incoming)) = self.connection.handle_late(datagram, unread, now) else { return };
        let frames = &datagram[incoming.start()..];
        while let Some(Arrival::Message { channel, place }) =
            self.connection.next(datagram, &mut incoming, &mut self.scratch, now)
        {
            let bytes = match place {
                Place::Frames(range) => &frames[range],
                Place::Scratch => &self.scratch,
            };
            self.messages.push((channel, bytes.to_vec()));
        }
    }

    /// The messages of one channel that arrived, in order.
    #[must_use]
    pub fn on(&self, channel: ChannelId) -> Vec<&[u8]> {
        self.messages.iter().filter(|(on, _)| *on == channel).map(|(_, bytes)| bytes.as_slice()).collect()
    }
}

/// Two connections and the path between them.
pub struct Pair {
    sides: [Side; 2],
    /// Up is from A to B.
    pub link: Link,
    now: Duration,
}

/// Where a side's datagrams leave.
struct Outbox<'a> {
    path: &'a mut slipgate_sim::Path,
    room: [u8; MAX_PAYLOAD_BYTES],
    now: Instant,
    sent: &'a mut (u64, u64),
    largest: &'a mut usize,
}

impl Sink for Outbox<'_> {
    fn rooms(&self) -> usize {
        usize::MAX
    }

    fn room(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.room)
    }

    fn commit(&mut self, bytes: usize) {
        self.sent.0 += 1;
        self.sent.1 += bytes as u64;
        *self.largest = bytes.max(*self.largest);
        self.path.push(&self.room[..bytes], self.now);
    }
}

impl Pair {
    /// Two connections with the same channels. The seed decides all that happens by chance.
    #[must_use]
    pub fn new(seed: u64, conditions: Conditions, layout: &Arc<Layout>) -> Self {
        Self::with(seed, conditions, [layout, layout], &Config::default())
    }

    /// Two connections with channels of their own.
    #[must_use]
    pub fn with(seed: u64, conditions: Conditions, layouts: [&Arc<Layout>; 2], config: &Config) -> Self {
        Self {
            sides: layouts.map(|layout| Side::new(config, layout)),
            link: Link::new(conditions, conditions, seed),
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

    /// Puts a message into a channel.
    ///
    /// # Errors
    /// The channel's.
    pub fn send(&mut self, from: End, channel: ChannelId, message: &[u8]) -> Result<(), SendError> {
        let now = self.now();
        self.side(from).connection.send(channel, message, SendOptions::default(), now)
    }

    /// One turn at both ends: what is due arrives, time passes, what waits leaves.
    pub fn turn(&mut self, step: Duration) {
        self.turn_after(step, Duration::ZERO);
    }

    /// As [`Pair::turn`], of loops that slept all the time, and say how long datagrams may have lain unread meanwhile.
    pub fn turn_after_sleep(&mut self, step: Duration) {
        self.turn_after(step, step);
    }

    fn turn_after(&mut self, step: Duration, unread: Duration) {
        self.now += step;
        let now = self.now();
        let [a, b] = &mut self.sides;
        while let Some(arrival) = self.link.up.pop_due(now) {
            b.take_late(arrival.bytes, unread, now);
        }
        while let Some(arrival) = self.link.down.pop_due(now) {
            a.take_late(arrival.bytes, unread, now);
        }
        for (side, path) in [(a, &mut self.link.up), (b, &mut self.link.down)] {
            // The worst case: whatever becomes of the path, the layer below never doubts that the other one lives.
            side.connection.heard(now);
            side.connection.tick(now);
            let Side { connection, sent, largest, events, .. } = side;
            let mut outbox = Outbox { path, room: [0xee; MAX_PAYLOAD_BYTES], now, sent, largest };
            connection.transmit(now, &mut outbox);
            events.extend(std::iter::from_fn(|| connection.poll_event()));
        }
    }

    /// Turns of `step` until something holds, or the time is up; answers whether it holds.
    pub fn run_until(&mut self, most: Duration, step: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + most;
        while self.now < end {
            self.turn(step);
            if done(self) {
                return true;
            }
        }
        false
    }

    /// Turns of `step` for as long as `duration`.
    pub fn run_for(&mut self, duration: Duration, step: Duration) {
        self.run_until(duration, step, |_| false);
    }
}
