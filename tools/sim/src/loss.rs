//! Which datagram is lost: by itself, or in a burst.

use crate::conditions::{GilbertElliott, Loss};
use crate::random::{Cause, Random};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Good,
    Bad,
}

/// What decides over the datagrams, one after the other.
#[derive(Debug)]
pub(crate) struct LossProcess {
    random: Random,
    state: State,
}

impl LossProcess {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed, Cause::Loss), state: State::Good }
    }

    /// Whether the next datagram is lost.
    pub(crate) fn strikes(&mut self, loss: &Loss) -> bool {
        match loss {
            Loss::Random(share) => self.random.hits(*share),
            Loss::Bursts(chain) => {
                self.state = self.after(chain);
                let share = if self.state == State::Bad { chain.loss_bad } else { chain.loss_good };
                self.random.hits(share)
            }
        }
    }

    fn after(&mut self, chain: &GilbertElliott) -> State {
        match self.state {
            State::Good if self.random.hits(chain.to_bad) => State::Bad,
            State::Bad if self.random.hits(chain.to_good) => State::Good,
            unchanged => unchanged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Share;

    const DATAGRAMS: usize = 200_000;

    fn fates(loss: &Loss, seed: u64) -> Vec<bool> {
        let mut process = LossProcess::new(seed);
        (0..DATAGRAMS).map(|_| process.strikes(loss)).collect()
    }

    /// The share that was lost, and the mean length of bursts.
    fn measured(fates: &[bool]) -> (f64, f64) {
        let lost = fates.iter().filter(|lost| **lost).count() as f64;
        let bursts = fates.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        (lost / fates.len() as f64, lost / bursts)
    }

    #[test]
    fn random_loss_has_its_share_and_the_burst_length_of_chance() {
        for (seed, percent) in [(1, 1.0), (2, 5.0), (3, 20.0), (4, 50.0)] {
            let share = Share::percent(percent);
            let (lost, burst) = measured(&fates(&Loss::Random(share), seed));
            let expected = share.fraction();
            // Four standard deviations of a binomial distribution.
            let bound = 4.0 * (expected * (1.0 - expected) / DATAGRAMS as f64).sqrt();
            assert!((lost - expected).abs() < bound, "seed {seed}: {lost} of {expected}");
            assert!((burst * (1.0 - expected) - 1.0).abs() < 0.05, "seed {seed}: bursts of {burst}");
        }
    }

    #[test]
    fn bursts_have_their_share_and_their_mean_length() {
        for (seed, percent, length) in [(5, 1.0, 3.0), (6, 5.0, 4.0), (7, 15.0, 4.0), (8, 10.0, 20.0), (9, 50.0, 2.0)] {
            let share = Share::percent(percent);
            let chain = GilbertElliott::bursts(share, length).unwrap();
            let (lost, burst) = measured(&fates(&Loss::Bursts(chain), seed));
            let expected = share.fraction();
            // A datagram tells as much as 1 / (2 length) independent ones do, about.
            let bound = 4.0 * (2.0 * length * expected * (1.0 - expected) / DATAGRAMS as f64).sqrt();
            assert!((lost - expected).abs() < bound, "seed {seed}: {lost} of {expected}");
            // The lengths are geometric: their deviation is their mean, about.
            let bursts = DATAGRAMS as f64 * expected / length;
            assert!((burst - length).abs() < 4.0 * length / bursts.sqrt(), "seed {seed}: bursts of {burst}");
        }
    }

    #[test]
    fn a_bad_state_may_lose_some_and_a_good_one_too() {
        let half = Share::percent(50.0);
        let chain = GilbertElliott {
            to_bad: Share::percent(10.0),
            to_good: Share::percent(10.0),
            loss_good: Share::percent(2.0),
            loss_bad: half,
        };
        let (lost, _) = measured(&fates(&Loss::Bursts(chain), 10));
        assert!((lost - 0.26).abs() < 0.01, "{lost}");
    }
}
