//! The allocations of a typed message: a limit that is the same for every message.
//!
//! An allocation takes ten times as long as a number, or longer. Allocations are counted apart from other values,
//! and the slowest shapes have a limit on their number in a message.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use slipgate_tests::counting::allocations;
use slipgate_typed::{Bincode, Codec, MAX_ALLOCATIONS, MAX_BYTES, Postcard, TypedErrorKind};

const BINCODE: Bincode = Bincode::with_limit(MAX_BYTES);
const POSTCARD: Postcard = Postcard::with_limit(MAX_BYTES);

#[derive(Serialize, Deserialize)]
struct Boxes {
    one: Box<u8>,
    two: Box<u8>,
    three: Option<Box<u8>>,
    four: Box<[u8; 1]>,
}

#[derive(Serialize, Deserialize)]
enum Choice {
    Box(Box<u8>),
    Pair(Box<u8>, Box<u8>),
}

#[derive(Serialize, Deserialize)]
struct Wrapped(Box<u8>);

/// Decodes a message; returns the error, and counts the allocations. An error has a text.
fn decode<T: DeserializeOwned>(codec: &impl Codec, message: &[u8]) -> Option<TypedErrorKind> {
    let mut error = None;
    let allocation_count = allocations(|| error = codec.decode_owned::<T>(message).err());
    let name = std::any::type_name::<T>();
    assert!(
        allocation_count <= MAX_ALLOCATIONS as u64 + 1,
        "{name}: {allocation_count} times for a message of {} bytes",
        message.len()
    );
    error
}

/// Returns a list of `count` elements.
fn list(codec: &impl Codec, element: &[u8], count: usize) -> Vec<u8> {
    let mut message = vec![0; 16];
    let length = codec.encode(&(count as u64), &mut message).unwrap();
    message.truncate(length);
    message.extend(element.iter().copied().cycle().take(element.len() * count));
    message
}

/// Asserts that a message holds at most this number of elements; the largest possible message ends there, too.
fn holds<T: DeserializeOwned>(element: &[u8], max: usize) {
    fn by<T: DeserializeOwned>(codec: &impl Codec, element: &[u8], max: usize) {
        let (name, refused) = (std::any::type_name::<T>(), Some(TypedErrorKind::TooManyAllocations));
        assert_eq!(decode::<T>(codec, &list(codec, element, max)), None, "{name}: {max}");
        assert_eq!(decode::<T>(codec, &list(codec, element, max + 1)), refused, "{name}: {max} and one");
        let largest = list(codec, element, (MAX_BYTES - 9) / element.len());
        assert_eq!(decode::<T>(codec, &largest), refused, "{name}: {} bytes", largest.len());
    }
    by::<T>(&BINCODE, element, max);
    by::<T>(&POSTCARD, element, max);
}

#[test]
fn decoder_memory_is_bounded_for_the_smallest_message() {
    // A vector has grown ten times by then, and is an allocation itself.
    const ONE_EACH: usize = MAX_ALLOCATIONS - 11;
    // Nine times.
    const TWO_EACH: usize = (MAX_ALLOCATIONS - 10) / 2;
    holds::<Vec<Box<u8>>>(&[7], ONE_EACH);
    holds::<Vec<Box<[u8; 8]>>>(&[7; 8], ONE_EACH);
    holds::<Vec<Wrapped>>(&[7], ONE_EACH);
    holds::<Vec<(Box<u8>, Box<u8>)>>(&[7, 7], TWO_EACH);
    holds::<Vec<Boxes>>(&[7, 7, 1, 7, 7], (MAX_ALLOCATIONS - 9) / 4);
    holds::<Vec<Option<Box<u8>>>>(&[0], ONE_EACH);
    holds::<Vec<Option<Box<u8>>>>(&[1, 7], ONE_EACH);
    holds::<Vec<Choice>>(&[0, 7], TWO_EACH);
    holds::<Vec<Choice>>(&[1, 7, 7], (MAX_ALLOCATIONS - 10) / 3);
    holds::<Vec<Vec<u8>>>(&[3, 7, 7, 7], ONE_EACH);
    holds::<Vec<Vec<u8>>>(&[9, 7, 7, 7, 7, 7, 7, 7, 7, 7], TWO_EACH);
    holds::<Vec<Vec<Vec<u8>>>>(&[1, 8, 7, 7, 7, 7, 7, 7, 7, 7], TWO_EACH);
    holds::<Vec<String>>(&[1, b'a'], ONE_EACH);
    holds::<Vec<Box<str>>>(&[1, b'a'], TWO_EACH);
    holds::<Vec<Box<[u8]>>>(&[3, 7, 7, 7], TWO_EACH);
    holds::<Vec<BTreeSet<[u8; 8]>>>(&[1, 7, 7, 7, 7, 7, 7, 7, 7], TWO_EACH);
    holds::<Vec<HashSet<[u8; 8]>>>(&[1, 7, 7, 7, 7, 7, 7, 7, 7], TWO_EACH);
    holds::<Vec<LinkedList<[u8; 8]>>>(&[1, 7, 7, 7, 7, 7, 7, 7, 7], TWO_EACH);
}

#[test]
fn amplifying_message_is_refused_before_allocation() {
    fn is_refused<T: DeserializeOwned>(element: &[u8]) {
        let count = MAX_ALLOCATIONS - 11;
        assert_eq!(decode::<T>(&BINCODE, &list(&BINCODE, element, count)), Some(TypedErrorKind::Expands));
        assert_eq!(decode::<T>(&POSTCARD, &list(&POSTCARD, element, count)), Some(TypedErrorKind::Expands));
    }
    is_refused::<Vec<String>>(&[0]);
    is_refused::<Vec<HashSet<u8>>>(&[1, 7]);
}

#[test]
fn collections_count_the_memory_of_each_element() {
    // The collection is an allocation itself.
    const EACH: usize = MAX_ALLOCATIONS - 1;
    holds::<LinkedList<u8>>(&[7], EACH);
    holds::<LinkedList<Box<u8>>>(&[7], EACH / 2);
    holds::<BTreeSet<u8>>(&[7], EACH);
    holds::<HashSet<u8>>(&[7], EACH);
    holds::<BTreeMap<u8, u8>>(&[7, 7], EACH);
    holds::<BTreeMap<u8, Box<u8>>>(&[7, 7], EACH / 2);
    holds::<HashMap<u8, ()>>(&[7], EACH);
    holds::<HashMap<String, String>>(&[2, b'a', b'b', 3, b'c', b'd', b'e'], EACH / 3);
}

#[test]
fn distinct_elements_stay_within_the_memory_limit() {
    fn max<T: Serialize + DeserializeOwned>(collect: impl Fn(u32) -> T) {
        let mut buf = vec![0; MAX_BYTES];
        for (count, error) in [(4095, None), (4096, Some(TypedErrorKind::TooManyAllocations))] {
            let bytes = BINCODE.encode(&collect(count), &mut buf).unwrap();
            assert_eq!(decode::<T>(&BINCODE, &buf[..bytes]), error);
            let bytes = POSTCARD.encode(&collect(count), &mut buf).unwrap();
            assert_eq!(decode::<T>(&POSTCARD, &buf[..bytes]), error);
        }
    }
    max(|count| (0..count).collect::<BTreeSet<u32>>());
    max(|count| (0..count).collect::<HashSet<u32>>());
    max(|count| (0..count).map(|key| (key, key)).collect::<BTreeMap<u32, u32>>());
    max(|count| (0..count).map(|key| (key, key)).collect::<HashMap<u32, u32>>());
}

/// Asserts that the largest message of such values decodes.
fn is_whole<T: Serialize + DeserializeOwned + Clone + PartialEq>(value: T, each: [usize; 2]) {
    let mut buf = vec![0; MAX_BYTES];
    let values = vec![value.clone(); (MAX_BYTES - 9) / each[0]];
    let bytes = BINCODE.encode(&values, &mut buf).unwrap();
    assert!(bytes > MAX_BYTES - 9 - each[0]);
    assert!(BINCODE.decode_owned::<Vec<T>>(&buf[..bytes]).is_ok_and(|decoded| decoded == values));
    assert!(BINCODE.decode_owned::<VecDeque<T>>(&buf[..bytes]).is_ok_and(|decoded| decoded == values));
    assert!(BINCODE.decode_owned::<Box<[T]>>(&buf[..bytes]).is_ok_and(|decoded| *decoded == *values));
    let values = vec![value; (MAX_BYTES - 9) / each[1]];
    let bytes = POSTCARD.encode(&values, &mut buf).unwrap();
    assert!(bytes > MAX_BYTES - 9 - each[1]);
    assert!(POSTCARD.decode_owned::<Vec<T>>(&buf[..bytes]).is_ok_and(|decoded| decoded == values));
}

#[test]
fn list_of_numbers_can_fill_the_largest_message() {
    is_whole(7_u8, [1, 1]);
    is_whole(true, [1, 1]);
    is_whole(7_u64, [1, 1]);
    is_whole(60_000_u16, [3, 3]);
    is_whole(1.5_f32, [4, 4]);
    is_whole(1.5_f64, [8, 8]);
    is_whole((1.5_f32, 2.5_f32, 3.5_f32), [12, 12]);
    is_whole((9_u16, [0.5_f32; 3], [7_u8; 4]), [17, 17]);
    let mut buf = vec![0; MAX_BYTES];
    let bytes = BINCODE.encode(&vec![7_u8; MAX_BYTES - 9], &mut buf).unwrap();
    assert!(BINCODE.decode_owned::<BinaryHeap<u8>>(&buf[..bytes]).is_ok_and(|heap| heap.len() == MAX_BYTES - 9));
}

#[test]
fn default_message_size_holds_a_list_of_names() {
    let names: Vec<_> = (0..2000).map(|number| format!("p{number}")).collect();
    let mut buf = vec![0; MAX_BYTES];
    let (bincode, postcard) = (Bincode::default(), Postcard::default());
    let bytes = bincode.encode(&names, &mut buf).unwrap();
    assert_eq!(bincode.decode_owned::<Vec<String>>(&buf[..bytes]).as_ref(), Ok(&names));
    let bytes = postcard.encode(&names, &mut buf).unwrap();
    assert_eq!(postcard.decode_owned::<Vec<String>>(&buf[..bytes]).as_ref(), Ok(&names));
}

#[test]
fn borrowed_text_does_not_allocate_and_is_not_limited() {
    let message = list(&BINCODE, &[1, b'a'], MAX_ALLOCATIONS * 2);
    let allocation_count =
        allocations(|| assert!(BINCODE.decode::<Vec<&str>>(&message).is_ok_and(|all| all.len() == 8192)));
    assert!(allocation_count < 20, "{allocation_count}");
}
