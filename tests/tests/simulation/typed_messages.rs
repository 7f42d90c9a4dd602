//! Typed messages of hostile peers: whatever the bytes, decoding keeps within 64 times their number plus 64 KiB.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};
use std::fmt::Debug;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use slipgate_tests::counting::{allocations, peak};
use slipgate_typed::{
    Bincode, Codec, MAX_BYTES, MAX_DEPTH, MEMORY_BASE, MEMORY_PER_BYTE, Postcard, TypedErrorKind, VALUES_BASE,
    VALUES_PER_BYTE,
};

/// Decodes a message, holds that to the bound, and answers what came of it.
fn decode<T: DeserializeOwned>(codec: &impl Codec, message: &[u8]) -> Result<T, TypedErrorKind> {
    let (decoded, bytes) = peak(|| codec.decode_owned::<T>(message));
    let bound = (MEMORY_PER_BYTE * message.len() + MEMORY_BASE) as i64;
    let name = std::any::type_name::<T>();
    assert!(
        bytes <= bound,
        "{name}: {bytes} bytes of memory for a message of {}: {:02x?}",
        message.len(),
        &message[..message.len().min(64)]
    );
    decoded
}

const LIMIT: Bincode = Bincode::with_limit(MAX_BYTES);
const POSTCARD: Postcard = Postcard::with_limit(MAX_BYTES);

/// A number in bincode's and in postcard's form.
fn numbers(value: u64) -> [Vec<u8>; 2] {
    let mut room = [0; 16];
    let bincode = LIMIT.encode(&value, &mut room).unwrap();
    let bincode = room[..bincode].to_vec();
    let postcard = POSTCARD.encode(&value, &mut room).unwrap();
    [bincode, room[..postcard].to_vec()]
}

/// What liars write for a value of any shape.
fn lies(codec: usize) -> Vec<Vec<u8>> {
    let mut lies = vec![vec![]];
    for length in [1, 250, 65_536, 1 << 60, u64::MAX] {
        for fill in [0u8, 1, 2, 0x80, 0xfb, 0xff] {
            for tail in [0usize, 10, 700] {
                let mut lie = numbers(length)[codec].clone();
                lie.resize(lie.len() + tail, fill);
                lies.push(lie);
            }
        }
    }
    // Lists of lists of lists, each of which says that it is long.
    for repeat in [1, 50, 700] {
        for length in [2, 100, 1 << 60] {
            lies.push(numbers(length)[codec].repeat(repeat));
        }
    }
    lies
}

fn survives<T: DeserializeOwned>() {
    let mut random = StdRng::seed_from_u64(7);
    for lie in lies(0) {
        let _ = decode::<T>(&LIMIT, &lie);
    }
    for lie in lies(1) {
        let _ = decode::<T>(&POSTCARD, &lie);
    }
    for _ in 0..40 {
        let length = random.random_range(0..1500);
        let most = [2, 5, 30, 252, 255][random.random_range(0..5)];
        let noise: Vec<u8> = (0..length).map(|_| random.random_range(0..=most)).collect();
        let _ = decode::<T>(&LIMIT, &noise);
        let _ = decode::<T>(&POSTCARD, &noise);
    }
}

#[derive(Serialize, Deserialize, Debug, PartialEq, Clone)]
enum Shape {
    Nothing,
    Number(u64),
    Named { name: String, places: Vec<(u16, i64)> },
    Nested(Box<Shape>, Option<Box<Shape>>),
    Many(Vec<Shape>),
    Table(HashMap<String, Shape>),
}

#[derive(Serialize, Deserialize, Debug, PartialEq, Default)]
struct Node {
    value: u8,
    next: Option<Box<Node>>,
}

#[derive(Serialize, Deserialize, Debug, PartialEq, Clone, Copy, PartialOrd, Ord, Eq, Hash)]
struct Nothing;

#[derive(Serialize, Deserialize)]
struct Large {
    fields: [[u64; 32]; 8],
}

#[test]
fn lies_of_every_kind_about_every_shape_stay_within_the_bound() {
    survives::<Vec<u8>>();
    survives::<Vec<u64>>();
    survives::<Vec<u128>>();
    survives::<Vec<()>>();
    survives::<Vec<Nothing>>();
    survives::<Vec<Vec<()>>>();
    survives::<Vec<Vec<Vec<()>>>>();
    survives::<Vec<Vec<Vec<Vec<u8>>>>>();
    survives::<Vec<[u8; 0]>>();
    survives::<Vec<Box<()>>>();
    survives::<Vec<Box<u128>>>();
    survives::<String>();
    survives::<Vec<String>>();
    survives::<Box<str>>();
    survives::<(String, String, Vec<u8>)>();
    survives::<HashMap<u8, u8>>();
    survives::<HashMap<String, Vec<String>>>();
    survives::<HashMap<(), ()>>();
    survives::<BTreeMap<u64, [u64; 32]>>();
    survives::<BTreeMap<String, BTreeMap<u8, HashSet<u8>>>>();
    survives::<Option<[u64; 32]>>();
    survives::<Vec<Option<[u64; 32]>>>();
    survives::<Vec<Option<Large>>>();
    survives::<Vec<Option<Box<Large>>>>();
    survives::<VecDeque<u16>>();
    survives::<LinkedList<u8>>();
    survives::<LinkedList<()>>();
    survives::<BinaryHeap<u32>>();
    survives::<Vec<LinkedList<Nothing>>>();
    survives::<Shape>();
    survives::<Vec<Shape>>();
    survives::<Node>();
    survives::<Vec<Node>>();
}

/// A value of `n` elements is made and decoded for more and more of them, until the bound says no.
fn grows_up_to_the_bound<T: Serialize + DeserializeOwned + PartialEq + Debug>(most: usize, make: impl Fn(usize) -> T) {
    let mut room = vec![0; MAX_BYTES];
    let (mut n, mut refused) = (0, [false; 2]);
    while n < most {
        let value = make(n);
        for (codec, refused) in refused.iter_mut().enumerate() {
            let bytes = if codec == 0 { LIMIT.encode(&value, &mut room) } else { POSTCARD.encode(&value, &mut room) };
            // Some are as large as a message can be before there are so many.
            let Ok(bytes) = bytes else { return };
            let message = &room[..bytes];
            let decoded = if codec == 0 { decode::<T>(&LIMIT, message) } else { decode::<T>(&POSTCARD, message) };
            match decoded {
                Ok(decoded) => assert_eq!(decoded, value),
                Err(TypedErrorKind::Expands | TypedErrorKind::TooManyValues | TypedErrorKind::TooManyAllocations) => {
                    *refused = true
                }
                Err(other) => panic!("{}: {other:?}", std::any::type_name::<T>()),
            }
        }
        if refused == [true; 2] {
            break;
        }
        n += if n < 70 { 1 } else { n / 15 };
    }
    assert!(n > 20, "{}: only {n} elements", std::any::type_name::<T>());
}

#[test]
fn every_collection_keeps_within_the_bound_at_every_length() {
    grows_up_to_the_bound(3000, |n| vec![7u8; n]);
    grows_up_to_the_bound(3000, |n| (0..n as u16).collect::<Vec<u16>>());
    grows_up_to_the_bound(3000, |n| vec![1u64; n]);
    grows_up_to_the_bound(3000, |n| vec![1u128; n]);
    grows_up_to_the_bound(3000, |n| vec![(); n]);
    grows_up_to_the_bound(3000, |n| vec![Box::new(1u128); n]);
    grows_up_to_the_bound(3000, |n| vec![String::new(); n]);
    grows_up_to_the_bound(3000, |n| (0..n).map(|i| i.to_string()).collect::<Vec<_>>());
    grows_up_to_the_bound(3000, |n| vec![vec![1u8]; n]);
    grows_up_to_the_bound(3000, |n| vec![vec![vec![()]]; n]);
    grows_up_to_the_bound(3000, |n| vec![[1u64; 32]; n]);
    grows_up_to_the_bound(3000, |n| vec![None::<[u64; 32]>; n]);
    grows_up_to_the_bound(256, |n| (0..n as u16).map(|i| i as u8).collect::<HashSet<u8>>());
    grows_up_to_the_bound(256, |n| (0..n as u16).map(|i| i as u8).collect::<BTreeSet<u8>>());
    grows_up_to_the_bound(3000, |n| (0..n as u32).collect::<HashSet<u32>>());
    grows_up_to_the_bound(3000, |n| (0..n as u64).collect::<BTreeSet<u64>>());
    grows_up_to_the_bound(3000, |n| (0..n as u64).map(|i| (i, [i; 32])).collect::<BTreeMap<u64, [u64; 32]>>());
    grows_up_to_the_bound(3000, |n| (0..n as u64).map(|i| (i, 1)).collect::<HashMap<u64, u8>>());
    grows_up_to_the_bound(256, |n| (0..n as u16).map(|i| (i as u8, i.into())).collect::<HashMap<u8, u128>>());
    grows_up_to_the_bound(3000, |n| {
        (0..n as u16).map(|i| (i.to_string(), vec![i])).collect::<HashMap<String, Vec<u16>>>()
    });
    grows_up_to_the_bound(3000, |n| vec![1u8; n].into_iter().collect::<LinkedList<u8>>());
    grows_up_to_the_bound(3000, |n| vec![Nothing; n].into_iter().collect::<LinkedList<_>>());
    grows_up_to_the_bound(3000, |n| vec![1u64; n].into_iter().collect::<VecDeque<u64>>());
    grows_up_to_the_bound(3000, |n| vec![Shape::Number(1); n]);
    grows_up_to_the_bound(3000, |n| vec![Shape::Nested(Box::new(Shape::Nothing), None); n]);
}

#[test]
fn many_small_collections_in_a_message_keep_within_the_bound() {
    grows_up_to_the_bound(1000, |n| vec![HashSet::from([1u8]); n]);
    grows_up_to_the_bound(1000, |n| vec![BTreeSet::from([1u8]); n]);
    grows_up_to_the_bound(1000, |n| vec![BTreeMap::from([(1u8, 1u128)]); n]);
    grows_up_to_the_bound(1000, |n| vec![HashMap::from([((), ())]); n]);
    grows_up_to_the_bound(1000, |n| vec![(0..4u8).collect::<HashSet<u8>>(); n]);
    grows_up_to_the_bound(1000, |n| vec![(0..12u8).map(|i| (i, 1u64)).collect::<BTreeMap<u8, u64>>(); n]);
    grows_up_to_the_bound(1000, |n| vec![LinkedList::from([1u8]); n]);
    grows_up_to_the_bound(1000, |n| vec![VecDeque::from([1u16]); n]);
}

/// Counts how many of it were decoded.
struct Counted;

thread_local! {
    static DECODED: Cell<usize> = const { Cell::new(0) };
}

impl<'de> Deserialize<'de> for Counted {
    fn deserialize<D: serde::Deserializer<'de>>(codec: D) -> Result<Self, D::Error> {
        DECODED.set(DECODED.get() + 1);
        <()>::deserialize(codec).map(|()| Self)
    }
}

#[derive(Deserialize)]
struct Wrapped([[[Counted; 16]; 16]; 16]);

#[test]
fn elements_without_bytes_end_soon_whatever_their_number_is_said_to_be() {
    for length in [1 << 20, 1 << 40, u64::MAX] {
        for (codec, message) in numbers(length).into_iter().enumerate() {
            for tail in [0, 1000, 10_000] {
                let mut message = message.clone();
                message.resize(message.len() + tail, 0);
                let most = VALUES_BASE + VALUES_PER_BYTE * message.len();
                fn error<T: DeserializeOwned>(codec: usize, message: &[u8]) -> Option<TypedErrorKind> {
                    if codec == 0 { decode::<T>(&LIMIT, message).err() } else { decode::<T>(&POSTCARD, message).err() }
                }
                DECODED.set(0);
                let kind = error::<Vec<Counted>>(codec, &message);
                assert!(matches!(kind, Some(TypedErrorKind::Expands | TypedErrorKind::TooManyValues)), "{kind:?}");
                assert!(DECODED.get() <= most, "{} elements", DECODED.get());
                DECODED.set(0);
                assert_eq!(error::<Vec<Wrapped>>(codec, &message), Some(TypedErrorKind::TooManyValues));
                assert!(DECODED.get() <= most, "{} elements", DECODED.get());
            }
        }
    }
}

#[test]
fn nesting_ends_before_the_stack_does() {
    for (fill, kind) in [(1, TypedErrorKind::TooDeep), (0, TypedErrorKind::Trailing)] {
        assert_eq!(decode::<Node>(&LIMIT, &vec![fill; MAX_BYTES]), Err(kind));
        assert_eq!(decode::<Node>(&POSTCARD, &vec![fill; MAX_BYTES]), Err(kind));
    }
    let mut room = [0; 1000];
    // Each node is a struct and an option.
    for (length, fits) in [(MAX_DEPTH / 2 - 1, true), (MAX_DEPTH / 2 + 1, false)] {
        let list = (0..length).fold(Node::default(), |next, _| Node { value: 1, next: Some(Box::new(next)) });
        let bytes = LIMIT.encode(&list, &mut room).unwrap();
        assert_eq!(decode::<Node>(&LIMIT, &room[..bytes]).is_ok(), fits);
    }
}

#[test]
fn a_message_cut_off_anywhere_or_with_a_tail_is_an_error() {
    let table = HashMap::from([("a".to_owned(), Shape::Nothing), ("bc".to_owned(), Shape::Number(u64::MAX))]);
    let named = Shape::Named { name: "nörth".to_owned(), places: vec![(1, -1), (2, i64::MIN)] };
    let value = Shape::Many(vec![named, Shape::Nested(Box::new(Shape::Nothing), None), Shape::Table(table)]);
    let mut room = [0; 300];
    for codec in 0..2 {
        let bytes = if codec == 0 { LIMIT.encode(&value, &mut room) } else { POSTCARD.encode(&value, &mut room) };
        let bytes = bytes.unwrap();
        let decode = |message: &[u8]| {
            if codec == 0 { decode::<Shape>(&LIMIT, message) } else { decode::<Shape>(&POSTCARD, message) }
        };
        assert_eq!(decode(&room[..bytes]), Ok(value.clone()));
        for cut in 0..bytes {
            assert_eq!(decode(&room[..cut]), Err(TypedErrorKind::CutOff), "{cut} of {bytes}");
        }
        assert_eq!(decode(&room[..bytes + 1]), Err(TypedErrorKind::Trailing));
    }
}

#[test]
fn writing_asks_for_no_memory_and_reading_numbers_does_not_either() {
    let value = (1u8, -5i64, [3.5f32; 3], "borrowed", Some((1u64, 'x')));
    let mut room = [0; 200];
    for _ in 0..2 {
        let asked = allocations(|| {
            let bytes = LIMIT.encode(&value, &mut room).unwrap();
            assert!(LIMIT.decode::<(u8, i64, [f32; 3], &str, Option<(u64, char)>)>(&room[..bytes]) == Ok(value));
            let bytes = POSTCARD.encode(&value, &mut room).unwrap();
            assert!(POSTCARD.decode::<(u8, i64, [f32; 3], &str, Option<(u64, char)>)>(&room[..bytes]) == Ok(value));
        });
        assert_eq!(asked, 0);
    }
}

#[test]
fn a_message_over_its_limit_is_neither_written_nor_read() {
    let (codec, postcard) = (Bincode::with_limit(100), Postcard::with_limit(100));
    let mut room = [0; 300];
    let [fits, not] = [98, 101].map(|length| "x".repeat(length));
    assert!(codec.encode(&fits, &mut room).is_ok() && postcard.encode(&fits, &mut room).is_ok());
    assert_eq!(codec.encode(&not, &mut room), Err(TypedErrorKind::TooLarge));
    assert_eq!(postcard.encode(&not, &mut room), Err(TypedErrorKind::TooLarge));
    assert_eq!(codec.encode(&fits, &mut room[..50]), Err(TypedErrorKind::TooLarge));
    assert_eq!(codec.decode::<String>(&room[..101]), Err(TypedErrorKind::TooLarge));
    assert_eq!(postcard.decode::<String>(&room[..101]), Err(TypedErrorKind::TooLarge));
}
