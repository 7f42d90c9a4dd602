//! The vectors of inputs: a second encoder wrote them from `specs/sync-1.md`.

use alloc::string::ToString;
use alloc::vec::Vec;

use serde_json::Value;

use super::vectors::{bytes_of, vectors};
use crate::{InputBuffer, ResyncRequest, TickKeys};

fn messages(name: &str) -> Vec<Value> {
    vectors("sync_inputs.json")[name].as_array().unwrap().clone()
}

#[test]
fn inputs_of_the_vectors_are_kept() {
    let (mut buffer, steps) = (InputBuffer::new(0), messages("steps"));
    assert_eq!(steps.len(), 22);
    for step in steps {
        let message = bytes_of(&step["message_hex"]);
        let (before, now) = (buffer.clone(), step["now_tick_f64"].as_f64().unwrap());
        let request = buffer.read(&message, now).unwrap_or_else(|error| panic!("{step}: {error}"));
        let resync = step.get("resync_u8").map(|number| ResyncRequest(number.as_u64().unwrap() as u8));
        assert_eq!(request, resync, "{step}");
        let inputs = step["inputs"].as_array().unwrap().iter();
        let expected: Vec<_> = inputs
            .map(|input| (input["tick"].as_u64().unwrap() as u32, input["keys_u32"].as_u64().unwrap() as u32))
            .collect();
        if let Some(shown) = step.get("shown_tick_f64").and_then(Value::as_f64) {
            let older = step.get("frame_u8").map_or(0, |older| older.as_u64().unwrap() as usize);
            for (tick, _) in expected.iter().rev().take(older + 1) {
                assert_eq!(buffer.shown(*tick), shown, "{step}");
            }
        }
        for tick in now as u32 - 40..now as u32 + 60 {
            let is_forgotten =
                step.get("forgotten_from_tick_u32").is_some_and(|from| from.as_u64() <= Some(tick.into()));
            let known = if is_forgotten { InputBuffer::new(0) } else { before.clone() }.keys(tick);
            let input = expected.iter().find(|(own, _)| *own == tick);
            let kept = input.map_or(known, |(_, keys)| TickKeys { keys: *keys, is_missing: false });
            assert_eq!(buffer.clone().keys(tick), kept, "tick {tick} of {step}");
        }
    }
}

#[test]
fn invalid_inputs_of_the_vectors_are_refused() {
    let cases = messages("invalid");
    assert_eq!(cases.len(), 15);
    for case in cases {
        let mut buffer = InputBuffer::new(0);
        let error = buffer.read(&bytes_of(&case["message_hex"]), 1000.0).expect_err(&case.to_string());
        assert_eq!(std::format!("{error:?}"), case["error"].as_str().unwrap(), "{case}");
        assert_eq!(buffer.report(), None, "{case}");
    }
}
