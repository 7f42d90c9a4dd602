//! Measures the cost of the largest typed messages: `cargo bench -p slipgate-tests --bench typed`.
//!
//! Decoding and dropping together, with both codecs: valid lists, and the slowest shapes of accepted and refused
//! messages. The last line names the slowest of all. With `--json`, which `cargo bench -p slipgate-tests -- --json`
//! passes to every benchmark, the lines go to stderr.

#![allow(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used, reason = "a program for developers")]

use std::any::type_name;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};
use std::ffi::CString;
use std::hint::black_box;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use slipgate_typed::{Bincode, Codec, MAX_BYTES, Postcard};

const ROUNDS: usize = 101;
const BINCODE: Bincode = Bincode::with_limit(MAX_BYTES);
const POSTCARD: Postcard = Postcard::with_limit(MAX_BYTES);

#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Wrapped<T>(T);

#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Side {
    Left,
    Right,
}

#[derive(Serialize, Deserialize)]
enum Shape {
    Nothing,
    Number(u64),
    Place { at: (i16, i16), side: Side },
    Large([u64; 16]),
}

#[derive(Serialize, Deserialize)]
struct Flags {
    moving: bool,
    burning: bool,
    hidden: bool,
    side: Side,
}

fn say(line: &str) {
    if std::env::args().any(|argument| argument == "--json") {
        eprintln!("{line}");
    } else {
        println!("{line}");
    }
}

/// Returns a message with as many elements as fit; `write` receives the number of each.
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
    let mut message = encoded(codec, &count);
    message.append(&mut elements);
    message
}

fn encoded(codec: &impl Codec, value: &impl Serialize) -> Vec<u8> {
    let mut buf = vec![0; MAX_BYTES];
    let bytes = codec.encode(value, &mut buf).unwrap();
    buf.truncate(bytes);
    buf
}

/// Returns the median of the rounds in microseconds, and whether the message was decoded.
fn time<'m, T: Deserialize<'m>>(codec: &impl Codec, message: &'m [u8]) -> (f64, &'static str) {
    let mut outcome = "";
    let mut rounds: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            let decoded = black_box(codec.decode::<T>(black_box(message)));
            outcome = if decoded.is_ok() { "decoded" } else { "refused" };
            drop(decoded);
            began.elapsed()
        })
        .collect();
    rounds.sort();
    (rounds.get(ROUNDS / 2).unwrap().as_secs_f64() * 1e6, outcome)
}

/// All rows, and the slowest of them.
#[derive(Default)]
struct Table {
    longest: f64,
    of: String,
}

impl Table {
    fn row<'m, T: Deserialize<'m>>(&mut self, what: &str, bincode: &'m [u8], postcard: &'m [u8]) {
        let (first, outcome) = time::<T>(&BINCODE, bincode);
        let (second, other) = time::<T>(&POSTCARD, postcard);
        let name = short(type_name::<T>()) + what;
        let outcome = if outcome == other { outcome } else { "decoded by one" };
        say(&format!("{name:<75} {first:>8.0} {second:>8.0} us  {outcome}"));
        if first.max(second) > self.longest {
            (self.longest, self.of) = (first.max(second), name);
        }
    }

    /// Adds a row for elements by their number, written by each codec.
    fn each<T, E>(&mut self, what: &str, element: impl Fn(u64) -> E)
    where
        T: for<'m> Deserialize<'m>,
        E: Serialize,
    {
        let [bincode, postcard] = [
            list(&BINCODE, |at, buf| buf.append(&mut encoded(&BINCODE, &element(at)))),
            list(&POSTCARD, |at, buf| buf.append(&mut encoded(&POSTCARD, &element(at)))),
        ];
        self.row::<T>(what, &bincode, &postcard);
    }

    /// Adds a row for equal elements.
    fn same<T: for<'m> Deserialize<'m>>(&mut self, what: &str, element: &[u8]) {
        let [bincode, postcard] = sames(element);
        self.row::<T>(what, &bincode, &postcard);
    }

    /// Adds a row for a list that claims more zero-sized elements than any list can hold.
    fn endless<T: for<'m> Deserialize<'m>>(&mut self) {
        let [bincode, postcard] = [encoded(&BINCODE, &u64::MAX), encoded(&POSTCARD, &u64::MAX)].map(|mut message| {
            message.resize(MAX_BYTES, 0);
            message
        });
        self.row::<T>("", &bincode, &postcard);
    }

    /// Adds a row for the largest value of its kind that fits a message.
    fn largest<T: Serialize + for<'m> Deserialize<'m>>(&mut self, what: &str, make: impl Fn(usize) -> T) {
        fn by<T: Serialize>(codec: &impl Codec, make: impl Fn(usize) -> T) -> Vec<u8> {
            let (mut fits, mut not, mut buf) = (0, MAX_BYTES + 1, vec![0; MAX_BYTES]);
            while fits + 1 < not {
                let half = fits.midpoint(not);
                if codec.encode(&make(half), &mut buf).is_ok() { fits = half } else { not = half }
            }
            encoded(codec, &make(fits))
        }
        let [bincode, postcard] = [by(&BINCODE, &make), by(&POSTCARD, &make)];
        self.row::<T>(what, &bincode, &postcard);
    }
}

fn sames(element: &[u8]) -> [Vec<u8>; 2] {
    [list(&BINCODE, |_, buf| buf.extend_from_slice(element)), list(&POSTCARD, |_, buf| buf.extend_from_slice(element))]
}

/// Returns the name of a type without its modules.
fn short(name: &str) -> String {
    let mut short = String::new();
    for character in name.chars() {
        if short.ends_with("::") {
            let module = short.trim_end_matches("::").trim_end_matches(|c: char| c.is_alphanumeric() || c == '_').len();
            short.truncate(module);
        }
        short.push(character);
    }
    short
}

/// Returns a number in scattered order, the same for the same input.
const fn scattered(at: u64) -> u64 {
    at.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

fn numbers(table: &mut Table) {
    table.same::<Vec<u8>>("", &[7]);
    table.same::<VecDeque<u8>>("", &[7]);
    table.same::<Vec<bool>>("", &[1]);
    table.each::<Vec<char>, _>("", |_| 'a');
    table.same::<Vec<u64>>("", &[7]);
    table.same::<Vec<i64>>("", &[7]);
    table.same::<Vec<u128>>("", &[7]);
    table.same::<Vec<f32>>("", &1.5_f32.to_le_bytes());
    table.same::<Vec<f64>>("", &1.5_f64.to_le_bytes());
    table.same::<Vec<(f32, f32, f32)>>("", &[0; 12]);
    table.each::<Vec<u16>, _>(", different", |at| scattered(at) as u16);
    table.each::<Vec<u32>, _>(", different", |at| scattered(at) as u32);
    table.each::<Vec<u64>, _>(", of any length", |at| (scattered(at) << 20) >> (scattered(at + 1) % 64));
    table.each::<Vec<i128>, _>(", of any length", |at| i128::from(scattered(at)) << (scattered(at + 1) % 80));
    table.each::<Vec<char>, _>(", of any length", |at| ['a', 'ä', '中', '😀'][scattered(at) as usize % 4]);
    table.same::<Vec<Duration>>("", &[7, 7]);
}

fn holders(table: &mut Table) {
    table.same::<Vec<(u8, u8)>>("", &[7, 7]);
    table.same::<Vec<[u8; 1]>>("", &[7]);
    table.same::<Vec<[u8; 32]>>("", &[7]);
    table.same::<Vec<[u64; 32]>>("", &[7; 32]);
    table.same::<Vec<((u8,),)>>("", &[7]);
    table.same::<Vec<Wrapped<Wrapped<u8>>>>("", &[7]);
    table.same::<Vec<Wrapped<Wrapped<Wrapped<Wrapped<u8>>>>>>("", &[7]);
    table.same::<Vec<Wrapped<Wrapped<Wrapped<Wrapped<u128>>>>>>("", &[7]);
    table.same::<Vec<(u8, (), ())>>("", &[7]);
    table.same::<Vec<(u8, ((), ((), ())), [(); 3])>>("", &[7]);
    table.same::<Vec<(u8, [(); 32])>>("", &[7]);
    table.same::<Vec<Flags>>("", &[0, 1, 0, 1]);
    table.each::<Vec<Flags>, _>(", different", |at| {
        let [moving, burning, hidden, right] = [0, 1, 2, 3].map(|bit| scattered(at) & 1 << bit != 0);
        Flags { moving, burning, hidden, side: if right { Side::Right } else { Side::Left } }
    });
    table.same::<Vec<Option<u8>>>(", none", &[0]);
    table.each::<Vec<Option<u8>>, _>(", some", |at| (scattered(at) & 1 == 0).then_some(7_u8));
    table.same::<Vec<Option<Option<Option<u8>>>>>(", none", &[0]);
    table.same::<Vec<Option<Option<Option<u8>>>>>(", none inside", &[1, 1, 0]);
    table.same::<Vec<Option<()>>>("", &[1]);
    table.same::<Vec<Option<u128>>>(", none", &[0]);
    table.same::<Vec<Option<[u64; 2]>>>(", none", &[0]);
    table.same::<Vec<Option<[u64; 32]>>>(", none", &[0]);
    table.same::<Vec<Wrapped<Wrapped<Wrapped<Wrapped<Option<[u64; 32]>>>>>>>(", none", &[0]);
    table.same::<Vec<Side>>("", &[1]);
    table.each::<Vec<Side>, _>(", different", |at| if scattered(at) & 1 == 0 { Side::Left } else { Side::Right });
    table.same::<Vec<Shape>>(", nothing", &[0]);
    table.each::<Vec<Shape>, _>(", different", |at| match scattered(at) % 3 {
        0 => Shape::Nothing,
        1 => Shape::Number(7),
        _ => Shape::Place { at: (1, -1), side: Side::Left },
    });
    table.same::<Vec<Result<u8, Option<u8>>>>("", &[1, 0]);
    table.same::<Vec<IpAddr>>("", &[0, 127, 0, 0, 1]);
    let texts = [sames(&[0]), sames(&[1, b'a'])];
    for ([bincode, postcard], what) in texts.iter().zip([", empty", ""]) {
        table.row::<Vec<&str>>(what, bincode, postcard);
        table.row::<Vec<&[u8]>>(what, bincode, postcard);
    }
}

fn nothings(table: &mut Table) {
    table.endless::<Vec<()>>();
    table.endless::<Vec<[(); 0]>>();
    table.endless::<Vec<PhantomData<u8>>>();
    table.endless::<Vec<((), (((), ()), ()))>>();
    table.endless::<Vec<Wrapped<Wrapped<Wrapped<Wrapped<()>>>>>>();
    table.endless::<Vec<[[(); 16]; 16]>>();
    table.endless::<Vec<[[[(); 32]; 32]; 32]>>();
    table.endless::<VecDeque<()>>();
    table.endless::<BinaryHeap<()>>();
    table.endless::<LinkedList<()>>();
    table.endless::<BTreeSet<()>>();
    table.endless::<BTreeMap<[(); 16], [(); 16]>>();
    table.endless::<HashSet<[(); 16]>>();
}

fn owners(table: &mut Table) {
    table.same::<Vec<Box<u8>>>("", &[7]);
    table.same::<Vec<Box<Box<Box<u8>>>>>("", &[7]);
    table.same::<Vec<(Box<u8>, Box<u8>)>>("", &[7, 7]);
    table.same::<Vec<Option<Box<u8>>>>("", &[1, 7]);
    table.same::<Vec<Option<Box<u8>>>>(", none", &[0]);
    table.same::<Vec<Vec<()>>>("", &[1]);
    table.same::<Vec<Vec<()>>>(", long", &[60]);
    table.same::<Vec<Vec<u8>>>("", &[1, 7]);
    table.same::<Vec<Vec<u8>>>(", of 16", &[16, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
    table.same::<Vec<Vec<[u8; 1]>>>("", &[1, 7]);
    table.same::<Vec<Vec<Vec<u8>>>>("", &[1, 1, 7]);
    table.same::<Vec<String>>("", &[1, b'a']);
    table.same::<Vec<String>>(", of 16", b"\x10abcdefghijklmnop");
    table.same::<Vec<Box<str>>>("", &[1, b'a']);
    table.same::<Vec<CString>>("", &[1, b'a']);
    table.same::<Vec<HashSet<u8>>>("", &[1, 7]);
    table.same::<Vec<BTreeSet<u8>>>("", &[1, 7]);
    table.same::<LinkedList<u8>>("", &[7]);
    table.same::<LinkedList<String>>("", &[1, b'a']);
}

fn tables(table: &mut Table) {
    table.same::<BTreeMap<u8, Box<u8>>>("", &[7, 7]);
    table.each::<BTreeSet<u16>, _>(", different", |at| scattered(at) as u16);
    table.each::<HashSet<u16>, _>(", different", |at| scattered(at) as u16);
    table.each::<HashMap<u64, u128>, _>(", different", |at| (scattered(at), 7_u128));
    table.each::<HashMap<String, String>, _>(", different", |at| (format!("{at:x}"), "a"));
    table.each::<BTreeMap<String, String>, _>(", different", |at| (format!("{at:x}"), "a"));
}

/// Returns `count` keys that differ only in their last part, which makes each comparison as long as possible.
fn long_keys<P: Clone, K: FromIterator<P>, T: FromIterator<K>>(
    count: usize,
    part: &P,
    last: impl Fn(usize) -> Vec<P>,
) -> impl Fn(usize) -> T {
    move |length| (0..count).map(|at| (0..length).map(|_| part.clone()).chain(last(at)).collect()).collect()
}

fn orders(table: &mut Table) {
    for count in [16, 64, 256, 1024, 2000] {
        let digits = |at: usize| [at as u64 / 200, at as u64 % 200].into();
        let what = format!(", {count}");
        table.largest::<BTreeSet<Vec<u64>>>(&what, long_keys(count, &7, digits));
        table.largest::<HashSet<Vec<u64>>>(&what, long_keys(count, &7, digits));
        table.largest::<BinaryHeap<Vec<u64>>>(&what, long_keys(count, &7, digits));
        let options = |at: usize| [at / 200, at % 200].map(|digit| Some(digit as u8)).into();
        table.largest::<BTreeSet<Vec<Option<u8>>>>(&what, long_keys(count, &None, options));
        table.largest::<HashSet<Vec<Option<u8>>>>(&what, long_keys(count, &None, options));
        table.largest::<BTreeSet<String>>(&what, |length| {
            (0..count).map(|at| "a".repeat(length) + &format!("{at:4}")).collect()
        });
    }
    table.largest::<BTreeSet<Vec<String>>>("", long_keys(256, &"a".to_owned(), |at| vec![format!("{at:3}")]));
    table.largest::<BTreeSet<BTreeSet<u16>>>(", of 16", |_| {
        (0..230).map(|at| (0..16).map(|part| if part == 15 { 500 + at } else { part }).collect()).collect()
    });
    table.largest::<BTreeSet<LinkedList<u16>>>(", of 16", |_| {
        (0..230).map(|at| (0..16).map(|part| if part == 15 { 500 + at } else { part }).collect()).collect()
    });
    table.largest::<BTreeSet<Vec<Box<u16>>>>(", of 16", |_| {
        (0..230).map(|at| (0..16).map(|part| Box::new(if part == 15 { 500 + at } else { part })).collect()).collect()
    });
    table.each::<BTreeSet<String>, _>(", rising", |at| format!("{at:5}"));
    let key = |at: u64| (Wrapped([7_u8; 30]), at / 200, at % 200);
    table.each::<BTreeSet<([u64; 30], u64, u64)>, _>("", key);
    table.each::<HashSet<([u64; 30], u64, u64)>, _>("", key);
    table.each::<BTreeMap<([[u8; 15]; 2], u64, u64), ()>, _>("", key);
    table.each::<BinaryHeap<([u64; 30], u64, u64)>, _>("", key);
    table.each::<BinaryHeap<u8>, _>(", rising", |at| (at * 250 / MAX_BYTES as u64) as u8);
    table.each::<BinaryHeap<u16>, _>(", rising", |at| at as u16);
    table.each::<BinaryHeap<Reverse<u16>>, _>(", scattered", |at| scattered(at) as u16);
    table.each::<BinaryHeap<(u8, u8)>, _>(", rising", |at| ((at / 200) as u8, (at % 200) as u8));
}

fn mixtures(table: &mut Table) {
    let half = MAX_BYTES / 5;
    table.largest::<(HashSet<u16>, Vec<u64>)>("", |count| ((0..4000).collect(), vec![7; count]));
    table.largest::<(BTreeMap<u16, u16>, Vec<Option<u64>>)>("", |count| {
        ((0..4000).map(|at| (at, at)).collect(), vec![None; count])
    });
    table.largest::<(Vec<String>, Vec<u128>)>("", |count| (vec!["a".into(); 2000], vec![7; count]));
    table.largest::<(Vec<()>, Vec<Wrapped<u64>>)>("", |count| (vec![(); 10_000], vec![Wrapped(7); count.max(half)]));
}

fn main() {
    say(&format!("messages of {MAX_BYTES} bytes: medians of {ROUNDS} for bincode and postcard"));
    let mut table = Table::default();
    numbers(&mut table);
    holders(&mut table);
    nothings(&mut table);
    owners(&mut table);
    tables(&mut table);
    orders(&mut table);
    mixtures(&mut table);
    say(&format!("longest: {:.0} us, {}", table.longest, table.of));
}
