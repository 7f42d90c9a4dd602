//! The pace of a loop that answers what arrives at once, and ends its turns at ticks.

use std::thread;
use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_os::clock::Clock;
use tracing::warn;

use crate::Server;

/// When the ticks of a loop are due that wakes for every arrival, and how it sleeps between them.
///
/// # Examples
/// ```no_run
/// # fn serve(mut server: slipgate_server::Server, clock: slipgate_server::Clock) {
/// use std::time::Duration;
///
/// use slipgate_server::{Event, Inbox, Pace};
///
/// let (mut inbox, mut pace) = (Inbox::default(), Pace::new(clock, Duration::from_millis(16)));
/// loop {
///     let now = clock.now();
///     server.begin_turn(now);
///     while let Some(event) = inbox.next(&mut server) {
///         if let Event::Payload { client, bytes, .. } = event {
///             server.send(client, bytes).unwrap_or_default();
///         }
///     }
///     if pace.is_tick(now.monotonic) {
///         server.end_turn();
///     } else {
///         server.flush();
///     }
///     pace.rest(&mut server);
/// }
/// # }
/// ```
pub struct Pace {
    clock: Clock,
    tick: Duration,
    next_tick: Instant,
    /// The system once could not wait for datagrams; said so.
    told_of_waiting: bool,
}

impl Pace {
    /// Ticks of this length, from 1 ms on, by this clock. The first one is due now.
    #[must_use]
    pub fn new(clock: Clock, tick: Duration) -> Self {
        let tick = tick.max(Duration::from_millis(1));
        Self { clock, tick, next_tick: clock.monotonic(), told_of_waiting: false }
    }

    /// Whether a turn that began at this moment is to end with a tick, [`Server::end_turn`]; for others
    /// [`Server::flush`] is enough. Asked once a turn: the next tick is due later then.
    pub fn is_tick(&mut self, began: Instant) -> bool {
        if began < self.next_tick {
            return false;
        }
        // A machine that was asleep does not make up for the ticks it missed.
        let late = began.reached(self.next_tick, self.tick);
        self.next_tick = if late { began } else { self.next_tick }.after(self.tick);
        true
    }

    /// Sleeps until a datagram arrives, the server is woken or the next tick is due. Where the system cannot wait, datagrams
    /// are read at each tick: sessions go on, a little later.
    pub fn rest(&mut self, server: &mut Server) {
        let timeout = self.next_tick.since(self.clock.monotonic());
        if let Err(error) = server.wait(timeout) {
            if !self.told_of_waiting {
                self.told_of_waiting = true;
                warn!(%error, "the system cannot wait for datagrams; they are read at each tick from now on");
            }
            thread::sleep(timeout);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_keep_their_distance_and_those_that_were_missed_are_not_made_up_for() {
        let mut pace = Pace::new(Clock::start(), Duration::from_millis(10));
        let start = pace.next_tick;
        let at = |millis| start.after(Duration::from_millis(millis));
        let mut ticks =
            |turns: &[u64]| turns.iter().copied().filter(|turn| pace.is_tick(at(*turn))).collect::<Vec<_>>();
        // A tick that came a little late leaves the next one where it was.
        assert_eq!(ticks(&[0, 1, 9, 13, 19, 20, 29]), [0, 13, 20]);
        // The machine was asleep.
        assert_eq!(ticks(&[500, 501, 509, 510, 520]), [500, 510, 520]);
    }

    #[test]
    fn no_tick_is_shorter_than_a_millisecond() {
        let mut pace = Pace::new(Clock::start(), Duration::ZERO);
        let start = pace.next_tick;
        assert!(pace.is_tick(start) && !pace.is_tick(start.after(Duration::from_micros(999))));
        assert!(pace.is_tick(start.after(Duration::from_millis(1))));
    }
}
