//! Lanes: ranges of sequence numbers, so that no nonce is used twice under one key.
//!
//! All servers of a connect token share its keys, and a server sends under them from two places: the handshake, before
//! a client has a slot, and the slot. Each place gets a range that no other sender under the same key can reach:
//!
//! ```text
//!  server to client   0 ──── slot lanes ────▶ 2^45      2^63 ──── handshake lane ────▶ 2^64
//!                     index in the token << 40          a random start for every start of a server
//!  client to server   0 ──── one lane for the whole attempt ────▶ 2^63
//! ```

use crate::crypto::key::Seed;
use crate::wire::MAX_SERVERS_PER_TOKEN;

/// The handshake lane starts here: challenges and denials share keys with slots, and must never share a number (§1.12).
const HANDSHAKE_LANE: u64 = 1 << 63;
/// Sequence numbers for each server of a token: 2^40 packets are 3.5 years of 10,000 a second.
const SLOT_LANE_BITS: u32 = 40;

/// The slot lane in which a sequence number lies: the place of a server in a token's address list, if it is one.
#[must_use]
pub fn slot_lane(sequence: u64) -> Option<usize> {
    usize::try_from(sequence >> SLOT_LANE_BITS).ok().filter(|place| *place < MAX_SERVERS_PER_TOKEN)
}

/// Hands out the sequence numbers of one lane, each once.
#[derive(Clone, Debug)]
pub struct Lane {
    next: u64,
    end: u64,
}

impl Lane {
    /// A server's lane for challenges and denials: from a random start, so that two starts of a server do not meet.
    ///
    /// 62 random bits: for two starts that send a million such packets each the chance to meet is 2^-41.
    #[must_use]
    pub fn handshake(seed: &Seed) -> Self {
        let random = seed.derive("handshake lane").iter().take(8).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        Self { next: HANDSHAKE_LANE | random >> 2, end: u64::MAX }
    }

    /// A server's lane for one client: `server_index` is the server's own place in the token's address list (0..32).
    #[must_use]
    pub const fn slot(server_index: u8) -> Self {
        let start = (server_index as u64) << SLOT_LANE_BITS;
        Self { next: start, end: start + (1 << SLOT_LANE_BITS) }
    }

    /// A client's lane: one for the whole attempt, over all its servers.
    #[must_use]
    pub const fn client() -> Self {
        Self { next: 0, end: HANDSHAKE_LANE }
    }

    /// The lane of challenge tokens, whose key is drawn anew for every start.
    #[must_use]
    pub const fn challenge_tokens() -> Self {
        Self { next: 0, end: u64::MAX }
    }

    /// The next sequence number, or `None` when the lane is used up: then the connection must end.
    pub fn take(&mut self) -> Option<u64> {
        (self.next < self.end).then(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_of_the_servers_of_a_token_never_meet() {
        for index in 0..31 {
            assert_eq!(Lane::slot(index).end, Lane::slot(index + 1).next);
        }
        assert_eq!(Lane::slot(0).next, 0);
        assert!(Lane::slot(31).end <= HANDSHAKE_LANE);
    }

    #[test]
    fn two_starts_have_handshake_lanes_apart_and_above_2_63() {
        let start = |seed| Lane::handshake(&Seed::from_bytes([seed; 32])).next;
        assert!(start(1).abs_diff(start(2)) > 1 << 32);
        for seed in 0..=255 {
            assert!(start(seed) >= HANDSHAKE_LANE && u64::MAX - start(seed) >= 1 << 62);
        }
    }

    #[test]
    fn a_used_up_lane_gives_nothing() {
        let mut lane = Lane { next: 8, end: 10 };
        assert_eq!([lane.take(), lane.take(), lane.take(), lane.take()], [Some(8), Some(9), None, None]);
    }
}
