//! The two clocks: monotonic and wall clock. A turn reads them once.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use slipgate_netcode::time::{self, Now, UnixMillis};

/// The clocks of this machine. The monotonic clock starts at zero when the value is created.
///
/// # Examples
/// ```
/// use slipgate_os::clock::Clock;
///
/// let clock = Clock::start();
/// let now = clock.now();
/// assert!(clock.now().monotonic >= now.monotonic);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Creates a clock with a monotonic time of zero now.
    #[must_use]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Reads both clocks.
    #[must_use]
    #[inline]
    pub fn now(&self) -> Now {
        Now { monotonic: self.monotonic(), unix: wall_clock() }
    }

    /// Reads the monotonic clock.
    #[must_use]
    #[inline]
    pub fn monotonic(&self) -> time::Instant {
        time::Instant::from_start(self.start.elapsed())
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::start()
    }
}

/// The time during a turn: the time that the program passed in, plus the time since then.
///
/// A loop reads the clock once a turn, but the turn may last for milliseconds: the game works, or the system runs
/// another program first. Datagrams that are received or sent later in the turn get the later time. Otherwise a
/// datagram could seem to arrive before it was sent, and its path would be measured as too short.
#[derive(Clone, Copy, Debug)]
pub struct TurnTime {
    start: Now,
    started_at: Instant,
    is_frozen: bool,
}

impl TurnTime {
    /// Starts a turn at `now`, a time of the program's own clock.
    #[must_use]
    pub fn begin(now: Now) -> Self {
        Self { start: now, started_at: Instant::now(), is_frozen: false }
    }

    /// Starts a turn in which time stands still at `now`.
    #[must_use]
    pub fn frozen(now: Now) -> Self {
        Self { is_frozen: true, ..Self::begin(now) }
    }

    /// Returns the time of the program's clock.
    #[must_use]
    #[inline]
    pub fn now(&self) -> Now {
        if self.is_frozen { self.start } else { self.measured() }
    }

    /// Returns the time including what the machine's clock has advanced, even in a turn in which time stands still.
    #[must_use]
    #[inline]
    pub fn measured(&self) -> Now {
        let elapsed = self.started_at.elapsed();
        // Both clocks advance: the wall clock must not seem to stand still in a long turn.
        let elapsed_millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let unix = UnixMillis(self.start.unix.0.saturating_add(elapsed_millis));
        Now { monotonic: self.start.monotonic.after(elapsed), unix }
    }
}

/// Returns the wall clock in milliseconds since 1970; 0 if it is set to an earlier time.
#[must_use]
pub fn wall_clock() -> UnixMillis {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}
