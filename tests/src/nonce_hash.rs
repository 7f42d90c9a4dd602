//! The nonce hash of `specs/session-1.md`, §5.2, written apart from the library.

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

/// Returns the hash of a packet with this number, whose acknowledgements have these planes.
#[must_use]
pub fn nonce_hash(sequence: u16, planes: &[NoncePlanes]) -> u8 {
    if planes.is_empty() {
        return 0;
    }
    let start = u64::from(sequence).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let hash = planes.iter().flatten().fold(start, |state, plane| {
        let word = (state ^ plane).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    });
    (hash >> 61) as u8
}
