//! The conditions of a path: what it does to datagrams, as plain data. `path` implements them.

use std::time::Duration;

use crate::units::{Rate, Share};

/// The impairments of one direction of a path.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Conditions {
    /// The minimum one-way delay behind the link.
    pub latency: Duration,
    /// The maximum additional delay. Each datagram has a uniformly random one from zero to this.
    pub jitter: Duration,
    /// Whether datagrams overtake one another by jitter.
    pub order: Order,
    /// Which datagrams are lost behind the link.
    pub loss: Loss,
    /// The share of delivered datagrams that arrive twice.
    pub duplication: Share,
    /// The share of delivered datagrams that arrive with one bit flipped.
    pub corruption: Share,
    /// Which datagrams are held back so that later ones overtake them.
    pub reordering: Reordering,
    /// The rate of the link and its buffer; `None` for an unlimited link.
    pub rate: Option<RateLimit>,
    /// When the link stalls, as a radio link does; `None` for never.
    pub stalls: Option<Stalls>,
}

impl Conditions {
    /// Returns conditions under which each datagram arrives at once, in order and unharmed.
    #[must_use]
    pub const fn perfect() -> Self {
        Self {
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            order: Order::Kept,
            loss: Loss::NONE,
            duplication: Share::NONE,
            corruption: Share::NONE,
            reordering: Reordering { share: Share::NONE, longest: Duration::ZERO },
            rate: None,
            stalls: None,
        }
    }
}

impl Default for Conditions {
    fn default() -> Self {
        Self::perfect()
    }
}

/// Whether datagrams overtake one another by jitter.
///
/// Jitter of real paths mostly comes from queues, and queues keep the order. Several parallel routes, or a radio link
/// that retransmits out of order, do not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// A datagram that would overtake waits for the one before it.
    #[default]
    Kept,
    /// Each datagram arrives after its own jitter.
    Free,
}

/// Which datagrams are lost.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Loss {
    /// Each datagram with the same probability, independently.
    Random(Share),
    /// In bursts.
    Bursts(GilbertElliott),
    /// All that are sent during some times, however many these are.
    Runs(LossRuns),
}

impl Loss {
    /// No datagram is lost.
    pub const NONE: Self = Self::Random(Share::NONE);

    /// Returns the model that loses this share of all datagrams, in bursts of `mean_length` datagrams on average;
    /// `None` where [`GilbertElliott::bursts`] is.
    #[must_use]
    pub fn bursts(share: Share, mean_length: f64) -> Option<Self> {
        GilbertElliott::bursts(share, mean_length).map(Self::Bursts)
    }

    /// Returns the share of datagrams that are lost in the long run, from 0 to 1.
    #[must_use]
    pub fn mean_share(&self) -> f64 {
        match self {
            Self::Random(share) => share.fraction(),
            Self::Bursts(chain) => {
                let (to_bad, to_good) = (chain.to_bad.fraction(), chain.to_good.fraction());
                let turns = to_bad + to_good;
                // A chain that never changes its state stays in the good one.
                let bad = if turns > 0.0 { to_bad / turns } else { 0.0 };
                bad * chain.loss_bad.fraction() + (1.0 - bad) * chain.loss_good.fraction()
            }
            Self::Runs(runs) => runs.share.fraction(),
        }
    }
}

/// A Markov chain of two states with a loss probability each. It may change its state before each datagram.
///
/// E. N. Gilbert, "Capacity of a burst-noise channel", 1960; E. O. Elliott, "Estimates of error rates for codes on
/// burst-noise channels", 1963.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GilbertElliott {
    /// The probability of entering the bad state, before each datagram in the good state.
    pub to_bad: Share,
    /// The probability of entering the good state, before each datagram in the bad state.
    pub to_good: Share,
    /// The share of datagrams lost in the good state.
    pub loss_good: Share,
    /// The share of datagrams lost in the bad state.
    pub loss_bad: Share,
}

impl GilbertElliott {
    /// Returns the chain that loses this share of all datagrams, in bursts of `mean_length` datagrams on average.
    ///
    /// Returns `None` if no such chain exists: for bursts shorter than 1, for a share of 100 %, and for bursts so short
    /// that the gaps between them would have to be shorter than one datagram.
    #[must_use]
    pub fn bursts(share: Share, mean_length: f64) -> Option<Self> {
        if mean_length.is_nan() || mean_length < 1.0 || share == Share::ALL {
            return None;
        }
        // The long-run loss is to_bad / (to_bad + to_good).
        let to_good = 1.0 / mean_length;
        let to_bad = to_good * share.fraction() / (1.0 - share.fraction());
        Some(Self {
            to_bad: Share::from_fraction(to_bad)?,
            to_good: Share::from_fraction(to_good)?,
            loss_good: Share::NONE,
            loss_bad: Share::ALL,
        })
    }
}

/// Times in which all datagrams are lost, with random lengths. A sender with more datagrams has no shorter ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LossRuns {
    /// The share of time that they take.
    pub share: Share,
    /// Their mean length. Lengths and the times between them are distributed exponentially.
    pub mean: Duration,
}

/// Which datagrams are held back, and for how long. Later datagrams overtake them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reordering {
    /// The share of datagrams that are held back.
    pub share: Share,
    /// The maximum additional delay. Each has a uniformly random one from zero to this.
    pub longest: Duration,
}

/// The rate of a link. Only the datagrams' own bytes count, not the headers of UDP and IP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateLimit {
    /// How fast datagrams leave.
    pub rate: Rate,
    /// The capacity of the buffer. A datagram that does not fit is dropped.
    pub buffer: Buffer,
}

/// The capacity of a link's buffer, which includes the datagram in transmission. One datagram always fits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Buffer {
    /// This many bytes.
    Bytes(usize),
    /// What the link transmits in this time.
    Time(Duration),
}

/// When a link stalls. Datagrams that wait stay in the buffer and leave in order afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stalls {
    /// The mean time between two stalls. Each is uniformly random, from half of it to one and a half.
    pub every: Duration,
    /// The shortest stall.
    pub shortest: Duration,
    /// The longest stall.
    pub longest: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_bursts_are_none() {
        let percent = Share::percent;
        for (share, mean_length, possible) in [
            (percent(5.0), 4.0, true),
            (Share::NONE, 1.0, true),
            (percent(50.0), 1.0, true),
            (percent(51.0), 1.0, false),
            (percent(90.0), 10.0, true),
            (Share::ALL, 10.0, false),
            (percent(5.0), 0.9, false),
            (percent(5.0), f64::NAN, false),
            (percent(5.0), f64::INFINITY, true),
        ] {
            assert_eq!(GilbertElliott::bursts(share, mean_length).is_some(), possible, "{share}, {mean_length}");
        }
    }
}
