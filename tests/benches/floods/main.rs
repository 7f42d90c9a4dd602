//! What one flooding client costs: each of its packets, and the other clients of its server.
//!
//! `cargo bench -p slipgate-tests --bench floods` runs three parts; `-- cost`, `-- live` or `-- uploads` one of them.
//! Words choose: `-- live Single EmptyUnreliable Acks` is one server and two mixes, `14000` a rate of packets per
//! second, `36x10` bursts of 36 packets with 10 ms after each, `2000x350+1100` bursts with 1,100 packets within the
//! budget before each, and `8flooders` the clients that flood at the same time. `5hertz` are the messages of each
//! innocent client in a second. `3rounds` runs three rounds and prints the worst one. The exit status says whether all
//! goals were met in all rounds.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its figures")]

mod cost;
mod live;
mod uploads;

use std::process::ExitCode;
use std::time::Duration;

use live::{Attack, AttackPace, Content, Kind};

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let has = |word: &str| words.iter().any(|one| one == word);
    let parts = ["cost", "live", "uploads"];
    let runs = |part: &str| has(part) || !parts.iter().any(|part| has(part));
    if runs("cost") {
        cost::run();
    }
    let mut all_met = !runs("uploads") || uploads::run();
    if runs("live") {
        let rounds = count(&words, "rounds").max(1) as usize;
        all_met &= live::run(&attacks(&words), &chosen(&[Kind::Single, Kind::Sharded], &words), rounds);
    }
    if all_met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
/// Returns the attacks that the words choose: each mix at each pace.
fn attacks(words: &[String]) -> Vec<Attack> {
    let mut paces: Vec<_> = words.iter().filter_map(|word| pace(word)).collect();
    if paces.is_empty() {
        paces.push(AttackPace::Full);
    }
    let flooders = count(words, "flooders");
    let contents = chosen(&Content::every(), words);
    let hertz = words.iter().find_map(|word| word.strip_suffix("hertz")?.parse().ok());
    let interval = hertz.map_or(live::SEND_INTERVAL, |hertz: u32| Duration::from_secs(1) / hertz.max(1));
    let attacks = |content| paces.iter().map(move |pace| Attack { content, pace: *pace, flooders, interval });
    contents.into_iter().flat_map(attacks).collect()
}

/// Returns those that are named, or all.
fn chosen<T: Copy + std::fmt::Debug>(all: &[T], words: &[String]) -> Vec<T> {
    let named: Vec<_> = all.iter().copied().filter(|one| words.contains(&format!("{one:?}"))).collect();
    if named.is_empty() { all.to_vec() } else { named }
}

/// Returns the number before a word, or 1.
fn count(words: &[String], of: &str) -> u32 {
    words.iter().find_map(|word| word.strip_suffix(of)?.parse().ok()).unwrap_or(1)
}

fn pace(word: &str) -> Option<AttackPace> {
    let Some((packets, pause)) = word.split_once('x') else { return word.parse().ok().map(AttackPace::PerSecond) };
    let packets = packets.parse().ok()?;
    Some(match pause.split_once('+') {
        Some((pause, padding)) => AttackPace::PaddedBursts(packets, pause.parse().ok()?, padding.parse().ok()?),
        None => AttackPace::Bursts(packets, pause.parse().ok()?),
    })
}
