use super::super::path_sample::{QUIET, queued};
use super::*;

const IDLE: ProbeContext = ProbeContext { is_held: false, is_probing: false, since_probe: f64::INFINITY };

fn started() -> DelayMode {
    let mut delay_mode = DelayMode::new();
    delay_mode.begin(1e6, &PathSample { now: 99.0, ..QUIET });
    delay_mode.empty_at = 99.0;
    delay_mode
}

fn at(seconds: f64, sample: PathSample) -> PathSample {
    PathSample { now: seconds, ..sample }
}

#[test]
fn limit_is_known_once_a_full_sender_meets_a_queue() {
    let mut delay_mode = DelayMode::new();
    delay_mode.begin(1e6, &QUIET);
    delay_mode.observe(&PathSample { app_limited: true, ..queued(0.1, 1.0) });
    assert!(!delay_mode.knows_limit());
    delay_mode.observe(&queued(0.1, 1.1));
    assert!(delay_mode.knows_limit());
}

#[test]
fn limit_far_above_the_allowed_rate_is_discarded() {
    let mut delay_mode = started();
    delay_mode.set_limit(1e6);
    assert!(!delay_mode.discard_stale_limit(5.1e5) && delay_mode.knows_limit());
    assert!(delay_mode.discard_stale_limit(4.9e5) && !delay_mode.knows_limit());
    assert!(!delay_mode.discard_stale_limit(4.9e5), "it is forgotten once");
}

#[test]
fn growth_is_small_near_the_limit_and_large_far_from_it() {
    let near = started().next_rate(&QUIET, 1e6, f64::INFINITY);
    assert!(near > 1e6 && near < 1.012e6, "{near}");
    let low = PathSample { delivery: 5e5, sent: 5e5, ..QUIET };
    let far = started().next_rate(&low, 5e5, f64::INFINITY);
    assert!(far > 1.05 * 5e5, "{far}");
    let policed = started().next_rate(&low, 5e5, 5.1e5);
    assert!(policed < 1.012 * 5e5, "{policed}");
}

#[test]
fn growth_towards_a_former_peak_is_faster() {
    let low = PathSample { now: 100.5, delivery: 2e5, sent: 2e5, peak: 1e6, ..QUIET };
    let grown = |mut delay_mode: DelayMode, sample: &PathSample| delay_mode.next_rate(sample, 2e5, f64::INFINITY) / 2e5;
    let slow = grown(started(), &PathSample { peak: 2e5, ..low });
    let fast = grown(started(), &low);
    assert!((fast - 1.0) / (slow - 1.0) > 2.0, "{fast} {slow}");
    // Not after a queue that counted as self-inflicted until 100.5 s, and not after another one at 101 s.
    let (mut fallen, mut busy) = (started(), started());
    fallen.self_inflicted(&PathSample { now: 99.5, ..QUIET });
    busy.observe(&queued(0.01, 101.0));
    for (delay_mode, until) in [(fallen, 101.5), (busy, 102.0)] {
        let [before, after] = [-0.01, 0.01].map(|time| grown(delay_mode.clone(), &at(until + time, low)));
        assert!((before - slow).abs() < 0.01 && (after - fast).abs() < 0.01, "{before} {after}");
    }
}

#[test]
fn jittering_path_grows_from_its_recent_peak() {
    let low = PathSample { delivery: 8e5, sent: 9e5, recent_peak: 1e6, ..QUIET };
    assert!(started().next_rate(&low, 9e5, f64::INFINITY) < 9e5, "a path without jitter carries less now");
    let bunched = PathSample { jitter: 0.005, ..low };
    assert!(started().next_rate(&bunched, 9e5, f64::INFINITY) > 9e5);
    let mut fallen = started();
    fallen.self_inflicted(&PathSample { now: 98.5, ..QUIET });
    assert!(fallen.next_rate(&bunched, 9e5, f64::INFINITY) < 9e5, "the peak is from before the fall");
}

#[test]
fn unused_rate_does_not_grow() {
    for idle in [PathSample { app_limited: true, ..QUIET }, PathSample { sent: 5e5, ..QUIET }] {
        assert_eq!(started().next_rate(&idle, 1e6, f64::INFINITY), 1e6);
    }
}

#[test]
fn only_self_inflicted_queue_is_drained_deeply() {
    let mut delay_mode = started();
    assert!((delay_mode.next_rate(&queued(0.3, 100.0), 1e6, f64::INFINITY) / 1e6 - 0.85).abs() < 0.001);
    delay_mode.self_inflicted(&QUIET);
    assert!(delay_mode.next_rate(&queued(0.3, 100.0), 1e6, f64::INFINITY) < 0.2e6);
    assert!(delay_mode.is_self_inflicted(100.5) && !delay_mode.is_self_inflicted(101.5));
}

#[test]
fn collapse_of_arrivals_is_self_inflicted() {
    let mut delay_mode = started();
    let collapsed = PathSample { has_collapsed: true, instant_arrivals: 1e5, ..queued(0.2, 100.0) };
    assert!(delay_mode.next_rate(&collapsed, 1e6, f64::INFINITY) < 0.05e6);
}

#[test]
fn standing_queue_is_probed_and_not_again_at_once() {
    let mut delay_mode = started();
    let mut probed_at = None;
    for step in 0..100 {
        let now = 100.0 + f64::from(step) * 0.01;
        if probed_at.is_none() && delay_mode.on_queue(&queued(0.04, now), &IDLE, 1e6) == ProbeDecision::Probe {
            probed_at = Some(now);
        }
    }
    assert!(probed_at.is_some_and(|now| (100.3..100.35).contains(&now)), "{probed_at:?}");
    let just = ProbeContext { since_probe: 0.5, ..IDLE };
    assert_eq!(delay_mode.on_queue(&queued(0.04, 101.0), &just, 1e6), ProbeDecision::None);
    let holding = ProbeContext { is_held: true, ..IDLE };
    assert_eq!(delay_mode.on_queue(&queued(0.04, 101.0), &holding, 1e6), ProbeDecision::None);
}

#[test]
fn queue_near_the_target_is_probed_late() {
    let mut delay_mode = started();
    let mut probed_at = None;
    for step in 0..300 {
        let now = 100.0 + f64::from(step) * 0.01;
        if probed_at.is_none() && delay_mode.on_queue(&queued(0.014, now), &IDLE, 1e6) == ProbeDecision::Probe {
            probed_at = Some(now);
        }
        assert_eq!(started().on_queue(&queued(0.008, now), &IDLE, 1e6), ProbeDecision::None);
    }
    assert!(probed_at.is_some_and(|now| (101.0..101.05).contains(&now)), "{probed_at:?}");
}

#[test]
fn slow_recovery_is_probed() {
    let mut delay_mode = started();
    let should_probe = (0..150).any(|step| {
        let sample = PathSample { peak: 2e6, ..queued(0.0095, 100.0 + f64::from(step) * 0.01) };
        delay_mode.on_queue(&sample, &IDLE, 1e6) == ProbeDecision::Probe
    });
    assert!(should_probe && delay_mode.rate_before_queue() == Some(2e6));
}

#[test]
fn queue_is_drained_every_eight_seconds() {
    let mut delay_mode = started();
    let mut drains = 0;
    for step in 0..2000 {
        let sample = queued(0.008, 99.0 + f64::from(step) * 0.01);
        delay_mode.observe(&sample);
        drains += usize::from(delay_mode.drain_once(&sample).is_some_and(|time| (0.04..0.06).contains(&time)));
    }
    assert_eq!(drains, 2);
    delay_mode.observe(&at(130.0, QUIET));
    assert_eq!(delay_mode.drain_once(&at(130.0, QUIET)), None);
}

#[test]
fn queue_soon_after_another_is_the_same_one() {
    for (pause, same) in [(1.0, true), (3.0, false)] {
        let mut delay_mode = started();
        for step in 0..60 {
            delay_mode.on_queue(&queued(0.04, 100.0 + f64::from(step) * 0.01), &IDLE, 1e6);
        }
        delay_mode.on_queue(&at(100.6, QUIET), &IDLE, 5e5);
        assert_eq!(delay_mode.rate_before_queue(), None);
        let later = PathSample { sent: 5e5, ..queued(0.04, 100.6 + pause) };
        delay_mode.on_queue(&later, &IDLE, 5e5);
        assert_eq!(delay_mode.rate_before_queue(), Some(if same { 1e6 } else { 5e5 }), "after {pause} s");
    }
}

#[test]
fn fast_growth_of_the_queue_is_a_fall_of_the_capacity() {
    // The queue grows by this share of the time; a longer route adds 80 ms at once.
    for (growth, step, expected) in [(0.875, 0.0, true), (0.5, 0.0, false), (0.0, 0.08, false)] {
        let mut delay_mode = started();
        let mut fell = false;
        for tick in 0..100 {
            let time = f64::from(tick) * 0.02;
            let queue = if time > 0.0 { step + growth * time } else { 0.0 };
            fell |= delay_mode.has_fallen(&queued(queue, 100.0 + time));
        }
        assert_eq!(fell, expected, "{growth} {step}");
        assert_eq!(delay_mode.is_self_inflicted(102.9), expected, "{growth} {step}: for a second");
        assert_eq!(delay_mode.self_inflicted_count, u32::from(expected), "{growth} {step}: a fall is one result");
    }
}
