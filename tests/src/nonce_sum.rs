//! The nonce sum of `specs/session-1.md`, §5.2, written apart from the library.

use slipgate_session::wire::reliable::Acks;

/// The lower and the upper bits of the nonces of the packets of one word of acknowledgements.
pub type NoncePlanes = [u64; 2];

/// Returns the planes of a header's acknowledgements, and of each eight bytes of extended acks; none if they
/// acknowledge nothing. `nonce` gets the number of an acknowledged packet.
pub fn nonce_planes(acks: Acks, extended: &[u8], nonce: impl Fn(u16) -> u8) -> Vec<NoncePlanes> {
    if acks.bits == 0 && extended.iter().all(|byte| *byte == 0) {
        return Vec::new();
    }
    let word = |bytes: &[u8]| (0..).zip(bytes).fold(0, |word, (at, byte)| word | u64::from(*byte) << (8 * at));
    let words = std::iter::once(acks.bits.into()).chain(extended.chunks(8).map(word));
    let planes = std::iter::once(0).chain((32..).step_by(64)).zip(words).map(|(first, word): (u16, u64)| {
        (0..64).filter(|back| word >> back & 1 != 0).fold([0, 0], |[low, high], back| {
            let nonce = u64::from(nonce((acks.ack - (first + back)).0));
            [low | (nonce & 1) << back, high | (nonce >> 1) << back]
        })
    });
    planes.collect()
}

/// Returns the sum of a packet with this number, whose acknowledgements have these planes: packet by packet, with a
/// table of products.
#[must_use]
pub fn nonce_sum(sequence: u16, planes: &[NoncePlanes]) -> u8 {
    let mut state = u64::from(sequence).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut sum = 0;
    for [low, high] in planes {
        let word = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        state = word ^ word >> 31;
        for packet in 0..64_u32 {
            let bit = |word: u64, at: u32| (word >> (at % 64) & 1) as usize;
            let coefficient = bit(state, packet) | bit(state, packet + 43) << 1 | bit(state, packet + 22) << 2;
            let nonce = bit(*low, packet) | bit(*high, packet) << 1;
            sum ^= PRODUCTS[nonce][coefficient.max(1)];
        }
    }
    sum
}

/// The products of a nonce and a coefficient.
const PRODUCTS: [[u8; 8]; 4] = [[0; 8], [0, 1, 2, 3, 4, 5, 6, 7], [0, 2, 4, 6, 3, 1, 7, 5], [0, 3, 6, 5, 7, 4, 1, 2]];
