//! Typed messages of hostile peers: decoding takes at most 64 times the bytes of the message plus 64 KiB.

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

/// Decodes a message, checks its memory against the bound, and returns the result.
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

/// Returns a number encoded by bincode and by postcard.
fn numbers(value: u64) -> [Vec<u8>; 2] {
    let mut buf = [0; 16];
    let bincode = LIMIT.encode(&value, &mut buf).unwrap();
    let bincode = buf[..bincode].to_vec();
    let postcard = POSTCARD.encode(&value, &mut buf).unwrap();
    [bincode, buf[..postcard].to_vec()]
}

/// Returns malformed messages for a value of any shape.
fn malformed_messages(codec: usize) -> Vec<Vec<u8>> {
    let mut malformed_messages = vec![vec![]];
    for length in [1, 250, 65_536, 1 << 60, u64::MAX] {
        for fill in [0u8, 1, 2, 0x80, 0xfb, 0xff] {
            for tail in [0usize, 10, 700] {
                let mut malformed = numbers(length)[codec].clone();
                malformed.resize(malformed.len() + tail, fill);
                malformed_messages.push(malformed);
            }
        }
    }
    // Lists of lists of lists, each of which claims to be long.
    for repeat in [1, 50, 700] {
        for length in [2, 100, 1 << 60] {
            malformed_messages.push(numbers(length)[codec].repeat(repeat));
        }
    }
    malformed_messages
}

fn survives<T: DeserializeOwned>() {
    let mut random = StdRng::seed_from_u64(7);
    for malformed in malformed_messages(0) {
        let _ = decode::<T>(&LIMIT, &malformed);
    }
    for malformed in malformed_messages(1) {
        let _ = decode::<T>(&POSTCARD, &malformed);
    }
    for _ in 0..40 {
        let length = random.random_range(0..1500);
        let max = [2, 5, 30, 252, 255][random.random_range(0..5)];
        let noise: Vec<u8> = (0..length).map(|_| random.random_range(0..=max)).collect();
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
fn malformed_messages_of_every_shape_stay_within_the_bound() {
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

/// Encodes and decodes values with more and more elements, until the bound refuses them.
fn grows_up_to_the_bound<T: Serialize + DeserializeOwned + PartialEq + Debug>(max: usize, make: impl Fn(usize) -> T) {
    let mut buf = vec![0; MAX_BYTES];
    let (mut n, mut refused) = (0, [false; 2]);
    while n < max {
        let value = make(n);
        for (codec, refused) in refused.iter_mut().enumerate() {
            let bytes = if codec == 0 { LIMIT.encode(&value, &mut buf) } else { POSTCARD.encode(&value, &mut buf) };
            // Some values reach the maximum message size before.
            let Ok(bytes) = bytes else { return };
            let message = &buf[..bytes];
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
fn every_collection_stays_within_the_bound_at_every_length() {
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
fn many_small_collections_stay_within_the_bound() {
    grows_up_to_the_bound(1000, |n| vec![HashSet::from([1u8]); n]);
    grows_up_to_the_bound(1000, |n| vec![BTreeSet::from([1u8]); n]);
    grows_up_to_the_bound(1000, |n| vec![BTreeMap::from([(1u8, 1u128)]); n]);
    grows_up_to_the_bound(1000, |n| vec![HashMap::from([((), ())]); n]);
    grows_up_to_the_bound(1000, |n| vec![(0..4u8).collect::<HashSet<u8>>(); n]);
    grows_up_to_the_bound(1000, |n| vec![(0..12u8).map(|i| (i, 1u64)).collect::<BTreeMap<u8, u64>>(); n]);
    grows_up_to_the_bound(1000, |n| vec![LinkedList::from([1u8]); n]);
    grows_up_to_the_bound(1000, |n| vec![VecDeque::from([1u16]); n]);
}

/// Counts its decoded values.
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
fn zero_sized_elements_end_early_for_any_claimed_count() {
    for length in [1 << 20, 1 << 40, u64::MAX] {
        for (codec, message) in numbers(length).into_iter().enumerate() {
            for tail in [0, 1000, 10_000] {
                let mut message = message.clone();
                message.resize(message.len() + tail, 0);
                let max = VALUES_BASE + VALUES_PER_BYTE * message.len();
                fn error<T: DeserializeOwned>(codec: usize, message: &[u8]) -> Option<TypedErrorKind> {
                    if codec == 0 { decode::<T>(&LIMIT, message).err() } else { decode::<T>(&POSTCARD, message).err() }
                }
                DECODED.set(0);
                let kind = error::<Vec<Counted>>(codec, &message);
                assert!(matches!(kind, Some(TypedErrorKind::Expands | TypedErrorKind::TooManyValues)), "{kind:?}");
                assert!(DECODED.get() <= max, "{} elements", DECODED.get());
                DECODED.set(0);
                assert_eq!(error::<Vec<Wrapped>>(codec, &message), Some(TypedErrorKind::TooManyValues));
                assert!(DECODED.get() <= max, "{} elements", DECODED.get());
            }
        }
    }
}

#[test]
fn nesting_is_limited_below_stack_overflow() {
    for (fill, kind) in [(1, TypedErrorKind::TooDeep), (0, TypedErrorKind::Trailing)] {
        assert_eq!(decode::<Node>(&LIMIT, &vec![fill; MAX_BYTES]), Err(kind));
        assert_eq!(decode::<Node>(&POSTCARD, &vec![fill; MAX_BYTES]), Err(kind));
    }
    let mut buf = [0; 1000];
    // Each node is a struct and an option.
    for (length, fits) in [(MAX_DEPTH / 2 - 1, true), (MAX_DEPTH / 2 + 1, false)] {
        let list = (0..length).fold(Node::default(), |next, _| Node { value: 1, next: Some(Box::new(next)) });
        let bytes = LIMIT.encode(&list, &mut buf).unwrap();
        assert_eq!(decode::<Node>(&LIMIT, &buf[..bytes]).is_ok(), fits);
    }
}

#[test]
fn truncated_or_extended_message_is_an_error() {
    let table = HashMap::from([("a".to_owned(), Shape::Nothing), ("bc".to_owned(), Shape::Number(u64::MAX))]);
    let named = Shape::Named { name: "nörth".to_owned(), places: vec![(1, -1), (2, i64::MIN)] };
    let value = Shape::Many(vec![named, Shape::Nested(Box::new(Shape::Nothing), None), Shape::Table(table)]);
    let mut buf = [0; 300];
    for codec in 0..2 {
        let bytes = if codec == 0 { LIMIT.encode(&value, &mut buf) } else { POSTCARD.encode(&value, &mut buf) };
        let bytes = bytes.unwrap();
        let decode = |message: &[u8]| {
            if codec == 0 { decode::<Shape>(&LIMIT, message) } else { decode::<Shape>(&POSTCARD, message) }
        };
        assert_eq!(decode(&buf[..bytes]), Ok(value.clone()));
        for cut in 0..bytes {
            assert_eq!(decode(&buf[..cut]), Err(TypedErrorKind::CutOff), "{cut} of {bytes}");
        }
        assert_eq!(decode(&buf[..bytes + 1]), Err(TypedErrorKind::Trailing));
    }
}

#[test]
fn encoding_and_decoding_numbers_do_not_allocate() {
    let value = (1u8, -5i64, [3.5f32; 3], "borrowed", Some((1u64, 'x')));
    let mut buf = [0; 200];
    for _ in 0..2 {
        let allocation_count = allocations(|| {
            let bytes = LIMIT.encode(&value, &mut buf).unwrap();
            assert!(LIMIT.decode::<(u8, i64, [f32; 3], &str, Option<(u64, char)>)>(&buf[..bytes]) == Ok(value));
            let bytes = POSTCARD.encode(&value, &mut buf).unwrap();
            assert!(POSTCARD.decode::<(u8, i64, [f32; 3], &str, Option<(u64, char)>)>(&buf[..bytes]) == Ok(value));
        });
        assert_eq!(allocation_count, 0);
    }
}

#[test]
fn message_over_its_limit_is_not_encoded_or_decoded() {
    let (codec, postcard) = (Bincode::with_limit(100), Postcard::with_limit(100));
    let mut buf = [0; 300];
    let [fits, not] = [98, 101].map(|length| "x".repeat(length));
    assert!(codec.encode(&fits, &mut buf).is_ok() && postcard.encode(&fits, &mut buf).is_ok());
    let too_large = |bytes, limit| TypedErrorKind::TooLarge { bytes, limit };
    assert_eq!(codec.encode(&not, &mut buf), Err(too_large(102, 100)));
    assert_eq!(postcard.encode(&not, &mut buf), Err(too_large(102, 100)));
    assert_eq!(codec.encode(&fits, &mut buf[..50]), Err(too_large(99, 50)));
    assert_eq!(postcard.encode(&fits, &mut buf[..50]), Err(too_large(99, 50)));
    assert_eq!(codec.decode::<String>(&buf[..101]).err(), Some(too_large(101, 100)));
    assert_eq!(postcard.decode::<String>(&buf[..101]).err(), Some(too_large(101, 100)));
    assert_eq!(too_large(102, 100).to_string(), "102 bytes exceed the limit of 100");
}
