//! The packets that a game should send at a given rate: how many per second, and how large.
//!
//! A game asks *before* it composes a tick, so that it sends less detail instead of later data.

use super::rate::{BytesPerSecond, FLOOR_INTERVAL};

/// Packets smaller than this many times their headers are mostly headers; the game then sends fewer packets instead.
const MIN_HEADERS: u32 = 3;

/// The packets that a game would like to send, and their overhead.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PacketShape {
    /// Packets per second that the game would like to send.
    pub packets_per_second: f64,
    /// The largest packet, in bytes on the path.
    pub packet_bytes: u32,
    /// Bytes of all headers in a packet.
    pub header_bytes: u32,
}

/// The packets that a game should send now.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Suggestion {
    /// Packets per second.
    pub packets_per_second: f64,
    /// Bytes of game data in each.
    pub payload_bytes: u32,
}

impl PacketShape {
    /// Returns the suggestion at a rate. The packet rate stays while packets can shrink, and never falls below the
    /// article's 10 per second.
    #[must_use]
    pub(crate) fn at(&self, rate: BytesPerSecond) -> Suggestion {
        let slowest = 1.0 / FLOOR_INTERVAL.as_secs_f64();
        let least_bytes = f64::from(MIN_HEADERS.saturating_mul(self.header_bytes));
        let wanted = self.packets_per_second.max(slowest);
        // Fewer packets once each would be mostly headers.
        let packets_per_second = wanted.min(rate.0 / least_bytes.max(1.0)).max(slowest);
        let packet = (rate.0 / packets_per_second).min(f64::from(self.packet_bytes));
        Suggestion { packets_per_second, payload_bytes: (packet as u32).saturating_sub(self.header_bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_shrink_before_they_become_fewer() {
        let shape = PacketShape { packets_per_second: 60.0, packet_bytes: 1200, header_bytes: 60 };
        for (rate, packets_per_second, payload_bytes) in [
            (1_000_000.0, 60.0, 1140),
            (60_000.0, 60.0, 940),
            (10_800.0, 60.0, 120),
            (5400.0, 30.0, 120),
            (2560.0, 2560.0 / 180.0, 120),
            (1000.0, 10.0, 40),
            (0.0, 10.0, 0),
        ] {
            let suggestion = shape.at(BytesPerSecond(rate));
            assert_eq!(suggestion, Suggestion { packets_per_second, payload_bytes }, "at {rate} B/s");
        }
    }
}
