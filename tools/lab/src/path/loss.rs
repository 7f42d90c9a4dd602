//! Which packets a path loses on its own account, without any queue being full.

use crate::random::Random;

/// How a direction of a path loses packets.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Loss {
    /// It loses none.
    #[default]
    Never,
    /// Each packet with the same probability.
    Random(f64),
    /// In bursts: this share of all packets, this many in a row on average (Gilbert, "Capacity of a burst-noise
    /// channel", 1960: a good state without loss, a bad state in which all is lost).
    Bursts {
        /// The share of packets that are lost.
        share: f64,
        /// The mean length of a burst, in packets.
        mean: f64,
    },
}

impl Loss {
    /// The share of packets that are lost.
    #[must_use]
    pub const fn share(self) -> f64 {
        match self {
            Self::Never => 0.0,
            Self::Random(share) | Self::Bursts { share, .. } => share,
        }
    }
}

/// A direction's loss at work.
#[derive(Clone, Debug)]
pub struct Losing {
    loss: Loss,
    bad: bool,
    random: Random,
}

impl Losing {
    /// Loss of this kind, starting in the good state.
    #[must_use]
    pub const fn new(loss: Loss, random: Random) -> Self {
        Self { loss, bad: false, random }
    }

    /// Loss is of another kind from now on.
    pub const fn change(&mut self, loss: Loss) {
        self.loss = loss;
    }

    /// Whether the next packet is lost.
    pub fn takes_next(&mut self) -> bool {
        match self.loss {
            Loss::Never => false,
            Loss::Random(share) => self.random.happens(share),
            Loss::Bursts { share, mean } => {
                // The share of time in the bad state is enter / (enter + leave).
                let leave = 1.0 / mean.max(1.0);
                let enter = leave * share / (1.0 - share);
                self.bad = if self.bad { !self.random.happens(leave) } else { self.random.happens(enter) };
                self.bad
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost_of_100_000(loss: Loss) -> Vec<bool> {
        let mut losing = Losing::new(loss, Random::new(3, 9));
        (0..100_000).map(|_| losing.takes_next()).collect()
    }

    fn share(lost: &[bool]) -> f64 {
        lost.iter().filter(|lost| **lost).count() as f64 / lost.len() as f64
    }

    #[test]
    fn the_share_of_lost_packets_is_the_one_asked_for() {
        assert_eq!(share(&lost_of_100_000(Loss::Never)), 0.0);
        for wanted in [0.05, 0.2] {
            let random = share(&lost_of_100_000(Loss::Random(wanted)));
            assert!((random - wanted).abs() < 0.005, "{random} instead of {wanted}");
            let bursts = share(&lost_of_100_000(Loss::Bursts { share: wanted, mean: 4.0 }));
            assert!((bursts - wanted).abs() < 0.01, "{bursts} instead of {wanted}");
        }
    }

    #[test]
    fn bursts_have_the_length_asked_for() {
        let lost = lost_of_100_000(Loss::Bursts { share: 0.15, mean: 4.0 });
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        let length = share(&lost) * lost.len() as f64 / bursts as f64;
        assert!((length - 4.0).abs() < 0.2, "{length}");
    }
}
