use slipgate_sim::{Discipline, Loss, PolicerConfig, Share};

use super::*;
use crate::controllers::{ControllerKind, congestion};
use crate::measure::{Figures, measure};
use crate::path::{DelayVariation, PathSpec};
use crate::report::ReportPolicy;
use crate::scenarios::{all, alone};
use crate::source::{Game, Source};

fn play(scenario: &Scenario) -> Figures {
    measure(scenario, &Simulation::new(scenario, 1, |flow| congestion(ControllerKind::None, scenario, flow)).play().log)
}

fn bulk(path: PathSpec, offer: f64) -> Scenario {
    Scenario { offer, duration: Duration::from_secs(20), ..alone("T", "test", path, Source::Bulk) }
}

#[test]
fn overload_fills_the_buffer_and_drops_the_excess() {
    // The load is 125 % of the capacity: a fifth of it is dropped, and the buffer of 250 ms stays full.
    let figures = play(&bulk(PathSpec::new(4e6, 50, 250), 1.25 * 500_000.0));
    assert!((figures.served - 1.0).abs() < 0.01, "{figures:?}");
    assert!((245.0..=250.0).contains(&figures.p95_ms), "{figures:?}");
    assert!((0.17..0.21).contains(&figures.dropped), "{figures:?}");
}

#[test]
fn half_load_has_no_queueing_delay() {
    let figures = play(&bulk(PathSpec::new(4e6, 50, 250), 250_000.0));
    assert!((figures.served - 0.5).abs() < 0.01, "{figures:?}");
    assert_eq!((figures.p95_ms, figures.dropped), (0.0, 0.0));
}

#[test]
fn random_loss_does_not_reduce_the_served_share() {
    let path = PathSpec { loss: Loss::Random(Share::percent(20.0)), ..PathSpec::new(4e6, 50, 250) };
    let scenario = alone("T", "test", path, Source::Game(Game::of(1e6)));
    let figures = play(&scenario);
    assert!((figures.served - 1.0).abs() < 0.02, "{figures:?}");
}

#[test]
fn policer_drops_without_delay() {
    let policer = Some(PolicerConfig { rate: 250_000.0, bucket: 20_000.0 });
    let figures = play(&bulk(PathSpec { policer, ..PathSpec::new(10e6, 50, 250) }, 312_500.0));
    assert!((0.18..0.21).contains(&figures.dropped) && figures.p95_ms < 1.0, "{figures:?}");
    assert!((figures.served - 1.0).abs() < 0.01, "{figures:?}");
}

#[test]
fn codel_keeps_the_queue_of_cubic_short() {
    let path = PathSpec { discipline: Discipline::CoDel, ..PathSpec::new(10e6, 40, 250) };
    let scenario = Scenario { duration: Duration::from_secs(20), ..alone("T", "test", path, Source::Bulk) };
    let cubic = Simulation::new(&scenario, 1, |flow| congestion(ControllerKind::Cubic, &scenario, flow)).play();
    let figures = measure(&scenario, &cubic.log);
    assert!(figures.p95_ms < 30.0 && figures.served > 0.8, "{figures:?}");
}

#[test]
fn reports_in_frames_miss_nothing_at_twenty_megabits() {
    let frame = Duration::from_micros(16_667);
    let path = PathSpec::new(20e6, 30, 250);
    let scenario = Scenario { polling: SocketPolling::PerFrame([frame; 2]), ..bulk(path, 1_250_000.0) };
    let mut world = Simulation::new(&scenario, 1, |flow| congestion(ControllerKind::None, &scenario, flow));
    let mut reported = std::collections::BTreeSet::new();
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
            Event::ReportArrival(_, report) => reported.extend(report.arrived().map(|sequence| sequence.0)),
            Event::Arrival(_) => arrived += 1,
            _ => {}
        }
        world.process(next.event);
    }
    assert!(arrived > 5000, "{arrived}");
    assert!(arrived - reported.len() < 200, "{} of {arrived} packets were reported", reported.len());
}

#[test]
fn only_reordering_jitter_reorders_packets() {
    let overtakes = |jitter| {
        let path = PathSpec { jitter, ..PathSpec::new(4e6, 50, 250) };
        let scenario = bulk(path, 400_000.0);
        let mut link = PathSimulation::new(&scenario.path, scenario.duration, 1);
        let arrivals: Vec<Instant> =
            (0..1000).filter_map(|packet| link.forward(Instant::from_start(Duration::from_millis(packet)))).collect();
        arrivals.windows(2).filter(|pair| pair[1] < pair[0]).count()
    };
    assert_eq!(overtakes(DelayVariation::None), 0);
    assert_eq!(overtakes(DelayVariation::InOrder(Duration::from_millis(10))), 0);
    assert!(overtakes(DelayVariation::Reordering(Duration::from_millis(10))) > 100);
}

#[test]
fn reports_follow_the_ack_policy() {
    let ack_policy = ReportPolicy { every: Duration::from_millis(100), packets: u32::MAX };
    let scenario = Scenario { ack_policy, ..bulk(PathSpec::new(4e6, 50, 250), 250_000.0) };
    let mut world = Simulation::new(&scenario, 1, |flow| congestion(ControllerKind::None, &scenario, flow));
    let mut reports = 0;
    while let Some(Reverse(next)) = world.events.pop().filter(|next| next.0.at < Instant::from_start(scenario.duration))
    {
        while let Some(departure) = world.link.next_departure().filter(|departure| *departure <= next.at) {
            world.now = departure;
            world.depart();
        }
        world.now = next.at;
        reports += usize::from(matches!(next.event, Event::ReportArrival(..)));
        world.process(next.event);
    }
    assert!((195..=200).contains(&reports), "{reports} in 20 s");
}

#[test]
fn equal_flows_empty_a_buffer_that_they_filled() {
    // In these seeds the last of eight flows starts while the others have a queue, so its base delay is too long. The
    // others lose their shares, take it for cross traffic, and fill the buffer.
    let eight = all().into_iter().find(|scenario| scenario.name == "J2").unwrap();
    let [early, late] = [(24, 34), (64, 84)].map(|(from, until)| {
        let [counts_from, duration] = [from, until].map(Duration::from_secs);
        Scenario { counts_from, duration, ..eight.clone() }
    });
    let mut full = 0;
    for seed in [39, 97, 165] {
        let [filled, emptied] = [&early, &late].map(|scenario| {
            let simulation = Simulation::new(scenario, seed, |flow| congestion(ControllerKind::Glide, scenario, flow));
            measure(scenario, &simulation.play().log)
        });
        full += u32::from(filled.p95_ms > 200.0);
        assert!(emptied.p95_ms < 60.0 && emptied.fairness > Some(0.8), "seed {seed}: {emptied:?}");
    }
    assert!(full > 0, "no seed filled the buffer, so the test shows nothing");
}

#[test]
fn scenario_names_are_unique() {
    let names: std::collections::BTreeSet<String> = all().into_iter().map(|scenario| scenario.name).collect();
    assert_eq!(names.len(), all().len());
    assert_eq!(names.len(), 53);
}
