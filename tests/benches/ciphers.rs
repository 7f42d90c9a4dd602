//! Compares ciphers for packets: ring, aws-lc-rs and the portable crate, and the cost that our own layers add.
//!
//! All candidates run in turn within each round. Each is timed by the CPU time of its thread. The table shows medians
//! and ratios to ring with a kept key. `specs/ciphers.md` holds the decision and its reasons.

use std::hint::black_box;
use std::time::Duration;

use slipgate_netcode::crypto::aead::packets::PreparedKey;
use slipgate_netcode::crypto::aead::{PacketKey, nonce, portable};
use slipgate_netcode::crypto::key::Key;
use slipgate_netcode::crypto::packet::PacketCipher;
use slipgate_netcode::crypto::sealed_token::{PrivateContext, seal_private};
use slipgate_netcode::time::UnixSeconds;
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_netcode::wire::{PRIVATE_TOKEN_BYTES, TAG_BYTES};

/// Rounds. Every candidate runs once in each.
const ROUNDS: usize = 21;
/// Packets of one candidate in a round: enough for the clock's resolution, few enough that rounds stay comparable.
const PACKETS: u64 = 4000;
const SIZES: [usize; 4] = [16, 100, 400, 1200];
const ASSOCIATED: [u8; 22] = [7; 22];

/// Seals the plaintext at the front of the buffer and writes the tag behind it.
type Candidate = (&'static str, Box<dyn FnMut(u64, &mut [u8])>);

fn main() {
    println!("seal in place, CPU time, medians of {ROUNDS} rounds of {PACKETS} packets, each candidate in turn");
    for size in SIZES {
        print_turns(size, candidates());
    }
    print_turns(PRIVATE_TOKEN_BYTES - TAG_BYTES, token_candidates());
}

fn print_turns(size: usize, mut candidates: Vec<Candidate>) {
    let mut times = vec![Vec::with_capacity(ROUNDS); candidates.len()];
    for _ in 0..ROUNDS {
        for ((_, seal), times) in candidates.iter_mut().zip(&mut times) {
            times.push(turn(seal, size));
        }
    }
    let medians: Vec<f64> = times.iter_mut().map(|times| median(times)).collect();
    println!("\n{size} bytes");
    for ((name, _), median) in candidates.iter().zip(&medians) {
        println!("  {name:<34} {median:>7.0} ns  {:>6.2}x", median / medians[0]);
    }
}

/// Returns the candidates for the private token data: our code, and the crate that implements XChaCha20-Poly1305.
fn token_candidates() -> Vec<Candidate> {
    use chacha20poly1305::aead::{AeadInOut, KeyInit};
    use chacha20poly1305::{Tag, XChaCha20Poly1305};

    let (key, nonce) = ([9; 32], [3; 24]);
    let ours = Key::from(key);
    vec![
        (
            "a private part, by us",
            Box::new(move |sequence, buffer| {
                let context = PrivateContext { protocol_id: 1, expires: UnixSeconds(sequence), nonce: &nonce };
                seal_private(&ours, &context, buffer.try_into().unwrap());
            }),
        ),
        (
            "a private part, by chacha20poly1305",
            Box::new(move |sequence, buffer| {
                let (plain, tag) = buffer.split_last_chunk_mut::<16>().unwrap();
                let associated = [sequence as u8; 29];
                let cipher = XChaCha20Poly1305::new((&key).into());
                *tag = Tag::into(cipher.encrypt_inout_detached((&nonce).into(), &associated, plain.into()).unwrap());
            }),
        ),
    ]
}

fn turn(seal: &mut dyn FnMut(u64, &mut [u8]), size: usize) -> f64 {
    let mut buffer = vec![0x5a; size + 16];
    let start = cpu_time();
    for sequence in 0..PACKETS {
        seal(sequence, black_box(&mut buffer));
    }
    (cpu_time() - start).as_nanos() as f64 / PACKETS as f64
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn candidates() -> Vec<Candidate> {
    let key = [9; 32];
    let ring_key =
        ring::aead::LessSafeKey::new(ring::aead::UnboundKey::new(&ring::aead::CHACHA20_POLY1305, &key).unwrap());
    let aws_key = {
        use aws_lc_rs::aead::{CHACHA20_POLY1305, LessSafeKey, UnboundKey};
        LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, &key).unwrap())
    };
    let (ours, portable) = (Key::from(key), portable::PreparedKey::from(Key::from(key)));
    let [kept, whole] = [(); 2].map(|()| PreparedKey::from(Key::from(key)));
    let packets = PacketCipher::new(1);
    let mut datagram = [0; 1300];
    vec![
        (
            "ring, key kept",
            Box::new(move |sequence, buffer| {
                let (plain, tag) = buffer.split_last_chunk_mut::<16>().unwrap();
                let nonce = ring::aead::Nonce::assume_unique_for_key(nonce(sequence));
                let associated = ring::aead::Aad::from(ASSOCIATED);
                let sealed = ring_key.seal_in_place_separate_tag(nonce, associated, plain).unwrap();
                tag.copy_from_slice(sealed.as_ref());
            }),
        ),
        (
            "aws-lc-rs, key kept",
            Box::new(move |sequence, buffer| {
                let (plain, tag) = buffer.split_last_chunk_mut::<16>().unwrap();
                let nonce = aws_lc_rs::aead::Nonce::assume_unique_for_key(nonce(sequence));
                let associated = aws_lc_rs::aead::Aad::from(ASSOCIATED);
                let sealed = aws_key.seal_in_place_separate_tag(nonce, associated, plain).unwrap();
                tag.copy_from_slice(sealed.as_ref());
            }),
        ),
        (
            "ours by ring, key made per packet",
            Box::new(move |sequence, buffer| {
                let (plain, tag) = buffer.split_last_chunk_mut::<16>().unwrap();
                *tag = PacketKey::seal(&ours, nonce(sequence), &ASSOCIATED, plain);
            }),
        ),
        (
            "ours by ring, key kept",
            Box::new(move |sequence, buffer| {
                let (plain, tag) = buffer.split_last_chunk_mut::<16>().unwrap();
                *tag = kept.seal(nonce(sequence), &ASSOCIATED, plain);
            }),
        ),
        (
            "ours by chacha20poly1305",
            Box::new(move |sequence, buffer| {
                let (plain, tag) = buffer.split_last_chunk_mut::<16>().unwrap();
                *tag = portable.seal(nonce(sequence), &ASSOCIATED, plain);
            }),
        ),
        (
            "our whole payload packet",
            Box::new(move |sequence, buffer| {
                let content = &buffer[..buffer.len() - 16];
                let length = packets.seal(&whole, PacketKind::Payload, sequence, content, &mut datagram);
                black_box((length, &mut datagram));
            }),
        ),
    ]
}
