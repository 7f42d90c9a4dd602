use super::super::path_sample::{QUIET, queued};
use super::*;
use slipgate_netcode::time::Instant;

/// A probe of a queue of 100 ms, which falls by the share `self_inflicted` of the expected fall.
fn probed_at(
    down_probes: &mut DownProbes,
    send_rate: &mut SendRate,
    cross_traffic: CrossTraffic,
    self_inflicted: f64,
) -> Option<ProbeResult> {
    let start = queued(0.1, 100.0);
    let mut held_back = 0.0;
    let until = down_probes.begin(&start);
    assert!(down_probes.is_active() && until > 100.08 && until < 100.1, "{until}");
    let mut result = None;
    for step in -20..=30 {
        let sent = 100.0 + f64::from(step) * 0.01;
        let bytes = if (0..8).contains(&step) { 2500 } else { 10_000 };
        held_back += 0.01 - f64::from(bytes) / 1e6;
        send_rate.push(bytes, Instant::from_start(core::time::Duration::from_secs_f64(sent)));
        let queue = 0.1 - self_inflicted * held_back;
        let sample = PathSample { newest_sent: Some(sent), ..queued(queue, sent + 0.14) };
        result = result.or(down_probes.on_feedback(&sample, send_rate, cross_traffic));
    }
    assert!(!down_probes.is_active());
    result
}

fn on_queue(cross_traffic: CrossTraffic, self_inflicted: f64) -> Option<ProbeResult> {
    probed_at(&mut DownProbes::new(), &mut SendRate::new(), cross_traffic, self_inflicted)
}

#[test]
fn expected_fall_is_self_inflicted_and_none_cross_traffic() {
    assert_eq!(on_queue(CrossTraffic::Alone, 0.85), Some(ProbeResult::SelfInflicted));
    assert_eq!(on_queue(CrossTraffic::Alone, 0.1), Some(ProbeResult::CrossTraffic));
}

#[test]
fn unclear_fall_needs_a_second_probe() {
    let (mut down_probes, mut send_rate) = (DownProbes::new(), SendRate::new());
    assert_eq!(probed_at(&mut down_probes, &mut send_rate, CrossTraffic::Alone, 0.5), None);
    let (mut second, mut send_rate) = (down_probes.clone(), SendRate::new());
    assert_eq!(probed_at(&mut second, &mut send_rate, CrossTraffic::Alone, 0.5), Some(ProbeResult::CrossTraffic));
}

#[test]
fn compete_mode_needs_a_larger_fall() {
    assert_eq!(on_queue(CrossTraffic::Competing, 0.65), Some(ProbeResult::CrossTraffic));
    assert_eq!(on_queue(CrossTraffic::Competing, 0.75), Some(ProbeResult::SelfInflicted));
}

#[test]
fn fall_beyond_the_expected_has_no_result() {
    assert_eq!(on_queue(CrossTraffic::Alone, 1.45), None);
}

#[test]
fn repeated_floor_is_a_longer_route() {
    let (mut down_probes, mut send_rate) = (DownProbes::new(), SendRate::new());
    down_probes.floor = 0.1 - 0.9 * 0.06;
    let result = probed_at(&mut down_probes, &mut send_rate, CrossTraffic::Competing, 0.9);
    assert!(matches!(result, Some(ProbeResult::RttIncreased(_))), "{result:?}");
}

#[test]
fn no_result_without_new_arrivals() {
    let mut down_probes = DownProbes::new();
    down_probes.begin(&queued(0.1, 100.0));
    let silent = PathSample { newest_sent: None, now: 200.0, ..QUIET };
    assert_eq!(down_probes.on_feedback(&silent, &SendRate::new(), CrossTraffic::Alone), None);
}

/// A probe of a queue of 600 ms that only this sender feeds, while the capacity falls by this share of it each 10 ms.
fn probed_while_the_capacity_falls(share: f64, has_demand: bool) -> Option<ProbeResult> {
    let (mut down_probes, mut send_rate, mut result) = (DownProbes::new(), SendRate::new(), None);
    let mut queue = 0.6;
    down_probes.begin(&queued(queue, 100.0));
    for step in -20..=40 {
        let sent = 100.0 + f64::from(step) * 0.01;
        let bytes = if (0..15).contains(&step) { 2500 } else { 10_000 };
        let capacity = 1e6 * (1.0 - share * f64::from(step.min(10) + 20));
        queue += f64::from(bytes) / capacity - 0.01;
        send_rate.push(bytes, Instant::from_start(core::time::Duration::from_secs_f64(sent)));
        let sample = PathSample { instant_arrivals: capacity, has_demand, ..queued(queue, sent + 0.64) };
        let sample = PathSample { newest_sent: Some(sent), ..sample };
        result = result.or(down_probes.on_feedback(&sample, &send_rate, CrossTraffic::Alone));
    }
    result
}

#[test]
fn capacity_that_falls_during_a_probe_is_no_cross_traffic() {
    assert_eq!(probed_while_the_capacity_falls(0.0, true), Some(ProbeResult::SelfInflicted));
    assert_eq!(probed_while_the_capacity_falls(0.02, false), None);
    assert_eq!(probed_while_the_capacity_falls(0.02, true), Some(ProbeResult::CrossTraffic), "a game keeps its demand");
}

#[test]
fn sender_above_the_capacity_finds_its_own_queue() {
    let (mut down_probes, mut send_rate, mut result) = (DownProbes::new(), SendRate::new(), None);
    let mut queue = 0.1;
    for step in -20..=30 {
        if step == 0 {
            down_probes.begin(&queued(queue, 100.0));
        }
        let sent = 100.0 + f64::from(step) * 0.01;
        let bytes = if (0..8).contains(&step) { 2500 } else { 20_000 };
        queue += f64::from(bytes) / 1e6 - 0.01;
        send_rate.push(bytes, Instant::from_start(core::time::Duration::from_secs_f64(sent)));
        let sample = PathSample { newest_sent: Some(sent), ..queued(queue, sent + 0.5) };
        result = result.or(down_probes.on_feedback(&sample, &send_rate, CrossTraffic::Alone));
    }
    assert_eq!((result, down_probes.is_certain()), (Some(ProbeResult::SelfInflicted), true));
}
