use super::super::reading::{QUIET, queued};
use super::*;

const IDLE: Circumstances = Circumstances { is_held: false, is_asking: false, asked_ago: f64::INFINITY };

fn begun() -> Steady {
    let mut steady = Steady::new();
    steady.begin(1e6, &Reading { now: 99.0, ..QUIET });
    steady.empty_at = 99.0;
    steady
}

fn at(seconds: f64, reading: Reading) -> Reading {
    Reading { now: seconds, ..reading }
}

#[test]
fn the_limit_is_known_when_who_sends_all_he_may_meets_a_queue() {
    let mut steady = Steady::new();
    steady.begin(1e6, &QUIET);
    steady.observe(&Reading { app_limited: true, ..queued(0.1, 1.0) });
    assert!(!steady.knows_limit());
    steady.observe(&queued(0.1, 1.1));
    assert!(steady.knows_limit());
}

#[test]
fn a_limit_far_above_what_may_be_sent_is_forgotten_and_a_near_one_stays() {
    let mut steady = begun();
    steady.set_limit(1e6);
    assert!(!steady.forgets_limit(5.1e5) && steady.knows_limit());
    assert!(steady.forgets_limit(4.9e5) && !steady.knows_limit());
    assert!(!steady.forgets_limit(4.9e5), "it is forgotten once");
}

#[test]
fn with_an_empty_queue_the_rate_creeps_near_the_limit_and_leaps_far_from_it() {
    let near = begun().steer(&QUIET, 1e6, f64::INFINITY);
    assert!(near > 1e6 && near < 1.012e6, "{near}");
    let low = Reading { delivery: 5e5, sent: 5e5, ..QUIET };
    let far = begun().steer(&low, 5e5, f64::INFINITY);
    assert!(far > 1.05 * 5e5, "{far}");
    let under_a_ceiling = begun().steer(&low, 5e5, 5.1e5);
    assert!(under_a_ceiling < 1.012 * 5e5, "{under_a_ceiling}");
}

#[test]
fn a_rate_that_is_not_used_does_not_grow() {
    for idle in [Reading { app_limited: true, ..QUIET }, Reading { sent: 5e5, ..QUIET }] {
        assert_eq!(begun().steer(&idle, 1e6, f64::INFINITY), 1e6);
    }
}

#[test]
fn a_queue_is_drained_deeply_only_when_it_is_ours() {
    let mut steady = begun();
    assert!((steady.steer(&queued(0.3, 100.0), 1e6, f64::INFINITY) / 1e6 - 0.85).abs() < 0.001);
    steady.ours(&QUIET);
    assert!(steady.steer(&queued(0.3, 100.0), 1e6, f64::INFINITY) < 0.2e6);
    assert!(steady.is_ours(100.5) && !steady.is_ours(101.5));
}

#[test]
fn a_collapse_of_what_arrives_is_ours() {
    let mut steady = begun();
    let collapsed = Reading { has_collapsed: true, arrivals_at_once: 1e5, ..queued(0.2, 100.0) };
    assert!(steady.steer(&collapsed, 1e6, f64::INFINITY) < 0.05e6);
}

#[test]
fn one_asks_when_a_queue_stays_and_not_again_at_once() {
    let mut steady = begun();
    let mut asked = None;
    for step in 0..100 {
        let now = 100.0 + f64::from(step) * 0.01;
        if asked.is_none() && steady.ask(&queued(0.04, now), &IDLE, 1e6) == Question::Ask {
            asked = Some(now);
        }
    }
    assert!(asked.is_some_and(|now| (100.3..100.35).contains(&now)), "{asked:?}");
    let just = Circumstances { asked_ago: 0.5, ..IDLE };
    assert_eq!(steady.ask(&queued(0.04, 101.0), &just, 1e6), Question::None);
    let holding = Circumstances { is_held: true, ..IDLE };
    assert_eq!(steady.ask(&queued(0.04, 101.0), &holding, 1e6), Question::None);
}

#[test]
fn a_queue_around_the_target_is_asked_about_late_and_a_short_one_never() {
    let mut steady = begun();
    let mut asked = None;
    for step in 0..300 {
        let now = 100.0 + f64::from(step) * 0.01;
        if asked.is_none() && steady.ask(&queued(0.014, now), &IDLE, 1e6) == Question::Ask {
            asked = Some(now);
        }
        assert_eq!(begun().ask(&queued(0.008, now), &IDLE, 1e6), Question::None);
    }
    assert!(asked.is_some_and(|now| (101.0..101.05).contains(&now)), "{asked:?}");
}

#[test]
fn a_rate_that_never_comes_back_is_asked_about() {
    let mut steady = begun();
    let asks = (0..150).any(|step| {
        let reading = Reading { peak: 2e6, ..queued(0.0095, 100.0 + f64::from(step) * 0.01) };
        steady.ask(&reading, &IDLE, 1e6) == Question::Ask
    });
    assert!(asks && steady.rate_before_episode() == Some(2e6));
}

#[test]
fn without_an_empty_queue_one_is_made_each_eight_seconds() {
    let mut steady = begun();
    let mut drains = 0;
    for step in 0..2000 {
        let reading = queued(0.008, 99.0 + f64::from(step) * 0.01);
        steady.observe(&reading);
        drains += usize::from(steady.drain_once(&reading).is_some_and(|time| (0.04..0.06).contains(&time)));
    }
    assert_eq!(drains, 2);
    steady.observe(&at(130.0, QUIET));
    assert_eq!(steady.drain_once(&at(130.0, QUIET)), None);
}

#[test]
fn an_episode_that_begins_soon_after_another_is_the_same_one() {
    for (pause, same) in [(1.0, true), (3.0, false)] {
        let mut steady = begun();
        for step in 0..60 {
            steady.ask(&queued(0.04, 100.0 + f64::from(step) * 0.01), &IDLE, 1e6);
        }
        steady.ask(&at(100.6, QUIET), &IDLE, 5e5);
        assert_eq!(steady.rate_before_episode(), None);
        let later = Reading { sent: 5e5, ..queued(0.04, 100.6 + pause) };
        steady.ask(&later, &IDLE, 5e5);
        assert_eq!(steady.rate_before_episode(), Some(if same { 1e6 } else { 5e5 }), "after {pause} s");
    }
}
