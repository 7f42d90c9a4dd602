//! The benchmark's peers play along: each answers every client, so that its column cannot rot unseen.

use slipgate_bench::arena::{Arena, Effort};
use slipgate_bench::flags::Flags;
use slipgate_bench::measures::{connects, echo, tick};
use slipgate_bench::row::{Cell, Row};
use slipgate_bench::run;
use slipgate_bench::stage::Probe;
use slipgate_tests::counting;

#[path = "../../benches/datapath/peers/mod.rs"]
mod peers;

const CLIENTS: usize = 8;

fn assert_figures(row: &Row, figures: usize) {
    let with =
        row.cells.iter().filter(|cell| matches!(cell, Cell::Rounds(rounds) if rounds.iter().all(|it| *it > 0.0)));
    assert_eq!(with.count(), figures, "{row:?}");
}

#[test]
fn every_peer_echoes_ticks_and_lets_clients_in() {
    let probe = Probe { allocations: counting::asked, bytes: counting::bytes };
    let rig = run::rig(Effort::Smoke, 1, &peers::ALL, Some(probe)).unwrap();
    let mut arena = Arena::full(&rig, CLIENTS);
    assert_figures(&echo::measure(&rig, &mut arena, CLIENTS), 7);
    tick::measure(&rig, &mut arena, CLIENTS, 4).iter().for_each(|row| assert_figures(row, 7));
    assert_figures(&slipgate_bench::measures::memory::measure(&mut arena, CLIENTS), 5);
    assert_figures(&connects::measure(&rig), 5);
}

#[test]
fn an_echo_of_ours_asks_for_no_memory() {
    let probe = Probe { allocations: counting::asked, bytes: counting::bytes };
    let rig = run::rig(Effort::Smoke, 1, &[], Some(probe)).unwrap();
    let mut arena = Arena::full(&rig, CLIENTS);
    let _warm = echo::measure(&rig, &mut arena, CLIENTS);
    let row = echo::allocations(&rig, &mut arena, CLIENTS);
    assert_eq!(row.cells[0], Cell::Rounds(vec![0.0]));
}

#[test]
fn who_cannot_hold_so_many_clients_has_a_blank_cell_with_the_reason() {
    let rig = run::rig(Effort::Smoke, 1, &peers::ALL[..1], None).unwrap();
    let row = echo::measure(&rig, &mut Arena::full(&rig, 257), 257);
    assert_eq!(row.cells[4], Cell::Blank("at most 256 clients".into()));
    assert_figures(&row, 4);
}

#[test]
fn every_row_has_all_rounds_or_says_that_it_has_not() {
    let probe = Probe { allocations: counting::asked, bytes: counting::bytes };
    let rig = run::rig(Effort::Smoke, 5, &[], Some(probe)).unwrap();
    let flags = Flags { quick: true, clients: vec![64, 256], ..Flags::default() };
    let rows = run::rows(&rig, &flags).unwrap();
    let (names, text) =
        (rows.iter().map(|row| row.what.clone()).collect::<Vec<_>>(), run::report(&rig, rows.clone()).text());
    assert!(text.contains("Medians of 5 rounds") && names.len() > 30, "{names:?}");
    for row in rows {
        let lengths = row.cells.iter().map(|cell| cell.rounds().len()).filter(|rounds| *rounds > 0);
        let has_all = lengths.min().is_none_or(|rounds| rounds >= 5);
        assert_eq!(!has_all, text.contains(&format!("| {}, once ", row.what)), "{row:?}");
    }
}
