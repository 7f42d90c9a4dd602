//! Pending clients: they presented a valid token, but have not yet proven that they receive at their address.
//!
//! A client id is pending with one token at a time, and a token at a few addresses. An attacker that replays a sniffed
//! request first therefore cannot lock its owner out. Each entry lives for some seconds, regardless of further packets.
//!
//! The entries are in a list by age. When the table is full, the oldest one gives way after its fair second. The table
//! holds all entries that can come within that second, so a flood of valid requests locks no player out.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use zeroize::Zeroize;

use super::config::MAX_ADDRESSES_PER_TOKEN;
use super::turn_budgets::Attempt;
use crate::address::Address;
use crate::crypto::digest::Digest;
use crate::crypto::key::{Key, Seed};
use crate::crypto::keyed::{HashKey, KeyedMap, map_with_capacity};
use crate::discard::Discard;
use crate::ids::ClientId;
use crate::slab::{ChunkedSlab, MustExist, Slab, slab_index};
use crate::time::{Instant, UnixSeconds};
use crate::token::challenge::Binding;
use crate::token::history::TokenTag;
use crate::token::redeem::{Redeemed, TokenAge};
use crate::wire::UserData;

/// The time for which a pending client keeps its entry against competing requests. A challenge and its response fit
/// into it on every path that is fit for a game.
const FAIR_TIME: Duration = Duration::from_secs(1);

/// The maximum of responses that one turn decrypts from one pending client's address, authentic or forged. A client
/// repeats its response 10 times per second for 5 s. Even among 1000 forgeries per turn, one of these 50 is almost
/// surely decrypted.
const MAX_ATTEMPTS_PER_TURN: u32 = 64;

/// The number of entries for which memory is allocated at the start: a burst of requests to a small server.
const INITIAL_ENTRIES: usize = 1024;

/// The index of a pending entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct PendingIndex(u16);

slab_index!(PendingIndex, u16);

/// A reply that is due to a pending client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HandshakeReply {
    /// A challenge, with which the client proves its address.
    Challenge,
    /// A denial: the server is full or admits no clients.
    Denied,
}

/// The token of a request: its tag for the history, and its name for everything else.
#[derive(Clone, Copy)]
pub(super) struct PresentedToken {
    pub(super) tag: TokenTag,
    pub(super) name: Digest,
}

/// A client that presented a valid token at an address.
pub(super) struct Pending {
    pub(super) bound: Binding,
    pub(super) tag: TokenTag,
    pub(super) age: TokenAge,
    pub(super) expires: UnixSeconds,
    pub(super) client_to_server: Key,
    pub(super) server_to_client: Key,
    pub(super) timeout_seconds: i32,
    pub(super) user_data: UserData,
    pub(super) server_index: u8,
    since: Instant,
    deadline: Instant,
    /// The next older and the next newer entry of the table.
    older: Option<PendingIndex>,
    newer: Option<PendingIndex>,
    /// The last turn in which responses from the address were decrypted, and their number.
    turn: u64,
    attempts: u32,
    /// Whether a challenge was sent, so that a response may arrive.
    challenged: bool,
    due: Option<HandshakeReply>,
}

impl Pending {
    /// Returns the entry of a token that was just presented.
    fn new(bound: Binding, tag: TokenTag, redeemed: &Redeemed, server_index: u8, now: Instant) -> Self {
        Self {
            deadline: Instant::NEVER,
            older: None,
            newer: None,
            bound,
            tag,
            age: redeemed.age(),
            expires: redeemed.expires,
            client_to_server: redeemed.client_to_server.clone(),
            server_to_client: redeemed.server_to_client.clone(),
            timeout_seconds: redeemed.timeout_seconds,
            user_data: redeemed.user_data,
            server_index,
            since: now,
            turn: 0,
            attempts: 0,
            challenged: false,
            due: None,
        }
    }
}

/// The pending entries of one client id: one token at up to eight addresses. It has at least one entry.
#[derive(Clone, Copy, Default)]
struct PendingGroup {
    indices: [PendingIndex; MAX_ADDRESSES_PER_TOKEN as usize],
    count: u8,
}

impl PendingGroup {
    fn indices(&self) -> &[PendingIndex] {
        self.indices.get(..usize::from(self.count)).must_exist("the counted indices").unwrap_or_default()
    }
}

/// All pending clients of a shard.
pub(super) struct PendingClients {
    capacity: usize,
    /// The entries that were ever used. Memory for more than [`INITIAL_ENTRIES`] is allocated when they come.
    entries: ChunkedSlab<PendingIndex, Option<Pending>>,
    free: Vec<PendingIndex>,
    /// The ends of the list by age.
    oldest: Option<PendingIndex>,
    newest: Option<PendingIndex>,
    by_address: KeyedMap<Address, PendingIndex>,
    by_client_id: KeyedMap<ClientId, PendingGroup>,
    /// Entries with a due reply, each at most once, as `in_due_queue` records. An entry may be free again meanwhile.
    due_queue: VecDeque<PendingIndex>,
    in_due_queue: Slab<PendingIndex, bool>,
    per_token: u8,
    next_identity: u64,
}

impl PendingClients {
    pub(super) fn new(capacity: u32, per_token: u8, seed: &Seed) -> Self {
        let capacity = capacity as usize;
        let initial = capacity.min(INITIAL_ENTRIES);
        Self {
            capacity,
            entries: ChunkedSlab::new(initial, None),
            free: Vec::with_capacity(initial),
            oldest: None,
            newest: None,
            by_address: map_with_capacity(initial, HashKey::derive(seed, "pending by address")),
            by_client_id: map_with_capacity(initial, HashKey::derive(seed, "pending by client id")),
            due_queue: VecDeque::with_capacity(initial),
            in_due_queue: Slab::with_capacity(initial, false),
            per_token,
            next_identity: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_address.len()
    }

    /// Returns the entry of an address, unless its deadline has passed.
    pub(super) fn at_address(&self, address: &Address, now: Instant) -> Option<PendingIndex> {
        self.by_address.get(address).copied().filter(|index| !self.has_expired(*index, now))
    }

    /// Returns whether another response of a pending client is its first or a further attempt in this turn, or `None`
    /// when it has used all its attempts. The limit keeps attackers under its address, and holders of its token, from
    /// using up the budget of other clients.
    pub(super) fn next_attempt(&self, index: PendingIndex, turn: u64) -> Option<Attempt> {
        let entry = self.get(index)?;
        match if entry.turn == turn { entry.attempts } else { 0 } {
            0 => Some(Attempt::First),
            attempts => (attempts < MAX_ATTEMPTS_PER_TURN).then_some(Attempt::Further),
        }
    }

    /// Counts a response that is decrypted, whether it is authentic or not: a holder of the token can seal as many as
    /// an attacker can forge.
    pub(super) fn count_attempt(&mut self, index: PendingIndex, turn: u64) {
        let Some(entry) = self.entry_mut(index) else { return };
        if entry.turn != turn {
            (entry.turn, entry.attempts) = (turn, 0);
        }
        entry.attempts += 1;
    }

    fn has_expired(&self, index: PendingIndex, now: Instant) -> bool {
        self.get(index).is_none_or(|entry| entry.deadline <= now)
    }

    /// Returns an entry. An index of the maps, of the list by age or of this turn's datagram has one.
    pub(super) fn get(&self, index: PendingIndex) -> Option<&Pending> {
        self.entries[index].as_ref().must_exist("a pending entry")
    }

    fn entry_mut(&mut self, index: PendingIndex) -> Option<&mut Pending> {
        self.entries[index].as_mut().must_exist("a pending entry")
    }

    /// Makes a client pending, or returns its present entry, which keeps its deadline.
    ///
    /// # Errors
    /// - `AddressPending` when another client is pending at the address.
    /// - `ClientIdPending` when a token for the same client id is pending that is not older.
    /// - `TokenAddresses` when the token is pending at the maximum of addresses.
    /// - `PendingFull` when the table is full.
    pub(super) fn admit(
        &mut self,
        token: PresentedToken,
        redeemed: &Redeemed,
        server_index: u8,
        from: Address,
        now: Instant,
        lifetime: Duration,
    ) -> Result<PendingIndex, Discard> {
        // A repeated request is the normal case: clients send one every 100 ms.
        if let Some(index) = self.find_repeated(token.name, redeemed, from, now)? {
            return Ok(index);
        }
        self.make_space_for_client(token.name, redeemed, now)?;
        let index = self.take_free(now).ok_or(Discard::PendingFull)?;
        let bound =
            Binding { address: from, token: token.name, pending: self.next_identity, client_id: redeemed.client_id };
        // 64 bits never overflow, so a challenge of an earlier entry is never valid for a later one.
        self.next_identity += 1;
        let mut entry = Pending::new(bound, token.tag, redeemed, server_index, now);
        entry.deadline = now.after(lifetime);
        // No step after this one can fail.
        self.list(index, &entry);
        self.entries[index] = Some(entry);
        self.link_newest(index);
        Ok(index)
    }

    /// Takes a free entry. If there is none, the oldest entry gives way, once it has had its [`FAIR_TIME`].
    fn take_free(&mut self, now: Instant) -> Option<PendingIndex> {
        if self.free.is_empty() && self.entries.len() >= self.capacity {
            let oldest = self.oldest?;
            let since = self.get(oldest).map_or(now, |entry| entry.since);
            // Its challenge and its response had time enough. An attacker must not keep the place for longer.
            if !now.reached(since, FAIR_TIME) && !self.has_expired(oldest, now) {
                return None;
            }
            self.remove(oldest);
        }
        if let Some(index) = self.free.pop() {
            return Some(index);
        }
        self.in_due_queue.push(false);
        Some(self.entries.push(None))
    }

    /// Appends an entry to the list by age.
    fn link_newest(&mut self, index: PendingIndex) {
        let older = self.newest.replace(index);
        if let Some(entry) = self.entry_mut(index) {
            (entry.older, entry.newer) = (older, None);
        }
        match older.and_then(|older| self.entry_mut(older)) {
            Some(older) => older.newer = Some(index),
            None => self.oldest = Some(index),
        }
    }

    /// Removes an entry with these neighbours from the list by age.
    fn unlink(&mut self, older: Option<PendingIndex>, newer: Option<PendingIndex>) {
        match older.and_then(|older| self.entry_mut(older)) {
            Some(entry) => entry.newer = newer,
            None => self.oldest = newer,
        }
        match newer.and_then(|newer| self.entry_mut(newer)) {
            Some(entry) => entry.older = older,
            None => self.newest = older,
        }
    }

    /// Returns the entry of this token at this address, and removes an older entry that occupies the address.
    fn find_repeated(
        &mut self,
        token: Digest,
        redeemed: &Redeemed,
        from: Address,
        now: Instant,
    ) -> Result<Option<PendingIndex>, Discard> {
        let Some(index) = self.by_address.get(&from).copied() else { return Ok(None) };
        if self.has_expired(index, now) {
            self.remove(index);
            return Ok(None);
        }
        let Some(entry) = self.get(index) else { return Ok(None) };
        if entry.bound.token == token {
            return Ok(Some(index));
        }
        // Another token of the same client: `make_space_for_client` decides by its age.
        if entry.bound.client_id == redeemed.client_id {
            return Ok(None);
        }
        // Another client id from this address must neither evict the pending client at once, nor be locked out for
        // long.
        if !now.reached(entry.since, FAIR_TIME) {
            return Err(Discard::AddressPending);
        }
        self.remove(index);
        Ok(None)
    }

    /// Checks that the client id may have another entry, and removes the entries that a newer token replaces.
    fn make_space_for_client(&mut self, token: Digest, redeemed: &Redeemed, now: Instant) -> Result<(), Discard> {
        self.remove_expired_of(redeemed.client_id, now);
        let Some(group) = self.by_client_id.get(&redeemed.client_id) else { return Ok(()) };
        // All entries of a group have the same token.
        let first = group.indices().first().and_then(|index| self.get(*index));
        let Some(first) = first.must_exist("an entry of a client id") else { return Ok(()) };
        if first.bound.token == token {
            return if group.count < self.per_token { Ok(()) } else { self.remove_oldest_of(redeemed.client_id, now) };
        }
        // An attacker with an old token of the client must not evict its newer one.
        if !redeemed.age().is_newer_than(first.age) {
            return Err(Discard::ClientIdPending);
        }
        self.remove_client(redeemed.client_id);
        Ok(())
    }

    /// Removes the oldest entry of a token that is pending at the maximum of addresses, if it is older than
    /// [`FAIR_TIME`].
    fn remove_oldest_of(&mut self, client_id: ClientId, now: Instant) -> Result<(), Discard> {
        let indices = self.by_client_id.get(&client_id).map(PendingGroup::indices).unwrap_or_default();
        let since = |index: &PendingIndex| self.get(*index).map_or(Instant::NEVER, |entry| entry.since);
        let oldest = indices.iter().copied().min_by_key(since).ok_or(Discard::TokenAddresses)?;
        // Attackers with the token can neither keep all entries, nor evict the owner before its response can arrive.
        if !now.reached(since(&oldest), FAIR_TIME) {
            return Err(Discard::TokenAddresses);
        }
        self.remove(oldest);
        Ok(())
    }

    /// Removes every pending entry of a client id.
    pub(super) fn remove_client(&mut self, client_id: ClientId) {
        self.remove_of(client_id, |_, _| true);
    }

    fn remove_expired_of(&mut self, client_id: ClientId, now: Instant) {
        self.remove_of(client_id, |pending, index| pending.has_expired(index, now));
    }

    fn remove_of(&mut self, client_id: ClientId, is_unwanted: impl Fn(&Self, PendingIndex) -> bool) {
        let Some(group) = self.by_client_id.get(&client_id) else { return };
        // A copy, because `remove` changes the group.
        let (indices, count) = (group.indices, group.count);
        for index in indices.into_iter().take(usize::from(count)) {
            if is_unwanted(self, index) {
                self.remove(index);
            }
        }
    }

    /// Removes the oldest entries while their deadline is in the past. An entry with a shorter lifetime than an older
    /// one is void from its own deadline on, but keeps its place until the older one is removed.
    pub(super) fn sweep(&mut self, now: Instant) {
        while let Some(oldest) = self.oldest.filter(|oldest| self.has_expired(*oldest, now)) {
            self.remove(oldest);
        }
    }

    /// Sets the reply that is due to a pending client. A later reply replaces an earlier one.
    pub(super) fn set_due(&mut self, index: PendingIndex, reply: HandshakeReply) {
        let Some(entry) = &mut self.entries[index] else { return };
        entry.due = Some(reply);
        let in_due_queue = &mut self.in_due_queue[index];
        if !*in_due_queue {
            *in_due_queue = true;
            self.due_queue.push_back(index);
        }
    }

    /// Takes the next due reply and its client.
    pub(super) fn next_due(&mut self) -> Option<(PendingIndex, HandshakeReply)> {
        loop {
            let index = self.due_queue.pop_front()?;
            self.in_due_queue[index] = false;
            // The entry may have been removed, or replaced by one without a due reply.
            if let Some(reply) = self.entries[index].as_mut().and_then(|entry| entry.due.take()) {
                return Some((index, reply));
            }
        }
    }

    /// Records that a reply was sent. A client that was denied before any challenge is removed: it has no challenge to
    /// return, and a full server can deny any number of clients.
    pub(super) fn on_replied(&mut self, index: PendingIndex, reply: HandshakeReply) {
        let Some(entry) = self.entry_mut(index) else { return };
        entry.challenged |= reply == HandshakeReply::Challenge;
        if !entry.challenged {
            self.remove(index);
        }
    }

    fn list(&mut self, index: PendingIndex, entry: &Pending) {
        self.by_address.insert(entry.bound.address, index);
        let group = self.by_client_id.entry(entry.bound.client_id).or_default();
        // `per_token` is at most the array's length, so the entry always fits.
        if let Some(end) = group.indices.get_mut(usize::from(group.count)) {
            *end = index;
            group.count += 1;
        }
    }

    pub(super) fn remove(&mut self, index: PendingIndex) {
        let slot = &mut self.entries[index];
        if let Some(entry) = slot {
            // `take` copies the entry, so the keys are wiped in place first.
            entry.client_to_server.zeroize();
            entry.server_to_client.zeroize();
        }
        let Some(entry) = slot.take().must_exist("a pending entry") else { return };
        self.unlink(entry.older, entry.newer);
        self.by_address.remove(&entry.bound.address);
        self.free.push(index);
        let group = self.by_client_id.get_mut(&entry.bound.client_id);
        let Some(group) = group.must_exist("the group of a pending entry") else { return };
        if let Some(position) = group.indices().iter().position(|other| *other == index) {
            group.count -= 1;
            group.indices.swap(position, usize::from(group.count));
        }
        // A group has at least one entry, which holds its token and age.
        if group.count == 0 {
            self.by_client_id.remove(&entry.bound.client_id);
        }
    }
}

#[cfg(test)]
mod tests;
