//! The tokens of all shards: which were used, and the budget for decrypting others.

use super::{ClientRegistry, TokenUse};
use crate::address::Address;
use crate::discard::Discard;
use crate::ids::ClientId;
use crate::time::{Instant, Now, UnixSeconds};
use crate::token::history::TokenTag;

impl ClientRegistry {
    pub(in crate::server) fn is_consumed(&self, tag: &TokenTag) -> bool {
        self.history.is_consumed(tag)
    }

    /// Checks that the history has capacity for another token of a client.
    ///
    /// # Errors
    /// `HistoryFull`, or `ClientIdTokens` when the client id has its maximum.
    pub(in crate::server) fn check_token_capacity(&self, client_id: ClientId) -> Result<(), Discard> {
        self.history.check_capacity(client_id)
    }

    /// Checks that a token was not used, even if the history has forgotten it since its request.
    ///
    /// # Errors
    /// `TokenUsed` when it was used, `TokenExpired` or `ClockStepped` when it may have been.
    pub(in crate::server) fn check_unused(&self, token: &TokenUse, now: Now) -> Result<(), Discard> {
        if self.history.is_consumed(&token.tag) {
            return Err(Discard::TokenUsed);
        }
        // Another shard may have used the token in its last second while this one waited for the response.
        self.check_not_forgotten(token.used.expires, now)
    }

    /// Checks that no token with this expiry was used and forgotten.
    ///
    /// # Errors
    /// `TokenExpired` when the token has expired, `ClockStepped` when it has not.
    pub(in crate::server) fn check_not_forgotten(&self, expires: UnixSeconds, now: Now) -> Result<(), Discard> {
        if !self.history.may_have_forgotten(expires) {
            return Ok(());
        }
        Err(if expires <= now.unix.into() { Discard::TokenExpired } else { Discard::ClockStepped })
    }

    /// Uses a token for a client that already has an index.
    ///
    /// # Errors
    /// As [`check_unused`](Self::check_unused) and [`check_token_capacity`](Self::check_token_capacity).
    pub(in crate::server) fn consume(
        &mut self,
        token: &TokenUse,
        client_id: ClientId,
        now: Now,
    ) -> Result<(), Discard> {
        self.check_unused(token, now)?;
        self.history.consume(token.tag, client_id, token.used.expires, now)
    }

    /// Reverts the use of a token after its record could not be written. It has admitted no client.
    pub(in crate::server) fn retract(&mut self, tag: &TokenTag) {
        self.history.retract(tag);
    }

    pub(in crate::server) fn take_decrypt(&mut self, from: Address, keys: u32, now: Instant) -> Result<(), Discard> {
        self.decrypts.take(from, keys, now)
    }
}
