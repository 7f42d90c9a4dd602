//! The description of a path between a sender and a receiver, and of its changes over time.

use core::time::Duration;

use slipgate_sim::{Discipline, Loss, PolicerConfig, Share, Stalls};

/// How the delay varies from packet to packet.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum DelayVariation {
    /// It does not vary.
    #[default]
    None,
    /// An additional delay, uniform up to this duration. The order is kept.
    InOrder(Duration),
    /// An additional delay, exponential with this mean. The order is kept, so a late packet delays those behind it.
    InOrderExponential(Duration),
    /// An additional delay, exponential with this mean. Packets overtake each other.
    Reordering(Duration),
}

/// How the rate of the bottleneck changes.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum RateChange {
    /// It is constant.
    #[default]
    None,
    /// The rates in bytes per second from given moments on.
    Steps(Vec<(Duration, f64)>),
    /// A random walk: the rate is multiplied by a random factor in each period, within bounds.
    RandomWalk {
        /// The period.
        every: Duration,
        /// The maximum factor.
        factor: f64,
        /// The minimum rate in bytes per second.
        low: f64,
        /// The maximum rate in bytes per second.
        high: f64,
    },
}

/// An outage: everything that is sent meanwhile in either direction is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage {
    /// When it starts.
    pub from: Duration,
    /// When it ends.
    pub until: Duration,
}

/// An additional delay for a limited time, as from a longer route.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ExtraDelay {
    /// When it starts.
    pub from: Duration,
    /// When it ends.
    pub until: Duration,
    /// The additional delay.
    pub extra: Duration,
}

/// A path.
#[derive(Clone, PartialEq, Debug)]
pub struct PathSpec {
    /// The initial rate of the bottleneck, in bytes per second.
    pub rate: f64,
    /// How the rate changes.
    pub change: RateChange,
    /// The round-trip time without queues, half of it in each direction.
    pub round_trip: Duration,
    /// The capacity of the bottleneck's queue, in bytes.
    pub buffer: u64,
    /// The drop policy of the queue.
    pub discipline: Discipline,
    /// Stalls of the bottleneck, as of a shared radio channel.
    pub stalls: Option<Stalls>,
    /// An outage.
    pub outage: Option<Outage>,
    /// A policer before the bottleneck.
    pub policer: Option<PolicerConfig>,
    /// How the delay towards the receiver varies.
    pub jitter: DelayVariation,
    /// The loss towards the receiver, behind the bottleneck.
    pub loss: Loss,
    /// When that loss begins.
    pub loss_from: Duration,
    /// The loss towards the sender.
    pub loss_back: Loss,
    /// An additional delay towards the receiver.
    pub extra_delay: Option<ExtraDelay>,
    /// An additional delay towards the sender.
    pub extra_delay_back: Option<ExtraDelay>,
}

impl PathSpec {
    /// Creates a path from a rate in bits per second, a round-trip time in milliseconds, and a buffer in milliseconds
    /// at that rate.
    #[must_use]
    pub fn new(bits_per_second: f64, round_trip_ms: u64, buffer_ms: u64) -> Self {
        let rate = bits_per_second / 8.0;
        // Every bottleneck has space for two packets.
        let buffer = ((rate * buffer_ms as f64 / 1000.0) as u64).max(2 * 1200);
        Self {
            rate,
            change: RateChange::None,
            round_trip: Duration::from_millis(round_trip_ms),
            buffer,
            discipline: Discipline::TailDrop,
            stalls: None,
            outage: None,
            policer: None,
            jitter: DelayVariation::None,
            loss: Loss::NONE,
            loss_from: Duration::ZERO,
            loss_back: Loss::NONE,
            extra_delay: None,
            extra_delay_back: None,
        }
    }

    /// Returns the same path with random loss in both directions.
    #[must_use]
    pub fn losing(self, share: Share) -> Self {
        Self { loss: Loss::Random(share), loss_back: Loss::Random(share), ..self }
    }
}
