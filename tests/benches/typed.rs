//! What typed messages cost that are as large as can be: `cargo bench -p slipgate-tests --bench typed`.
//!
//! Decoding and dropping together, by both codecs: honest lists of numbers, and the shapes that take longest. With
//! `--json`, which `cargo bench -p slipgate-tests -- --json` says to all benchmarks, its lines go to stderr.

#![allow(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used, reason = "a program for developers")]

use std::any::type_name;
use std::collections::{BTreeMap, BTreeSet, HashSet, LinkedList};
use std::hint::black_box;
use std::time::Instant;

use serde::de::DeserializeOwned;
use slipgate_protocol::channel::typed::{Bincode, Codec, MAX_BYTES, Postcard};

const ROUNDS: usize = 101;

fn say(line: &str) {
    if std::env::args().any(|argument| argument == "--json") {
        eprintln!("{line}");
    } else {
        println!("{line}");
    }
}

/// As many elements as there is room for; each is written by its number.
fn list(codec: &impl Codec, mut write: impl FnMut(u64, &mut Vec<u8>)) -> Vec<u8> {
    let (mut count, mut elements, mut element) = (0, Vec::new(), Vec::new());
    loop {
        write(count, &mut element);
        if elements.len() + element.len() > MAX_BYTES - 9 {
            break;
        }
        elements.append(&mut element);
        count += 1;
    }
    let mut message = number(codec, count);
    message.append(&mut elements);
    message
}

fn number(codec: &impl Codec, value: u64) -> Vec<u8> {
    let mut room = [0; 16];
    let bytes = codec.encode(&value, &mut room).unwrap();
    room.iter().copied().take(bytes).collect()
}

/// The median of the rounds, in microseconds.
fn time<T: DeserializeOwned>(codec: &impl Codec, message: &[u8]) -> (f64, &'static str) {
    let mut outcome = "";
    let mut rounds: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            let decoded = black_box(codec.decode_owned::<T>(black_box(message)));
            outcome = if decoded.is_ok() { "decoded" } else { "refused" };
            drop(decoded);
            began.elapsed()
        })
        .collect();
    rounds.sort();
    (rounds.get(ROUNDS / 2).unwrap().as_secs_f64() * 1e6, outcome)
}

fn row<T: DeserializeOwned>(what: &str, bincode: &[u8], postcard: &[u8]) {
    let (first, outcome) = time::<T>(&Bincode::with_limit(MAX_BYTES), bincode);
    let (second, _) = time::<T>(&Postcard::with_limit(MAX_BYTES), postcard);
    let name = format!("{}{what}", type_name::<T>());
    say(&format!("{name:<75} {first:>8.0} {second:>8.0} us  {outcome}"));
}

/// Elements that are all the same.
fn same<T: DeserializeOwned>(what: &str, element: &[u8]) {
    let [bincode, postcard] = [
        list(&Bincode::with_limit(MAX_BYTES), |_, room| room.extend_from_slice(element)),
        list(&Postcard::with_limit(MAX_BYTES), |_, room| room.extend_from_slice(element)),
    ];
    row::<T>(what, &bincode, &postcard);
}

/// Numbers that are all different, in no order.
fn different<T: DeserializeOwned>() {
    fn message(codec: &impl Codec) -> Vec<u8> {
        list(codec, |at, room| room.append(&mut number(codec, at.wrapping_mul(40_503) % 65_536)))
    }
    row::<T>("", &message(&Bincode::with_limit(MAX_BYTES)), &message(&Postcard::with_limit(MAX_BYTES)));
}

/// A list that says it is longer than any, of elements without bytes.
fn endless<T: DeserializeOwned>() {
    fn message(codec: &impl Codec) -> Vec<u8> {
        let mut message = number(codec, u64::MAX);
        message.resize(MAX_BYTES, 0);
        message
    }
    row::<T>("", &message(&Bincode::with_limit(MAX_BYTES)), &message(&Postcard::with_limit(MAX_BYTES)));
}

fn main() {
    say(&format!("messages of {MAX_BYTES} bytes: medians of {ROUNDS} for bincode and postcard"));
    same::<Vec<u8>>("", &[7]);
    same::<Vec<u64>>("", &[7]);
    same::<Vec<f32>>("", &1.5_f32.to_le_bytes());
    same::<Vec<(f32, f32, f32)>>("", &[0; 12]);
    different::<Vec<u16>>();
    same::<Vec<(u8, u8)>>("", &[7, 7]);
    same::<Vec<((u8,),)>>("", &[7]);
    same::<Vec<(u8, (), ())>>("", &[7]);
    same::<Vec<Option<u8>>>(", none", &[0]);
    same::<Vec<Option<[u64; 2]>>>(", none", &[0]);
    endless::<Vec<()>>();
    endless::<Vec<[[(); 16]; 16]>>();
    endless::<LinkedList<()>>();
    same::<Vec<Box<u8>>>("", &[7]);
    same::<Vec<(Box<u8>, Box<u8>)>>("", &[7, 7]);
    same::<Vec<Option<Box<u8>>>>("", &[1, 7]);
    same::<Vec<Vec<()>>>("", &[1]);
    same::<Vec<Vec<u8>>>("", &[1, 7]);
    same::<Vec<Vec<Vec<u8>>>>("", &[1, 1, 7]);
    same::<Vec<String>>("", &[1, b'a']);
    same::<Vec<Box<str>>>("", &[1, b'a']);
    same::<Vec<HashSet<u8>>>("", &[1, 7]);
    same::<Vec<BTreeSet<u8>>>("", &[1, 7]);
    same::<LinkedList<u8>>("", &[7]);
    same::<BTreeMap<u8, Box<u8>>>("", &[7, 7]);
    different::<BTreeSet<u16>>();
    different::<HashSet<u16>>();
}
