//! The limit of tokens for one client id: one account must not fill the token history of a game server.
//!
//! The algorithm is GCRA: for each client id, the time at which its allowance is full again.
//!
//! DECISION: the crate `governor` has the same algorithm, but its keyed stores grow without bound between two sweeps.
//! The code here is little more than the bounded store.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use slipgate_netcode::ids::ClientId;

/// The period of the limit.
const PERIOD: Duration = Duration::from_secs(60);
/// The maximum number of client ids in the table, about 4 MiB. An id leaves it when its allowance is full again, after
/// a minute at most. A full table forgets the half with the fewest recent tokens, which admits more, never less.
const MAX_CLIENT_IDS: usize = 65_536;

/// The tokens of the last minute by client id.
pub(super) struct ClientLimit {
    /// The time that one token costs.
    cost: Duration,
    max_client_ids: usize,
    full_at: HashMap<ClientId, Instant>,
}

impl ClientLimit {
    pub(super) fn new(tokens_per_minute: NonZeroU32) -> Self {
        Self { cost: PERIOD / tokens_per_minute.get(), max_client_ids: MAX_CLIENT_IDS, full_at: HashMap::new() }
    }

    /// Counts a token, or returns how long to wait for the next one.
    pub(super) fn count(&mut self, client_id: ClientId, now: Instant) -> Result<(), Duration> {
        let full_at = self.full_at.get(&client_id).copied().unwrap_or(now).max(now) + self.cost;
        let over = full_at.duration_since(now).saturating_sub(PERIOD);
        if over > Duration::ZERO {
            return Err(over);
        }
        if self.full_at.len() >= self.max_client_ids && !self.full_at.contains_key(&client_id) {
            self.make_room(now);
        }
        self.full_at.insert(client_id, full_at);
        Ok(())
    }

    /// Removes the ids with a full allowance. If most remain, also removes the half that is full soonest.
    fn make_room(&mut self, now: Instant) {
        self.full_at.retain(|_, full_at| *full_at > now);
        let mut times: Vec<Instant> = self.full_at.values().copied().collect();
        let half = self.max_client_ids / 2;
        if times.len() > half {
            let excess = times.len() - half;
            let (_, last_removed, _) = times.select_nth_unstable(excess - 1);
            let last_removed = *last_removed;
            self.full_at.retain(|_, full_at| *full_at > last_removed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(tokens_per_minute: u32) -> ClientLimit {
        ClientLimit::new(NonZeroU32::new(tokens_per_minute).unwrap())
    }

    #[test]
    fn allowance_is_used_at_once_and_refills_evenly() {
        let (mut limit, start) = (limit(6), Instant::now());
        let mut count = |id: u64, seconds| limit.count(id.into(), start + Duration::from_secs(seconds));
        for _ in 0..6 {
            assert_eq!(count(1, 0), Ok(()));
        }
        assert_eq!(count(1, 0), Err(Duration::from_secs(10)));
        assert_eq!(count(1, 4), Err(Duration::from_secs(6)), "a refused request costs nothing");
        assert_eq!(count(2, 4), Ok(()), "another client id");
        assert_eq!(count(1, 10), Ok(()));
        assert_eq!(count(1, 10), Err(Duration::from_secs(10)));
        for _ in 0..6 {
            assert_eq!(count(1, 130), Ok(()), "full again");
        }
        assert!(count(1, 130).is_err());
    }

    #[test]
    fn full_table_forgets_idle_client_ids_and_keeps_busy_ones() {
        let (mut limit, start) = (limit(2), Instant::now());
        limit.max_client_ids = 100;
        for _ in 0..2 {
            limit.count(ClientId(7), start).unwrap();
        }
        for id in 1_000..100_000 {
            limit.count(ClientId(id), start).unwrap();
            assert!(limit.full_at.len() <= 100);
        }
        assert!(limit.count(ClientId(7), start).is_err(), "the busiest id stays");
        let later = start + 2 * PERIOD;
        limit.count(ClientId(8), later).unwrap();
        for id in 0..100 {
            limit.count(ClientId(200_000 + id), later).unwrap();
        }
        assert!(!limit.full_at.contains_key(&ClientId(7)), "its allowance is full");
    }

    #[test]
    fn highest_limit_is_finite() {
        let (mut limit, start) = (limit(u32::MAX), Instant::now());
        for _ in 0..1_000 {
            limit.count(ClientId(1), start).unwrap();
        }
    }
}
