//! Lanes: ranges of sequence numbers, so that no nonce is used twice under one key.
//!
//! All servers of a connect token share its keys. A server seals under them in two phases: the handshake, before a
//! client has a slot, and the slot. Each phase has a range that no other sender under the same key can reach:
//!
//! ```text
//!  server to client   0 ──── slot lanes ────▶ 2^45      2^63 ──── handshake lane ────▶ 2^64
//!                     index in the token << 40          a random start for every start of a server
//!  client to server   0 ──── one lane for the whole attempt ────▶ 2^63
//! ```

use crate::crypto::key::Seed;
use crate::wire::MAX_SERVERS_PER_TOKEN;

/// The start of the handshake lane. Challenges and denials share keys with slots, and must never share a number
/// (§1.12).
const HANDSHAKE_LANE: u64 = 1 << 63;
/// The bits of a slot lane: 2^40 sequence numbers for each server of a token last 3.5 years at 10,000 packets per
/// second.
const SLOT_LANE_BITS: u32 = 40;

/// Returns the slot lane of a sequence number, which is a server's index in the token's address list. Returns `None`
/// for a number of the handshake lane.
#[inline]
#[must_use]
pub(crate) fn slot_lane(sequence: u64) -> Option<usize> {
    usize::try_from(sequence >> SLOT_LANE_BITS).ok().filter(|index| *index < MAX_SERVERS_PER_TOKEN)
}

/// The sequence numbers of one lane. Each is taken once.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    next: u64,
    end: u64,
}

impl Lane {
    /// Returns a server's lane for challenges and denials. It begins at a random number, so that two starts of a server
    /// do not overlap: with 62 random bits and a million packets in each start the chance is 2^-41.
    #[must_use]
    pub(crate) fn handshake(seed: &Seed) -> Self {
        let random = seed.derive("handshake lane").iter().take(8).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        // Shifted by two, the start leaves at least 2^62 numbers to take before the lane ends.
        Self { next: HANDSHAKE_LANE | random >> 2, end: u64::MAX }
    }

    /// Returns a server's lane for one client. `server_index` (0..32) is the server's index in the token's address
    /// list.
    #[must_use]
    pub(crate) const fn slot(server_index: u8) -> Self {
        let start = (server_index as u64) << SLOT_LANE_BITS;
        Self { next: start, end: start + (1 << SLOT_LANE_BITS) }
    }

    /// Returns a client's lane, which the whole attempt uses for all servers of the token.
    #[must_use]
    pub(crate) const fn client() -> Self {
        Self { next: 0, end: HANDSHAKE_LANE }
    }

    /// Returns the lane of challenge tokens. Their key belongs to one start of a server, so the lane starts at 0.
    #[must_use]
    pub(crate) const fn challenge_tokens() -> Self {
        Self { next: 0, end: u64::MAX }
    }

    /// Takes the next sequence number. Returns `None` when the lane is exhausted: the connection must end then.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<u64> {
        // Never wraps: an exhausted lane stays exhausted.
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
    fn slot_lanes_of_a_tokens_servers_do_not_overlap() {
        for index in 0..31 {
            assert_eq!(Lane::slot(index).end, Lane::slot(index + 1).next);
        }
        assert_eq!(Lane::slot(0).next, 0);
        assert!(Lane::slot(31).end <= HANDSHAKE_LANE);
    }

    #[test]
    fn handshake_lanes_of_two_starts_are_apart_and_above_2_63() {
        let start = |seed| Lane::handshake(&Seed::from([seed; 32])).next;
        assert!(start(1).abs_diff(start(2)) > 1 << 32);
        for seed in 0..=255 {
            assert!(start(seed) >= HANDSHAKE_LANE && u64::MAX - start(seed) >= 1 << 62);
        }
    }

    #[test]
    fn exhausted_lane_returns_none() {
        let mut lane = Lane { next: 8, end: 10 };
        assert_eq!([lane.take(), lane.take(), lane.take(), lane.take()], [Some(8), Some(9), None, None]);
    }
}
