//! Chooses the packet numbers that are skipped. No packet has such a number, so a peer that acknowledges one did not
//! receive what it acknowledges (the optimistic ACK attack, RFC 9000, section 21.4).
//!
//! A skip follows at most [`MAX_BYTES_BETWEEN`] bytes after the previous one, so the number of bytes that a malicious
//! receiver gains is bounded on a path of any rate. A peer may recognise a skipped number by what is in the packets
//! around it: nonces (`nonce_draws`) find one that acknowledges lost packets alone.

use core::hash::BuildHasher;

use super::nonce_draws::NonceDraws;
use slipgate_netcode::crypto::key::Seed;
use slipgate_netcode::crypto::keyed::HashKey;

/// The maximum bytes on the path between two skips; the mean is half of it. Acknowledging 13 lost packets of the
/// largest size therefore includes one skipped number on average; acknowledging 27 in a row always includes one.
const MAX_BYTES_BETWEEN: u32 = 32 << 10;
/// A smaller packet counts as this many bytes, so that at most 128 packets lie between two skips.
const MIN_PACKET_BYTES: u32 = 256;

/// Draws the skipped packet numbers of one connection. Each draw is a keyed hash of its index, so a peer that knows all
/// earlier draws cannot predict the next one.
#[derive(Clone)]
pub(crate) struct NumberSkips {
    key: HashKey,
    connection: u64,
    draws: u64,
    bytes_left: u32,
    numbers: u16,
}

impl NumberSkips {
    /// Returns the hash key of all connections of a program.
    pub(crate) fn key(seed: &Seed) -> HashKey {
        HashKey::derive(seed, "packet numbers")
    }

    /// Creates the draws of a connection; no two connections of a program have the same number.
    pub(crate) fn new(key: HashKey, connection: u64) -> Self {
        let mut skips = Self { key, connection, draws: 0, bytes_left: 0, numbers: 0 };
        skips.draw();
        skips
    }

    /// Returns the nonces of the packets of the same connection.
    pub(super) fn nonces(&self) -> NonceDraws {
        // Their hashes are those of three numbers, and the draws of skips those of two.
        NonceDraws::new(self.key.clone(), self.connection)
    }

    /// Records a packet that was sent. Returns how many numbers are skipped behind it: 0 to 3.
    pub(super) fn on_packet_sent(&mut self, bytes: u32) -> u16 {
        self.bytes_left = self.bytes_left.saturating_sub(bytes.max(MIN_PACKET_BYTES));
        if self.bytes_left > 0 {
            return 0;
        }
        let numbers = self.numbers;
        self.draw();
        numbers
    }

    fn draw(&mut self) {
        let random = self.key.hash_one((self.connection, self.draws));
        self.draws += 1;
        // The upper half decides the distance, uniformly from 1 to the maximum.
        self.bytes_left = 1 + (((random >> 32) * u64::from(MAX_BYTES_BETWEEN)) >> 32) as u32;
        // Loss bursts are often longer than one packet, so half of the skips have 2 or 3 numbers.
        self.numbers = (random as u16 & 3).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Returns the index of each of `packets` packets with skipped numbers behind it, and their count.
    fn skips(seed: u8, connection: u64, packet_bytes: u32, packets: usize) -> Vec<(usize, u16)> {
        let mut skips = NumberSkips::new(NumberSkips::key(&Seed::from([seed; 32])), connection);
        let skipped = (0..packets).map(|packet| (packet, skips.on_packet_sent(packet_bytes)));
        skipped.filter(|(_, numbers)| *numbers > 0).collect()
    }

    #[test]
    fn each_32_kib_or_128_packets_have_a_skip() {
        for (packet_bytes, max_between) in [(1249, 27), (600, 55), (256, 128), (60, 128)] {
            for seed in 0..40 {
                let skips = skips(seed, 7, packet_bytes, 10_000);
                let ends = [0].into_iter().chain(skips.iter().map(|(packet, _)| packet + 1)).collect::<Vec<_>>();
                let longest = ends.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
                assert!(longest <= max_between, "{packet_bytes} bytes, seed {seed}: {longest} packets");
                assert!(skips.iter().all(|(_, numbers)| (1..=3).contains(numbers)));
                let mean = 10_000 / skips.len();
                assert!((max_between / 3..max_between).contains(&mean), "{packet_bytes} bytes, seed {seed}: {mean}");
            }
        }
    }

    #[test]
    fn skips_differ_between_seeds_and_connections() {
        let usual = skips(1, 7, 1249, 1000);
        assert_eq!(usual, skips(1, 7, 1249, 1000));
        assert_ne!(usual, skips(2, 7, 1249, 1000));
        assert_ne!(usual, skips(1, 8, 1249, 1000));
    }
}
