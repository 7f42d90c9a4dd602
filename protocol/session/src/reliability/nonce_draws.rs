//! Draws the nonces of packets. A peer that acknowledges a packet proves by the sum of nonces, `nonce_sum`, that it has
//! read the nonce of that packet.

use core::hash::BuildHasher;

use slipgate_netcode::crypto::keyed::HashKey;

/// Draws the nonces of the packets of one connection: keyed hashes of their numbers, which no peer can predict.
#[derive(Clone)]
pub(super) struct NonceDraws {
    key: HashKey,
    connection: u64,
    /// The block of the last packet that was sent.
    sent: Block,
    /// The blocks of the last acknowledgements: those with an even index, and those with an odd one.
    acked: [Block; 2],
}

/// The nonces of 64 packets up to number 64 × `index` + 63, newest first: their lower bits in the first plane, their
/// upper ones in the second.
#[derive(Clone, Copy)]
struct Block {
    index: u64,
    planes: [u64; 2],
}

impl NonceDraws {
    /// Creates the draws of a connection; no two connections of a program have the same number.
    pub(super) fn new(key: HashKey, connection: u64) -> Self {
        // No packet has this number, so that each block is drawn before it is used.
        let none = Block { index: u64::MAX, planes: [0; 2] };
        Self { key, connection, sent: none, acked: [none; 2] }
    }

    /// Returns the nonce of a packet that is sent: 0 to 3.
    #[inline]
    pub(super) fn nonce(&mut self, number: u64) -> u8 {
        if self.sent.index != number / 64 {
            self.sent = self.draw(number / 64);
        }
        let [low, high] = self.sent.planes.map(|plane| (plane >> (63 - number % 64) & 1) as u8);
        high << 1 | low
    }

    /// Returns the lower and the upper bits of the nonces of acknowledged packets: bit i stands for packet `number` -
    /// i, and is 0 if it is 0 in `bits`.
    pub(super) fn planes(&mut self, number: u64, bits: u64) -> [u64; 2] {
        let shift = 63 - number % 64;
        let (newer, older) = (self.block(number / 64), self.block((number / 64).wrapping_sub(1)));
        // Two shifts, because a shift by 64 is no shift.
        let plane = |newer: u64, older: u64| (newer >> shift | older << 1 << (63 - shift)) & bits;
        [plane(newer[0], older[0]), plane(newer[1], older[1])]
    }

    fn block(&mut self, index: u64) -> [u64; 2] {
        let index = index & (u64::MAX / 64);
        let at = (index & 1) as usize;
        match self.acked.get(at) {
            Some(block) if block.index == index => block.planes,
            _ => {
                let block = self.draw(index);
                if let Some(cached) = self.acked.get_mut(at) {
                    *cached = block;
                }
                block.planes
            }
        }
    }

    fn draw(&self, index: u64) -> Block {
        Block { index, planes: [0_u64, 1].map(|plane| self.key.hash_one((self.connection, index, plane))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use slipgate_netcode::crypto::key::Seed;

    fn draws(seed: u8, connection: u64) -> NonceDraws {
        NonceDraws::new(HashKey::derive(&Seed::from([seed; 32]), "packet numbers"), connection)
    }

    proptest! {
        #[test]
        fn planes_are_those_of_single_nonces(number in prop_oneof![0_u64..300, any::<u64>()], bits: u64) {
            let bits = bits & crate::wire::reliable::low_bits(number.saturating_add(1));
            let mut draws = draws(7, 1);
            let expected = (0..64).filter(|back| bits >> back & 1 != 0).fold([0, 0], |[low, high], back| {
                let nonce = u64::from(draws.clone().nonce(number - back));
                [low | (nonce & 1) << back, high | (nonce >> 1) << back]
            });
            prop_assert_eq!(draws.planes(number, bits), expected);
            // From the cache.
            prop_assert_eq!(draws.planes(number, bits), expected);
        }
    }

    #[test]
    fn nonces_are_equally_likely_and_differ_between_connections() {
        let nonces = |seed, connection| {
            let mut draws = draws(seed, connection);
            std::vec::Vec::from_iter((0..40_000).map(|number| draws.nonce(number)))
        };
        let usual = nonces(1, 7);
        for nonce in 0..4 {
            let count = usual.iter().filter(|drawn| **drawn == nonce).count();
            assert!((9_500..10_500).contains(&count), "{nonce}: {count} of 40,000");
        }
        for other in [nonces(2, 7), nonces(1, 8)] {
            let same = usual.iter().zip(&other).filter(|(one, other)| one == other).count();
            assert!((9_500..10_500).contains(&same), "{same} of 40,000");
        }
    }
}
