//! The limit of tokens for each client id. A request that gets no token costs nothing of it.
//!
//! A group without a free slot is no reason to refuse the player later. The requests without a token have a limit of
//! their own, beyond which they count as tokens: otherwise a player could have the store asked without end.

use core::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use slipgate_netcode::ids::ClientId;

use super::keyed_limit::KeyedLimit;

/// The requests without a token in a minute that cost a client id nothing. The refusals say: try again in a second.
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
    pub(super) fn count(&self, client_id: ClientId) -> Result<CountedToken<'_, C>, Duration> {
        self.tokens.count(client_id)?;
        Ok(CountedToken { limit: self, client_id, is_minted: false })
    }
}

/// A token that was counted. Dropped before it is minted, also when the request is given up, it gives its count back.
pub(super) struct CountedToken<'a, C: Clock = DefaultClock> {
    limit: &'a ClientLimit<C>,
    client_id: ClientId,
    is_minted: bool,
}

impl<C: Clock> CountedToken<'_, C> {
    /// Keeps the count of a token that was minted.
    pub(super) fn set_minted(mut self) {
        self.is_minted = true;
    }
}

impl<C: Clock> Drop for CountedToken<'_, C> {
    fn drop(&mut self) {
        if !self.is_minted && self.limit.free.count(self.client_id).is_ok() {
            self.limit.tokens.give_back(self.client_id);
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
        count().unwrap().set_minted();
        for _ in 0..FREE_PER_MINUTE.get() {
            drop(count().unwrap());
        }
        // Two tokens are left, which further requests without a token use up.
        for _ in 0..2 {
            drop(count().unwrap());
        }
        assert_eq!(count().err(), Some(Duration::from_secs(20)));
        limit.count(ClientId(2)).unwrap().set_minted();
        clock.advance(Duration::from_secs(20));
        drop(count().unwrap());
        count().unwrap().set_minted();
        assert!(count().is_err());
    }
}
