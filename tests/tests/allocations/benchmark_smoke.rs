//! Every measurement runs, as short as possible: we and the plain echoes yield figures, and the table holds them.

use slipgate_bench::channels::CHANNELS;
use slipgate_bench::driver_socket::{DriverSockets, GsoDelivery};
use slipgate_bench::figures::median;
use slipgate_bench::measures::flood::FloodKind;
use slipgate_bench::measures::rejects::{Filter, Hostile};
use slipgate_bench::measures::{connects, echo, flood, idle, joined, real_time, rejects, seals, shards, tick};
use slipgate_bench::row::{Baseline, BenchRow, Cell, ColumnRole, FigureLimit};
use slipgate_bench::run;
use slipgate_bench::runner::{Effort, Runner, Setup, TestBed};

const CLIENTS: usize = 8;

fn setup() -> Setup {
    run::setup(Effort::Smoke, 1, &[], None).expect("cores and sockets are available")
}

/// The times that a measurement in real time is repeated on a machine that is too busy for its load.
const ATTEMPTS: usize = 10;

/// Repeats a measurement in real time until each of these columns has a figure.
fn undisturbed(measure: impl Fn() -> Vec<BenchRow>, who: &[ColumnRole], setup: &Setup) -> Vec<BenchRow> {
    let is_blank = |row: &BenchRow| {
        let mut columns = setup.subjects.iter().zip(&row.cells);
        columns.any(|(subject, cell)| who.contains(&subject.role) && matches!(cell, Cell::Blank(_)))
    };
    let mut attempts = core::iter::repeat_with(measure).take(ATTEMPTS);
    attempts.find(|rows| !rows.iter().any(is_blank)).expect("a measurement without blank cells")
}

/// Asserts that each of these has a figure above zero.
fn assert_figures(setup: &Setup, row: &BenchRow, who: &[ColumnRole]) {
    for (subject, cell) in setup.subjects.iter().zip(&row.cells) {
        if who.contains(&subject.role) {
            let figure = median(cell.rounds()).unwrap_or_default();
            assert!(figure > 0.0 && figure.is_finite(), "{}, {}: {cell:?}", row.what, subject.name);
        }
    }
}

#[test]
fn echo_reports_our_figures_and_the_baselines() {
    let setup = setup();
    let mut runner = Runner::full(&setup, CLIENTS);
    let row = echo::measure(&setup, &mut runner, CLIENTS);
    assert_figures(&setup, &row, &[ColumnRole::Ours, ColumnRole::Channels, ColumnRole::Plain, ColumnRole::Batched]);
    let report = run::report(&setup, vec![row]);
    assert!(report.text().contains("echo, 8 clients"), "{}", report.text());
    assert!(report.json().unwrap().contains("\"us/pair\""));
}

#[test]
fn burst_replies_to_every_datagram_of_every_client() {
    let setup = Setup { burst: 3, ..setup() };
    let mut runner = Runner::full(&setup, CLIENTS);
    let [received] = runner.play(|test_bed| Ok([echo::echo(test_bed, CLIENTS, 3)?.1 as f64]));
    assert_eq!(received, vec![Cell::Rounds(vec![CLIENTS as f64]); 4]);
}

#[test]
fn turns_longer_than_ticks_do_not_throttle_clients() {
    // Clients of a work load of some seconds, and half a second of the benchmark's own time.
    const MANY: usize = 1000;
    const TICKS: usize = 30;
    let setup = setup();
    let mut test_bed = TestBed::full(&setup, CHANNELS, MANY).unwrap();
    let (cost, received) = echo::echo(&mut test_bed, MANY * TICKS, setup.burst).unwrap();
    assert_eq!(received, (MANY * TICKS) as u64, "{cost:?}");
}

#[test]
fn many_and_few_clients_are_compared_in_the_same_rounds() {
    let setup = Setup { rounds: 2, ..setup() };
    let row = echo::measure_with_baseline(&setup, &mut Runner::full(&setup, CLIENTS), CLIENTS, 2).unwrap();
    let Baseline::Ours { named, rounds } = &row.targets[0].baseline else { panic!("{:?}", row.targets) };
    assert_eq!((named.as_str(), rounds.len()), ("echo, 2 clients", 2));
    assert!(rounds.iter().all(|figure| *figure > 0.0), "{rounds:?}");
}

#[test]
fn ticks_idle_turns_and_rejects_report_figures() {
    let setup = setup();
    let mut runner = Runner::full(&setup, CLIENTS);
    for row in tick::measure(&setup, &mut runner, CLIENTS, 4) {
        assert_figures(&setup, &row, &[ColumnRole::Ours, ColumnRole::Channels, ColumnRole::Plain, ColumnRole::Batched]);
    }
    assert_figures(&setup, &idle::measure(&setup, &mut runner, CLIENTS), &[ColumnRole::Ours]);
    for hostile in Hostile::ALL {
        let row = rejects::measure(&setup, &mut runner, hostile, Filter::Off);
        assert_figures(&setup, &row, &[ColumnRole::Ours, ColumnRole::Plain, ColumnRole::Batched]);
        let row = rejects::measure(&setup, &mut runner, hostile, Filter::On);
        assert_figures(&setup, &row, &[ColumnRole::Plain, ColumnRole::Batched]);
    }
}

#[test]
fn filter_cost_is_compared_with_an_empty_turn() {
    let setup = Setup { rounds: 2, ..setup() };
    let mut runner = Runner::full(&setup, CLIENTS);
    let mut empty = |hostile| {
        let row = rejects::measure(&setup, &mut runner, hostile, Filter::On);
        let [absolute, relative] = &row.targets[..] else { panic!("{:?}", row.targets) };
        assert_eq!((&absolute.baseline, absolute.limit), (&Baseline::Itself, FigureLimit::AtMost(0.1)));
        let Baseline::Ours { rounds, .. } = &relative.baseline else { panic!("{:?}", row.targets) };
        assert_eq!((rounds.len(), relative.limit), (2, FigureLimit::AtMost(1.2)));
        let plain = row.cells[2].rounds().to_vec();
        (rounds.clone(), plain)
    };
    assert!(empty(Hostile::WrongVersion).0.iter().all(|round| *round > 0.0));
    let (junk, plain) = empty(Hostile::Junk);
    // The share that passes, one in 32, is within the limit.
    assert!(junk.iter().zip(plain).all(|(limit, plain)| *limit > plain * 1.1 / 32.0));
}

#[test]
fn quick_run_measures_all_rounds_of_a_flood() {
    let setup = Setup { rounds: 5, effort: Effort::Quick, ..setup() };
    for row in flood::measure(&setup, FloodKind::Clients) {
        match &row.cells[0] {
            Cell::Rounds(figures) => assert_eq!(figures.len(), 5, "{}", row.what),
            Cell::Blank(why) => assert!(why.contains("junk at this rate"), "{why}"),
        }
    }
}

#[test]
fn loops_in_real_time_report_figures() {
    let setup = setup();
    let ours = [ColumnRole::Ours, ColumnRole::Channels];
    let rows = undisturbed(|| real_time::measure_spread(&setup).unwrap().into_iter().collect(), &ours, &setup);
    for (row, of_events) in rows.iter().zip([false, false, true, true, true]) {
        assert_figures(&setup, row, &ours);
        assert_eq!(row.cells[2].rounds().len(), usize::from(of_events), "{}", row.what);
        assert_eq!(row.targets.len(), 1, "{}", row.what);
    }
    let all = [ColumnRole::Ours, ColumnRole::Channels, ColumnRole::Plain];
    let rows = undisturbed(|| vec![real_time::measure_closed(&setup).unwrap()], &all, &setup);
    assert_figures(&setup, &rows[0], &all);
}

#[test]
fn coalescing_clients_receive_every_datagram() {
    let setup = setup().with_sockets(DriverSockets::open(GsoDelivery::Coalesced).unwrap());
    let mut runner = Runner::full(&setup, CLIENTS);
    // A tick with missing replies has no figure.
    let [row, _] = tick::measure(&setup, &mut runner, CLIENTS, 4);
    assert_figures(&setup, &row, &[ColumnRole::Ours, ColumnRole::Channels, ColumnRole::Plain, ColumnRole::Batched]);
}

#[test]
fn every_datagram_arrives_with_and_without_coalescing() {
    let setup = setup();
    // A missing datagram is an error.
    let rows = joined::measure(&setup).unwrap();
    assert_eq!(rows.len(), 4);
    rows.iter().for_each(|row| assert_figures(&setup, row, &[ColumnRole::Batched]));
}

#[test]
fn clients_connect_disconnect_and_reconnect() {
    let setup = Setup { rounds: 3, ..setup() };
    let row = connects::measure(&setup);
    assert_figures(&setup, &row, &[ColumnRole::Ours]);
    assert_eq!(row.cells.iter().map(|cell| cell.rounds().len()).collect::<Vec<_>>(), [3, 3, 0, 0]);
}

#[test]
fn sealing_and_opening_are_compared_with_the_bare_cipher() {
    let setup = setup();
    for row in seals::measure(&setup).unwrap() {
        assert_figures(&setup, &row, &[ColumnRole::Ours, ColumnRole::Plain]);
    }
}

#[test]
fn one_and_two_shards_are_compared_in_the_same_rounds() {
    let rows = shards::measure(&setup()).unwrap();
    for row in &rows {
        assert_figures(&setup(), row, &[ColumnRole::Ours]);
    }
    let Baseline::Ours { rounds, .. } = &rows[1].targets[0].baseline else { panic!("{:?}", rows[1].targets) };
    assert_eq!(rounds.len(), 1);
}

#[test]
fn client_receives_replies_during_a_junk_flood() {
    let setup = setup();
    // A machine that is busy with other tests may be too slow for junk at this rate: then the cell reports it.
    let [share, ..] = flood::measure(&setup, FloodKind::Random);
    match &share.cells[0] {
        Cell::Rounds(figures) => assert!(figures[0] > 0.0, "{figures:?}"),
        Cell::Blank(why) => assert!(why.contains("junk at this rate"), "{why}"),
    }
}
