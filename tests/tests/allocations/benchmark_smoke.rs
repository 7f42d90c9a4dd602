//! Every measure runs, as short as it can be: we and the plain echoes give figures, and the table holds them.

use slipgate_bench::arena::{Arena, Corner, Effort, Rig};
use slipgate_bench::channels::CHANNELS;
use slipgate_bench::figures::median;
use slipgate_bench::measures::rejects::{Filter, Hostile};
use slipgate_bench::measures::{connects, echo, flood, idle, joined, rejects, seals, shards, tick};
use slipgate_bench::port::{Ports, Rows};
use slipgate_bench::row::{Against, Cell, Limit, Role, Row};
use slipgate_bench::run;

const CLIENTS: usize = 8;

fn rig() -> Rig {
    run::rig(Effort::Smoke, 1, &[], None).expect("cores and sockets")
}

/// Each of these has a figure above zero.
fn assert_figures(rig: &Rig, row: &Row, who: &[Role]) {
    for (contestant, cell) in rig.contestants.iter().zip(&row.cells) {
        if who.contains(&contestant.role) {
            let figure = median(cell.rounds()).unwrap_or_default();
            assert!(figure > 0.0 && figure.is_finite(), "{}, {}: {cell:?}", row.what, contestant.name);
        }
    }
}

#[test]
fn an_echo_has_figures_for_us_and_the_plain_ones() {
    let rig = rig();
    let mut arena = Arena::full(&rig, CLIENTS);
    let row = echo::measure(&rig, &mut arena, CLIENTS);
    assert_figures(&rig, &row, &[Role::Ours, Role::Channels, Role::Plain, Role::Batched]);
    let report = run::report(&rig, vec![row]);
    assert!(report.text().contains("echo, 8 clients"), "{}", report.text());
    assert!(report.json().unwrap().contains("\"us/pair\""));
}

#[test]
fn every_datagram_of_every_client_is_answered_by_a_burst_that_is_shorter_than_the_clients_are_many() {
    let rig = Rig { burst: 3, ..rig() };
    let mut arena = Arena::full(&rig, CLIENTS);
    let [heard] = arena.play(|corner| Ok([echo::echo(corner, CLIENTS, 3)?.1 as f64]));
    assert_eq!(heard, vec![Cell::Rounds(vec![CLIENTS as f64]); 4]);
}

#[test]
fn where_turns_take_longer_than_ticks_clients_with_congestion_avoidance_do_not_hold_back() {
    // Some seconds' work, and half a second of the benchmark's own time.
    const MANY: usize = 1000;
    const TICKS: usize = 30;
    let rig = rig();
    let mut corner = Corner::full(&rig, CHANNELS, MANY).unwrap();
    let (spent, heard) = echo::echo(&mut corner, MANY * TICKS, rig.burst).unwrap();
    assert_eq!(heard, (MANY * TICKS) as u64, "{spent:?}");
}

#[test]
fn many_clients_are_judged_by_few_in_the_same_rounds() {
    let rig = Rig { rounds: 2, ..rig() };
    let row = echo::measure_beside(&rig, &mut Arena::full(&rig, CLIENTS), CLIENTS, 2).unwrap();
    let Against::Ours { named, rounds } = &row.targets[0].against else { panic!("{:?}", row.targets) };
    assert_eq!((named.as_str(), rounds.len()), ("echo, 2 clients", 2));
    assert!(rounds.iter().all(|figure| *figure > 0.0), "{rounds:?}");
}

#[test]
fn ticks_idle_turns_and_rejects_have_figures() {
    let rig = rig();
    let mut arena = Arena::full(&rig, CLIENTS);
    for row in tick::measure(&rig, &mut arena, CLIENTS, 4) {
        assert_figures(&rig, &row, &[Role::Ours, Role::Channels, Role::Plain, Role::Batched]);
    }
    assert_figures(&rig, &idle::measure(&rig, &mut arena, CLIENTS), &[Role::Ours]);
    for hostile in Hostile::ALL {
        let row = rejects::measure(&rig, &mut arena, hostile, Filter::Off);
        assert_figures(&rig, &row, &[Role::Ours, Role::Plain, Role::Batched]);
        let row = rejects::measure(&rig, &mut arena, hostile, Filter::On);
        assert_figures(&rig, &row, &[Role::Plain, Role::Batched]);
    }
}

#[test]
fn what_the_filter_catches_is_judged_by_an_empty_turn_of_the_same_round() {
    let rig = Rig { rounds: 2, ..rig() };
    let mut arena = Arena::full(&rig, CLIENTS);
    let mut empty = |hostile| {
        let row = rejects::measure(&rig, &mut arena, hostile, Filter::On);
        let [absolute, relative] = &row.targets[..] else { panic!("{:?}", row.targets) };
        assert_eq!((&absolute.against, absolute.limit), (&Against::Itself, Limit::AtMost(0.1)));
        let Against::Ours { rounds, .. } = &relative.against else { panic!("{:?}", row.targets) };
        assert_eq!((rounds.len(), relative.limit), (2, Limit::AtMost(1.2)));
        let plain = row.cells[2].rounds().to_vec();
        (rounds.clone(), plain)
    };
    assert!(empty(Hostile::WrongVersion).0.iter().all(|round| *round > 0.0));
    let (junk, plain) = empty(Hostile::Junk);
    // What passes, one in 32, is within the limit.
    assert!(junk.iter().zip(plain).all(|(limit, plain)| *limit > plain * 1.1 / 32.0));
}

#[test]
fn a_flood_has_all_rounds_in_a_quick_run_too() {
    let rig = Rig { rounds: 5, effort: Effort::Quick, ..rig() };
    for row in flood::measure(&rig) {
        match &row.cells[0] {
            Cell::Rounds(figures) => assert_eq!(figures.len(), 5, "{}", row.what),
            Cell::Blank(why) => assert!(why.contains("so much junk"), "{why}"),
        }
    }
}

#[test]
fn clients_that_take_rows_whole_hear_every_datagram_of_them() {
    let rig = rig().with_ports(Ports::open(Rows::Whole).unwrap());
    let mut arena = Arena::full(&rig, CLIENTS);
    // A tick in which answers are missing has no figure.
    let [row, _] = tick::measure(&rig, &mut arena, CLIENTS, 4);
    assert_figures(&rig, &row, &[Role::Ours, Role::Channels, Role::Plain, Role::Batched]);
}

#[test]
fn every_datagram_arrives_singly_and_joined() {
    let rig = rig();
    // One that is missing is an error.
    let rows = joined::measure(&rig).unwrap();
    assert_eq!(rows.len(), 4);
    rows.iter().for_each(|row| assert_figures(&rig, row, &[Role::Batched]));
}

#[test]
fn clients_connect_leave_and_connect_again() {
    let rig = Rig { rounds: 3, ..rig() };
    let row = connects::measure(&rig);
    assert_figures(&rig, &row, &[Role::Ours]);
    assert_eq!(row.cells.iter().map(|cell| cell.rounds().len()).collect::<Vec<_>>(), [3, 3, 0, 0]);
}

#[test]
fn sealing_and_opening_have_figures_beside_the_bare_cipher() {
    let rig = rig();
    for row in seals::measure(&rig).unwrap() {
        assert_figures(&rig, &row, &[Role::Ours, Role::Plain]);
    }
}

#[test]
fn one_shard_and_two_have_figures_and_are_compared_in_the_same_rounds() {
    let rows = shards::measure(&rig()).unwrap();
    for row in &rows {
        assert_figures(&rig(), row, &[Role::Ours]);
    }
    let Against::Ours { rounds, .. } = &rows[1].targets[0].against else { panic!("{:?}", rows[1].targets) };
    assert_eq!(rounds.len(), 1);
}

#[test]
fn beside_junk_a_client_is_answered() {
    let rig = rig();
    // A machine that is busy with other tests may be too slow for so much junk: then the cell says so.
    let [share, ..] = flood::measure(&rig);
    match &share.cells[0] {
        Cell::Rounds(figures) => assert!(figures[0] > 0.0, "{figures:?}"),
        Cell::Blank(why) => assert!(why.contains("so much junk"), "{why}"),
    }
}
