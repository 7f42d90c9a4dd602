//! Honest clients that upload as fast as they can are not taken for floods.

use slipgate_tests::uploads::{UploadBudgets, UploadKind, Uploads};

/// Asserts that all uploads arrive and that no client is disconnected, with the default budgets.
fn assert_complete(kind: UploadKind) {
    let uploads = Uploads { kind, clients: 4, bytes: 16 << 20 };
    let outcome = uploads.run(UploadBudgets::Default);
    println!("{kind:?}: {outcome:?}");
    assert_eq!(outcome.ends, [], "{kind:?}");
    assert!(outcome.is_complete, "{kind:?}: {outcome:?}");
}

#[test]
fn fast_transfers_of_four_clients_are_no_floods() {
    assert_complete(UploadKind::Transfer);
}

#[test]
fn fast_ordered_streams_of_four_clients_are_no_floods() {
    assert_complete(UploadKind::Ordered);
}
