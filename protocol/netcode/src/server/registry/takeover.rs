//! Whether a client id that is connected to one shard may move to another; the steps are in [`super`].

use core::cmp::Reverse;
use core::sync::atomic::Ordering;
use core::time::Duration;

use super::{ClientRegistry, IndexOwner, ShardId};
use crate::crypto::digest::Digest;
use crate::discard::Discard;
use crate::ids::ClientId;
use crate::slab::MustExist;
use crate::time::Instant;
use crate::token::redeem::TokenAge;

/// The time for which an index is reserved for the token of a takeover: ten times the interval of a client's responses.
pub(super) const RESERVED_FOR: Duration = Duration::from_secs(1);

/// Whether a client id may be admitted on another shard than its present one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::server) enum Presence {
    /// The client id is not connected.
    Absent,
    /// The client id was taken over, and its index is reserved for this token.
    Reserved,
    /// The client id is connected to another shard, which reported a long silence.
    SilentElsewhere,
}

/// A query about a client to its shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::server) enum OwnerQuery {
    /// Report the last receive time.
    LastReceive,
    /// End the connection if the client is silent.
    Takeover,
}

impl ClientRegistry {
    /// Returns whether a client id, which the calling shard does not have, may be admitted there with a token of this
    /// age. If the client id is connected to another shard, that shard is queried.
    ///
    /// # Errors
    /// `ClientIdConnected` when the client id is connected or reserved, and may not be taken over (yet).
    pub(in crate::server) fn presence(
        &mut self,
        client_id: ClientId,
        age: TokenAge,
        token: &Digest,
        takeover_after: Option<Duration>,
        now: Instant,
    ) -> Result<Presence, Discard> {
        let last_receive = match self.owner(client_id) {
            None => return Ok(Presence::Absent),
            // Only the token of the takeover may claim a reservation, until it expires.
            Some(IndexOwner::Reserved { token: owner, until, .. }) => {
                let is_available = owner == token || *until <= now;
                return if is_available { Ok(Presence::Reserved) } else { Err(Discard::ClientIdConnected) };
            }
            Some(IndexOwner::Connected { age: present, last_receive, .. }) => {
                // An older token must not take over: an attacker could replay a used one after a crash.
                if takeover_after.is_none() || present.is_none_or(|present| !age.is_newer_than(present)) {
                    return Err(Discard::ClientIdConnected);
                }
                *last_receive
            }
        };
        let is_silent = last_receive.zip(takeover_after).is_some_and(|(last, after)| now.reached(last, after));
        // The report may be old, but packets since then would have cancelled it: the owner is queried again at
        // the takeover itself.
        if is_silent {
            return Ok(Presence::SilentElsewhere);
        }
        self.query_owner(client_id);
        Err(Discard::ClientIdConnected)
    }

    /// Requests from the shard of a client id to end its connection, if it is silent, for this proven and newer token.
    pub(in crate::server) fn request_takeover(&mut self, client_id: ClientId, token: Digest) {
        let Some(IndexOwner::Connected { takeover_by, .. }) = self.owner_mut(client_id) else { return };
        // The latest proven token wins. An earlier one gets no reservation and is refused.
        *takeover_by = Some(token);
        self.query_owner(client_id);
    }

    /// Queues a query for the shard of a client, unless one is queued.
    fn query_owner(&mut self, client_id: ClientId) {
        let max_queries = self.shards.len();
        let Self { ids, owners, mailboxes, .. } = self;
        let owner = ids.get(&client_id).and_then(|index| owners[*index].as_mut());
        let Some(IndexOwner::Connected { shard, queried, .. }) = owner else { return };
        let mailbox = &mut mailboxes[*shard];
        // The bound is one query for each index, so that requests of attackers cannot grow the queue.
        if !*queried && mailbox.queries.len() < max_queries {
            *queried = true;
            mailbox.queries.push_back(client_id);
        }
        // Release pairs with the Acquire of the shard, which then sees the query under the lock anyway.
        mailbox.has_queries.store(true, Ordering::Release);
    }

    /// Takes the oldest query for a shard.
    pub(in crate::server) fn next_query(&mut self, shard: ShardId) -> Option<(ClientId, OwnerQuery)> {
        loop {
            let client_id = self.mailboxes[shard].queries.pop_front()?;
            // The client may have left, or moved to another shard, since the query was queued.
            if let Some(IndexOwner::Connected { shard: owner, takeover_by, queried, .. }) = self.owner_mut(client_id)
                && *owner == shard
            {
                *queried = false;
                let query = if takeover_by.is_some() { OwnerQuery::Takeover } else { OwnerQuery::LastReceive };
                return Some((client_id, query));
            }
        }
    }

    /// Stores the last receive time that a shard reports for its client, and cancels a requested takeover.
    pub(in crate::server) fn report_last_receive(&mut self, client_id: ClientId, last: Instant) {
        // The client was active, so a takeover is no longer justified.
        if let Some(IndexOwner::Connected { last_receive, takeover_by, .. }) = self.owner_mut(client_id) {
            (*last_receive, *takeover_by) = (Some(last), None);
        }
    }

    /// Reserves the index of a client that its shard ends, for the token that requested the takeover.
    pub(in crate::server) fn reserve(&mut self, client_id: ClientId, now: Instant) {
        let Some(index) = self.ids.get(&client_id).copied() else { return };
        let Some(owner) = self.owners[index].as_mut().must_exist("the owner of a client id") else { return };
        let IndexOwner::Connected { takeover_by: Some(token), .. } = owner else { return };
        *owner = IndexOwner::Reserved { token: *token, until: now.after(RESERVED_FOR) };
        // The id stays in `ids`, so that no other token gets a slot for it meanwhile.
        self.reserved.push(client_id);
        self.shards[index] = None;
    }

    /// Frees the reserved indices that were not claimed in time.
    pub(super) fn release_expired_reservations(&mut self, now: Instant) {
        let Self { reserved, ids, owners, free, .. } = self;
        reserved.retain(|client_id| {
            let index = ids.get(client_id).copied().must_exist("the index of a reservation");
            let Some(index) = index else { return false };
            let owner = &mut owners[index];
            let has_expired = matches!(owner, Some(IndexOwner::Reserved { until, .. }) if *until <= now);
            if has_expired {
                *owner = None;
                ids.remove(client_id);
                free.push(Reverse(index));
            }
            !has_expired
        });
    }
}
