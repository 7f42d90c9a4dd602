//! The statistics of an endpoint and of its path.

use core::time::Duration;

use crate::reject::Rejects;

/// A bandwidth, including the headers of this layer and of those below.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default)]
pub struct BitsPerSecond(pub f64);

/// The measurements of the path, and the counters since the endpoint was created.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EndpointStats {
    /// The round-trip time; `None` before the first acknowledgement.
    pub rtt: Option<RttStats>,
    /// The share of packets that were lost, 0 to 1.
    pub loss: f64,
    /// Bandwidth of sent packets.
    pub sent: BitsPerSecond,
    /// Bandwidth of received packets, without dropped datagrams.
    pub received: BitsPerSecond,
    /// Bandwidth of sent packets that were acknowledged.
    pub acked: BitsPerSecond,
    /// Packets and fragments, counted.
    pub counters: EndpointCounters,
    /// Datagrams that were dropped, by reason.
    pub rejects: Rejects,
}

/// The round-trip time, from sending a packet to its acknowledgement. Every sample counts, even if a clock jumped in
/// between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RttStats {
    /// The newest sample.
    pub latest: Duration,
    /// The exponentially smoothed moving average (Fiedler, "Reliability, Ordering and Congestion Avoidance over UDP").
    pub smoothed: Duration,
    /// The smallest of the last samples.
    pub min: Duration,
    /// The largest of the last samples.
    pub max: Duration,
    /// The mean of the last samples.
    pub mean: Duration,
    /// Their differences.
    pub jitter: Jitter,
}

/// How much the last round-trip times differ (§2.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Jitter {
    /// The mean less the minimum.
    pub mean_over_min: Duration,
    /// The maximum less the minimum.
    pub max_over_min: Duration,
    /// The standard deviation.
    pub deviation: Duration,
}

/// Packets and fragments, counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EndpointCounters {
    /// Packets sent, ack-only ones included.
    pub sent: u64,
    /// Ack-only packets sent.
    pub acks_sent: u64,
    /// Packets not sent because they were too large.
    pub too_large_to_send: u64,
    /// Fragments sent.
    pub fragments_sent: u64,
    /// Packets received, dropped ones included; a fragmented packet counts once it is complete.
    pub received: u64,
    /// Fragments received and kept.
    pub fragments_received: u64,
    /// Packets sent that were acknowledged.
    pub acked: u64,
    /// Packets sent that counted as lost.
    pub lost: u64,
    /// Lost packets that were acknowledged later.
    pub late_acks: u64,
    /// Lost packets that made room in the window before their time was up.
    pub displaced: u64,
    /// Events that were dropped because the application did not poll them in time.
    pub dropped_events: u64,
    /// Headers and extended acknowledgements that named packets which were never sent. An honest peer sends none;
    /// a number that may be one of an old packet is not counted.
    pub acks_of_unsent: u64,
    /// Incomplete packets that were discarded: they timed out, or newer ones needed the memory.
    pub reassemblies_given_up: u64,
}
