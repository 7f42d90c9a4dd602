//! How late packets are read: what a receiver whose loop looks at its socket now and then tells the sender, so that its
//! waiting is not taken for a queue of the path's.

use core::time::Duration;

use crate::wire::session::{STAMP_UNIT, Stamp};
use slipgate_netcode::time::Instant;

/// Packets that arrived since the socket was last empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lateness {
    /// When it was empty, and when the first of them had left.
    batch: Option<(Instant, Stamp)>,
}

impl Lateness {
    /// A packet that left at a moment of its sender's clock was read, and had arrived at most `unread` before. Answers by
    /// how much it may be late.
    ///
    /// All packets of a batch arrived after the socket was empty, and one after the other: the last came later than the
    /// first by about as much as it left later.
    pub fn read(&mut self, sent: Stamp, unread: Duration, now: Instant) -> Duration {
        let empty_at = Instant::from_start(now.since_start().saturating_sub(unread));
        let first = match self.batch {
            Some((since, first)) if since == empty_at => first,
            _ => sent,
        };
        self.batch = Some((empty_at, first));
        // Who overtook the first one knows nothing better.
        let later = sent.units_since(first);
        let later = if later < u16::MAX / 2 { STAMP_UNIT * u32::from(later) } else { Duration::ZERO };
        unread.saturating_sub(later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn at(millis: u64) -> Instant {
        Instant::from_start(ms(millis))
    }

    #[test]
    fn the_last_of_a_batch_is_known_best() {
        let mut lateness = Lateness::default();
        let mut read = |sent, now| lateness.read(Stamp::of(at(sent)), ms(16), at(now));
        assert_eq!(read(100, 116), ms(16));
        assert_eq!(read(104, 116), ms(12));
        assert_eq!(read(115, 116), ms(1));
        assert_eq!(read(117, 132), ms(16), "the next batch begins anew");
        assert_eq!(read(117, 132), ms(16), "who sends in frames says nothing by the second packet");
        assert_eq!(read(110, 132), ms(16), "who was overtaken says nothing");
        assert_eq!(read(140, 132), ms(0));
    }
}
