//! The figures of a run, computed from its log.

use core::time::Duration;

use serde::Serialize;

use crate::log::{FlowLog, Log, QueueWait, SLICE, slice_of};
use crate::path::Outage;
use crate::scenario::{Figure, Flow, FlowController, Scenario};
use crate::source::Source;

/// The maximum queueing delay that counts as adapted, in seconds.
const ADAPTED_DELAY: f32 = 0.060;
/// How long the delay must stay below that, in seconds.
const ADAPTED_FOR: f32 = 1.0;
/// The share of the rate that counts as recovered, and the time over which it is measured.
const RECOVERED: f64 = 0.9;
const RECOVERED_OVER: Duration = Duration::from_millis(250);
/// The time in which a sender should notice an outage.
const OUTAGE_NOTICED_AFTER: Duration = Duration::from_secs(1);
/// The interval after an outage in which the recovery is measured.
const AFTER_OUTAGE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// The figures of a run, or their means over several runs.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Figures {
    /// The share of the possible bytes that arrived: of a game's demand, or of the path's capacity.
    pub served: f64,
    /// The 95th percentile of the queueing delay, in milliseconds.
    pub p95_ms: f64,
    /// The 99th percentile, in milliseconds.
    pub p99_ms: f64,
    /// The share of packets that the policer or the queue dropped.
    pub dropped: f64,
    /// The reaction to a rate drop and its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_drop: Option<RateDrop>,
    /// The behaviour in and after an outage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outage: Option<OutageFigures>,
    /// Jain's fairness index: 1 if all flows get the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fairness: Option<f64>,
    /// The duration of the transfer in seconds, until 99 % of its bytes had arrived; the rest of the run if they never
    /// did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer: Option<f64>,
    /// The duration of the second transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer_again: Option<f64>,
}

/// The reaction to a rate drop and its end.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct RateDrop {
    /// Seconds until the queueing delay was below 60 ms for a second; the duration of the drop if it never was.
    pub adaptation: f64,
    /// The maximum queueing delay during the drop, in milliseconds.
    pub peak_ms: f64,
    /// The 95th percentile of the queueing delay after the adaptation, in milliseconds.
    pub p95_after_ms: f64,
    /// Seconds from the end of the drop until 90 % of the demand or the rate arrived.
    pub recovery: f64,
}

/// The behaviour in and after an outage.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct OutageFigures {
    /// The bytes sent per second, after the first second of the outage.
    pub sent: f64,
    /// The share of the possible bytes that arrived from the first to the fifth second after the outage.
    pub served_after: f64,
    /// The maximum queueing delay until the fifth second after the outage, in milliseconds.
    pub peak_after_ms: f64,
}

/// Computes the figures of a run.
#[must_use]
pub fn measure(scenario: &Scenario, log: &Log) -> Figures {
    let span = (scenario.counts_from, scenario.duration);
    let measured: Vec<(&Flow, &FlowLog)> =
        scenario.flows.iter().zip(&log.flows).filter(|(flow, _)| flow.controller == FlowController::Measured).collect();
    let arrived: f64 = measured.iter().map(|(_, log)| log.arrived.between(span.0, span.1)).sum();
    let mut waits: Vec<f32> = measured.iter().flat_map(|(_, log)| waits_between(&log.waits, span.0, span.1)).collect();
    let sum = |series: fn(&FlowLog) -> f64| measured.iter().map(|(_, log)| series(log)).sum::<f64>();
    let [p95, p99] = quantiles(&mut waits, [0.95, 0.99]);
    let sent = sum(|log| log.sent.total());
    let dropped = sum(|log| log.dropped.total());
    Figures {
        served: arrived / possible(scenario, log, &measured),
        p95_ms: p95,
        p99_ms: p99,
        dropped: dropped / sent.max(1.0),
        ..special_figures(scenario, log, &measured)
    }
}

fn special_figures(scenario: &Scenario, log: &Log, measured: &[(&Flow, &FlowLog)]) -> Figures {
    let mut figures = Figures::default();
    match scenario.figure {
        Some(Figure::Drop { from, until }) => {
            figures.rate_drop =
                measured.first().map(|(flow, flow_log)| rate_drop_figures(flow, flow_log, log, from, until));
        }
        Some(Figure::Outage(outage)) => {
            figures.outage = measured.first().map(|(flow, flow_log)| outage_figures(flow, flow_log, log, outage));
        }
        Some(Figure::Fairness) => figures.fairness = Some(jain(scenario, measured)),
        Some(Figure::Transfer) => {
            let [first, second] = measured.first().map_or([None; 2], |(flow, log)| transfers(scenario, flow, log));
            (figures.transfer, figures.transfer_again) = (first, second);
        }
        Some(Figure::Drops) | None => {}
    }
    figures
}

/// Returns the durations of the first and the second transfer in seconds. The second waits for the rest of the first.
/// The laboratory does not retransmit, so packets that the path lost at random count as arrived: a session sends their
/// bytes again.
fn transfers(scenario: &Scenario, flow: &Flow, log: &FlowLog) -> [Option<f64>; 2] {
    let Source::GameAndTransfer { game, from, bytes, again } = flow.source else { return [None; 2] };
    let (mut arrived, mut at) = (0.0, from);
    let mut until = |bytes: f64, start: Duration| {
        while arrived < bytes && at < scenario.duration {
            let passed = [&log.arrived, &log.lost].map(|series| series.between(at, at + SLICE));
            arrived += passed.iter().sum::<f64>() - game.rate * SLICE.as_secs_f64();
            at += SLICE;
        }
        at.saturating_sub(start).as_secs_f64()
    };
    let first = until(0.99 * bytes, from);
    [Some(first), again.map(|again| until(1.99 * bytes, again))]
}

/// Returns the bytes that could have arrived: the demand, limited by the capacity, without the path's random loss.
fn possible(scenario: &Scenario, log: &Log, measured: &[(&Flow, &FlowLog)]) -> f64 {
    let (from, until) = (slice_of(scenario.counts_from), slice_of(scenario.duration));
    let transfer = measured.iter().any(|(flow, _)| matches!(flow.source, Source::GameAndTransfer { .. }));
    let slices = (from..until).map(|slice| {
        let at = SLICE * slice as u32;
        let loss = if at >= scenario.path.loss_from { scenario.path.loss.mean_share() } else { 0.0 };
        let room = log.capacity.at(slice) - constant_rivals(scenario, at);
        let wanted = measured.iter().map(|(flow, log)| match flow.source {
            Source::Bulk => f64::INFINITY,
            // The demand of a transfer comes at once and is served over time.
            Source::GameAndTransfer { .. } => log.demanded.at(slice),
            Source::Game(game) => game.rate * SLICE.as_secs_f64(),
        });
        let wanted: f64 = wanted.sum();
        (1.0 - loss) * if transfer { wanted } else { wanted.min(room) }
    });
    slices.sum::<f64>().max(1.0)
}

/// Returns the bytes that constant flows send in a slice.
fn constant_rivals(scenario: &Scenario, at: Duration) -> f64 {
    let offered = scenario.flows.iter().map(|flow| {
        let FlowController::Constant { rate, period } = flow.controller else { return 0.0 };
        let on = at.checked_sub(flow.start).is_some_and(|running| running.as_nanos() / period.as_nanos() % 2 == 0);
        if on { rate * SLICE.as_secs_f64() } else { 0.0 }
    });
    offered.sum()
}

fn waits_between(waits: &[QueueWait], from: Duration, until: Duration) -> impl Iterator<Item = f32> {
    let (from, until) = (from.as_secs_f32(), until.as_secs_f32());
    waits.iter().filter(move |wait| from <= wait.left_at && wait.left_at < until).map(|wait| wait.waited)
}

/// Returns quantiles of durations in seconds, in milliseconds; zero without values.
fn quantiles<const N: usize>(values: &mut [f32], shares: [f64; N]) -> [f64; N] {
    values.sort_unstable_by(f32::total_cmp);
    shares.map(|share| {
        let index = (share * values.len() as f64) as usize;
        values.get(index.min(values.len().saturating_sub(1))).map_or(0.0, |value| f64::from(*value) * 1000.0)
    })
}

fn rate_drop_figures(flow: &Flow, flow_log: &FlowLog, log: &Log, from: Duration, until: Duration) -> RateDrop {
    let (start, end) = (from.as_secs_f32(), until.as_secs_f32());
    let during: Vec<QueueWait> =
        flow_log.waits.iter().filter(|wait| start <= wait.left_at && wait.left_at < end).copied().collect();
    let adapted_at = adapted_at(&during, start).unwrap_or(end);
    let peak = during.iter().map(|wait| wait.waited).fold(0.0, f32::max);
    let mut then: Vec<f32> = during.iter().filter(|wait| wait.left_at >= adapted_at).map(|wait| wait.waited).collect();
    let [p95_after_ms] = quantiles(&mut then, [0.95]);
    RateDrop {
        adaptation: f64::from(adapted_at - start),
        peak_ms: f64::from(peak) * 1000.0,
        p95_after_ms,
        recovery: recovery(flow, flow_log, log, until),
    }
}

fn outage_figures(flow: &Flow, flow_log: &FlowLog, log: &Log, Outage { from, until }: Outage) -> OutageFigures {
    let noticed = from + OUTAGE_NOTICED_AFTER;
    let [start, end] = AFTER_OUTAGE.map(|after| until + after);
    let room = log.capacity.between(start, end);
    let wanted = flow.source.rate().map_or(room, |rate| (rate * (end - start).as_secs_f64()).min(room));
    OutageFigures {
        sent: flow_log.sent_bytes.between(noticed, until) / (until - noticed).as_secs_f64(),
        served_after: flow_log.arrived.between(start, end) / wanted,
        peak_after_ms: 1000.0 * f64::from(waits_between(&flow_log.waits, until, end).fold(0.0, f32::max)),
    }
}

/// Returns when the delay fell below the limit for long enough, in seconds.
fn adapted_at(waits: &[QueueWait], start: f32) -> Option<f32> {
    let mut quick_since = None;
    for wait in waits {
        if wait.waited >= ADAPTED_DELAY {
            quick_since = None;
            continue;
        }
        let since = *quick_since.get_or_insert(wait.left_at);
        if wait.left_at - since >= ADAPTED_FOR {
            return Some(since.max(start));
        }
    }
    None
}

/// Returns the seconds from the end of the drop until 90 % of the demand or of the rate arrived.
fn recovery(flow: &Flow, flow_log: &FlowLog, log: &Log, returned: Duration) -> f64 {
    let slices = (RECOVERED_OVER.as_nanos() / SLICE.as_nanos()) as u32;
    let mut at = returned;
    let last = returned + Duration::from_secs(30);
    while at < last {
        let arrived = flow_log.arrived.between(at, at + SLICE * slices);
        let room = log.capacity.between(at, at + SLICE * slices);
        let wanted = flow.source.rate().map_or(room, |rate| (rate * RECOVERED_OVER.as_secs_f64()).min(room));
        if arrived >= RECOVERED * wanted {
            break;
        }
        at += SLICE;
    }
    (at - returned).as_secs_f64()
}

/// Returns Jain's index: the square of the sum divided by the sum of the squares and the count (Jain, Chiu, Hawe, "A
/// quantitative measure of fairness", 1984).
fn jain(scenario: &Scenario, measured: &[(&Flow, &FlowLog)]) -> f64 {
    let shares = measured.iter().map(|(_, log)| log.arrived.between(scenario.counts_from, scenario.duration));
    let (sum, squares) = shares.fold((0.0, 0.0), |(sum, squares), share| (sum + share, squares + share * share));
    sum * sum / (measured.len() as f64 * squares).max(1.0)
}

/// Returns the means over several runs.
#[must_use]
pub fn mean(runs: &[Figures]) -> Figures {
    let of = |figure: fn(&Figures) -> f64| runs.iter().map(figure).sum::<f64>() / runs.len().max(1) as f64;
    let some = |figure: fn(&Figures) -> Option<f64>| average(runs.iter().filter_map(figure));
    let rate_drop =
        |figure: fn(&RateDrop) -> f64| average(runs.iter().filter_map(|run| run.rate_drop.as_ref().map(figure)));
    let outage =
        |figure: fn(&OutageFigures) -> f64| average(runs.iter().filter_map(|run| run.outage.as_ref().map(figure)));
    Figures {
        served: of(|run| run.served),
        p95_ms: of(|run| run.p95_ms),
        p99_ms: of(|run| run.p99_ms),
        dropped: of(|run| run.dropped),
        rate_drop: rate_drop(|rate_drop| rate_drop.adaptation).map(|adaptation| RateDrop {
            adaptation,
            peak_ms: rate_drop(|rate_drop| rate_drop.peak_ms).unwrap_or(0.0),
            p95_after_ms: rate_drop(|rate_drop| rate_drop.p95_after_ms).unwrap_or(0.0),
            recovery: rate_drop(|rate_drop| rate_drop.recovery).unwrap_or(0.0),
        }),
        outage: outage(|outage| outage.sent).map(|sent| OutageFigures {
            sent,
            served_after: outage(|outage| outage.served_after).unwrap_or(0.0),
            peak_after_ms: outage(|outage| outage.peak_after_ms).unwrap_or(0.0),
        }),
        fairness: some(|run| run.fairness),
        transfer: some(|run| run.transfer),
        transfer_again: some(|run| run.transfer_again),
    }
}

/// Returns the mean; `None` without values.
fn average(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{PathSpec, RateChange};
    use crate::scenarios::alone;
    use slipgate_netcode::time::Instant;

    const FROM: Duration = Duration::from_secs(10);
    const UNTIL: Duration = Duration::from_secs(20);

    /// A flow that gets 4 Mbit/s. Its queueing delay is 300 ms in the first second of the drop, and 10 ms otherwise.
    fn log(path_rate: f64) -> Log {
        let mut flow = FlowLog::default();
        let mut capacity = crate::log::Series::default();
        for step in 0..3000_u64 {
            let now = Instant::from_start(Duration::from_millis(10 * step));
            let late = (1000..1100).contains(&step);
            flow.waits.push(QueueWait {
                left_at: step as f32 / 100.0,
                waited: if late { 0.3 } else { 0.01 },
                bytes: 5000,
            });
            flow.arrived.add(5000.0, now);
            flow.sent.add(1.0, now);
            capacity.add(path_rate / 100.0, now);
        }
        Log { flows: vec![flow], capacity }
    }

    fn scenario(figure: Option<Figure>) -> Scenario {
        let path = PathSpec { change: RateChange::None, ..PathSpec::new(8e6, 50, 250) };
        Scenario { duration: Duration::from_secs(30), figure, ..alone("T", "test", path, Source::Bulk) }
    }

    #[test]
    fn utilization_and_delay_quantiles_are_computed() {
        let figures = measure(&scenario(None), &log(1e6));
        assert!((figures.served - 0.5).abs() < 1e-9, "{figures:?}");
        // The late second is 4 % of 25 s: it affects the 99th percentile and not the 95th.
        assert!((figures.p95_ms - 10.0).abs() < 0.01 && (figures.p99_ms - 300.0).abs() < 0.01, "{figures:?}");
    }

    #[test]
    fn rate_drop_ends_its_adaptation_when_the_delay_stays_low() {
        let rate_drop =
            measure(&scenario(Some(Figure::Drop { from: FROM, until: UNTIL })), &log(0.5e6)).rate_drop.unwrap();
        assert!((rate_drop.adaptation - 1.0).abs() < 0.011, "{rate_drop:?}");
        assert!(
            (rate_drop.peak_ms - 300.0).abs() < 0.01 && (rate_drop.p95_after_ms - 10.0).abs() < 0.01,
            "{rate_drop:?}"
        );
        assert_eq!(rate_drop.recovery, 0.0);
    }

    #[test]
    fn outage_figures_use_their_intervals() {
        let outage = Outage { from: FROM, until: FROM + Duration::from_secs(4) };
        let mut log = log(0.5e6);
        let mut send = |millis: u64, bytes| {
            log.flows[0].sent_bytes.add(bytes, Instant::from_start(Duration::from_millis(millis)));
        };
        // Before, within and after the measured interval.
        for (at, bytes) in [(10_950, 1e6), (11_000, 2000.0), (13_900, 4000.0), (14_000, 1e6)] {
            send(at, bytes);
        }
        let wait = |left_at, waited| QueueWait { left_at, waited, bytes: 1200 };
        log.flows[0].waits.extend([wait(13.9, 0.9), wait(14.5, 0.1), wait(18.9, 0.2), wait(19.1, 0.8)]);
        let mut scenario = scenario(Some(Figure::Outage(outage)));
        let outage = measure(&scenario, &log).outage.unwrap();
        assert!((outage.sent - 2000.0).abs() < 1e-6 && (outage.peak_after_ms - 200.0).abs() < 0.01, "{outage:?}");
        assert!((outage.served_after - 1.0).abs() < 1e-9, "{outage:?}");
        // The demand of a game counts up to the capacity.
        for (bits, served) in [(2e6, 2.0), (8e6, 1.0)] {
            scenario.flows[0].source = Source::Game(crate::source::Game::of(bits));
            let outage = measure(&scenario, &log).outage.unwrap();
            assert!((outage.served_after - served).abs() < 1e-9, "{outage:?}");
        }
    }

    #[test]
    fn second_transfer_waits_for_the_first() {
        // The transfer gets 400 kB/s next to a game of 100 kB/s.
        let game = crate::source::Game { rate: 1e5, ticks: 60.0 };
        let again = Some(Duration::from_secs(11));
        let mut twice = scenario(Some(Figure::Transfer));
        twice.flows[0].source = Source::GameAndTransfer { game, from: FROM, bytes: 1e6, again };
        let figures = measure(&twice, &log(1e6));
        let slice = SLICE.as_secs_f64();
        assert!((figures.transfer.unwrap() - 2.475).abs() <= slice, "{figures:?}");
        assert!((figures.transfer_again.unwrap() - 3.975).abs() <= slice, "{figures:?}");
    }

    #[test]
    fn fairness_index_is_one_for_equal_flows() {
        let scenario = scenario(Some(Figure::Fairness));
        let mut two = Scenario { flows: vec![scenario.flows[0]; 2], ..scenario };
        two.duration = Duration::from_secs(30);
        let one = log(1e6);
        let index =
            |flows: Vec<FlowLog>| measure(&two, &Log { flows, capacity: one.capacity.clone() }).fairness.unwrap();
        assert!((index(vec![one.flows[0].clone(), one.flows[0].clone()]) - 1.0).abs() < 1e-9);
        assert!((index(vec![one.flows[0].clone(), FlowLog::default()]) - 0.5).abs() < 1e-9);
    }
}
