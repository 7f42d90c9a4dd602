//! The way of the server to its end, by signals, by an operator or by an orchestrator.
//!
//! ```text
//!  serving ──signal, orchestrator──▶ announced ──--shutdown-delay──▶ draining ──no clients, or --drain──▶ end
//!     └────────────── POST /drain ───────┴─────────────────────────────▲  └──── a second signal: at once ──▲
//! ```

use std::time::Duration;

use slipgate_cli::stop_signal::STOP_SIGNAL;
use slipgate_netcode::time::Instant;
use tracing::info;

use crate::supervision::Supervision;

/// What the main loop has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StopStep {
    /// Nothing: the server serves, or its clients leave.
    Continue,
    /// Deny new clients from now on.
    Drain,
    /// Disconnect the clients that are left.
    End,
}

#[derive(Clone, Copy)]
enum StopPhase {
    Serving,
    /// The drain is announced: nothing should send new clients, but those that come are admitted.
    Announced {
        until: Instant,
    },
    Draining {
        until: Instant,
    },
}

/// How far the server is on its way to its end.
pub(crate) struct StopSchedule {
    delay: Duration,
    drain: Duration,
    phase: StopPhase,
    /// Whether a stop signal arrived. If an operator or an orchestrator began the end, one may follow.
    is_signalled: bool,
}

impl StopSchedule {
    pub(crate) const fn new(delay: Duration, drain: Duration) -> Self {
        Self { delay, drain, phase: StopPhase::Serving, is_signalled: false }
    }

    /// Returns what to do in this turn. `has_signal` says whether a stop signal arrived since the last turn.
    pub(crate) fn step(
        &mut self,
        now: Instant,
        has_signal: bool,
        supervision: &Supervision,
        is_drained: impl FnOnce() -> bool,
    ) -> StopStep {
        if has_signal && std::mem::replace(&mut self.is_signalled, true) {
            info!(
                "stopping at once: a second {STOP_SIGNAL} has arrived, so the clients that are left are disconnected"
            );
            return StopStep::End;
        }
        let by_operator = supervision.is_drained_by_operator();
        if matches!(self.phase, StopPhase::Serving)
            && (has_signal || by_operator || supervision.is_ended_by_orchestrator())
        {
            supervision.announce_drain();
            if !self.delay.is_zero() && !by_operator {
                info!(shutdown_delay = ?self.delay, "stopping: not ready, but new clients are admitted for a while");
            }
            self.phase = StopPhase::Announced { until: now.after(self.delay) };
        }
        match self.phase {
            StopPhase::Announced { until } if now >= until || by_operator => {
                supervision.set_draining();
                self.phase = StopPhase::Draining { until: now.after(self.drain) };
                StopStep::Drain
            }
            StopPhase::Draining { until } if now >= until || is_drained() => StopStep::End,
            _ => StopStep::Continue,
        }
    }
}

#[cfg(test)]
mod tests {
    use slipgate_fleet::{Fleet, FleetConfig, LifeState};
    use slipgate_server::Clock;

    use super::*;

    const DELAY: Duration = Duration::from_secs(3);
    const DRAIN: Duration = Duration::from_secs(5);

    fn supervision() -> Supervision {
        let admin = slipgate_admin::Admin::start("127.0.0.1:0".parse().unwrap()).unwrap();
        Supervision { admin: Some(admin), fleet: Fleet::start(FleetConfig::default()).unwrap() }
    }

    /// Returns the steps at these times, with a signal where there is one.
    fn steps(supervision: &Supervision, delay: Duration, at: &[(u64, bool)]) -> Vec<StopStep> {
        let (start, mut stop) = (Clock::start().monotonic(), StopSchedule::new(delay, DRAIN));
        let mut step = |(seconds, has_signal): &(u64, bool)| {
            stop.step(start.after(Duration::from_secs(*seconds)), *has_signal, supervision, || false)
        };
        at.iter().map(&mut step).collect()
    }

    #[test]
    fn signal_announces_then_drains_then_ends() {
        use StopStep::{Continue, Drain, End};
        type Case<'a> = (Duration, &'a [(u64, bool)], &'a [StopStep]);
        let (serving, signal) = ((0, false), (1, true));
        let cases: [Case<'_>; 4] = [
            (
                DELAY,
                &[serving, signal, (3, false), (4, false), (8, false)],
                &[Continue, Continue, Continue, Drain, Continue],
            ),
            (DELAY, &[signal, (4, false), (9, false)], &[Continue, Drain, End]),
            (DELAY, &[signal, (2, true)], &[Continue, End]),
            (Duration::ZERO, &[serving, signal, (5, false), (6, false)], &[Continue, Drain, Continue, End]),
        ];
        for (delay, at, expected) in cases {
            let supervision = supervision();
            assert_eq!(steps(&supervision, delay, at), expected, "{delay:?} {at:?}");
            assert!(supervision.is_ended_by_orchestrator(), "the life cycle drains with the announcement");
        }
    }

    #[test]
    fn drain_of_an_operator_has_no_delay_and_one_signal_more() {
        use StopStep::{Continue, Drain, End};
        let supervision = supervision();
        supervision.set_draining();
        assert_eq!(steps(&supervision, DELAY, &[(0, false), (1, true), (2, true)]), [Drain, Continue, End]);
    }

    #[test]
    fn drain_of_an_orchestrator_has_the_delay() {
        let (supervision, start) = (supervision(), Clock::start().monotonic());
        supervision.fleet.life_cycle().advance(LifeState::Draining);
        let mut stop = StopSchedule::new(DELAY, DRAIN);
        let mut step = |seconds| stop.step(start.after(Duration::from_secs(seconds)), false, &supervision, || true);
        let expected = [StopStep::Continue, StopStep::Continue, StopStep::Drain, StopStep::End];
        assert_eq!([step(0), step(2), step(3), step(3)], expected);
    }
}
