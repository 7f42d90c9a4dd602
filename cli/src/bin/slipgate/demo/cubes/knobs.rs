//! The knobs of the world of cubes: flags set them at the start, and the page changes them.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use slipgate_lab::sync::cube_fields;
use slipgate_sim::{Conditions, Loss, LossRuns, Order, Share};
use slipgate_sync::{ObjectKind, Schema};
use slipgate_worlds::PLAYERS;

/// The snapshots of the thesis in a second (§3.4.2), whatever the rate.
pub(super) const THESIS_SNAPSHOTS: u32 = 10;
/// The states of a second from which on the snapshots of `slipgate-sync` err little without velocities.
const RATE_WITHOUT_VELOCITIES: u32 = 20;
/// The ticks of a second.
pub(super) const TICKS: u32 = 60;
/// The largest world: what a client simulates in a sixth of a frame.
pub(super) const MAX_CUBES: u16 = 1001;
/// The largest one-way delay, in milliseconds: a prediction repeats at most 63 ticks.
pub(super) const MAX_LATENCY: u32 = 250;
pub(super) const MAX_JITTER: u32 = 100;
pub(super) const MAX_RUN: u32 = 1000;
/// The largest loss in percent: clients stay connected.
pub(super) const MAX_LOSS: f64 = 60.0;

/// The settings that can change while the demo runs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Knobs {
    /// Cubes, the players' included.
    pub(super) objects: u16,
    /// States a second, of all methods but the thesis's snapshots, which are 10 a second.
    pub(super) rate: u32,
    /// Lost datagrams in each direction, in percent.
    pub(super) loss: f64,
    /// The mean length of runs of losses in milliseconds; 0: independent losses.
    pub(super) runs: u32,
    /// The one-way delay in milliseconds.
    pub(super) latency: u32,
    /// The most that a datagram has of additional delay, in milliseconds. Datagrams overtake each other.
    pub(super) jitter: u32,
}

impl Knobs {
    /// Returns these knobs if all are within their limits, else what is wrong.
    pub(super) fn check(self) -> Result<Self, String> {
        let is_divisor = (6..=TICKS).contains(&self.rate) && TICKS.is_multiple_of(self.rate);
        let checks = [
            ((PLAYERS as u16..=MAX_CUBES).contains(&self.objects), format!("{PLAYERS} to {MAX_CUBES} objects")),
            (is_divisor, "6, 10, 12, 15, 20, 30 or 60 states a second".to_owned()),
            ((0.0..=MAX_LOSS).contains(&self.loss), format!("a loss of 0 to {MAX_LOSS} %")),
            (self.runs <= MAX_RUN, format!("runs of up to {MAX_RUN} ms")),
            (self.latency <= MAX_LATENCY, format!("a one-way delay of up to {MAX_LATENCY} ms")),
            (self.jitter <= MAX_JITTER, format!("jitter of up to {MAX_JITTER} ms")),
        ];
        match checks.into_iter().find(|(is_valid, _)| !is_valid) {
            Some((_, allowed)) => Err(format!("the world of cubes takes {allowed}")),
            None => Ok(self),
        }
    }

    /// Returns the ticks between two states.
    pub(super) const fn between_states(self) -> u32 {
        TICKS / self.rate
    }

    /// Returns the fields of our snapshots. Curves along velocities err less than half as much where few states are
    /// sent, and take half as many bytes more.
    pub(super) fn snapshot_schema(self) -> (Arc<Schema>, ObjectKind) {
        if self.rate < RATE_WITHOUT_VELOCITIES { cube_fields::shown_with_velocities() } else { cube_fields::shown() }
    }

    /// Returns whether a change needs other worlds, and not only another path.
    pub(super) const fn needs_restart(self, other: Self) -> bool {
        self.objects != other.objects || self.rate != other.rate
    }

    /// Returns what the path does to datagrams, in each direction.
    pub(super) fn conditions(self) -> Conditions {
        let share = Share::from_fraction(self.loss / 100.0).unwrap_or(Share::NONE);
        let millis = |millis: u32| Duration::from_millis(millis.into());
        let loss = match self.runs {
            0 => Loss::Random(share),
            runs => Loss::Runs(LossRuns { share, mean: millis(runs) }),
        };
        let (latency, jitter) = (millis(self.latency), millis(self.jitter));
        Conditions { latency, jitter, order: Order::Free, loss, ..Conditions::perfect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOBS: Knobs = Knobs { objects: 104, rate: 20, loss: 13.0, runs: 0, latency: 50, jitter: 10 };

    #[test]
    fn knobs_beyond_their_limits_are_refused() {
        assert_eq!(KNOBS.check(), Ok(KNOBS));
        for wrong in [
            Knobs { objects: 3, ..KNOBS },
            Knobs { objects: 1002, ..KNOBS },
            Knobs { rate: 0, ..KNOBS },
            Knobs { rate: 25, ..KNOBS },
            Knobs { rate: 120, ..KNOBS },
            Knobs { loss: -1.0, ..KNOBS },
            Knobs { loss: f64::NAN, ..KNOBS },
            Knobs { loss: 61.0, ..KNOBS },
            Knobs { runs: 1001, ..KNOBS },
            Knobs { latency: 251, ..KNOBS },
            Knobs { jitter: 101, ..KNOBS },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn runs_of_losses_have_their_length_in_time() {
        let share = Share::percent(13.0);
        assert_eq!(KNOBS.conditions().loss, Loss::Random(share));
        let mean = Duration::from_millis(100);
        let loss = Knobs { runs: 100, ..KNOBS }.conditions().loss;
        assert_eq!(loss, Loss::Runs(LossRuns { share, mean }));
    }
}
