//! How shards claim client indices, and give them back.

use core::cmp::Reverse;

use super::{ClaimError, ClientRegistry, IndexClaim, IndexOwner, ShardId};
use crate::discard::Discard;
use crate::ids::{ClientId, ClientIndex};
use crate::time::{Instant, Now};
use crate::token::redeem::TokenAge;

impl ClientRegistry {
    /// Forgets expired tokens and reservations.
    pub(in crate::server) fn sweep(&mut self, now: Now) {
        self.history.sweep(now);
        self.release_expired_reservations(now.monotonic);
    }

    /// Returns whether a client index is free, after releasing expired reservations.
    pub(in crate::server) fn has_free_index(&mut self, now: Instant) -> bool {
        if self.free.is_empty() {
            self.release_expired_reservations(now);
        }
        !self.free.is_empty()
    }

    /// Gives a new client its reserved index or the lowest free one, and uses its token. An error changes nothing.
    ///
    /// # Errors
    /// - `ClientIdConnected`, or a reason of [`consume`](Self::consume), as a discard reason.
    /// - `Full` when no index is free.
    pub(in crate::server) fn claim(&mut self, claim: &IndexClaim, now: Now) -> Result<ClientIndex, ClaimError> {
        // Checked again under this guard: the token may have been used on another shard since the response's first
        // check.
        if let Some(token) = &claim.token {
            self.check_unused(token, now).map_err(ClaimError::Discard)?;
        }
        let reserved = self.reserved_index(claim, now.monotonic)?;
        if reserved.is_none() && !self.has_free_index(now.monotonic) {
            return Err(ClaimError::Full);
        }
        // The last step that can fail. After it the index is taken in any case.
        if let Some(token) = &claim.token {
            let used = self.history.consume(token.tag, claim.client_id, token.used.expires, now);
            used.map_err(ClaimError::Discard)?;
        }
        let index = match reserved {
            // The reservation is used up.
            Some(index) => {
                self.reserved.retain(|client_id| *client_id != claim.client_id);
                index
            }
            None => self.free.pop().ok_or(ClaimError::Full)?.0,
        };
        self.shards[index] = Some(claim.shard);
        self.ids.insert(claim.client_id, index);
        self.set_connected(index, claim);
        Ok(index)
    }

    /// Returns the index that is reserved for a claim, if there is one.
    fn reserved_index(&self, claim: &IndexClaim, now: Instant) -> Result<Option<ClientIndex>, ClaimError> {
        let name = claim.token.map(|token| token.used.name);
        match self.owner(claim.client_id) {
            None => Ok(None),
            // After the reservation's end any token of the client id may claim the index.
            Some(IndexOwner::Reserved { token, until }) if name == Some(*token) || *until <= now => {
                Ok(self.ids.get(&claim.client_id).copied())
            }
            Some(_) => Err(ClaimError::Discard(Discard::ClientIdConnected)),
        }
    }

    fn set_connected(&mut self, index: ClientIndex, claim: &IndexClaim) {
        // The table grows with use: memory of unused slots stays untouched.
        while self.owners.lookup(index).is_none() {
            self.owners.push(None);
        }
        self.owners[index] = Some(IndexOwner::Connected {
            client_id: claim.client_id,
            shard: claim.shard,
            age: claim.age,
            last_receive: None,
            takeover_by: None,
            queried: false,
        });
    }

    /// Stores the age of the newer token that took over a client on the same shard.
    pub(in crate::server) fn renew(&mut self, client_id: ClientId, newer: TokenAge) {
        if let Some(IndexOwner::Connected { age, last_receive, takeover_by, .. }) = self.owner_mut(client_id) {
            (*age, *last_receive, *takeover_by) = (Some(newer), None, None);
        }
    }

    /// Removes a client after the end of its connection. Its index stays in use until its disconnect packets are sent.
    pub(in crate::server) fn leave(&mut self, shard: ShardId, client_id: ClientId) {
        // A reserved index belongs to no shard, so an owner that ends a taken over client does not remove it.
        let is_owner =
            |owner: &IndexOwner| matches!(owner, IndexOwner::Connected { shard: owner, .. } if *owner == shard);
        if self.owner(client_id).is_some_and(is_owner)
            && let Some(index) = self.ids.remove(&client_id)
        {
            self.owners[index] = None;
        }
    }

    /// Frees a client index of a shard.
    pub(in crate::server) fn release(&mut self, shard: ShardId, index: ClientIndex) {
        // A reserved index has no shard, and is not freed here.
        if self.shards[index] == Some(shard) {
            // Only the shard that uses an index may free it, so a late call cannot free an index that was reused.
            self.shards[index] = None;
            self.free.push(Reverse(index));
        }
    }

    /// Removes all clients of a shard that has ended, and frees their indices.
    pub(in crate::server) fn leave_all(&mut self, shard: ShardId) {
        let Self { ids, owners, .. } = self;
        for owner in owners {
            if let Some(removed) =
                owner.take_if(|owner| matches!(owner, IndexOwner::Connected { shard: owner, .. } if *owner == shard))
                && let IndexOwner::Connected { client_id, .. } = removed
            {
                ids.remove(&client_id);
            }
        }
        // Indices of closing clients have no owner any more, so all indices are examined.
        for index in self.shards.indices() {
            self.release(shard, index);
        }
    }
}
