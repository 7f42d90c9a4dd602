//! The replay window against the decisions of the reference.

use slipgate_netcode::crypto::replay::ReplayBitmap;
use slipgate_tests::vectors::{Case, Vectors};

const FILE: &str = "netcode_replay_protection.json";

/// A window of the size of the reference: 256. Ours has four times that size and the same code.
type ReferenceWindow = ReplayBitmap<5>;

#[test]
fn replay_window_matches_the_reference_at_every_step() {
    for case in Vectors::load(FILE).cases("cases", 15) {
        assert_eq!(u64::from(case.u32("window_size_u32")), ReferenceWindow::SIZE, "{case}");
        let mut window = ReferenceWindow::default();
        for (number, step) in case.steps("steps").iter().enumerate() {
            let sequence = step.u64("sequence_u64");
            let accepted = receive(&mut window, step);
            assert_eq!(accepted, is_accept(step.text("expected")), "{case}, step {number}: sequence {sequence}");
            let newest = window.newest().unwrap_or(0);
            assert_eq!(newest, step.u64("most_recent_after_u64"), "{case}, step {number}: sequence {sequence}");
        }
    }
}

#[test]
fn reference_quirks_are_copied_or_listed_as_refused() {
    let vectors = Vectors::load(FILE);
    for case in vectors.cases("reference_quirks", 1) {
        let mut window = ReferenceWindow::default();
        let steps = case.steps("steps");
        let decisions: Vec<bool> = steps.iter().map(|step| receive(&mut window, step)).collect();
        let observed: Vec<bool> = steps.iter().map(|step| is_accept(step.text("observed"))).collect();
        let outcome = if decisions == observed { Ok(()) } else { Err(&decisions) };
        vectors.tolerate(&case, outcome);
    }
    vectors.all_refusals_were_needed();
}

/// `receive` is an authentic packet, which is marked when it is new; `test_only` is one that did not open.
fn receive(window: &mut ReferenceWindow, step: &Case<'_>) -> bool {
    let sequence = step.u64("sequence_u64");
    let mut marked = window.clone();
    let fresh = marked.mark(sequence);
    match step.text("op") {
        "receive" if fresh => *window = marked,
        "receive" | "test_only" => {}
        other => panic!("{step}: no operation {other}"),
    }
    fresh
}

fn is_accept(decision: &str) -> bool {
    match decision {
        "accept" => true,
        "reject" => false,
        other => panic!("no decision {other}"),
    }
}
