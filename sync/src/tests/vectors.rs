//! The vectors of messages: a second encoder wrote them from `specs/sync-1.md`.

use alloc::string::ToString;
use alloc::vec::Vec;

use serde_json::Value;

use super::{schema_with_rest, shown};
use crate::{InputReport, Replica, StateHeader};

/// Returns a file of vectors.
pub(super) fn vectors(name: &str) -> Value {
    let path = std::format!("{}/../specs/vectors/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns the bytes of hexadecimal digits.
pub(super) fn bytes_of(digits: &Value) -> Vec<u8> {
    let digits = digits.as_str().unwrap();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

fn replica(vectors: &Value) -> Replica {
    Replica::new(schema_with_rest().0, vectors["max_objects_u16"].as_u64().unwrap() as u16)
}

fn message(case: &Value) -> Vec<u8> {
    bytes_of(&case["message_hex"])
}

#[test]
fn messages_of_the_vectors_show_their_objects() {
    let vectors = vectors("sync_messages.json");
    let (mut replica, steps) = (replica(&vectors), vectors["steps"].as_array().unwrap());
    assert_eq!(steps.len(), 27);
    assert_eq!(u64::from(schema_with_rest().0.hash()), vectors["schema_hash_u32"].as_u64().unwrap());
    for step in steps {
        let header = replica.read(&message(step)).unwrap_or_else(|error| panic!("{step}: {error}"));
        let report = step.get("report").map(|report| InputReport {
            newest: report["newest_u32"].as_u64().unwrap() as u32,
            margin_quarters: report["margin_quarters_i8"].as_i64().unwrap() as i8,
            epoch: report.get("epoch_u8").map_or(0, |epoch| epoch.as_u64().unwrap() as u8),
        });
        let tick = step["tick_u32"].as_u64().unwrap() as u32;
        let is_first = step.get("is_first").is_none_or(|is_first| is_first.as_bool().unwrap());
        assert_eq!(header, StateHeader { tick, report, is_first }, "{step}");
        let objects = step["objects"].as_array().unwrap().iter().map(|object| {
            let words = object["words"].as_array().unwrap().iter().map(|word| word.as_i64().unwrap() as i32).collect();
            let kind = schema_with_rest().1[object["kind"].as_u64().unwrap() as usize];
            (object["id"].as_u64().unwrap() as u16, (kind, words))
        });
        assert_eq!(shown(&replica), objects.collect(), "{step}");
    }
}

#[test]
fn invalid_messages_of_the_vectors_are_refused() {
    let vectors = vectors("sync_messages.json");
    let cases = vectors["invalid"].as_array().unwrap();
    assert_eq!(cases.len(), 17);
    for case in cases {
        let mut replica = replica(&vectors);
        let error = replica.read(&message(case)).expect_err(&case.to_string());
        assert_eq!(std::format!("{error:?}"), case["error"].as_str().unwrap(), "{case}");
        assert_eq!((replica.poll(), replica.objects().count()), (None, 0), "{case}");
    }
}
