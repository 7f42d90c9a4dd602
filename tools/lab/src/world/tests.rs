use super::*;
use crate::measure::{Figures, measure};
use crate::path::{Discipline, Jitter, Loss, Path, Police};
use crate::report::Rhythm;
use crate::rules::{Rule, congestion};
use crate::scenarios::{all, alone};
use crate::source::{Game, Source};

fn play(scenario: &Scenario) -> Figures {
    measure(scenario, &World::new(scenario, 1, |flow| congestion(Rule::None, scenario, flow)).play().log)
}

fn bulk(path: Path, offer: f64) -> Scenario {
    Scenario { offer, duration: Duration::from_secs(20), ..alone("T", "test", path, Source::Bulk) }
}

#[test]
fn too_much_fills_the_buffer_and_loses_the_rest() {
    // A quarter more than the path carries: a fifth of it is dropped, and the buffer of 250 ms stands full.
    let figures = play(&bulk(Path::new(4e6, 50, 250), 1.25 * 500_000.0));
    assert!((figures.served - 1.0).abs() < 0.01, "{figures:?}");
    assert!((245.0..=250.0).contains(&figures.p95_ms), "{figures:?}");
    assert!((0.17..0.21).contains(&figures.dropped), "{figures:?}");
}

#[test]
fn half_of_what_a_path_carries_waits_for_nothing() {
    let figures = play(&bulk(Path::new(4e6, 50, 250), 250_000.0));
    assert!((figures.served - 0.5).abs() < 0.01, "{figures:?}");
    assert_eq!((figures.p95_ms, figures.dropped), (0.0, 0.0));
}

#[test]
fn what_a_path_loses_is_not_held_against_anybody() {
    let path = Path { loss: Loss::Random(0.2), ..Path::new(4e6, 50, 250) };
    let scenario = alone("T", "test", path, Source::Game(Game::of(1e6)));
    let figures = play(&scenario);
    assert!((figures.served - 1.0).abs() < 0.02, "{figures:?}");
}

#[test]
fn a_policer_drops_and_delays_nothing() {
    let police = Some(Police { rate: 250_000.0, bucket: 20_000.0 });
    let figures = play(&bulk(Path { police, ..Path::new(10e6, 50, 250) }, 312_500.0));
    assert!((0.18..0.21).contains(&figures.dropped) && figures.p95_ms < 1.0, "{figures:?}");
    assert!((figures.served - 1.0).abs() < 0.01, "{figures:?}");
}

#[test]
fn codel_keeps_the_queue_of_an_obedient_flow_short() {
    let path = Path { discipline: Discipline::CoDel, ..Path::new(10e6, 40, 250) };
    let scenario = Scenario { duration: Duration::from_secs(20), ..alone("T", "test", path, Source::Bulk) };
    let cubic = World::new(&scenario, 1, |flow| congestion(Rule::Cubic, &scenario, flow)).play();
    let figures = measure(&scenario, &cubic.log);
    assert!(figures.p95_ms < 30.0 && figures.served > 0.8, "{figures:?}");
}

#[test]
fn reports_in_frames_miss_nothing_at_twenty_megabits() {
    let frame = Duration::from_micros(16_667);
    let path = Path::new(20e6, 30, 250);
    let scenario = Scenario { handling: Handling::Frames([frame; 2]), ..bulk(path, 1_250_000.0) };
    let mut world = World::new(&scenario, 1, |flow| congestion(Rule::None, &scenario, flow));
    let mut heard = std::collections::BTreeSet::new();
    let end = Instant::from_start(Duration::from_secs(10));
    let mut arrived = 0;
    while let Some(Reverse(next)) = world.events.pop() {
        while let Some(departure) = world.link.next_departure().filter(|departure| *departure <= next.at) {
            world.now = departure;
            world.depart();
        }
        world.now = next.at;
        if next.at > end {
            break;
        }
        match next.event {
            Event::ReportArrival(_, report) => heard.extend(report.arrived().map(|sequence| sequence.0)),
            Event::Arrival(_) => arrived += 1,
            _ => {}
        }
        world.happen(next.event);
    }
    assert!(arrived > 5000, "{arrived}");
    assert!(arrived - heard.len() < 200, "{} of {arrived} packets were reported", heard.len());
}

#[test]
fn packets_overtake_each_other_only_where_they_may() {
    let overtakes = |jitter| {
        let path = Path { jitter, ..Path::new(4e6, 50, 250) };
        let scenario = bulk(path, 400_000.0);
        let mut link = Link::new(&scenario.path, scenario.duration, 1);
        let arrivals: Vec<Instant> =
            (0..1000).filter_map(|packet| link.forward(Instant::from_start(Duration::from_millis(packet)))).collect();
        arrivals.windows(2).filter(|pair| pair[1] < pair[0]).count()
    };
    assert_eq!(overtakes(Jitter::None), 0);
    assert_eq!(overtakes(Jitter::InOrder(Duration::from_millis(10))), 0);
    assert!(overtakes(Jitter::Reordering(Duration::from_millis(10))) > 100);
}

#[test]
fn reports_come_in_the_rhythm_that_was_asked_for() {
    let rhythm = Rhythm { every: Duration::from_millis(100), packets: u32::MAX };
    let scenario = Scenario { rhythm, ..bulk(Path::new(4e6, 50, 250), 250_000.0) };
    let mut world = World::new(&scenario, 1, |flow| congestion(Rule::None, &scenario, flow));
    let mut reports = 0;
    while let Some(Reverse(next)) = world.events.pop().filter(|next| next.0.at < Instant::from_start(scenario.duration))
    {
        while let Some(departure) = world.link.next_departure().filter(|departure| *departure <= next.at) {
            world.now = departure;
            world.depart();
        }
        world.now = next.at;
        reports += usize::from(matches!(next.event, Event::ReportArrival(..)));
        world.happen(next.event);
    }
    assert!((195..=200).contains(&reports), "{reports} in 20 s");
}

#[test]
fn names_of_scenarios_are_their_own() {
    let names: std::collections::BTreeSet<String> = all().into_iter().map(|scenario| scenario.name).collect();
    assert_eq!(names.len(), all().len());
    assert_eq!(names.len(), 53);
}
