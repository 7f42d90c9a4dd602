//! The time of honest mints by `slipgate-token-issuer` while other connections attack it, beside the quiet time;
//! and the cost of a token beside a bare HTTP handler, plain and with TLS.
//!
//! `cargo bench -p slipgate-cli --bench issuer` runs all; `-- slow` the attacks with "slow" in their names, `-- cost`
//! only the cost; `--compete` lets the attack take the processor time that it wants. Rounds without and with the attack
//! alternate. Half of the mints open a new connection, the others keep theirs alive. It fails if the 99th percentile in
//! the worst of three runs of an attack is above 3 times the quiet one. A run on a loaded machine is not judged.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed benchmark panics")]

#[cfg(target_os = "linux")]
mod attacks;
#[cfg(target_os = "linux")]
mod cost;
#[cfg(target_os = "linux")]
mod honest;
#[cfg(target_os = "linux")]
mod requests;
#[cfg(target_os = "linux")]
mod tls;

#[cfg(target_os = "linux")]
use honest::GoalOutcome;

#[cfg(target_os = "linux")]
#[allow(dead_code, reason = "the tests of the programs use more of it")]
#[path = "../../tests/programs/issuer/program.rs"]
mod program;

#[cfg(target_os = "linux")]
fn main() {
    if std::env::args().any(|word| word == cost::SERVE_BARE) {
        return cost::serve_bare();
    }
    let words: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_named = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    if is_named("cost") {
        cost::run();
        println!();
    }
    println!(
        "Attack | connections | p50 ms, quiet | p99 ms, quiet | p99 ratio, worst of {} runs | not judged | max ms | \
         failed | issuer's cores",
        honest::RUNS
    );
    println!("--- | --- | --- | --- | --- | --- | --- | --- | ---");
    let attacks = attacks::ATTACKS.iter().filter(|attack| is_named(attack.name));
    let outcomes: Vec<_> = attacks.map(|attack| (attack.name, honest::run(attack))).collect();
    let names = |wanted| {
        let names: Vec<_> = outcomes.iter().filter(|(_, outcome)| *outcome == wanted).map(|(name, _)| *name).collect();
        names.join("; ")
    };
    let (missed, not_judged) = (names(GoalOutcome::Missed), names(GoalOutcome::NotJudged));
    if !not_judged.is_empty() {
        println!("\nNot judged, because the quiet p99 of a run is above {} ms: {not_judged}.", honest::MAX_QUIET);
    }
    if !missed.is_empty() {
        println!("\nThe p99 ratio is above {} in a run: {missed}.", honest::MAX_RATIO);
        std::process::exit(1);
    }
    println!("\nThe p99 ratio of each other attack is at most {} in each run.", honest::MAX_RATIO);
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("this benchmark needs Linux: the attacks come from several addresses of 127.0.0.0/8");
}
