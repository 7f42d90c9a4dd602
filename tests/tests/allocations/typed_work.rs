//! The work of a typed message: the number of steps is bounded before its first byte is read.
//!
//! Steps are counted, because a time limit would depend on the load of the machine. Each step is a decoded value, which
//! takes nanoseconds. A message has at most as many as bytes, and few more, whatever it claims.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, LinkedList, VecDeque};
use std::time::Instant;

use serde::de::{DeserializeOwned, Deserializer};
use serde::{Deserialize, Serialize};
use slipgate_tests::counting::allocations;
use slipgate_typed::{Bincode, Codec, MAX_ALLOCATIONS, MAX_BYTES, Postcard, VALUES_BASE, VALUES_PER_BYTE};

thread_local! {
    static STEPS: Cell<usize> = const { Cell::new(0) };
}

/// A value that counts each started decoding of its kind.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Step<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Step<T> {
    fn deserialize<D: Deserializer<'de>>(codec: D) -> Result<Self, D::Error> {
        STEPS.set(STEPS.get() + 1);
        T::deserialize(codec).map(Self)
    }
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "decoded values are counted and not used")]
enum Shape {
    Nothing,
    Pair(Step<()>, Step<()>),
    Named { inner: Box<Step<Shape>> },
    Many(Vec<Step<Shape>>),
}

/// Returns the maximum number of values in a message of `bytes` bytes: zero-sized ones, and one for each byte.
fn most_values(bytes: usize) -> usize {
    VALUES_BASE + (VALUES_PER_BYTE + 1) * bytes
}

/// Returns malformed messages: lengths without bounds, and then bytes that announce as much again.
fn malformed_messages() -> Vec<Vec<u8>> {
    let mut buf = [0; 16];
    let mut malformed_messages = Vec::new();
    for length in [3_u64, 60_000, u64::MAX] {
        let bincode = Bincode::default().encode(&length, &mut buf).unwrap();
        malformed_messages.push(buf[..bincode].to_vec());
        let postcard = Postcard::default().encode(&length, &mut buf).unwrap();
        malformed_messages.push(buf[..postcard].to_vec());
    }
    let beginnings = malformed_messages.clone();
    for size in [100, 1200, 10_000] {
        for beginning in &beginnings {
            malformed_messages.push(beginning.iter().copied().cycle().take(size).collect());
            malformed_messages.extend([0, 1, 3].map(|fill| {
                let mut malformed = beginning.clone();
                malformed.resize(size, fill);
                malformed
            }));
        }
    }
    malformed_messages
}

/// Decodes a message, and checks the steps and allocations against the bound. Returns the steps.
fn steps<T: DeserializeOwned>(codec: &impl Codec, message: &[u8]) -> usize {
    STEPS.set(0);
    let max_steps = most_values(message.len());
    let allocation_count = allocations(|| drop(codec.decode_owned::<T>(message)));
    let (steps, name) = (STEPS.get(), std::any::type_name::<T>());
    // The value that exceeds the bound starts, and ends at once.
    assert!(steps <= max_steps + 1, "{name}: {steps} steps for a message of {} bytes", message.len());
    // A value has its own allocation, and makes its collection grow once at most; an error has a text.
    assert!(
        allocation_count <= 2 * max_steps as u64 + 4,
        "{name}: {allocation_count} allocations for a message of {} bytes",
        message.len()
    );
    assert!(allocation_count <= MAX_ALLOCATIONS as u64 + 1, "{name}: {allocation_count} allocations");
    steps
}

/// Returns the maximum number of steps of any malformed message.
fn survives<T: DeserializeOwned>(malformed_messages: &[Vec<u8>]) -> usize {
    let (bincode, postcard) = (Bincode::with_limit(MAX_BYTES), Postcard::with_limit(MAX_BYTES));
    let of = |malformed: &Vec<u8>| steps::<T>(&bincode, malformed).max(steps::<T>(&postcard, malformed));
    malformed_messages.iter().map(of).max().unwrap()
}

#[test]
fn decode_steps_are_bounded_by_message_bytes() {
    let malformed_messages = malformed_messages();
    let worst = [
        survives::<Vec<Step<()>>>(&malformed_messages),
        survives::<Vec<Vec<Step<()>>>>(&malformed_messages),
        survives::<Vec<Step<Option<Step<()>>>>>(&malformed_messages),
        survives::<Vec<[Step<()>; 16]>>(&malformed_messages),
        survives::<Vec<[[Step<()>; 16]; 16]>>(&malformed_messages),
        survives::<Vec<Step<u8>>>(&malformed_messages),
        survives::<Vec<Step<String>>>(&malformed_messages),
        survives::<Vec<Box<Step<()>>>>(&malformed_messages),
        survives::<VecDeque<Step<()>>>(&malformed_messages),
        survives::<LinkedList<Step<()>>>(&malformed_messages),
        survives::<BTreeSet<Step<()>>>(&malformed_messages),
        survives::<BTreeMap<Step<u8>, Step<()>>>(&malformed_messages),
        survives::<HashMap<Step<u16>, Vec<Step<()>>>>(&malformed_messages),
        survives::<Step<Shape>>(&malformed_messages),
        survives::<Vec<Step<Shape>>>(&malformed_messages),
    ];
    // The bound is nearly reached, so it ends them.
    assert!(worst.into_iter().any(|steps| steps > most_values(10_000) / 2), "{worst:?}");
}

#[test]
fn largest_lists_of_numbers_and_newtypes_decode() {
    #[derive(Serialize, Deserialize, PartialEq, Debug, Clone, Copy)]
    struct Tile {
        kind: Kind,
    }
    #[derive(Serialize, Deserialize, PartialEq, Debug, Clone, Copy)]
    struct Kind(u8);
    fn whole<T: Serialize + DeserializeOwned + PartialEq + Clone>(value: T, count: usize) {
        let values = vec![value; count];
        let mut buf = vec![0; MAX_BYTES];
        let codec = Bincode::with_limit(MAX_BYTES);
        let bytes = codec.encode(&values, &mut buf).unwrap();
        assert!(bytes > MAX_BYTES - 64);
        assert!(codec.decode::<Vec<T>>(&buf[..bytes]).is_ok_and(|decoded| decoded == values));
        let codec = Postcard::with_limit(MAX_BYTES);
        let bytes = codec.encode(&values, &mut buf).unwrap();
        assert!(codec.decode::<Vec<T>>(&buf[..bytes]).is_ok_and(|decoded| decoded == values));
    }
    whole(7_u8, MAX_BYTES - 16);
    whole(Tile { kind: Kind(7) }, MAX_BYTES - 16);
    whole(1_u32 << 20, MAX_BYTES / 5 - 8);
    whole(1.5_f32, MAX_BYTES / 4 - 4);
    whole([1.5_f32; 3], MAX_BYTES / 12 - 2);
}

/// Prints the figures behind "less than a millisecond": `cargo test --release -p slipgate-tests --test allocations
/// typed_work -- --nocapture`. They have no limit.
#[test]
fn decode_time_of_zero_sized_elements_is_printed() {
    for size in [16, 1200, 65_536] {
        let longest = |length: u64| {
            let mut message = vec![0; 16];
            let bytes = Bincode::default().encode(&length, &mut message).unwrap();
            message.truncate(bytes);
            message.resize(size, 0);
            message
        };
        let malformed = longest(u64::MAX);
        time::<Vec<()>>(&malformed);
        time::<Vec<[[(); 16]; 16]>>(&malformed);
        time::<LinkedList<()>>(&malformed);
        time::<BTreeMap<[(); 16], ()>>(&malformed);
        time::<HashMap<(), ()>>(&malformed);
    }
}

fn time<T: DeserializeOwned>(malformed: &[u8]) {
    let start = Instant::now();
    let refused = Bincode::default().decode_owned::<T>(malformed).is_err();
    println!("{} bytes as {}: {:?}", malformed.len(), std::any::type_name::<T>(), start.elapsed());
    assert!(refused, "a message never holds that many");
}
