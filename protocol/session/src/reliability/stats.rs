//! What an endpoint says about itself and its path.

use core::time::Duration;

use crate::reject::Rejects;

/// A bandwidth, with the headers of this layer and those below it.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default)]
pub struct BitsPerSecond(pub f64);

/// How the path is, and what happened on it since the endpoint began or was reset.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stats {
    /// The round-trip time; `None` before the first acknowledgement.
    pub rtt: Option<RttStats>,
    /// The share of packets that were lost, 0 to 1.
    pub loss: f64,
    /// What leaves.
    pub sent: BitsPerSecond,
    /// What arrives, dropped datagrams not counted.
    pub received: BitsPerSecond,
    /// What leaves and is acknowledged.
    pub acked: BitsPerSecond,
    /// Packets and fragments, counted.
    pub counters: Counters,
    /// Datagrams that were dropped, by reason.
    pub rejects: Rejects,
}

/// The round-trip time, from the sending of a packet to its acknowledgement: of every sample, though a clock may have moved
/// meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RttStats {
    /// The newest sample.
    pub latest: Duration,
    /// The exponentially smoothed moving average (Fiedler, "Reliability, Ordering and Congestion Avoidance over UDP").
    pub smoothed: Duration,
    /// The smoothed distance of a sample to the average (RFC 6298, section 2).
    pub variation: Duration,
    /// The smallest of the last samples.
    pub min: Duration,
    /// The largest of the last samples.
    pub max: Duration,
    /// The mean of the last samples.
    pub mean: Duration,
    /// How much they differ.
    pub jitter: Jitter,
}

impl RttStats {
    /// How long packets wait in queues on the path: what the average has over the smallest sample.
    #[must_use]
    pub const fn queueing_delay(&self) -> Duration {
        self.smoothed.saturating_sub(self.min)
    }
}

/// How much the last round-trip times differ (§2.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Jitter {
    /// What the mean has over the minimum.
    pub mean_over_min: Duration,
    /// What the maximum has over the minimum.
    pub max_over_min: Duration,
    /// The standard deviation.
    pub deviation: Duration,
}

/// Packets and fragments, counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Packets sent, those of acknowledgements alone among them.
    pub sent: u64,
    /// Packets sent that carried nothing but acknowledgements.
    pub acks_sent: u64,
    /// Packets not sent because they were too large.
    pub too_large_to_send: u64,
    /// Fragments sent.
    pub fragments_sent: u64,
    /// Packets received, dropped ones among them; one in fragments counts when it is complete.
    pub received: u64,
    /// Fragments received and kept.
    pub fragments_received: u64,
    /// Packets sent that were acknowledged.
    pub acked: u64,
    /// Packets sent that counted as lost.
    pub lost: u64,
    /// Of those, the ones that were acknowledged after all.
    pub late_acks: u64,
    /// Of those, the ones that were lost because the window was full, not because time was up.
    pub displaced: u64,
    /// Events that the application did not poll before a window of newer ones had come: the oldest is forgotten each time.
    pub untold_events: u64,
    /// Headers, and words of acknowledgements behind them, that told of packets which were never sent. No honest peer
    /// does that; what may be the number of a packet long gone is not counted.
    pub acks_of_unsent: u64,
    /// Packets in fragments that were given up: their time was up, or newer ones needed the memory.
    pub reassemblies_given_up: u64,
}
