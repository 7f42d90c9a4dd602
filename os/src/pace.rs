//! The pace of a loop that handles datagrams as they arrive and ends its turns at fixed ticks.

use std::io;
use std::thread;
use std::time::Duration;

use slipgate_netcode::time::Instant;
use tracing::warn;

use crate::clock::Clock;

/// Something that can sleep until a datagram arrives: the UDP server and client.
pub trait Wait {
    /// Sleeps until a datagram arrives or `timeout` is over.
    ///
    /// # Errors
    /// The error of the system call when the system cannot wait.
    fn wait(&mut self, timeout: Duration) -> io::Result<()>;
}

/// A fixed-tick helper: says which turn of a loop ends with a tick, and sleeps between turns.
///
/// # Examples
/// ```no_run
/// use std::time::Duration;
///
/// use slipgate_os::clock::Clock;
/// use slipgate_os::pace::{Pace, Wait};
///
/// # fn run(socket: &mut impl Wait) {
/// let clock = Clock::start();
/// let mut pace = Pace::new(clock, Duration::from_millis(16));
/// loop {
///     let now = clock.now();
///     // Handle what has arrived.
///     if pace.is_tick(now.monotonic) {
///         for _ in 0..=pace.missed_ticks().min(5) {
///             // Advance the game by a fixed step of 16 ms.
///         }
///     }
///     pace.rest(socket);
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Pace {
    clock: Clock,
    tick: Duration,
    next_tick: Instant,
    missed_ticks: u32,
    /// The system failed to wait once, and the log says so.
    has_warned: bool,
}

impl Pace {
    /// Creates a pace with ticks of this length, at least 1 ms. The first tick is due now.
    #[must_use]
    pub fn new(clock: Clock, tick: Duration) -> Self {
        let tick = tick.max(Duration::from_millis(1));
        Self { clock, tick, next_tick: clock.monotonic(), missed_ticks: 0, has_warned: false }
    }

    /// Returns whether the turn that began at this moment ends with a tick (`end_turn`, otherwise `flush`). Call it
    /// once a turn: a tick that was reported is over. Ticks that were missed, because a turn took longer than a tick,
    /// are skipped and not made up; [`missed_ticks`](Self::missed_ticks) counts them.
    pub fn is_tick(&mut self, began: Instant) -> bool {
        if began < self.next_tick {
            return false;
        }
        // A machine that was asleep must not run the missed ticks in one burst.
        let missed = began.since(self.next_tick).as_nanos() / self.tick.as_nanos();
        self.missed_ticks = u32::try_from(missed).unwrap_or(u32::MAX);
        // Ticks stay multiples of their length, so that a game which counts all of them keeps its speed.
        let after_missed = self.next_tick.after(self.tick.saturating_mul(self.missed_ticks));
        self.next_tick = after_missed.after(self.tick);
        true
    }

    /// Returns how many ticks were skipped before the last one that [`is_tick`](Self::is_tick) reported. A game with a
    /// fixed step keeps its speed if it also advances by these; it should limit them, because a machine that was asleep
    /// has missed many.
    #[must_use]
    pub const fn missed_ticks(&self) -> u32 {
        self.missed_ticks
    }

    /// Sleeps until a datagram arrives, the socket's waker is used, or the next tick is due. If the system cannot wait
    /// for datagrams, it sleeps until the next tick: connections continue with up to one tick of delay.
    pub fn rest(&mut self, socket: &mut impl Wait) {
        let timeout = self.next_tick.since(self.clock.monotonic());
        if let Err(error) = socket.wait(timeout) {
            if !self.has_warned {
                self.has_warned = true;
                warn!(%error, "the system cannot wait for datagrams; they are read once per tick from now on");
            }
            thread::sleep(timeout);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_keep_their_distance_and_missed_ones_are_skipped() {
        let mut pace = Pace::new(Clock::start(), Duration::from_millis(10));
        let start = pace.next_tick;
        let at = |millis| start.after(Duration::from_millis(millis));
        let mut ticks =
            |turns: &[u64]| turns.iter().copied().filter(|turn| pace.is_tick(at(*turn))).collect::<Vec<_>>();
        // A tick that is a little late does not move the next one.
        assert_eq!(ticks(&[0, 1, 9, 13, 19, 20, 29]), [0, 13, 20]);
        // The machine was asleep.
        assert_eq!(ticks(&[500, 501, 509, 510, 520]), [500, 510, 520]);
    }

    #[test]
    fn ticks_and_missed_ticks_together_keep_the_speed() {
        let mut pace = Pace::new(Clock::start(), Duration::from_millis(10));
        let start = pace.next_tick;
        let mut steps = Vec::new();
        for turn in [0, 5, 10, 38, 39, 40, 75, 80, 1_000] {
            if pace.is_tick(start.after(Duration::from_millis(turn))) {
                steps.push((turn, 1 + pace.missed_ticks()));
            }
        }
        assert_eq!(steps, [(0, 1), (10, 1), (38, 2), (40, 1), (75, 3), (80, 1), (1_000, 92)]);
        assert_eq!(steps.iter().map(|(_, steps)| steps).sum::<u32>(), 101);
    }

    #[test]
    fn no_tick_is_shorter_than_a_millisecond() {
        let mut pace = Pace::new(Clock::start(), Duration::ZERO);
        let start = pace.next_tick;
        assert!(pace.is_tick(start) && !pace.is_tick(start.after(Duration::from_micros(999))));
        assert!(pace.is_tick(start.after(Duration::from_millis(1))));
    }
}
