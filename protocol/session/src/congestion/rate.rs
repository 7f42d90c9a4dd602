//! Rates in bytes per second, and the slow rate that is always allowed.

use core::time::Duration;

/// Bytes of a packet at the slow rate of "Fiedler, Reliability, Ordering and Congestion Avoidance over UDP".
pub(crate) const FLOOR_PACKET_BYTES: u32 = 256;
/// The interval of the same slow rate, 10 packets per second, which is always allowed: without it the connection
/// would time out.
pub(super) const FLOOR_INTERVAL: Duration = Duration::from_millis(100);
/// The minimum rate, 2,560 bytes per second: one packet of 256 bytes every 100 ms.
pub const FLOOR: BytesPerSecond = BytesPerSecond(2560.0);

/// A rate in bytes per second on the path: payload and every header.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default)]
pub struct BytesPerSecond(pub f64);
