//! What one flooding client costs: each of its packets, and the other clients of its server.
//!
//! `cargo bench -p slipgate-tests --bench floods` runs both parts; `-- cost` or `-- live` one of them, and
//! `-- live EmptyUnreliable Acks` only these mixes.

#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

mod cost;
mod live;

use slipgate_tests::hostile::FloodMix;

fn main() {
    let words: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let has = |word: &str| words.iter().any(|one| one == word);
    let named: Vec<_> = FloodMix::EVERY.into_iter().filter(|mix| has(&format!("{mix:?}"))).collect();
    if !has("live") {
        cost::run();
    }
    if !has("cost") {
        live::run(if named.is_empty() { &FloodMix::EVERY } else { &named });
    }
}
