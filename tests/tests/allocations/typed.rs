//! How often a typed message makes its reader ask for memory: a number that is the same for every message.
//!
//! What asks for memory takes ten times as long as a number does, or longer. So these are counted apart from other
//! values, and the shapes that take longest are held to how many of them a message can hold.

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

/// What came of a message, and how often it asked for memory; an error has a text.
fn decode<T: DeserializeOwned>(codec: &impl Codec, message: &[u8]) -> Option<TypedErrorKind> {
    let mut error = None;
    let asked = allocations(|| error = codec.decode_owned::<T>(message).err());
    let name = std::any::type_name::<T>();
    assert!(asked <= MAX_ALLOCATIONS as u64 + 1, "{name}: {asked} times for a message of {} bytes", message.len());
    error
}

/// So many of these elements, and how many they are.
fn list(codec: &impl Codec, element: &[u8], count: usize) -> Vec<u8> {
    let mut message = vec![0; 16];
    let length = codec.encode(&(count as u64), &mut message).unwrap();
    message.truncate(length);
    message.extend(element.iter().copied().cycle().take(element.len() * count));
    message
}

/// A message holds so many of these elements and no more; one that is as large as can be ends there, too.
fn holds<T: DeserializeOwned>(element: &[u8], most: usize) {
    fn by<T: DeserializeOwned>(codec: &impl Codec, element: &[u8], most: usize) {
        let (name, refused) = (std::any::type_name::<T>(), Some(TypedErrorKind::TooManyAllocations));
        assert_eq!(decode::<T>(codec, &list(codec, element, most)), None, "{name}: {most}");
        assert_eq!(decode::<T>(codec, &list(codec, element, most + 1)), refused, "{name}: {most} and one");
        let largest = list(codec, element, (MAX_BYTES - 9) / element.len());
        assert_eq!(decode::<T>(codec, &largest), refused, "{name}: {} bytes", largest.len());
    }
    by::<T>(&BINCODE, element, most);
    by::<T>(&POSTCARD, element, most);
}

#[test]
fn what_can_hold_memory_is_limited_however_few_bytes_it_has() {
    // A vector has grown ten times by then, and is one itself.
    const ONE_EACH: usize = MAX_ALLOCATIONS - 11;
    // And nine times.
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
fn what_takes_much_memory_for_its_bytes_is_refused_for_that_before() {
    fn is_refused<T: DeserializeOwned>(element: &[u8]) {
        let count = MAX_ALLOCATIONS - 11;
        assert_eq!(decode::<T>(&BINCODE, &list(&BINCODE, element, count)), Some(TypedErrorKind::Expands));
        assert_eq!(decode::<T>(&POSTCARD, &list(&POSTCARD, element, count)), Some(TypedErrorKind::Expands));
    }
    is_refused::<Vec<String>>(&[0]);
    is_refused::<Vec<HashSet<u8>>>(&[1, 7]);
}

#[test]
fn lists_trees_and_hash_tables_count_each_of_their_elements() {
    // They are one themselves.
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
fn elements_that_are_all_different_are_no_more() {
    fn most<T: Serialize + DeserializeOwned>(collect: impl Fn(u32) -> T) {
        let mut room = vec![0; MAX_BYTES];
        for (count, error) in [(4095, None), (4096, Some(TypedErrorKind::TooManyAllocations))] {
            let bytes = BINCODE.encode(&collect(count), &mut room).unwrap();
            assert_eq!(decode::<T>(&BINCODE, &room[..bytes]), error);
            let bytes = POSTCARD.encode(&collect(count), &mut room).unwrap();
            assert_eq!(decode::<T>(&POSTCARD, &room[..bytes]), error);
        }
    }
    most(|count| (0..count).collect::<BTreeSet<u32>>());
    most(|count| (0..count).collect::<HashSet<u32>>());
    most(|count| (0..count).map(|key| (key, key)).collect::<BTreeMap<u32, u32>>());
    most(|count| (0..count).map(|key| (key, key)).collect::<HashMap<u32, u32>>());
}

/// The largest message of such values, written and read.
fn is_whole<T: Serialize + DeserializeOwned + Clone + PartialEq>(value: T, each: [usize; 2]) {
    let mut room = vec![0; MAX_BYTES];
    let values = vec![value.clone(); (MAX_BYTES - 9) / each[0]];
    let bytes = BINCODE.encode(&values, &mut room).unwrap();
    assert!(bytes > MAX_BYTES - 9 - each[0]);
    assert!(BINCODE.decode_owned::<Vec<T>>(&room[..bytes]).is_ok_and(|decoded| decoded == values));
    assert!(BINCODE.decode_owned::<VecDeque<T>>(&room[..bytes]).is_ok_and(|decoded| decoded == values));
    assert!(BINCODE.decode_owned::<Box<[T]>>(&room[..bytes]).is_ok_and(|decoded| *decoded == *values));
    let values = vec![value; (MAX_BYTES - 9) / each[1]];
    let bytes = POSTCARD.encode(&values, &mut room).unwrap();
    assert!(bytes > MAX_BYTES - 9 - each[1]);
    assert!(POSTCARD.decode_owned::<Vec<T>>(&room[..bytes]).is_ok_and(|decoded| decoded == values));
}

#[test]
fn lists_of_numbers_are_as_long_as_the_largest_message() {
    is_whole(7_u8, [1, 1]);
    is_whole(true, [1, 1]);
    is_whole(7_u64, [1, 1]);
    is_whole(60_000_u16, [3, 3]);
    is_whole(1.5_f32, [4, 4]);
    is_whole(1.5_f64, [8, 8]);
    is_whole((1.5_f32, 2.5_f32, 3.5_f32), [12, 12]);
    is_whole((9_u16, [0.5_f32; 3], [7_u8; 4]), [17, 17]);
    let mut room = vec![0; MAX_BYTES];
    let bytes = BINCODE.encode(&vec![7_u8; MAX_BYTES - 9], &mut room).unwrap();
    assert!(BINCODE.decode_owned::<BinaryHeap<u8>>(&room[..bytes]).is_ok_and(|heap| heap.len() == MAX_BYTES - 9));
}

#[test]
fn a_message_of_the_default_size_holds_a_list_of_names() {
    let names: Vec<_> = (0..2000).map(|number| format!("p{number}")).collect();
    let mut room = vec![0; MAX_BYTES];
    let (bincode, postcard) = (Bincode::default(), Postcard::default());
    let bytes = bincode.encode(&names, &mut room).unwrap();
    assert_eq!(bincode.decode_owned::<Vec<String>>(&room[..bytes]).as_ref(), Ok(&names));
    let bytes = postcard.encode(&names, &mut room).unwrap();
    assert_eq!(postcard.decode_owned::<Vec<String>>(&room[..bytes]).as_ref(), Ok(&names));
}

#[test]
fn borrowed_text_asks_for_no_memory_and_is_not_limited_so() {
    let message = list(&BINCODE, &[1, b'a'], MAX_ALLOCATIONS * 2);
    let asked = allocations(|| assert!(BINCODE.decode::<Vec<&str>>(&message).is_ok_and(|all| all.len() == 8192)));
    assert!(asked < 20, "{asked}");
}
