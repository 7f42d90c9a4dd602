//! The throughput of honest uploads with the default budgets and without budgets.

use slipgate_tests::uploads::{UploadBudgets, UploadKind, Uploads};

/// The bytes of each client.
const BYTES: usize = 32 << 20;
/// The goal: the throughput with budgets in relation to that without.
const MIN_SHARE: f64 = 0.5;

/// Prints the throughput of uploads. Returns whether all goals were met.
pub(crate) fn run() -> bool {
    println!("| upload | clients | Mbit/s without budgets | with budgets | share | refused | ends | goal |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut all_met = true;
    for kind in [UploadKind::Transfer, UploadKind::Ordered] {
        for clients in [1, 4] {
            let uploads = Uploads { kind, clients, bytes: BYTES };
            let [without, with] =
                [UploadBudgets::Unlimited, UploadBudgets::Default].map(|budgets| uploads.run(budgets));
            let [fast, limited] =
                [&without, &with].map(|outcome| (clients * BYTES * 8) as f64 / outcome.time.as_secs_f64() / 1e6);
            let share = limited / fast;
            let is_met = share >= MIN_SHARE && without.is_complete && with.is_complete;
            all_met &= is_met;
            println!(
                "| {kind:?} | {clients} | {fast:.0} | {limited:.0} | {share:.2} | {} | {:?} | >= {MIN_SHARE}, all \
                 arrives: {} |",
                with.refused,
                with.ends,
                if is_met { "yes" } else { "NO" },
            );
            eprintln!("{without:?}\n{with:?}");
        }
    }
    all_met
}
