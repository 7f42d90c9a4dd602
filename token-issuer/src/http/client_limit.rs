//! The limit of tokens for each client id. A request that is refused because its group has no free slot costs nothing
//! of it.
//!
//! A full group is no reason to refuse the player later. These requests have a limit of their own, beyond which they
//! count as tokens: otherwise a player could have the store asked without end. A request that is given up, or whose
//! store did not respond, counts: its slots may be reserved.

use core::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use slipgate_netcode::ids::ClientId;

use super::keyed_limit::KeyedLimit;

/// The refused requests in a minute that cost a client id nothing. The refusals say: try again in a second.
const FREE_PER_MINUTE: NonZeroU32 = NonZeroU32::new(60).unwrap();

/// The tokens of the last minute by client id.
pub(super) struct ClientLimit<C: Clock = DefaultClock> {
    tokens: KeyedLimit<ClientId, C>,
    free: KeyedLimit<ClientId, C>,
}

impl ClientLimit {
    /// Creates a limit for each client id of this number of tokens in a minute.
    pub(super) fn per_minute(tokens: NonZeroU32) -> Self {
        Self { tokens: KeyedLimit::per_minute(tokens), free: KeyedLimit::per_minute(FREE_PER_MINUTE) }
    }
}

impl<C: Clock> ClientLimit<C> {
    /// Counts a token, or returns how long to wait for the next one.
    pub(super) fn count(&self, client_id: ClientId) -> Result<(), Duration> {
        self.tokens.count(client_id)
    }

    /// Gives the count of a token back that was refused before anything was reserved for it.
    pub(super) fn give_back(&self, client_id: ClientId) {
        if self.free.count(client_id).is_ok() {
            self.tokens.give_back(client_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use governor::clock::FakeRelativeClock;

    use super::*;

    #[test]
    fn requests_without_a_token_are_free_up_to_a_limit() {
        let clock = FakeRelativeClock::default();
        let keyed = |count: u32| KeyedLimit::with_clock(NonZeroU32::new(count).unwrap(), 100, clock.clone());
        let limit = ClientLimit { tokens: keyed(3), free: keyed(FREE_PER_MINUTE.get()) };
        let count = || limit.count(ClientId(1));
        let refuse = || count().map(|()| limit.give_back(ClientId(1)));
        count().unwrap();
        for _ in 0..FREE_PER_MINUTE.get() {
            refuse().unwrap();
        }
        // Two tokens are left, which further requests without a token use up.
        for _ in 0..2 {
            refuse().unwrap();
        }
        assert_eq!(count(), Err(Duration::from_secs(20)));
        limit.count(ClientId(2)).unwrap();
        clock.advance(Duration::from_secs(20));
        refuse().unwrap();
        count().unwrap();
        assert!(count().is_err());
    }
}
