//! Which shape a game's packets may take at a rate: how many in a second, and how large.
//!
//! A game is told *before* it composes a tick, so that it sends less detail instead of later data.

use super::{BytesPerSecond, FLOOR_INTERVAL};

/// Below this many times its headers a packet is mostly headers; then there are fewer packets instead.
const LEAST_HEADERS: u32 = 3;

/// What a game would like to send, and what a packet costs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shape {
    /// Packets a game would like to send in a second.
    pub packets_per_second: f64,
    /// The largest packet, in bytes on the path.
    pub packet_bytes: u32,
    /// Bytes of a packet that are none of the game's: every header of every layer.
    pub header_bytes: u32,
}

/// What a game had best send now.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Suggestion {
    /// Packets in a second.
    pub packets_per_second: f64,
    /// Bytes of the game in each.
    pub payload_bytes: u32,
}

impl Shape {
    /// The rhythm is kept as long as packets can shrink; the article's 10 packets per second are kept always.
    #[must_use]
    pub fn at(&self, rate: BytesPerSecond) -> Suggestion {
        let slowest = 1.0 / FLOOR_INTERVAL.as_secs_f64();
        let least_bytes = f64::from(LEAST_HEADERS.saturating_mul(self.header_bytes));
        let wanted = self.packets_per_second.max(slowest);
        let packets_per_second = wanted.min(rate.0 / least_bytes.max(1.0)).max(slowest);
        let packet = (rate.0 / packets_per_second).min(f64::from(self.packet_bytes));
        Suggestion { packets_per_second, payload_bytes: (packet as u32).saturating_sub(self.header_bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_shrink_first_and_become_fewer_then() {
        let shape = Shape { packets_per_second: 60.0, packet_bytes: 1200, header_bytes: 60 };
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
