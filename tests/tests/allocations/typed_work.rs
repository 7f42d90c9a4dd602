//! How much work a typed message can cause: a number of steps that is known before its first byte is read.
//!
//! Time is not held to a bound, for a busy machine would decide: steps are counted. Each is a value that a message makes, and
//! takes nanoseconds; and there are as many as the message has bytes, and few beyond, whatever it says of itself.

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

/// A value that counts each of its kind whose decoding begins.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Step<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Step<T> {
    fn deserialize<D: Deserializer<'de>>(codec: D) -> Result<Self, D::Error> {
        STEPS.set(STEPS.get() + 1);
        T::deserialize(codec).map(Self)
    }
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "what is decoded is counted, and not looked at")]
enum Shape {
    Nothing,
    Pair(Step<()>, Step<()>),
    Named { inner: Box<Step<Shape>> },
    Many(Vec<Step<Shape>>),
}

/// The most values of a message of so many bytes: those that have no bytes, and one for each byte.
fn most_values(bytes: usize) -> usize {
    VALUES_BASE + (VALUES_PER_BYTE + 1) * bytes
}

/// What liars send: lengths that grow beyond all bounds, and then bytes that announce as much again.
fn lies() -> Vec<Vec<u8>> {
    let mut room = [0; 16];
    let mut lies = Vec::new();
    for length in [3_u64, 60_000, u64::MAX] {
        let bincode = Bincode::default().encode(&length, &mut room).unwrap();
        lies.push(room[..bincode].to_vec());
        let postcard = Postcard::default().encode(&length, &mut room).unwrap();
        lies.push(room[..postcard].to_vec());
    }
    let beginnings = lies.clone();
    for size in [100, 1200, 10_000] {
        for beginning in &beginnings {
            lies.push(beginning.iter().copied().cycle().take(size).collect());
            lies.extend([0, 1, 3].map(|fill| {
                let mut lie = beginning.clone();
                lie.resize(size, fill);
                lie
            }));
        }
    }
    lies
}

/// Decodes a message, and holds the steps and the calls for memory to the bound. Answers the steps.
fn steps<T: DeserializeOwned>(codec: &impl Codec, message: &[u8]) -> usize {
    STEPS.set(0);
    let most = most_values(message.len());
    let asked = allocations(|| drop(codec.decode_owned::<T>(message)));
    let (steps, name) = (STEPS.get(), std::any::type_name::<T>());
    // The one that breaks the bound begins, and ends at once.
    assert!(steps <= most + 1, "{name}: {steps} steps for a message of {} bytes", message.len());
    // A value asks for its own memory, and makes what holds it grow once at most; an error has a text.
    assert!(asked <= 2 * most as u64 + 4, "{name}: {asked} times memory for a message of {} bytes", message.len());
    assert!(asked <= MAX_ALLOCATIONS as u64 + 1, "{name}: {asked} times memory, whatever the message");
    steps
}

/// Answers the most steps that any lie caused.
fn survives<T: DeserializeOwned>(lies: &[Vec<u8>]) -> usize {
    let (bincode, postcard) = (Bincode::with_limit(MAX_BYTES), Postcard::with_limit(MAX_BYTES));
    let of = |lie: &Vec<u8>| steps::<T>(&bincode, lie).max(steps::<T>(&postcard, lie));
    lies.iter().map(of).max().unwrap()
}

#[test]
fn no_message_of_any_shape_takes_more_steps_than_its_bytes_allow() {
    let lies = lies();
    let worst = [
        survives::<Vec<Step<()>>>(&lies),
        survives::<Vec<Vec<Step<()>>>>(&lies),
        survives::<Vec<Step<Option<Step<()>>>>>(&lies),
        survives::<Vec<[Step<()>; 16]>>(&lies),
        survives::<Vec<[[Step<()>; 16]; 16]>>(&lies),
        survives::<Vec<Step<u8>>>(&lies),
        survives::<Vec<Step<String>>>(&lies),
        survives::<Vec<Box<Step<()>>>>(&lies),
        survives::<VecDeque<Step<()>>>(&lies),
        survives::<LinkedList<Step<()>>>(&lies),
        survives::<BTreeSet<Step<()>>>(&lies),
        survives::<BTreeMap<Step<u8>, Step<()>>>(&lies),
        survives::<HashMap<Step<u16>, Vec<Step<()>>>>(&lies),
        survives::<Step<Shape>>(&lies),
        survives::<Vec<Step<Shape>>>(&lies),
    ];
    // The bound is nearly reached, so it is a bound that ends them.
    assert!(worst.into_iter().any(|steps| steps > most_values(10_000) / 2), "{worst:?}");
}

#[test]
fn lists_of_the_largest_message_decode_and_so_do_those_of_wrapped_numbers() {
    #[derive(Serialize, Deserialize, PartialEq, Debug, Clone, Copy)]
    struct Tile {
        kind: Kind,
    }
    #[derive(Serialize, Deserialize, PartialEq, Debug, Clone, Copy)]
    struct Kind(u8);
    fn whole<T: Serialize + DeserializeOwned + PartialEq + Clone>(value: T, count: usize) {
        let values = vec![value; count];
        let mut room = vec![0; MAX_BYTES];
        let codec = Bincode::with_limit(MAX_BYTES);
        let bytes = codec.encode(&values, &mut room).unwrap();
        assert!(bytes > MAX_BYTES - 64);
        assert!(codec.decode::<Vec<T>>(&room[..bytes]).is_ok_and(|decoded| decoded == values));
        let codec = Postcard::with_limit(MAX_BYTES);
        let bytes = codec.encode(&values, &mut room).unwrap();
        assert!(codec.decode::<Vec<T>>(&room[..bytes]).is_ok_and(|decoded| decoded == values));
    }
    whole(7_u8, MAX_BYTES - 16);
    whole(Tile { kind: Kind(7) }, MAX_BYTES - 16);
    whole(1_u32 << 20, MAX_BYTES / 5 - 8);
    whole(1.5_f32, MAX_BYTES / 4 - 4);
    whole([1.5_f32; 3], MAX_BYTES / 12 - 2);
}

/// The figures behind "less than a millisecond": `cargo test --release -p slipgate-tests --test typed_work --
/// --nocapture`. They are printed, and held to nothing.
#[test]
fn what_messages_make_of_nothing_is_timed() {
    for size in [16, 1200, 65_536] {
        let longest = |length: u64| {
            let mut message = vec![0; 16];
            let bytes = Bincode::default().encode(&length, &mut message).unwrap();
            message.truncate(bytes);
            message.resize(size, 0);
            message
        };
        let lie = longest(u64::MAX);
        time::<Vec<()>>(&lie);
        time::<Vec<[[(); 16]; 16]>>(&lie);
        time::<LinkedList<()>>(&lie);
        time::<BTreeMap<[(); 16], ()>>(&lie);
        time::<HashMap<(), ()>>(&lie);
    }
}

fn time<T: DeserializeOwned>(lie: &[u8]) {
    let begun = Instant::now();
    let refused = Bincode::default().decode_owned::<T>(lie).is_err();
    println!("{} bytes as {}: {:?}", lie.len(), std::any::type_name::<T>(), begun.elapsed());
    assert!(refused, "nobody has so many");
}
