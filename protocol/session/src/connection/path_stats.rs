//! The measurements of a connection's path.

use core::fmt;
use core::time::Duration;

use super::path::ConnectionPath;
use crate::congestion::CongestionStats;
use crate::reliability::EndpointStats;
use slipgate_netcode::time::Instant;

/// The measurements of a connection's path.
///
/// # Examples
/// ```
/// use slipgate_session::connection::PathStats;
///
/// /// Returns a line for the corner of the screen.
/// fn overlay(path: &PathStats) -> String {
///     let ping = path.congestion.round_trip.map_or(0, |time| time.as_millis());
///     format!("{ping} ms, {:.1} % lost", 100.0 * path.endpoint.loss)
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PathStats {
    /// Round-trip time, jitter, loss, bandwidths and counters, measured as in "Fiedler, Reliability, Ordering and
    /// Congestion Avoidance over UDP": the round-trip time includes the time that the peer held the acknowledgement,
    /// and lost acknowledgements. [`CongestionStats::round_trip`] and its variation are those of the path alone.
    /// Among `counters.lost` packets, `counters.late_acks` were acknowledged after all.
    pub endpoint: EndpointStats,
    /// The state of the congestion controller.
    pub congestion: CongestionStats,
}

impl PathStats {
    pub(super) fn of(path: &ConnectionPath, now: Instant) -> Self {
        let (endpoint, congestion) = path.stats(now);
        Self { endpoint, congestion }
    }
}

/// Writes one line for logs and tables: `34.1 ms, jitter 2.0 ms, 0.3 % lost, queue 1.2 ms, may send 120.0 kB/s`.
/// Values that are not measured yet are omitted.
impl fmt::Display for PathStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        if let Some(round_trip) = self.congestion.round_trip {
            write!(f, "{:.1} ms, ", ms(round_trip))?;
        }
        // The jitter of the same round trip. `endpoint.rtt` varies by the turns of the peer, even on a perfect path.
        if let Some(variation) = self.congestion.round_trip_variation {
            write!(f, "jitter {:.1} ms, ", ms(variation))?;
        }
        write!(f, "{:.1} % lost, ", 100.0 * self.endpoint.loss)?;
        if let Some(queue) = self.congestion.queueing_delay {
            write!(f, "queue {:.1} ms, ", ms(queue))?;
        }
        write!(f, "may send {:.1} kB/s", self.congestion.rate.0 / 1000.0)
    }
}
