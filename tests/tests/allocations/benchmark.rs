//! The peers of the benchmark work: each of them replies to every client, so that its column cannot fail unnoticed.

use slipgate_bench::flags::BenchFlags;
use slipgate_bench::measures::{connects, echo, tick};
use slipgate_bench::row::{BenchRow, Cell};
use slipgate_bench::run;
use slipgate_bench::runner::{Effort, Runner};
use slipgate_bench::server_thread::AllocationProbe;
use slipgate_tests::counting;

#[path = "../../benches/datapath/peers/mod.rs"]
mod peers;

const CLIENTS: usize = 8;

fn assert_figures(row: &BenchRow, figures: usize) {
    let with =
        row.cells.iter().filter(|cell| matches!(cell, Cell::Rounds(rounds) if rounds.iter().all(|it| *it > 0.0)));
    assert_eq!(with.count(), figures, "{row:?}");
}

#[test]
fn every_peer_echoes_ticks_and_admits_clients() {
    let probe = AllocationProbe { allocations: counting::allocation_count, bytes: counting::bytes };
    let setup = run::setup(Effort::Smoke, 1, &peers::ALL, Some(probe)).unwrap();
    let mut runner = Runner::full(&setup, CLIENTS);
    assert_figures(&echo::measure(&setup, &mut runner, CLIENTS), 7);
    tick::measure(&setup, &mut runner, CLIENTS, 4).iter().for_each(|row| assert_figures(row, 7));
    assert_figures(&slipgate_bench::measures::memory::measure(&mut runner, CLIENTS), 5);
    assert_figures(&connects::measure(&setup), 5);
}

#[test]
fn our_echo_does_not_allocate() {
    let probe = AllocationProbe { allocations: counting::allocation_count, bytes: counting::bytes };
    let setup = run::setup(Effort::Smoke, 1, &[], Some(probe)).unwrap();
    let mut runner = Runner::full(&setup, CLIENTS);
    let _warm = echo::measure(&setup, &mut runner, CLIENTS);
    let row = echo::allocations(&setup, &mut runner, CLIENTS);
    assert_eq!(row.cells[0], Cell::Rounds(vec![0.0]));
}

#[test]
fn peer_without_capacity_has_an_empty_cell_with_a_reason() {
    let setup = run::setup(Effort::Smoke, 1, &peers::ALL[..1], None).unwrap();
    let row = echo::measure(&setup, &mut Runner::full(&setup, 257), 257);
    assert_eq!(row.cells[4], Cell::Blank("at most 256 clients".into()));
    assert_figures(&row, 4);
}

#[test]
fn every_row_reports_all_rounds_or_the_missing_ones() {
    let probe = AllocationProbe { allocations: counting::allocation_count, bytes: counting::bytes };
    let setup = run::setup(Effort::Smoke, 5, &[], Some(probe)).unwrap();
    let flags = BenchFlags { quick: true, clients: vec![64, 256], ..BenchFlags::default() };
    let rows = run::rows(&setup, &flags).unwrap();
    let (names, text) =
        (rows.iter().map(|row| row.what.clone()).collect::<Vec<_>>(), run::report(&setup, rows.clone()).text());
    assert!(text.contains("Medians of 5 rounds") && names.len() > 30, "{names:?}");
    for row in rows {
        let lengths = row.cells.iter().map(|cell| cell.rounds().len()).filter(|rounds| *rounds > 0);
        let has_all = lengths.min().is_none_or(|rounds| rounds >= 5);
        assert_eq!(!has_all, text.contains(&format!("| {}, once ", row.what)), "{row:?}");
    }
}
