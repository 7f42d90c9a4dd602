//! The loss process: decides which datagrams are lost, independently or in bursts.

use crate::conditions::{GilbertElliott, Loss};
use crate::random::Random;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ChannelState {
    Good,
    Bad,
}

/// The loss of one direction: a random stream and the state of the Gilbert-Elliott chain, initially good.
#[derive(Clone, Debug)]
pub struct LossProcess {
    random: Random,
    state: ChannelState,
}

impl LossProcess {
    /// Creates a process that consumes this stream.
    #[must_use]
    pub const fn new(random: Random) -> Self {
        Self { random, state: ChannelState::Good }
    }

    /// Returns whether the next datagram is lost. The model may differ from one datagram to the next.
    pub fn is_next_lost(&mut self, loss: &Loss) -> bool {
        match loss {
            Loss::Random(share) => self.random.hits(*share),
            Loss::Bursts(chain) => {
                self.state = self.next_state(chain);
                let share = if self.state == ChannelState::Bad { chain.loss_bad } else { chain.loss_good };
                self.random.hits(share)
            }
        }
    }

    fn next_state(&mut self, chain: &GilbertElliott) -> ChannelState {
        match self.state {
            ChannelState::Good if self.random.hits(chain.to_bad) => ChannelState::Bad,
            ChannelState::Bad if self.random.hits(chain.to_good) => ChannelState::Good,
            unchanged => unchanged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Process;
    use crate::units::Share;

    const DATAGRAMS: usize = 200_000;

    fn losses(loss: &Loss, seed: u64) -> Vec<bool> {
        let mut process = LossProcess::new(Process::Loss.stream(seed));
        (0..DATAGRAMS).map(|_| process.is_next_lost(loss)).collect()
    }

    /// Returns the share that was lost, and the mean length of bursts.
    fn measured(losses: &[bool]) -> (f64, f64) {
        let lost = losses.iter().filter(|lost| **lost).count() as f64;
        let bursts = losses.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        (lost / losses.len() as f64, lost / bursts)
    }

    #[test]
    fn random_loss_has_its_share_and_random_burst_lengths() {
        assert_eq!(measured(&losses(&Loss::NONE, 0)).0, 0.0);
        for (seed, percent) in [(1, 1.0), (2, 5.0), (3, 20.0), (4, 50.0)] {
            let share = Share::percent(percent);
            let (lost, burst) = measured(&losses(&Loss::Random(share), seed));
            let expected = share.fraction();
            // Four standard deviations of a binomial distribution.
            let bound = 4.0 * (expected * (1.0 - expected) / DATAGRAMS as f64).sqrt();
            assert!((lost - expected).abs() < bound.min(0.005), "seed {seed}: {lost} of {expected}");
            assert!((burst * (1.0 - expected) - 1.0).abs() < 0.05, "seed {seed}: bursts of {burst}");
        }
    }

    #[test]
    fn bursts_have_their_share_and_their_mean_length() {
        let cases = [(5, 1.0, 3.0), (6, 5.0, 4.0), (7, 15.0, 4.0), (8, 10.0, 20.0), (9, 50.0, 2.0), (11, 20.0, 4.0)];
        for (seed, percent, length) in cases {
            let share = Share::percent(percent);
            let loss = Loss::Bursts(GilbertElliott::bursts(share, length).unwrap());
            let (lost, burst) = measured(&losses(&loss, seed));
            let expected = share.fraction();
            assert!((loss.mean_share() - expected).abs() < 1e-8, "{}", loss.mean_share());
            // One datagram carries about as much information as 1 / (2 length) independent ones.
            let bound = 4.0 * (2.0 * length * expected * (1.0 - expected) / DATAGRAMS as f64).sqrt();
            assert!((lost - expected).abs() < bound, "seed {seed}: {lost} of {expected}");
            assert!(length > 4.0 || (lost - expected).abs() < 0.01, "seed {seed}: {lost} of {expected}");
            // The lengths are geometric: their deviation is about their mean.
            let bursts = DATAGRAMS as f64 * expected / length;
            assert!((burst - length).abs() < 4.0 * length / bursts.sqrt(), "seed {seed}: bursts of {burst}");
            assert!(seed != 7 || (burst - length).abs() < 0.2, "seed {seed}: bursts of {burst}");
        }
    }

    #[test]
    fn both_states_may_lose_a_share() {
        let half = Share::percent(50.0);
        let chain = GilbertElliott {
            to_bad: Share::percent(10.0),
            to_good: Share::percent(10.0),
            loss_good: Share::percent(2.0),
            loss_bad: half,
        };
        let loss = Loss::Bursts(chain);
        let (lost, _) = measured(&losses(&loss, 10));
        assert!((lost - 0.26).abs() < 0.01, "{lost}");
        assert!((loss.mean_share() - 0.26).abs() < 1e-9);
    }
}
