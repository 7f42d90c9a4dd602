//! How long packets wait in the receiver's socket. A receiver reports it, so that the sender does not take the
//! interval of the receiver's loop for a queue of the path.

use core::time::Duration;

use crate::wire::session_frame::{Timestamp, unit_time};
use slipgate_netcode::time::Instant;

/// The packets that arrived since the socket was last empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct SocketDelay {
    /// When the socket was empty, and the timestamp of the first packet after that.
    batch: Option<(Instant, Timestamp)>,
}

impl SocketDelay {
    /// Records a packet that was read, and that arrived at most `unread` before. Returns the longest time that it may
    /// have waited.
    ///
    /// All packets of a batch arrived after the socket was empty, one after the other: the last arrived later than
    /// the first by about as much as it was sent later.
    #[inline]
    pub fn read(&mut self, sent: Timestamp, unread: Duration, now: Instant) -> Duration {
        let empty_at = now - unread;
        let first = match self.batch {
            Some((since, first)) if since == empty_at => first,
            _ => sent,
        };
        self.batch = Some((empty_at, first));
        // A packet that overtook the first one bounds nothing better.
        let later = sent.units_since(first);
        let later = if later < u16::MAX / 2 { unit_time(later.into()) } else { Duration::ZERO };
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
    fn last_packet_of_a_batch_has_the_best_bound() {
        let mut delay = SocketDelay::default();
        let mut read = |sent, now| delay.read(Timestamp::from(at(sent)), ms(16), at(now));
        assert_eq!(read(100, 116), ms(16));
        assert_eq!(read(104, 116), ms(12));
        assert_eq!(read(115, 116), ms(1));
        assert_eq!(read(117, 132), ms(16), "the next batch starts again");
        assert_eq!(read(117, 132), ms(16), "the second packet of a frame is not evidence");
        assert_eq!(read(110, 132), ms(16), "a packet that was overtaken is not evidence");
        assert_eq!(read(140, 132), ms(0));
    }
}
