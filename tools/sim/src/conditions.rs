//! What a path does to datagrams, as plain data. How it does it is the path's.

use std::time::Duration;

use crate::units::{Rate, Share};

/// What one direction of a path does to datagrams.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Conditions {
    /// How long a datagram takes at least, one way, behind the link.
    pub latency: Duration,
    /// How much longer it may take: by chance, uniformly from nothing to this.
    pub jitter: Duration,
    /// Whether datagrams overtake one another by jitter.
    pub order: Order,
    /// Which datagrams are lost behind the link.
    pub loss: Loss,
    /// How many of those that are not lost arrive twice.
    pub duplication: Share,
    /// How many of those that are not lost arrive with one bit flipped.
    pub corruption: Share,
    /// Which datagrams are held back so that later ones overtake them.
    pub reordering: Reordering,
    /// How fast the link is, and how much waits before it; `None` is a link without limit.
    pub rate: Option<RateLimit>,
    /// When the link stops for a while, as a radio does; `None` for never.
    pub stalls: Option<Stalls>,
}

impl Conditions {
    /// Everything arrives at once, in order and unharmed.
    #[must_use]
    pub const fn perfect() -> Self {
        Self {
            latency: Duration::ZERO,
            jitter: Duration::ZERO,
            order: Order::Kept,
            loss: Loss::Random(Share::NONE),
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
/// On real paths jitter comes from queues, and queues keep the order; several routes at once, or a radio that repeats
/// out of turn, do not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// A datagram that would overtake waits for the one before it.
    #[default]
    Kept,
    /// Each arrives when its own jitter is over.
    Free,
}

/// Which datagrams are lost.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Loss {
    /// Each with the same chance, whatever became of the others.
    Random(Share),
    /// In bursts.
    Bursts(GilbertElliott),
}

/// A chain of two states, in each of which datagrams are lost with another chance. Before each datagram it may change.
///
/// E. N. Gilbert, "Capacity of a burst-noise channel", 1960; E. O. Elliott, "Estimates of error rates for codes on
/// burst-noise channels", 1963.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GilbertElliott {
    /// The chance to turn bad, before each datagram in the good state.
    pub to_bad: Share,
    /// The chance to turn good, before each datagram in the bad state.
    pub to_good: Share,
    /// How many are lost in the good state.
    pub loss_good: Share,
    /// How many are lost in the bad state.
    pub loss_bad: Share,
}

impl GilbertElliott {
    /// The chain that loses this share of all datagrams, in bursts of `mean_length` datagrams on average.
    ///
    /// `None` if there is none: for bursts shorter than 1, a share of 100 %, or bursts so short that the gaps between
    /// them would have to be shorter than one datagram.
    #[must_use]
    pub fn bursts(share: Share, mean_length: f64) -> Option<Self> {
        if mean_length.is_nan() || mean_length < 1.0 || share == Share::ALL {
            return None;
        }
        // Lost in the long run: to_bad / (to_bad + to_good).
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

/// Which datagrams are held back, and for how long. Those behind them overtake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reordering {
    /// How many are held back.
    pub share: Share,
    /// How long at most: by chance, uniformly from nothing to this.
    pub longest: Duration,
}

/// How fast the link is. Only the datagrams' own bytes count, not the headers of UDP and IP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateLimit {
    /// How fast datagrams leave.
    pub rate: Rate,
    /// How much may wait; a datagram that does not fit is dropped.
    pub buffer: Buffer,
}

/// How much may wait before the link, the datagram on it included. One datagram always may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Buffer {
    /// So many bytes.
    Bytes(usize),
    /// What the link carries in this time.
    Time(Duration),
}

/// When the link stops for a while. What waits meanwhile stays in the buffer, and leaves in order afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stalls {
    /// How long the link works between two stalls, on average: by chance, from half of it to one and a half.
    pub every: Duration,
    /// How long a stall is at least.
    pub shortest: Duration,
    /// How long a stall is at most.
    pub longest: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_that_cannot_be_are_none() {
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
