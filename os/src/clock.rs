//! Reading the two clocks, once a turn.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use slipgate_netcode::time::{self, Now, UnixMillis};

/// The clocks of this machine: monotonic since the clock was made, and the wall clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock whose monotonic side starts now.
    #[must_use]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Both clocks, read together.
    #[must_use]
    pub fn now(&self) -> Now {
        Now { monotonic: self.monotonic(), unix: wall_clock() }
    }

    /// The monotonic clock alone.
    #[must_use]
    pub fn monotonic(&self) -> time::Instant {
        time::Instant::from_start(self.start.elapsed())
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::start()
    }
}

/// The time in a turn: what the program said when it began, and what has passed since.
///
/// A loop reads the clock once a turn, and its game may work for milliseconds, or the system let another program run
/// first. What is read or leaves after that has the time at which it did: a datagram that seems to arrive before it was
/// sent would make a path look shorter than it is.
#[derive(Clone, Copy, Debug)]
pub struct TurnTime {
    began: Now,
    at: Instant,
    stands_still: bool,
}

impl TurnTime {
    /// A turn that begins now, as the program's own clock says.
    #[must_use]
    pub fn begin(now: Now) -> Self {
        Self { began: now, at: Instant::now(), stands_still: false }
    }

    /// A turn all of which happens now, however long it takes by the machine's clock.
    #[must_use]
    pub fn still(now: Now) -> Self {
        Self { stands_still: true, ..Self::begin(now) }
    }

    /// The time by the program's clock.
    #[must_use]
    pub fn now(&self) -> Now {
        if self.stands_still { self.began } else { self.measured() }
    }

    /// The time by that clock if it went on as the machine's does, which it may not.
    #[must_use]
    pub fn measured(&self) -> Now {
        let monotonic = self.began.monotonic.after(self.at.elapsed());
        Now { monotonic, unix: self.began.unix }
    }
}

/// The wall clock in milliseconds; 0 for one that is set before 1970.
#[must_use]
pub fn wall_clock() -> UnixMillis {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}
