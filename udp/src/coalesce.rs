//! Wakeup coalescing: under load the thread wakes once for several datagrams instead of once for each.

use std::time::{Duration, Instant};

/// The length of the window in which wakeups are counted.
const WINDOW: Duration = Duration::from_millis(1);
/// This many wakeups in a window start coalescing: 8,000 a second, as many as 130 clients at 60 Hz cause.
const RAPID_WAKEUPS: u32 = 8;
/// How long a wait is delayed. A wakeup and a read cost several times as much as a datagram, and a game waits for its
/// next tick anyway.
pub(super) const COALESCE_DELAY: Duration = Duration::from_micros(500);
/// A delay that collects fewer datagrams ends coalescing: it is the same rate as [`RAPID_WAKEUPS`] in [`WINDOW`].
const MIN_DATAGRAMS: usize = 4;
/// Waits are not delayed for this long after that. A program in a request-response exchange would otherwise be delayed
/// again and again.
const BACK_OFF: Duration = Duration::from_millis(100);

/// Decides whether a wait is delayed.
///
/// A thread that wakes for each datagram pays for a wakeup, a read and a turn each time, and can do nothing else under
/// a flood. After a window with many wakeups each wait therefore begins with a short sleep that no datagram interrupts;
/// the datagrams that arrive meanwhile form one batch. Coalescing ends when a sleep collects few of them.
#[derive(Debug, Default)]
pub(super) struct WakeupCoalescer {
    window: Option<Instant>,
    count: u32,
    state: CoalesceState,
    /// The number of datagrams read since the last wait.
    read: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum CoalesceState {
    #[default]
    Immediate,
    /// The next wait is the first delayed one.
    Starting,
    Coalescing,
    /// The last delay collected too few datagrams.
    BackingOff {
        until: Instant,
    },
}

impl WakeupCoalescer {
    /// Starts a wait. Returns whether to delay it.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let read = std::mem::take(&mut self.read);
        self.state = match self.state {
            CoalesceState::Starting => CoalesceState::Coalescing,
            CoalesceState::Coalescing if read < MIN_DATAGRAMS => CoalesceState::BackingOff { until: now + BACK_OFF },
            CoalesceState::BackingOff { until } if now >= until => CoalesceState::Immediate,
            state => state,
        };
        self.state == CoalesceState::Coalescing
    }

    /// Counts datagrams that were read.
    pub(super) const fn on_read(&mut self, datagrams: usize) {
        self.read = self.read.saturating_add(datagrams);
    }

    /// Counts a wait that a datagram ended.
    pub(super) fn on_wake(&mut self, now: Instant) {
        self.count += 1;
        if self.window.is_none_or(|start| now.duration_since(start) >= WINDOW) {
            (self.window, self.count) = (Some(now), 1);
        }
        if self.state == CoalesceState::Immediate && self.count >= RAPID_WAKEUPS {
            self.state = CoalesceState::Starting;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates waits that are `apart` from each other and read `datagrams` each. Returns how many of them were
    /// delayed.
    fn delayed_waits(
        coalescer: &mut WakeupCoalescer,
        start: Instant,
        waits: u32,
        apart: Duration,
        datagrams: usize,
    ) -> usize {
        let wait = |wait: u32| {
            let now = start + apart * wait;
            let coalesces = coalescer.begin(now);
            coalescer.on_wake(now);
            coalescer.on_read(datagrams);
            coalesces
        };
        (0..waits).map(wait).filter(|coalesces| *coalesces).count()
    }

    #[test]
    fn coalescing_starts_under_load_and_ends_with_it() {
        let (mut coalescer, start) = (WakeupCoalescer::default(), Instant::now());
        assert_eq!(delayed_waits(&mut coalescer, start, RAPID_WAKEUPS, Duration::from_micros(20), 1), 0);
        let flood = start + WINDOW;
        assert_eq!(delayed_waits(&mut coalescer, flood, 1000, COALESCE_DELAY, 30), 1000);
        // Light traffic: one delay without effect, then each datagram wakes the thread.
        let quiet = flood + Duration::from_secs(1);
        assert_eq!(delayed_waits(&mut coalescer, quiet, 1000, Duration::from_millis(100), 1), 1);
    }

    #[test]
    fn request_response_traffic_is_delayed_ten_times_a_second() {
        let (mut coalescer, start) = (WakeupCoalescer::default(), Instant::now());
        let delayed = delayed_waits(&mut coalescer, start, 100_000, Duration::from_micros(30), 1);
        assert!((25..=30).contains(&delayed), "{delayed} in 3 s");
    }

    #[test]
    fn sixty_clients_at_60_hz_are_never_delayed() {
        let mut coalescer = WakeupCoalescer::default();
        assert_eq!(
            delayed_waits(&mut coalescer, Instant::now(), 100_000, Duration::from_nanos(1_000_000_000 / 3600), 1),
            0
        );
    }
}
