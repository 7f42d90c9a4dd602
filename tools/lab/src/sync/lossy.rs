//! A path in virtual time that loses messages at random or in runs.

use std::collections::VecDeque;
use std::time::Duration;

use slipgate_sim::Random;

/// Which messages get lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MessageLoss {
    /// Each one with this probability.
    Random(f64),
    /// All during runs with this mean length, which take this share of the time. A message more or less a second makes
    /// no run longer or shorter.
    Runs(f64, Duration),
}

impl MessageLoss {
    /// Returns the share of messages that get lost.
    #[must_use]
    pub const fn share(self) -> f64 {
        match self {
            Self::Random(share) | Self::Runs(share, _) => share,
        }
    }
}

/// A one-way path: a delay, jitter on top of it, and losses.
pub struct LossyPath<T> {
    loss: MessageLoss,
    delay: Duration,
    jitter: Duration,
    /// By how much the delay grows each second.
    growth: Duration,
    random: Random,
    /// Whether a run of losses is on, and its end.
    run: (bool, Duration),
    /// By their due time.
    messages: VecDeque<(Duration, T)>,
}

impl<T> LossyPath<T> {
    /// Returns an empty path. Messages arrive after the delay and up to `jitter` more.
    #[must_use]
    pub fn new(loss: MessageLoss, delay: Duration, jitter: Duration, random: Random) -> Self {
        let growth = Duration::ZERO;
        Self { loss, delay, jitter, growth, random, run: (false, Duration::ZERO), messages: VecDeque::new() }
    }

    /// Returns the path with a delay that grows by this time each second.
    #[must_use]
    pub fn with_growth(mut self, growth: Duration) -> Self {
        self.growth = growth;
        self
    }

    /// Sends a message. Returns whether it will arrive.
    pub fn push(&mut self, message: T, now: Duration) -> bool {
        let is_lost = match self.loss {
            MessageLoss::Random(share) => self.random.fraction() < share,
            MessageLoss::Runs(share, length) => self.is_in_run(share, length, now),
        };
        let delay = self.delay + self.growth.mul_f64(now.as_secs_f64());
        let due = now + delay + self.random.duration_between(Duration::ZERO, self.jitter);
        if !is_lost {
            let behind = self.messages.iter().rev().take_while(|(other, _)| *other > due).count();
            self.messages.insert(self.messages.len() - behind, (due, message));
        }
        !is_lost
    }

    /// Returns the next message that has arrived.
    pub fn pop(&mut self, now: Duration) -> Option<(Duration, T)> {
        if self.messages.front()?.0 <= now { self.messages.pop_front() } else { None }
    }

    fn is_in_run(&mut self, share: f64, length: Duration, now: Duration) -> bool {
        while self.run.1 <= now {
            let is_lost = !self.run.0;
            let mean = if is_lost { length } else { length.mul_f64((1.0 - share) / share) };
            self.run = (is_lost, self.run.1 + self.random.exponential(mean));
        }
        self.run.0
    }
}
