//! Round trips of typed messages by either codec.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::*;

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
struct Entity<'a> {
    id: u32,
    place: [f32; 3],
    name: Option<&'a str>,
    tags: Vec<String>,
    table: BTreeMap<u8, (i64, bool)>,
    state: State,
    kept: Wrapper,
}

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
enum State {
    Idle,
    Moving(i16, i16),
    Carrying { what: u64, of: Option<Box<State>> },
    Named(String),
}

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
struct Wrapper(Vec<u8>);

fn state() -> impl Strategy<Value = State> {
    let leaf = prop_oneof![
        Just(State::Idle),
        any::<(i16, i16)>().prop_map(|(x, y)| State::Moving(x, y)),
        ".{0,9}".prop_map(State::Named),
    ];
    leaf.prop_recursive(5, 5, 1, |inner| {
        (any::<u64>(), inner).prop_map(|(what, of)| State::Carrying { what, of: Some(of.into()) })
    })
}

proptest! {
    #[test]
    fn decoding_returns_the_encoded_value(
        id in any::<u32>(),
        place in prop::array::uniform3(-1e6f32..1e6),
        name in prop::option::of(".{0,20}"),
        tags in prop::collection::vec(".{0,5}", 0..9),
        table in prop::collection::btree_map(any::<u8>(), any::<(i64, bool)>(), 0..9),
        state in state(),
        kept in any::<Vec<u8>>(),
    ) {
        let entity = Entity { id, place, name: name.as_deref(), tags, table, state, kept: Wrapper(kept) };
        let mut buf = [0; 4096];
        let bytes = Bincode::default().encode(&entity, &mut buf).unwrap();
        prop_assert_eq!(&Bincode::default().decode::<Entity<'_>>(&buf[..bytes]).unwrap(), &entity);
        let bytes = Postcard::default().encode(&entity, &mut buf).unwrap();
        prop_assert_eq!(&Postcard::default().decode::<Entity<'_>>(&buf[..bytes]).unwrap(), &entity);
    }

    #[test]
    fn noise_is_a_value_or_an_error(noise in any::<Vec<u8>>()) {
        let decoders = [Bincode::default().decode::<Entity<'_>>(&noise), Postcard::default().decode(&noise)];
        for decoded in decoders {
            prop_assert!(decoded.is_err() || !noise.is_empty());
        }
    }
}

#[test]
fn the_formats_are_those_of_the_crates() {
    let value = (1u8, 300u32, -2i64, "ab", Some(true));
    let mut buf = [0; 64];
    let bytes = Bincode::default().encode(&value, &mut buf).unwrap();
    assert_eq!(buf[..bytes], [1, 251, 44, 1, 3, 2, b'a', b'b', 1, 1]);
    let bytes = Postcard::default().encode(&value, &mut buf).unwrap();
    assert_eq!(buf[..bytes], [1, 172, 2, 3, 2, b'a', b'b', 1, 1]);
}
