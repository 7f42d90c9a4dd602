use super::super::reading::{QUIET, queued};
use super::*;

/// A pulse upon a queue of 100 ms, of which it takes the share `ours` of what it should.
fn asked(pulses: &mut Pulses, departures: &mut Departures, belief: Belief, ours: f64) -> Option<Verdict> {
    let start = queued(0.1, 100.0);
    let mut held_back = 0.0;
    let until = pulses.begin(&start);
    assert!(pulses.is_under_way() && until > 100.08 && until < 100.1, "{until}");
    let mut verdict = None;
    for step in -20..=30 {
        let sent = 100.0 + f64::from(step) * 0.01;
        let bytes = if (0..8).contains(&step) { 2500.0 } else { 10_000.0 };
        held_back += 0.01 - bytes / 1e6;
        departures.push(bytes, sent);
        let queue = 0.1 - ours * held_back;
        let reading = Reading { newest_sent: Some(sent), ..queued(queue, sent + 0.14) };
        verdict = verdict.or(pulses.hear(&reading, departures, belief));
    }
    assert!(!pulses.is_under_way());
    verdict
}

fn ask(belief: Belief, ours: f64) -> Option<Verdict> {
    asked(&mut Pulses::new(), &mut Departures::new(), belief, ours)
}

#[test]
fn a_queue_that_falls_as_it_must_is_ours_and_one_that_does_not_is_that_of_others() {
    assert_eq!(ask(Belief::Alone, 0.85), Some(Verdict::Ours));
    assert_eq!(ask(Belief::Alone, 0.1), Some(Verdict::Others));
}

#[test]
fn in_doubt_one_asks_twice() {
    let (mut pulses, mut departures) = (Pulses::new(), Departures::new());
    assert_eq!(asked(&mut pulses, &mut departures, Belief::Alone, 0.5), None);
    let (mut second, mut departures) = (pulses.clone(), Departures::new());
    assert_eq!(asked(&mut second, &mut departures, Belief::Alone, 0.5), Some(Verdict::Others));
}

#[test]
fn in_company_it_takes_more_to_change_ones_mind() {
    assert_eq!(ask(Belief::Company, 0.7), Some(Verdict::Others));
    assert_eq!(ask(Belief::Company, 0.9), Some(Verdict::Ours));
}

#[test]
fn a_queue_that_falls_by_more_than_we_can_do_tells_nothing() {
    assert_eq!(ask(Belief::Alone, 1.45), None);
}

#[test]
fn a_floor_to_which_the_queue_falls_again_is_a_longer_path() {
    let (mut pulses, mut departures) = (Pulses::new(), Departures::new());
    pulses.floor = 0.1 - 0.9 * 0.06;
    let verdict = asked(&mut pulses, &mut departures, Belief::Company, 0.9);
    assert!(matches!(verdict, Some(Verdict::LongerPath(_))), "{verdict:?}");
}

#[test]
fn without_news_there_is_no_verdict() {
    let mut pulses = Pulses::new();
    pulses.begin(&queued(0.1, 100.0));
    let silent = Reading { newest_sent: None, now: 200.0, ..QUIET };
    assert_eq!(pulses.hear(&silent, &Departures::new(), Belief::Alone), None);
}
