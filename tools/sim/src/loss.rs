//! The loss process: decides which datagrams are lost, independently, in bursts or during some times.

use std::time::Duration;

use slipgate_netcode::time::Instant;

use crate::conditions::{GilbertElliott, Loss, LossRuns};
use crate::random::Random;
use crate::units::Share;

/// The shortest mean length of a run: a shorter one would cost time and change nothing.
const MIN_RUN: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ChannelState {
    Good,
    Bad,
}

/// The loss of one direction: a random stream and the state of the channel, initially good.
#[derive(Clone, Debug)]
pub struct LossProcess {
    random: Random,
    state: ChannelState,
    /// When the state changes next, where it does so by time.
    changes_at: Option<Instant>,
}

impl LossProcess {
    /// Creates a process that consumes this stream.
    #[must_use]
    pub const fn new(random: Random) -> Self {
        Self { random, state: ChannelState::Good, changes_at: None }
    }

    /// Returns whether the next datagram, which is sent `now`, is lost. The model may differ from one datagram to the
    /// next.
    pub fn is_next_lost(&mut self, loss: &Loss, now: Instant) -> bool {
        match loss {
            Loss::Random(share) => self.random.hits(*share),
            Loss::Bursts(chain) => {
                self.state = self.next_state(chain);
                let share = if self.state == ChannelState::Bad { chain.loss_bad } else { chain.loss_good };
                self.random.hits(share)
            }
            Loss::Runs(LossRuns { share: Share::NONE, .. }) => false,
            Loss::Runs(LossRuns { share: Share::ALL, .. }) => true,
            Loss::Runs(runs) => self.is_in_run(*runs, now),
        }
    }

    fn is_in_run(&mut self, runs: LossRuns, now: Instant) -> bool {
        let (mean, share) = (runs.mean.max(MIN_RUN), runs.share.fraction());
        let mut changes_at = self.changes_at.unwrap_or(now);
        while changes_at <= now {
            self.state = if self.state == ChannelState::Good { ChannelState::Bad } else { ChannelState::Good };
            let is_run = self.state == ChannelState::Bad;
            let mean = if is_run { mean } else { mean.mul_f64(((1.0 - share) / share).min(1e6)) };
            changes_at = changes_at.after(self.random.exponential(mean));
        }
        self.changes_at = Some(changes_at);
        self.state == ChannelState::Bad
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

    /// Returns when a datagram is sent: 100 a second.
    fn at(number: usize) -> Instant {
        Instant::from_start(Duration::from_millis(10 * number as u64))
    }

    fn losses(loss: &Loss, seed: u64) -> Vec<bool> {
        let mut process = LossProcess::new(Process::Loss.stream(seed));
        (0..DATAGRAMS).map(|number| process.is_next_lost(loss, at(number))).collect()
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

    #[test]
    fn runs_have_their_share_and_their_length_in_time() {
        for (seed, percent, millis) in [(12, 37.0, 100), (13, 13.0, 300), (14, 80.0, 50)] {
            let (share, mean) = (Share::percent(percent), Duration::from_millis(millis));
            let loss = Loss::Runs(LossRuns { share, mean });
            let (lost, burst) = measured(&losses(&loss, seed));
            let (p, datagrams) = (share.fraction(), millis as f64 / 10.0);
            let bound = 4.0 * (2.0 * datagrams * p * (1.0 - p) / DATAGRAMS as f64).sqrt();
            assert!((lost - p).abs() < bound, "seed {seed}: {lost} of {share}");
            // A Markov process of two states, seen every 10 ms. The lengths are geometric.
            let expected = 1.0 / ((1.0 - p) * (1.0 - (-1.0 / (datagrams * (1.0 - p))).exp()));
            let runs = DATAGRAMS as f64 * p / expected;
            assert!((burst - expected).abs() < 4.0 * expected / runs.sqrt(), "seed {seed}: bursts of {burst}");
        }
        let ends = [(Share::NONE, 0.0), (Share::ALL, 1.0)];
        for (share, expected) in ends {
            let loss = Loss::Runs(LossRuns { share, mean: Duration::ZERO });
            let lost = losses(&loss, 15).into_iter().filter(|lost| *lost).count();
            assert_eq!(lost as f64, expected * DATAGRAMS as f64);
        }
    }
}
