//! A simulated world of two ends: a program at each end, and a path between them in virtual time.
//!
//! ```text
//!   World<P>:  P at End::A ── link.up ──▶ P at End::B
//!                          ◀── link.down ──
//! ```
//!
//! [`Program`] is one end: endpoints ([`endpoint_world`](crate::endpoint_world)), channels
//! ([`channel_world`](crate::channel_world)) or connections ([`connection_world`](crate::connection_world)). A seed
//! determines the path, so that a failure can be repeated.

use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_session::reliability::Sink;
use slipgate_sim::{Conditions, Link, Path};

/// One of the two ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The first end.
    A,
    /// The second end.
    B,
}

impl End {
    /// Both ends.
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    /// Returns the end at the far side of the path.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// The program at one end of a world.
pub trait Program {
    /// Processes a datagram that may have waited in the socket for `waited`.
    fn receive(&mut self, datagram: &[u8], waited: Duration, now: Instant);

    /// Runs one turn: advances the time, collects events, and sends pending data.
    fn run(&mut self, sink: &mut PathSink<'_>, now: Instant);
}

/// The datagrams that an end has sent.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct SentDatagrams {
    /// Their number.
    pub count: u64,
    /// The sum of their sizes, in bytes.
    pub bytes: u64,
    /// The size of the largest one, in bytes.
    pub largest: usize,
}

/// Puts the datagrams of an end on its path.
pub struct PathSink<'a> {
    path: &'a mut Path,
    sent: &'a mut SentDatagrams,
    now: Instant,
    max_bytes: usize,
    buf: [u8; MAX_PAYLOAD_BYTES],
}

impl PathSink<'_> {
    /// Limits the size of the following datagrams.
    pub fn set_max_bytes(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
    }
}

impl Sink for PathSink<'_> {
    fn remaining(&self) -> usize {
        usize::MAX
    }

    fn next_buf(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.buf[..self.max_bytes])
    }

    fn commit(&mut self, bytes: usize) {
        self.sent.count += 1;
        self.sent.bytes += bytes as u64;
        self.sent.largest = bytes.max(self.sent.largest);
        self.path.push(&self.buf[..bytes], self.now);
    }
}

/// Two programs and the path between them.
pub struct World<P> {
    sides: [P; 2],
    sent: [SentDatagrams; 2],
    /// The path; up is from A to B.
    pub link: Link,
    now: Duration,
}

impl<P: Program> World<P> {
    /// Creates a world with the same conditions in both directions. The seed determines all random decisions.
    #[must_use]
    pub fn of(sides: [P; 2], conditions: Conditions, seed: u64) -> Self {
        Self {
            sides,
            sent: [SentDatagrams::default(); 2],
            link: Link::new(conditions, conditions, seed),
            now: Duration::from_secs(1000),
        }
    }

    /// Returns one of the ends.
    pub fn side(&mut self, end: End) -> &mut P {
        &mut self.sides[end as usize]
    }

    /// Returns both ends.
    #[must_use]
    pub const fn sides(&self) -> &[P; 2] {
        &self.sides
    }

    /// Returns the datagrams that an end has sent.
    #[must_use]
    pub const fn sent(&self, end: End) -> SentDatagrams {
        self.sent[end as usize]
    }

    /// Returns the monotonic clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_start(self.now)
    }

    /// Changes both directions of the path for datagrams sent from now on.
    pub fn set_conditions(&mut self, conditions: Conditions) {
        let now = self.now();
        self.link.set_conditions(conditions, conditions, now);
    }

    /// Runs an action of an end now, which may send datagrams.
    pub fn act<R>(&mut self, end: End, act: impl FnOnce(&mut P, &mut PathSink<'_>, Instant) -> R) -> R {
        let now = self.now();
        let path = match end {
            End::A => &mut self.link.up,
            End::B => &mut self.link.down,
        };
        // The buffer holds noise, so that a program cannot rely on zeros in it.
        let buf = [0xee; MAX_PAYLOAD_BYTES];
        let sent = &mut self.sent[end as usize];
        let mut sink = PathSink { path, sent, now, max_bytes: MAX_PAYLOAD_BYTES, buf };
        act(&mut self.sides[end as usize], &mut sink, now)
    }

    /// Runs one turn at both ends: delivers due datagrams, advances the time, and sends pending data.
    pub fn turn(&mut self, step: Duration) {
        self.turn_after(step, Duration::ZERO);
    }

    /// Runs one turn of loops that slept for all of `step`, and that report this as the time that datagrams may have
    /// waited.
    pub fn turn_after_sleep(&mut self, step: Duration) {
        self.turn_after(step, step);
    }

    fn turn_after(&mut self, step: Duration, waited: Duration) {
        self.now += step;
        let now = self.now();
        let [a, b] = &mut self.sides;
        for (path, receiver) in [(&mut self.link.up, b), (&mut self.link.down, a)] {
            while let Some(arrival) = path.pop_due(now) {
                receiver.receive(arrival.bytes, waited, now);
            }
        }
        for end in End::BOTH {
            self.act(end, |side, sink, now| side.run(sink, now));
        }
    }

    /// Runs turns of `step` until `done` holds, for at most `limit`. Returns whether it held.
    pub fn run_until(&mut self, limit: Duration, step: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        while self.now < end {
            self.turn(step);
            if done(self) {
                return true;
            }
        }
        false
    }

    /// Runs turns of `step` for `duration`.
    pub fn run_for(&mut self, duration: Duration, step: Duration) {
        self.run_until(duration, step, |_| false);
    }
}
