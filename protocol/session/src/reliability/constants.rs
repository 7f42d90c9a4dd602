//! The constants of the article that this layer follows: Fiedler, "Reliability, Ordering and Congestion Avoidance over
//! UDP". Its constants of congestion avoidance are in [`congestion`](crate::congestion).
//!
//! The article acknowledges 33 packets in each header: `ack` and the 32 before it. reliable 1.0 spends bit 0 on `ack`
//! itself, so a header acknowledges [`ACKS_PER_HEADER`](crate::wire::reliable::ACKS_PER_HEADER) packets: 32.

use core::time::Duration;

/// A packet is lost when it was not acknowledged for this long: at 30 packets a second its acknowledgement was sent
/// about 30 times by then (Fiedler, "Reliability, Ordering and Congestion Avoidance over UDP"). No longer round-trip
/// time is measured, because a lost packet leaves the queue of unacknowledged packets.
pub const LOST_AFTER: Duration = Duration::from_secs(1);

/// How far each sample moves the estimate of the round-trip time: 10 % of the way (Fiedler, "Reliability, Ordering and
/// Congestion Avoidance over UDP").
pub const RTT_SMOOTHING: f64 = 0.1;
