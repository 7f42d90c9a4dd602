//! Any bytes as a returned challenge, and real challenges for the right and for wrong clients.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use slipgate_fuzz::Input;
use slipgate_netcode::address::Address;
use slipgate_netcode::crypto::digest::Digest;
use slipgate_netcode::crypto::key::Seed;
use slipgate_netcode::discard::Discard;
use slipgate_netcode::time::Instant;
use slipgate_netcode::token::challenge::{Binding, Challenger};
use slipgate_netcode::wire::packet::Challenge;

const LIFETIME: Duration = Duration::from_secs(5);
/// The clock of a challenge counts milliseconds modulo 2^32.
const WRAP: u64 = 1 << 32;

fuzz_target!(|input: &[u8]| {
    let mut challenger = Challenger::new(&Seed::from([0x2d; 32]));
    let mut input = Input::new(input);
    let (bound, other) = (binding(&mut input), binding(&mut input));
    let minted = Duration::from_millis(input.u64() % (4 * WRAP));
    let age = Duration::from_millis(input.u64() % WRAP);
    let (flipped, returned): (u64, [u8; 308]) = (input.u64(), input.array());
    let (minted, now) = (Instant::from_start(minted), Instant::from_start(minted + age));

    let noise = Challenge::parse(&returned).expect("308 bytes");
    assert_eq!(noise.to_bytes(), returned);
    assert_eq!(challenger.verify(noise, &bound, now, LIFETIME), Err(Discard::ChallengeNotAuthentic));

    let real = challenger.challenge(&bound, &[7; 256], minted).expect("the first");
    let in_time = if age > LIFETIME { Err(Discard::ChallengeExpired) } else { Ok(()) };
    assert_eq!(challenger.verify(real, &bound, now, LIFETIME), in_time);
    let expected = if is_same(&bound, &other) { in_time } else { Err(Discard::ChallengeForeign) };
    assert_eq!(challenger.verify(real, &other, now, LIFETIME), expected);

    let mut altered = real.to_bytes();
    let bit = flipped as usize % (altered.len() * 8);
    altered[bit / 8] ^= 1 << (bit % 8);
    let altered = Challenge::parse(&altered).expect("308 bytes");
    assert_eq!(challenger.verify(altered, &bound, now, LIFETIME), Err(Discard::ChallengeNotAuthentic));
});

fn binding(input: &mut Input<'_>) -> Binding {
    Binding {
        address: Address::from(input.address()),
        token: Digest(input.array()),
        pending: input.u64(),
        client_id: input.u64().into(),
    }
}

fn is_same(one: &Binding, other: &Binding) -> bool {
    let fields = |bound: &Binding| (bound.address, bound.token.0, bound.pending, bound.client_id);
    fields(one) == fields(other)
}
