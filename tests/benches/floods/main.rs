//! What one flooding client costs: each of its packets, and the other clients of its server.
//!
//! `cargo bench -p slipgate-tests --bench floods` runs both parts; `-- cost` or `-- live` one of them. Words choose:
//! `-- live Single EmptyUnreliable Acks` is one server and two mixes, `14000` a rate of packets per second, and `36x10`
//! bursts of 36 packets with 10 ms after each. With `--check` the exit status says whether all goals were met.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its figures")]

mod cost;
mod live;

use std::process::ExitCode;

use live::{Attack, AttackPace, Kind};
use slipgate_tests::hostile::FloodMix;

fn main() -> ExitCode {
    let checks = std::env::args().any(|word| word == "--check");
    let words: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let has = |word: &str| words.iter().any(|one| one == word);
    if !has("live") {
        cost::run();
    }
    if has("cost") {
        return ExitCode::SUCCESS;
    }
    let kinds = chosen(&[Kind::Single, Kind::Sharded], &has);
    let mut paces: Vec<_> = words.iter().filter_map(|word| pace(word)).collect();
    if paces.is_empty() {
        paces.push(AttackPace::Full);
    }
    let mixes = chosen(&FloodMix::EVERY, &has);
    let attacks: Vec<_> =
        mixes.iter().flat_map(|mix| paces.iter().map(|pace| Attack { mix: *mix, pace: *pace })).collect();
    if live::run(&attacks, &kinds) || !checks { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns those that are named, or all.
fn chosen<T: Copy + std::fmt::Debug>(all: &[T], has: &impl Fn(&str) -> bool) -> Vec<T> {
    let named: Vec<_> = all.iter().copied().filter(|one| has(&format!("{one:?}"))).collect();
    if named.is_empty() { all.to_vec() } else { named }
}

fn pace(word: &str) -> Option<AttackPace> {
    match word.split_once('x') {
        Some((packets, pause)) => Some(AttackPace::Bursts(packets.parse().ok()?, pause.parse().ok()?)),
        None => word.parse().ok().map(AttackPace::PerSecond),
    }
}
