//! Bytes as typed messages of many shapes: decoding keeps within its memory and allocation limits. A decoded value
//! encodes to the same bytes, or to the shortest form where the format has longer forms of a number.

#![no_main]

use std::collections::{BTreeMap, BTreeSet, HashMap, LinkedList};
use std::fmt::Debug;

use libfuzzer_sys::fuzz_target;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use slipgate_typed::{Bincode, Codec, MAX_ALLOCATIONS, MAX_BYTES, MEMORY_BASE, MEMORY_PER_BYTE, Postcard};

#[path = "../../tests/src/counting.rs"]
#[allow(dead_code, unreachable_pub)] // Shared with the tests, which use more of it.
mod counting;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

#[derive(Serialize, Deserialize, Debug, PartialEq)]
enum Shape {
    Nothing,
    Number(u64),
    Named { name: String, places: Vec<(u16, i64)> },
    Nested(Box<Shape>, Option<Box<Shape>>),
    Many(Vec<Shape>),
    Table(BTreeMap<String, Shape>),
    Letters(char, bool, [u8; 3]),
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Node {
    value: u8,
    next: Option<Box<Node>>,
}

fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(codec: &impl Codec, message: &[u8]) {
    let before = counting::allocation_count();
    let (decoded, bytes) = counting::peak(|| codec.decode_owned::<T>(message));
    assert!(
        bytes <= (MEMORY_PER_BYTE * message.len() + MEMORY_BASE) as i64,
        "{bytes} bytes for a message of {}",
        message.len()
    );
    // Each error has a text.
    let allocations = counting::allocation_count() - before;
    assert!(allocations <= MAX_ALLOCATIONS as u64 + 1, "{allocations} allocations");
    if let Ok(value) = decoded {
        let mut buf = vec![0; message.len() * 2 + 16];
        let written = codec.encode(&value, &mut buf).expect("its shortest form is no longer");
        assert!(written <= message.len());
        assert_eq!(codec.decode_owned::<T>(&buf[..written]).as_ref(), Ok(&value));
    }
}

fn shapes(shape: u8, codec: &impl Codec, message: &[u8]) {
    match shape % 32 {
        0 => check::<Vec<u8>>(codec, message),
        1 => check::<Vec<u64>>(codec, message),
        2 => check::<Vec<()>>(codec, message),
        3 => check::<Vec<Vec<Vec<()>>>>(codec, message),
        4 => check::<String>(codec, message),
        5 => check::<HashMap<String, u16>>(codec, message),
        6 => check::<BTreeMap<u16, Vec<String>>>(codec, message),
        7 => check::<Option<[u64; 32]>>(codec, message),
        8 => check::<Vec<Option<[u64; 32]>>>(codec, message),
        9 => check::<Shape>(codec, message),
        10 => check::<Node>(codec, message),
        11 => check::<Vec<Box<u128>>>(codec, message),
        12 => check::<Vec<LinkedList<u8>>>(codec, message),
        13 => check::<Vec<BTreeSet<u8>>>(codec, message),
        14 => check::<Vec<HashMap<u8, ()>>>(codec, message),
        15 => check::<Vec<Option<Box<u8>>>>(codec, message),
        16 => check::<Vec<Box<str>>>(codec, message),
        17 => check::<(LinkedList<Box<u8>>, BTreeMap<u16, Box<[u8]>>)>(codec, message),
        18 => check::<Box<Option<Box<(u8, Box<Shape>)>>>>(codec, message),
        _ => check::<(u8, i16, i32, i64, i128, bool, char, String, Vec<i64>)>(codec, message),
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((shape, message)) = input.split_first() else { return };
    if shape & 32 == 0 {
        shapes(*shape, &Bincode::with_limit(MAX_BYTES), message);
    } else {
        shapes(*shape, &Postcard::with_limit(MAX_BYTES), message);
    }
});
