//! One connection over a payload channel: endpoint, congestion avoidance and, between peers of ours, channels.
//!
//! ```text
//!   payloads in                                        payloads out
//!       │                                                   ▲
//!       ▼                                                   │
//!     handle ──▶ path: number, acknowledge, measure ◀── transmit ◀── how many bytes may leave
//!       │            │                                      ▲
//!       │            └──▶ which packets arrived ──▶ channels ┘
//!       ▼                                              ▲
//!     next: one message at a time                    send
//! ```
//!
//! [`Connection`] carries messages on channels between two peers of ours (`specs/session-1.md`); [`Packets`] carries
//! acknowledged packets, as every peer of reliable 1.0 does. Both are sans-IO, and neither has heard of encryption.

mod clock;
mod config;
mod connection;
mod end;
mod greeting;
mod packets;
mod path;
mod send_error;
#[cfg(test)]
mod tests;
mod traffic;
mod unanswered;

pub use self::config::{Config, ConfigError, MIN_PAYLOAD, MakeController, Memory};
pub use self::connection::{Connection, Incoming};
pub use self::end::End;
pub use self::packets::{Arrived, Packets};
pub use self::path::Place;
pub use self::send_error::SendError;
pub(crate) use self::traffic::Line;
pub use self::traffic::Traffic;

use core::fmt;
use core::time::Duration;

use self::path::Path;
use crate::congestion::{self, Suggestion};
use crate::reliability;
use slipgate_netcode::time::Instant;

/// What may leave now: to be asked before a game composes its tick, so that it sends less detail instead of later data.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Budget {
    /// Bytes of payload that may leave in this tick, of messages that are more urgent than what waits now.
    pub bytes: usize,
    /// In which rhythm, and in what sizes, a game had best send.
    pub suggestion: Suggestion,
    /// Bytes that a packet costs beside its payload.
    overhead: u64,
}

impl Budget {
    fn of(path: &Path, ahead: u64, now: Instant) -> Self {
        Self { bytes: path.budget_ahead(ahead, now), suggestion: path.suggestion(now), overhead: path.overhead() }
    }

    /// The same with no more than so many bytes on the path in this tick.
    pub(crate) fn within(self, bytes: u64) -> Self {
        let bytes = usize::try_from(bytes.saturating_sub(self.overhead)).unwrap_or(usize::MAX).min(self.bytes);
        let payload_bytes = self.suggestion.payload_bytes.min(u32::try_from(bytes).unwrap_or(u32::MAX));
        Self { bytes, suggestion: Suggestion { payload_bytes, ..self.suggestion }, ..self }
    }
}

/// How a connection's path is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PathStats {
    /// Round-trip time, jitter, loss, bandwidths and counters, as the article measures them ("Fiedler, Reliability, Ordering and
    /// Congestion Avoidance over UDP"): its round-trip time lasts until
    /// the first word of a packet that arrived, with all that the peer held it back and every acknowledgement that was
    /// lost before. That of the path alone is [`congestion::Stats::round_trip`]. Of `counters.lost`, `counters.late_acks`
    /// were acknowledged after all.
    pub endpoint: reliability::Stats,
    /// What the controller thinks.
    pub congestion: congestion::Stats,
}

/// In a line, for logs and tables: `34.1 ms, jitter 2.0 ms, 0.3 % lost, queue 1.2 ms, may send 120.0 kB/s`. What is not known
/// yet is left out.
impl fmt::Display for PathStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        if let Some(round_trip) = self.congestion.round_trip {
            write!(f, "{:.1} ms, ", ms(round_trip))?;
        }
        if let Some(rtt) = &self.endpoint.rtt {
            write!(f, "jitter {:.1} ms, ", ms(rtt.jitter.deviation))?;
        }
        write!(f, "{:.1} % lost, ", 100.0 * self.endpoint.loss)?;
        if let Some(queue) = self.congestion.queueing_delay {
            write!(f, "queue {:.1} ms, ", ms(queue))?;
        }
        write!(f, "may send {:.1} kB/s", self.congestion.rate.0 / 1000.0)
    }
}

impl PathStats {
    fn of(path: &Path, now: Instant) -> Self {
        let (endpoint, congestion) = path.stats(now);
        Self { endpoint, congestion }
    }
}
