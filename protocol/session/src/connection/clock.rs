//! The peer's clock, from its 16-bit timestamps: a clock that does not wrap.

use crate::wire::session_frame::{TIMESTAMP_REACH, Timestamp, unit_nanos};
use slipgate_netcode::time::Instant;

/// Timestamps wrap after this many units.
const WRAP_UNITS: u64 = 1 << 16;

/// The peer's clock, as its newest timestamp shows it.
///
/// Our own clock shows how often timestamps wrapped between two that are far apart. Both clocks must therefore agree to
/// within eight seconds over a silence.
#[derive(Clone, Copy, Default)]
pub(super) struct PeerClock {
    newest: Option<TimestampReading>,
}

#[derive(Clone, Copy)]
struct TimestampReading {
    units: u64,
    received_at: Instant,
}

impl PeerClock {
    /// Returns the nanoseconds by the peer's clock from the newest timestamp to this one, nearly a wrap if this one is
    /// older; `None` before the first one, and after a silence that timestamps cannot express.
    #[inline]
    pub(super) fn since_newest(&self, timestamp: Timestamp, now: Instant) -> Option<u64> {
        let newest = self.newest.filter(|newest| !now.reached(newest.received_at, TIMESTAMP_REACH))?;
        Some(unit_nanos(timestamp.units_since(Timestamp(newest.units as u16)).into()))
    }

    /// Records the timestamp of a packet, and returns the moment of the peer's clock that it stands for, in
    /// nanoseconds.
    #[inline]
    pub(super) fn on_timestamp(&mut self, timestamp: Timestamp, now: Instant) -> u64 {
        let units = match self.newest {
            // The clock starts one wrap after 0, so an older timestamp that arrives later is not negative.
            None => WRAP_UNITS + u64::from(timestamp.0),
            Some(newest) => nearest(newest.units + units_since(newest.received_at, now), timestamp),
        };
        // Packets may be reordered: only the newest timestamp advances the clock.
        if self.newest.is_none_or(|newest| units >= newest.units) {
            self.newest = Some(TimestampReading { units, received_at: now });
        }
        unit_nanos(units)
    }
}

/// Returns the moment with this timestamp that lies nearest to `expected`.
fn nearest(expected: u64, timestamp: Timestamp) -> u64 {
    let ahead = u64::from(timestamp.units_since(Timestamp(expected as u16)));
    // The nearer half of the circle decides whether the timestamp is newer or older.
    if ahead < WRAP_UNITS / 2 { expected + ahead } else { (expected + ahead).saturating_sub(WRAP_UNITS) }
}

fn units_since(earlier: Instant, now: Instant) -> u64 {
    now.as_nanos().saturating_sub(earlier.as_nanos()) / unit_nanos(1)
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    #[test]
    fn the_clock_survives_wraps_and_long_silences() {
        let mut clock = PeerClock::default();
        let ahead = Duration::from_secs(1000);
        let mut first = None;
        for millis in [0, 1, 16, 17_000, 17_001, 16_900, 40_000, 600_000, 600_400, 3_600_000] {
            let peer = at(millis).since_start() + ahead;
            // The delay of the path alternates between 30 and 180 ms.
            let now = at(millis + if millis % 2 == 0 { 30 } else { 180 });
            let time = Duration::from_nanos(clock.on_timestamp(Timestamp::from(Instant::from_start(peer)), now));
            let start = *first.get_or_insert(time);
            assert_eq!(time - start, Duration::from_millis(millis), "{millis}");
        }
    }

    #[test]
    fn time_between_timestamps_survives_wraps_but_no_long_silence() {
        let mut clock = PeerClock::default();
        assert_eq!(clock.since_newest(Timestamp(9), at(0)), None);
        clock.on_timestamp(Timestamp(u16::MAX - 3), at(0));
        let since = |units, millis| clock.since_newest(Timestamp(units), at(millis)).map(|nanos| nanos / 1_000_000);
        assert_eq!([since(4, 20), since(u16::MAX - 3, 20), since(u16::MAX - 7, 20)], [Some(2), Some(0), Some(16_383)]);
        let reach = TIMESTAMP_REACH.as_millis() as u64;
        assert_eq!([since(4, reach - 1), since(4, reach)], [Some(2), None]);
    }
}
