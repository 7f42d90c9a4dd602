//! What came of a run, in a few figures.

use core::time::Duration;

use serde::Serialize;

use crate::log::{FlowLog, Log, SLICE, Wait, slice_of};
use crate::path::Darkness;
use crate::scenario::{Figure, Flow, Ruler, Scenario};
use crate::source::Source;

/// A queueing delay below this is one that a game can live with.
const QUICK: f32 = 0.060;
/// For how long it must stay below that, to count as adapted.
const LASTING: f32 = 1.0;
/// This share of the rate, over this time, counts as recovered.
const RECOVERED: f64 = 0.9;
const RECOVERED_OVER: Duration = Duration::from_millis(250);
/// A dark path was noticed after so long.
const NOTICED: Duration = Duration::from_secs(1);
/// When it is bright again, this is the time in which one is back.
const BACK: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// The figures of a run, or their means over several.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Figures {
    /// The share of what was asked for and possible that arrived: of a game's demand, or of the path's capacity.
    pub served: f64,
    /// The queueing delay that 95 % of the packets did not exceed, in milliseconds.
    pub p95_ms: f64,
    /// The same for 99 %.
    pub p99_ms: f64,
    /// The share of packets that the policer or the queue dropped.
    pub dropped: f64,
    /// How the flow followed a fall of the rate and its return.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fall: Option<Fall>,
    /// How the flow lived through a dark path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dark: Option<Dark>,
    /// Jain's index of fairness: 1 when all flows get the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fairness: Option<f64>,
    /// Seconds until nearly all bytes of the transfer had arrived; all that were left if they never did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer: Option<f64>,
    /// The same of a second transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transfer_again: Option<f64>,
}

/// How a flow follows a fall of the rate and its return.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Fall {
    /// Seconds until the queueing delay was below 60 ms for a second; as long as the fall lasted, if it never was.
    pub adaptation: f64,
    /// The longest queueing delay of that time, in milliseconds.
    pub peak_ms: f64,
    /// The queueing delay after that until the rate returned, 95 %, in milliseconds.
    pub then_p95_ms: f64,
    /// Seconds from the return until nine tenths of the demand or the rate arrived.
    pub recovery: f64,
}

/// How a flow lives through a dark path.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Dark {
    /// Bytes that left per second, after the first.
    pub sent: f64,
    /// The share of what was asked for and possible that arrived from one second after it to the fifth.
    pub then_served: f64,
    /// The longest queueing delay from its end to the fifth second after it, in milliseconds.
    pub then_peak_ms: f64,
}

/// Measures a run of a scenario.
#[must_use]
pub fn measure(scenario: &Scenario, log: &Log) -> Figures {
    let span = (scenario.counts_from, scenario.duration);
    let measured: Vec<(&Flow, &FlowLog)> =
        scenario.flows.iter().zip(&log.flows).filter(|(flow, _)| flow.ruler == Ruler::Measured).collect();
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
        ..special(scenario, log, &measured)
    }
}

fn special(scenario: &Scenario, log: &Log, measured: &[(&Flow, &FlowLog)]) -> Figures {
    let mut figures = Figures::default();
    match scenario.figure {
        Some(Figure::Drop { from, until }) => {
            figures.fall = measured.first().map(|(flow, flow_log)| fall(flow, flow_log, log, from, until));
        }
        Some(Figure::Dark(darkness)) => {
            figures.dark = measured.first().map(|(flow, flow_log)| dark(flow, flow_log, log, darkness));
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

/// Seconds until nearly all bytes of the first transfer and of the second had arrived, which waits for what is left of the
/// first; all that were left if they never did. Nobody sends again here, so that what the path lost on its own account
/// counts as arrived: a session sends it in other packets.
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

/// The bytes that could have arrived: what was asked for, as far as the path had room for it, without what it loses on
/// its own account.
fn possible(scenario: &Scenario, log: &Log, measured: &[(&Flow, &FlowLog)]) -> f64 {
    let (from, until) = (slice_of(scenario.counts_from), slice_of(scenario.duration));
    let transfer = measured.iter().any(|(flow, _)| matches!(flow.source, Source::GameAndTransfer { .. }));
    let slices = (from..until).map(|slice| {
        let at = SLICE * slice as u32;
        let loss = if at >= scenario.path.loss_from { scenario.path.loss.share() } else { 0.0 };
        let room = log.capacity.at(slice) - constant_rivals(scenario, at);
        let wanted = measured.iter().map(|(flow, log)| match flow.source {
            Source::Bulk => f64::INFINITY,
            // A transfer's demand comes at once, and is served when it can be.
            Source::GameAndTransfer { .. } => log.demanded.at(slice),
            Source::Game(game) => game.rate * SLICE.as_secs_f64(),
        });
        let wanted: f64 = wanted.sum();
        (1.0 - loss) * if transfer { wanted } else { wanted.min(room) }
    });
    slices.sum::<f64>().max(1.0)
}

/// What constant flows offer in a slice.
fn constant_rivals(scenario: &Scenario, at: Duration) -> f64 {
    let offered = scenario.flows.iter().map(|flow| {
        let Ruler::Constant { rate, period } = flow.ruler else { return 0.0 };
        let on = at.checked_sub(flow.start).is_some_and(|running| running.as_nanos() / period.as_nanos() % 2 == 0);
        if on { rate * SLICE.as_secs_f64() } else { 0.0 }
    });
    offered.sum()
}

fn waits_between(waits: &[Wait], from: Duration, until: Duration) -> impl Iterator<Item = f32> {
    let (from, until) = (from.as_secs_f32(), until.as_secs_f32());
    waits.iter().filter(move |wait| from <= wait.left_at && wait.left_at < until).map(|wait| wait.waited)
}

/// Quantiles of durations in seconds, in milliseconds; zero of none.
fn quantiles<const N: usize>(values: &mut [f32], shares: [f64; N]) -> [f64; N] {
    values.sort_unstable_by(f32::total_cmp);
    shares.map(|share| {
        let index = (share * values.len() as f64) as usize;
        values.get(index.min(values.len().saturating_sub(1))).map_or(0.0, |value| f64::from(*value) * 1000.0)
    })
}

fn fall(flow: &Flow, flow_log: &FlowLog, log: &Log, from: Duration, until: Duration) -> Fall {
    let (start, end) = (from.as_secs_f32(), until.as_secs_f32());
    let during: Vec<Wait> =
        flow_log.waits.iter().filter(|wait| start <= wait.left_at && wait.left_at < end).copied().collect();
    let adapted_at = adapted_at(&during, start).unwrap_or(end);
    let peak = during.iter().map(|wait| wait.waited).fold(0.0, f32::max);
    let mut then: Vec<f32> = during.iter().filter(|wait| wait.left_at >= adapted_at).map(|wait| wait.waited).collect();
    let [then_p95_ms] = quantiles(&mut then, [0.95]);
    Fall {
        adaptation: f64::from(adapted_at - start),
        peak_ms: f64::from(peak) * 1000.0,
        then_p95_ms,
        recovery: recovery(flow, flow_log, log, until),
    }
}

fn dark(flow: &Flow, flow_log: &FlowLog, log: &Log, Darkness { from, until }: Darkness) -> Dark {
    let noticed = from + NOTICED;
    let [start, end] = BACK.map(|after| until + after);
    let room = log.capacity.between(start, end);
    let wanted = flow.source.rate().map_or(room, |rate| (rate * (end - start).as_secs_f64()).min(room));
    Dark {
        sent: flow_log.sent_bytes.between(noticed, until) / (until - noticed).as_secs_f64(),
        then_served: flow_log.arrived.between(start, end) / wanted,
        then_peak_ms: 1000.0 * f64::from(waits_between(&flow_log.waits, until, end).fold(0.0, f32::max)),
    }
}

/// When the delay came below what a game can live with, to stay there for a while.
fn adapted_at(waits: &[Wait], start: f32) -> Option<f32> {
    let mut quick_since = None;
    for wait in waits {
        if wait.waited >= QUICK {
            quick_since = None;
            continue;
        }
        let since = *quick_since.get_or_insert(wait.left_at);
        if wait.left_at - since >= LASTING {
            return Some(since.max(start));
        }
    }
    None
}

/// Seconds from the rate's return until nine tenths of the demand or of the rate arrived.
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

/// Jain's index: the square of the sum by the sum of the squares (Jain, Chiu, Hawe, "A quantitative measure of
/// fairness", 1984).
fn jain(scenario: &Scenario, measured: &[(&Flow, &FlowLog)]) -> f64 {
    let shares = measured.iter().map(|(_, log)| log.arrived.between(scenario.counts_from, scenario.duration));
    let (sum, squares) = shares.fold((0.0, 0.0), |(sum, squares), share| (sum + share, squares + share * share));
    sum * sum / (measured.len() as f64 * squares).max(1.0)
}

/// The means of several runs.
#[must_use]
pub fn mean(runs: &[Figures]) -> Figures {
    let of = |figure: fn(&Figures) -> f64| runs.iter().map(figure).sum::<f64>() / runs.len().max(1) as f64;
    let some = |figure: fn(&Figures) -> Option<f64>| average(runs.iter().filter_map(figure));
    let fall = |figure: fn(&Fall) -> f64| average(runs.iter().filter_map(|run| run.fall.as_ref().map(figure)));
    let dark = |figure: fn(&Dark) -> f64| average(runs.iter().filter_map(|run| run.dark.as_ref().map(figure)));
    Figures {
        served: of(|run| run.served),
        p95_ms: of(|run| run.p95_ms),
        p99_ms: of(|run| run.p99_ms),
        dropped: of(|run| run.dropped),
        fall: fall(|fall| fall.adaptation).map(|adaptation| Fall {
            adaptation,
            peak_ms: fall(|fall| fall.peak_ms).unwrap_or(0.0),
            then_p95_ms: fall(|fall| fall.then_p95_ms).unwrap_or(0.0),
            recovery: fall(|fall| fall.recovery).unwrap_or(0.0),
        }),
        dark: dark(|dark| dark.sent).map(|sent| Dark {
            sent,
            then_served: dark(|dark| dark.then_served).unwrap_or(0.0),
            then_peak_ms: dark(|dark| dark.then_peak_ms).unwrap_or(0.0),
        }),
        fairness: some(|run| run.fairness),
        transfer: some(|run| run.transfer),
        transfer_again: some(|run| run.transfer_again),
    }
}

/// The mean of those that there are.
fn average(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{Change, Path};
    use crate::scenarios::alone;
    use slipgate_netcode::time::Instant;

    const FROM: Duration = Duration::from_secs(10);
    const UNTIL: Duration = Duration::from_secs(20);

    /// A flow that gets 4 Mbit/s, waits for 300 ms for a second after a fall, and 10 ms otherwise.
    fn log(path_rate: f64) -> Log {
        let mut flow = FlowLog::default();
        let mut capacity = crate::log::Series::default();
        for step in 0..3000_u64 {
            let now = Instant::from_start(Duration::from_millis(10 * step));
            let late = (1000..1100).contains(&step);
            flow.waits.push(Wait { left_at: step as f32 / 100.0, waited: if late { 0.3 } else { 0.01 } });
            flow.arrived.add(5000.0, now);
            flow.sent.add(1.0, now);
            capacity.add(path_rate / 100.0, now);
        }
        Log { flows: vec![flow], capacity }
    }

    fn scenario(figure: Option<Figure>) -> Scenario {
        let path = Path { change: Change::None, ..Path::new(8e6, 50, 250) };
        Scenario { duration: Duration::from_secs(30), figure, ..alone("T", "test", path, Source::Bulk) }
    }

    #[test]
    fn use_is_a_share_of_the_capacity_and_delay_a_quantile() {
        let figures = measure(&scenario(None), &log(1e6));
        assert!((figures.served - 0.5).abs() < 1e-9, "{figures:?}");
        // One second of 25 is 4 %: the 95 % do not see it, the 99 % do.
        assert!((figures.p95_ms - 10.0).abs() < 0.01 && (figures.p99_ms - 300.0).abs() < 0.01, "{figures:?}");
    }

    #[test]
    fn a_fall_is_followed_when_the_delay_stays_short() {
        let fall = measure(&scenario(Some(Figure::Drop { from: FROM, until: UNTIL })), &log(0.5e6)).fall.unwrap();
        assert!((fall.adaptation - 1.0).abs() < 0.011, "{fall:?}");
        assert!((fall.peak_ms - 300.0).abs() < 0.01 && (fall.then_p95_ms - 10.0).abs() < 0.01, "{fall:?}");
        assert_eq!(fall.recovery, 0.0);
    }

    #[test]
    fn what_leaves_in_the_dark_counts_after_a_second_and_what_arrives_then_until_the_fifth() {
        let darkness = Darkness { from: FROM, until: FROM + Duration::from_secs(4) };
        let mut log = log(0.5e6);
        let mut send = |millis: u64, bytes| {
            log.flows[0].sent_bytes.add(bytes, Instant::from_start(Duration::from_millis(millis)));
        };
        // Too early, in time, and too late.
        for (at, bytes) in [(10_950, 1e6), (11_000, 2000.0), (13_900, 4000.0), (14_000, 1e6)] {
            send(at, bytes);
        }
        let wait = |left_at, waited| Wait { left_at, waited };
        log.flows[0].waits.extend([wait(13.9, 0.9), wait(14.5, 0.1), wait(18.9, 0.2), wait(19.1, 0.8)]);
        let mut scenario = scenario(Some(Figure::Dark(darkness)));
        let dark = measure(&scenario, &log).dark.unwrap();
        assert!((dark.sent - 2000.0).abs() < 1e-6 && (dark.then_peak_ms - 200.0).abs() < 0.01, "{dark:?}");
        assert!((dark.then_served - 1.0).abs() < 1e-9, "{dark:?}");
        // A game that asks for more than the path has is served as far as that goes.
        for (bits, served) in [(2e6, 2.0), (8e6, 1.0)] {
            scenario.flows[0].source = Source::Game(crate::source::Game::of(bits));
            let dark = measure(&scenario, &log).dark.unwrap();
            assert!((dark.then_served - served).abs() < 1e-9, "{dark:?}");
        }
    }

    #[test]
    fn a_second_transfer_waits_for_what_is_left_of_the_first() {
        // Beside a game of 100 kB/s, 400 kB/s are left.
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
    fn equal_flows_are_fair_and_a_single_winner_is_not() {
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
