//! A whole server and a client under a sequence of operations: requests, responses, noise, time, restarts, and more.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| slipgate_fuzz::server::play(input));
