//! The peer's clock, as far as its stamps show it: sixteen bits become a clock that does not wrap.

use core::time::Duration;

use crate::congestion::PeerTime;
use crate::wire::session::{STAMP_UNIT, Stamp};
use slipgate_netcode::time::Instant;

/// Stamps come round after so many units.
const ROUND: u64 = 1 << 16;

/// The peer's clock, by the newest of its stamps.
///
/// Between two stamps that are far apart our own clock says how often they came round; so both clocks must agree to
/// within eight seconds over a silence, and no more.
#[derive(Clone, Copy, Default)]
pub(super) struct PeerClock {
    newest: Option<Reading>,
}

#[derive(Clone, Copy)]
struct Reading {
    units: u64,
    heard_at: Instant,
}

impl PeerClock {
    /// Hears the stamp of when a packet left, and answers which moment that is.
    pub(super) fn hear(&mut self, stamp: Stamp, now: Instant) -> PeerTime {
        let units = match self.newest {
            // Away from 0, so that what was stamped earlier and comes later has a place.
            None => ROUND + u64::from(stamp.0),
            Some(newest) => nearest(newest.units + units(now.since(newest.heard_at)), stamp),
        };
        // Packets overtake each other; the newest stamp is the clock.
        if self.newest.is_none_or(|newest| units >= newest.units) {
            self.newest = Some(Reading { units, heard_at: now });
        }
        time(units)
    }
}

/// The moment with this stamp that lies nearest to `expected`.
fn nearest(expected: u64, stamp: Stamp) -> u64 {
    let ahead = u64::from(stamp.units_since(Stamp(expected as u16)));
    if ahead < ROUND / 2 { expected + ahead } else { (expected + ahead).saturating_sub(ROUND) }
}

fn units(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros() / STAMP_UNIT.as_micros()).unwrap_or(u64::MAX / 2)
}

fn time(units: u64) -> PeerTime {
    PeerTime(Duration::from_micros(units.saturating_mul(STAMP_UNIT.as_micros() as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    #[test]
    fn the_clock_goes_on_while_stamps_come_round_and_after_long_silences() {
        let mut clock = PeerClock::default();
        let ahead = Duration::from_secs(1000);
        let mut first = None;
        for millis in [0, 1, 16, 17_000, 17_001, 16_900, 40_000, 600_000, 600_400, 3_600_000] {
            let peer = at(millis).since_start() + ahead;
            // The path takes 30 ms one time and 180 ms the other.
            let now = at(millis + if millis % 2 == 0 { 30 } else { 180 });
            let time = clock.hear(Stamp::of(Instant::from_start(peer)), now).0;
            let start = *first.get_or_insert(time);
            assert_eq!(time - start, Duration::from_millis(millis), "{millis}");
        }
    }
}
