//! The sum of nonces, by which a peer proves that it has read those of the packets that it acknowledges.
//!
//! The idea is that of RFC 3540. A packet carries a nonce of two bits, and the sum of the nonces of all packets that it
//! acknowledges, each times a coefficient. A peer that acknowledges a packet which did not arrive does not know its
//! nonce, and no coefficient is 0: whatever else the peer acknowledges, one sum of four is right. The coefficients
//! depend on the number of the packet, so that a guess for several packets together must be right again and again.

use crate::wire::reliable::Sequence;

/// The sum of the nonces of acknowledged packets, each times its coefficient, in the field of eight elements: three
/// bits stand for a polynomial over two elements, and x³ = x + 1.
pub(super) struct NonceSum {
    /// Gives the coefficients.
    state: u64,
    sum: u8,
}

impl NonceSum {
    /// Starts the sum of the packet with this number.
    pub(super) const fn new(sequence: Sequence) -> Self {
        Self { state: (sequence.0 as u64).wrapping_mul(GOLDEN), sum: 0 }
    }

    /// Adds the lower and the upper bits of the nonces of one word of acknowledgements.
    #[inline]
    pub(super) const fn add(&mut self, [low, high]: [u64; 2]) {
        self.state = mixed(self.state);
        let [mut c0, c1, c2] = [self.state, self.state.rotate_left(21), self.state.rotate_left(42)];
        // A packet with the coefficient 0 could be acknowledged without its nonce.
        c0 |= !(c0 | c1 | c2);
        // (c2 x² + c1 x + c0) (high x + low), with x³ = x + 1.
        let terms = [low & c0 ^ high & c2, low & c1 ^ high & (c0 ^ c2), low & c2 ^ high & c1];
        self.sum ^= parity(terms[0]) | parity(terms[1]) << 1 | parity(terms[2]) << 2;
    }

    /// Returns the sum: 0 to 7.
    pub(super) const fn get(&self) -> u8 {
        self.sum
    }
}

const fn parity(word: u64) -> u8 {
    (word.count_ones() & 1) as u8
}

/// The golden ratio times 2^64, the increment of SplitMix64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns a number all bits of which depend on all of `word`: the step of SplitMix64 (Steele, Lea and Flood, "Fast
/// Splittable Pseudorandom Number Generators", 2014).
const fn mixed(word: u64) -> u64 {
    let word = word.wrapping_add(GOLDEN);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn sum_of(sequence: u16, words: &[[u64; 2]]) -> u8 {
        let mut sum = NonceSum::new(Sequence(sequence));
        words.iter().for_each(|word| sum.add(*word));
        sum.get()
    }

    proptest! {
        /// A peer may choose its packet number, and what else it acknowledges: the four nonces of a packet that it
        /// lacks still have four different sums.
        #[test]
        fn each_nonce_of_a_packet_has_another_sum(
            sequence: u16,
            words: [[u64; 2]; 3],
            word in 0..3_usize,
            bit in 0..64_u32,
        ) {
            let sums = BTreeSet::from_iter((0..4_u64).map(|nonce| {
                let mut words = words;
                for (plane, value) in words[word].iter_mut().zip([nonce & 1, nonce >> 1]) {
                    *plane = *plane & !(1 << bit) | value << bit;
                }
                sum_of(sequence, &words)
            }));
            prop_assert_eq!(sums.len(), 4);
        }
    }

    /// A wrong guess for several packets is right by chance in an eighth of the packets, and independently in the next.
    #[test]
    fn each_packet_checks_the_nonces_of_several_packets_again() {
        let right = [[0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]];
        for seed in 0..20_u64 {
            let wrong = [mixed(seed) & mixed(seed + 50), mixed(seed + 100) & mixed(seed + 150)];
            let guessed = [[right[0][0] ^ wrong[0], right[0][1] ^ wrong[1]]];
            let is_same = |sequence: &u16| sum_of(*sequence, &right) == sum_of(*sequence, &guessed);
            let same = (0..8_000).filter(is_same).count();
            assert!((850..1_150).contains(&same), "{wrong:x?}: {same} of 8,000");
            let again = (0..8_000).filter(|sequence| is_same(sequence) && is_same(&(sequence + 1))).count();
            assert!((70..190).contains(&again), "{wrong:x?}: {again} of 8,000");
        }
    }
}
