//! The scenarios of the table.

use core::time::Duration;

use slipgate_sim::{Discipline, Loss, PolicerConfig, Share, Stalls};

use crate::path::{DelayVariation, ExtraDelay, Outage, PathSpec, RateChange};
use crate::report::ReportPolicy;
use crate::scenario::{Figure, Flow, FlowController, Scenario, SocketPolling};
use crate::source::{Game, Source};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A frame of a game that runs at 60 Hz.
const FRAME: Duration = Duration::from_micros(16_667);

/// The frame of a peer with a slightly slower clock: the two loops drift past each other within 23 s.
const DRIFTING: Duration = Duration::from_micros(16_679);

/// The reports of a session's peer: at 30 Hz, and after 16 packets.
pub const ACK_POLICY: ReportPolicy = ReportPolicy { every: Duration::from_micros(33_333), packets: 16 };

/// Returns a scenario with one measured flow from the start.
#[must_use]
pub fn alone(name: &str, title: &str, path: PathSpec, source: Source) -> Scenario {
    let offer = 1.25 * path.rate;
    Scenario {
        name: name.to_owned(),
        title: title.to_owned(),
        path,
        flows: vec![Flow { controller: FlowController::Measured, source, start: Duration::ZERO }],
        polling: SocketPolling::Prompt,
        ack_policy: ACK_POLICY,
        false_delays: false,
        duration: seconds(40),
        counts_from: seconds(5),
        offer,
        figure: None,
    }
}

fn bulk(name: &str, title: &str, path: PathSpec) -> Scenario {
    alone(name, title, path, Source::Bulk)
}

fn game(name: &str, title: &str, bits_per_second: f64, path: PathSpec) -> Scenario {
    alone(name, title, path, Source::Game(Game::of(bits_per_second)))
}

fn seed_game(name: &str, title: &str, path: PathSpec) -> Scenario {
    alone(name, title, path, Source::Game(Game::of_fiedlers_article()))
}

/// Returns the scenario with a competing flow from the tenth second on.
#[must_use]
pub fn against(controller: FlowController, scenario: Scenario) -> Scenario {
    let mut flows = scenario.flows;
    flows.push(Flow { controller, source: Source::Bulk, start: seconds(10) });
    Scenario { flows, counts_from: seconds(20), duration: seconds(60), ..scenario }
}

/// Returns the scenario with a competing flow that started ten seconds earlier.
fn joining(controller: FlowController, scenario: Scenario) -> Scenario {
    let mut flows: Vec<Flow> =
        scenario.flows.iter().map(|flow| Flow { start: flow.start + seconds(10), ..*flow }).collect();
    flows.push(Flow { controller, source: Source::Bulk, start: Duration::ZERO });
    Scenario { flows, counts_from: seconds(15), duration: seconds(40), ..scenario }
}

/// Returns all scenarios of the table.
#[must_use]
pub fn all() -> Vec<Scenario> {
    [
        alone_on_a_path(),
        losses(),
        satellites(),
        rate_drops(),
        rivals(),
        radio(),
        route_changes(),
        policers_and_cross_traffic(),
        frame_loops(),
        transfers(),
        outages(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn alone_on_a_path() -> Vec<Scenario> {
    vec![
        bulk("A1", "bulk, 10M, 40 ms", PathSpec::new(10e6, 40, 250)),
        bulk("A2", "bulk, 4M, 50 ms, short buffer", PathSpec::new(4e6, 50, 50)),
        bulk("A3", "bulk, 4M, 50 ms, buffer of 2 s", PathSpec::new(4e6, 50, 2000)),
        bulk("A4", "bulk, 1M, 40 ms", PathSpec::new(1e6, 40, 1000)),
        bulk("A5", "bulk, 256k, 60 ms", PathSpec::new(256e3, 60, 1000)),
        Scenario { duration: seconds(30), ..bulk("A6", "bulk, 100M, 20 ms", PathSpec::new(100e6, 20, 50)) },
        seed_game("B1", "game of 61k on 4M", PathSpec::new(4e6, 50, 250)),
        game("B2", "game of 1M on 4M", 1e6, PathSpec::new(4e6, 50, 250)),
    ]
}

/// Returns loss of this percentage of packets, in bursts of four packets on average.
fn bursts_of_four(percent: f64) -> Loss {
    Loss::bursts(Share::percent(percent), 4.0).unwrap_or(Loss::NONE)
}

fn losses() -> Vec<Scenario> {
    let bursts = PathSpec { loss: bursts_of_four(15.0), loss_from: seconds(20), ..PathSpec::new(10e6, 60, 250) };
    vec![
        game("C1", "5 % loss, game of 1M on 10M", 1e6, PathSpec::new(10e6, 60, 250).losing(Share::percent(5.0))),
        game("C2", "10 % loss, game of 1M on 10M", 1e6, PathSpec::new(10e6, 60, 250).losing(Share::percent(10.0))),
        game("C3", "20 % loss, game of 1M on 10M", 1e6, PathSpec::new(10e6, 60, 250).losing(Share::percent(20.0))),
        bulk("C4", "5 % loss, bulk, 4M", PathSpec::new(4e6, 60, 250).losing(Share::percent(5.0))),
        bulk("C5", "20 % loss, bulk, 4M", PathSpec::new(4e6, 60, 250).losing(Share::percent(20.0))),
        Scenario {
            duration: seconds(60),
            ..game("C6", "from 20 s on 15 % loss in bursts, game of 1M on 10M", 1e6, bursts)
        },
    ]
}

fn satellites() -> Vec<Scenario> {
    let rain = PathSpec {
        loss: bursts_of_four(0.5),
        jitter: DelayVariation::InOrder(ms(10)),
        ..PathSpec::new(25e6, 540, 600)
    };
    let source = Source::GameAndTransfer { game: Game::of(256e3), from: seconds(5), bytes: 4e6, again: None };
    let transfer = alone("D4", "satellite, 540 ms, 0.5 % lost in bursts, game of 256k and 4 MB, 25M", rain, source);
    vec![
        seed_game("D0", "satellite, 300 ms, game of 61k", PathSpec::new(10e6, 300, 300)),
        game("D1", "satellite, 300 ms, game of 1M on 10M", 1e6, PathSpec::new(10e6, 300, 300)),
        Scenario { duration: seconds(60), ..bulk("D2", "satellite, 300 ms, bulk, 4M", PathSpec::new(4e6, 300, 300)) },
        game("D3", "satellite, 600 ms, game of 250k on 2M", 0.25e6, PathSpec::new(2e6, 600, 600)),
        Scenario { duration: seconds(60), figure: Some(Figure::Transfer), ..transfer },
    ]
}

fn rate_drops() -> Vec<Scenario> {
    let (from, until) = (seconds(30), seconds(60));
    let path = || PathSpec {
        change: RateChange::Steps(vec![(from, 0.5e6 / 8.0), (until, 4e6 / 8.0)]),
        ..PathSpec::new(4e6, 50, 500)
    };
    let falling = |scenario: Scenario| Scenario {
        duration: seconds(90),
        offer: 3.5e6 / 8.0,
        figure: Some(Figure::Drop { from, until }),
        ..scenario
    };
    let returns = seconds(50);
    let deep = || PathSpec {
        change: RateChange::Steps(vec![(from, 4e6 / 240.0), (returns, 4e6 / 8.0)]),
        ..PathSpec::new(4e6, 50, 500)
    };
    let deeply =
        |scenario: Scenario| Scenario { figure: Some(Figure::Drop { from, until: returns }), ..falling(scenario) };
    vec![
        falling(bulk("E1", "4M, for 30 s 0.5M, bulk", path())),
        falling(game("E2", "4M, for 30 s 0.5M, game of 2M", 2e6, path())),
        deeply(bulk("E3", "4M, for 20 s a thirtieth, bulk", deep())),
        deeply(game("E4", "4M, for 20 s a thirtieth, game of 2M", 2e6, deep())),
    ]
}

fn rivals() -> Vec<Scenario> {
    let half = |scenario: Scenario| Scenario { offer: 0.5 * scenario.path.rate, duration: seconds(90), ..scenario };
    let codel = PathSpec { discipline: Discipline::CoDel, ..PathSpec::new(10e6, 40, 250) };
    vec![
        half(against(
            FlowController::Cubic,
            bulk("F1", "bulk against CUBIC, 10M, buffer of 100 ms", PathSpec::new(10e6, 40, 100)),
        )),
        half(against(
            FlowController::Cubic,
            bulk("F2", "bulk against CUBIC, 10M, buffer of 500 ms", PathSpec::new(10e6, 40, 500)),
        )),
        against(FlowController::Cubic, game("F3", "game of 1M against CUBIC, 10M", 1e6, PathSpec::new(10e6, 40, 250))),
        against(FlowController::Cubic, game("F4", "game of 1M against CUBIC, 10M, CoDel", 1e6, codel)),
        against(
            FlowController::Cubic,
            game("F5", "game of 0.5M against CUBIC, 2M", 0.5e6, PathSpec::new(2e6, 40, 500)),
        ),
        joining(
            FlowController::Cubic,
            game("F7", "game of 1M that joins CUBIC, 10M", 1e6, PathSpec::new(10e6, 40, 250)),
        ),
        against(FlowController::Bbr, game("F6", "game of 1M against BBR, 10M", 1e6, PathSpec::new(10e6, 40, 250))),
    ]
}

fn radio() -> Vec<Scenario> {
    let stalls = Some(Stalls { every: seconds(2), shortest: ms(50), longest: ms(250) });
    let wifi = || PathSpec { stalls, jitter: DelayVariation::InOrder(ms(3)), ..PathSpec::new(20e6, 30, 500) };
    let reordering = PathSpec { jitter: DelayVariation::Reordering(ms(10)), ..PathSpec::new(4e6, 50, 250) };
    let walk = RateChange::RandomWalk { every: ms(200), factor: 1.25, low: 1e6 / 8.0, high: 8e6 / 8.0 };
    let trembling = PathSpec { jitter: DelayVariation::InOrder(ms(6)), ..PathSpec::new(50e6, 30, 100) };
    let cellular = PathSpec { change: walk, ..PathSpec::new(4e6, 50, 500) };
    vec![
        game("G1", "Wi-Fi with stalls, 20M, game of 2M", 2e6, wifi()),
        bulk("G2", "Wi-Fi with stalls, 20M, bulk", wifi()),
        bulk("G3", "jitter of 10 ms with reordering, bulk, 4M", reordering),
        Scenario { duration: seconds(60), ..bulk("G4", "cellular, 1M to 8M, bulk", cellular) },
        bulk("G5", "jitter of up to 6 ms in order, bulk, 50M", trembling),
    ]
}

fn route_changes() -> Vec<Scenario> {
    let back = ExtraDelay { from: seconds(20), until: seconds(40), extra: ms(300) };
    let forward = ExtraDelay { from: seconds(20), until: seconds(3600), extra: ms(80) };
    let behind = PathSpec { extra_delay_back: Some(back), ..PathSpec::new(4e6, 50, 250) };
    let longer = || PathSpec { extra_delay: Some(forward), ..PathSpec::new(4e6, 50, 250) };
    let lasting = |scenario| Scenario { duration: seconds(60), ..scenario };
    vec![
        lasting(game("H1", "for 20 s +300 ms on the way back, game of 1M on 4M", 1e6, behind)),
        lasting(game("H2", "from 20 s on +80 ms, game of 1M on 4M", 1e6, longer())),
        lasting(bulk("H3", "from 20 s on +80 ms, bulk, 4M", longer())),
    ]
}

fn policers_and_cross_traffic() -> Vec<Scenario> {
    let config = PolicerConfig { rate: 2e6 / 8.0, bucket: 20_000.0 };
    let policed = PathSpec { policer: Some(config), ..PathSpec::new(10e6, 40, 250) };
    let policed = bulk("I1", "policer of 2M, bulk", policed);
    let constant = FlowController::Constant { rate: 2e6 / 8.0, period: seconds(5) };
    let cross = bulk("J1", "bulk, 4M, against a constant 2M, 5 s on and 5 s off", PathSpec::new(4e6, 50, 250));
    let flows = (0..8).map(|flow| Flow {
        controller: FlowController::Measured,
        source: Source::Bulk,
        start: seconds(3 * flow),
    });
    let eight = bulk("J2", "eight equal flows, 8M", PathSpec::new(8e6, 40, 500));
    vec![
        Scenario { offer: 1.25 * config.rate, figure: Some(Figure::Drops), ..policed },
        Scenario { counts_from: seconds(10), ..against(constant, cross) },
        Scenario {
            flows: flows.collect(),
            offer: eight.offer / 8.0,
            counts_from: seconds(30),
            duration: seconds(90),
            figure: Some(Figure::Fairness),
            ..eight
        },
    ]
}

fn frame_loops() -> Vec<Scenario> {
    let reads = SocketPolling::ReadsPerFrame(FRAME);
    let slow = ReportPolicy { every: ms(100), packets: u32::MAX };
    let four = || PathSpec::new(4e6, 50, 250);
    let reading = bulk("K1", "sockets read each 16.7 ms, bulk, 4M", four());
    let rare = bulk("K2", "10 acknowledgements per second, bulk, 4M", four());
    let sending = bulk("K3", "everything in frames of 16.7 ms, bulk, 4M", four());
    let fast = bulk("K4", "everything in frames of 16.7 ms, bulk, 20M", PathSpec::new(20e6, 30, 250));
    let lan = || PathSpec { round_trip: Duration::from_micros(200), ..PathSpec::new(1e9, 0, 20) };
    let near = game("K5", "drifting frames, game of 256k in one network", 256e3, lan());
    let far = game("K6", "drifting frames, game of 1M, 20M", 1e6, PathSpec::new(20e6, 30, 250));
    let source = Source::GameAndTransfer { game: Game::of(64e3), from: seconds(10), bytes: 4e6, again: None };
    let large = alone("K7", "drifting frames, game of 64k and 4 MB in one network", lan(), source);
    let large = Scenario { figure: Some(Figure::Transfer), ..large };
    vec![
        Scenario { polling: reads, ..reading },
        Scenario { ack_policy: slow, ..rare },
        Scenario { polling: SocketPolling::PerFrame([FRAME; 2]), ..sending },
        Scenario { polling: SocketPolling::PerFrame([FRAME; 2]), ..fast },
        Scenario { polling: SocketPolling::PerFrame([FRAME, DRIFTING]), ..near },
        Scenario { polling: SocketPolling::PerFrame([FRAME, DRIFTING]), ..far },
        Scenario { polling: SocketPolling::PerFrame([FRAME, DRIFTING]), ..large },
    ]
}

fn transfers() -> Vec<Scenario> {
    let game = Game::of(64e3);
    let transferring = |again| Source::GameAndTransfer { game, from: seconds(10), bytes: 4e6, again };
    let path = PathSpec::new(20e6, 40, 250);
    let once = alone("L1", "game of 64k, from 10 s on a transfer of 4 MB, 20M", path, transferring(None));
    let path = PathSpec::new(10e6, 600, 600);
    let title = "game of 64k, after 10 s and 40 s a transfer of 4 MB, 10M, 600 ms";
    let twice = alone("L2", title, path, transferring(Some(seconds(40))));
    vec![
        Scenario { duration: seconds(35), figure: Some(Figure::Transfer), ..once },
        Scenario { duration: seconds(65), figure: Some(Figure::Transfer), ..twice },
    ]
}

fn outages() -> Vec<Scenario> {
    let from = seconds(15);
    let with_outage = |lasts, scenario: Scenario| {
        let outage = Outage { from, until: from + lasts };
        let path = PathSpec { outage: Some(outage), ..PathSpec::new(4e6, 50, 500) };
        Scenario { path, duration: outage.until + seconds(15), figure: Some(Figure::Outage(outage)), ..scenario }
    };
    let path = || PathSpec::new(4e6, 50, 500);
    vec![
        with_outage(seconds(2), bulk("M1", "outage of 2 s, bulk, 4M", path())),
        with_outage(seconds(6), bulk("M2", "outage of 6 s, bulk, 4M", path())),
        with_outage(seconds(6), game("M3", "outage of 6 s, game of 1M on 4M", 1e6, path())),
    ]
}
