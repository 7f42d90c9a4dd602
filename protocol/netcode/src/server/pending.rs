//! Pending clients: they presented a valid token, and have not yet proven that they receive at their address.
//!
//! One client id is pending with one token at a time, and one token at a few addresses (so that whoever sniffed a
//! request cannot lock its owner out by being first). Entries live a few seconds whatever arrives.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use super::budget::Try;
use super::config::MAX_ADDRESSES_PER_TOKEN;
use zeroize::Zeroize;

use crate::address::Address;
use crate::crypto::digest::Digest;
use crate::crypto::key::{Key, Seed};
use crate::crypto::keyed::{HashKey, KeyedMap, map_with_capacity};
use crate::discard::Discard;
use crate::time::{Instant, UnixSeconds};
use crate::token::challenge::Binding;
use crate::token::history::TokenTag;
use crate::token::redeem::{Age, Redeemed};
use crate::wire::UserData;

/// How long a pending client may keep its place against others who want it: time for a challenge and its response on
/// any path on which a game is played.
const FAIR_TIME: Duration = Duration::from_secs(1);

/// Responses from one pending client's address that one turn opens, whoever sealed them. Clients answer a challenge ten times
/// a second for five seconds: even among a thousand forgeries a turn, one of these fifty is nearly sure to be opened.
const TRIES_PER_TURN: u32 = 64;

/// What a pending client is owed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    /// A challenge to prove its address with.
    Challenge,
    /// Word that there is no room.
    Denied,
}

/// The token of a request, as the history finds it and as all else names it.
#[derive(Clone, Copy)]
pub(super) struct Presented {
    pub(super) tag: TokenTag,
    pub(super) name: Digest,
}

/// A client that presented a valid token at an address.
pub(super) struct Pending {
    pub(super) bound: Binding,
    pub(super) tag: TokenTag,
    pub(super) age: Age,
    pub(super) expires: UnixSeconds,
    pub(super) client_to_server: Key,
    pub(super) server_to_client: Key,
    pub(super) timeout_seconds: i32,
    pub(super) user_data: UserData,
    pub(super) server_index: u8,
    since: Instant,
    /// The turn in which responses from its address were opened last, and how many.
    turn: u64,
    tries: u32,
    /// It was sent a challenge, so that a response may come.
    challenged: bool,
    owes: Option<Reply>,
}

/// The places of one client id's pending entries: one token, up to eight addresses.
struct Group {
    token: Digest,
    age: Age,
    places: [u32; MAX_ADDRESSES_PER_TOKEN as usize],
    count: usize,
}

impl Group {
    fn places(&self) -> &[u32] {
        self.places.get(..self.count).unwrap_or_default()
    }
}

/// All pending clients of a server.
pub(super) struct PendingClients {
    capacity: usize,
    /// As many as were ever used: memory for the others is reserved, and not touched.
    entries: Vec<Option<Pending>>,
    /// When each entry's time runs out; [`Instant::NEVER`] where there is none.
    deadlines: Vec<Instant>,
    free: Vec<u32>,
    by_address: KeyedMap<Address, u32>,
    by_client_id: KeyedMap<u64, Group>,
    /// Places that are owed a reply, each at most once; `in_debts` says which. A place may have been left meanwhile.
    debts: VecDeque<u32>,
    in_debts: Vec<bool>,
    per_token: usize,
    next_identity: u64,
}

impl PendingClients {
    pub(super) fn new(capacity: u32, per_token: u8, seed: &Seed) -> Self {
        let size = capacity as usize;
        Self {
            capacity: size,
            entries: Vec::with_capacity(size),
            deadlines: Vec::with_capacity(size),
            free: Vec::with_capacity(size),
            by_address: map_with_capacity(size, HashKey::derive(seed, "pending by address")),
            by_client_id: map_with_capacity(size, HashKey::derive(seed, "pending by client id")),
            debts: VecDeque::with_capacity(size),
            in_debts: Vec::with_capacity(size),
            per_token: usize::from(per_token),
            next_identity: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_address.len()
    }

    /// The client pending at an address, if its time has not run out.
    pub(super) fn at_address(&self, address: &Address, now: Instant) -> Option<u32> {
        self.by_address.get(address).copied().filter(|place| !self.is_late(*place, now))
    }

    /// Which try another response of a pending client is in this turn, unless it has had them all: whoever writes under its
    /// address, and whoever holds its token, must not take what other clients may send.
    pub(super) fn next_try(&self, place: u32, turn: u64) -> Option<Try> {
        let entry = self.get(place)?;
        match if entry.turn == turn { entry.tries } else { 0 } {
            0 => Some(Try::First),
            tries => (tries < TRIES_PER_TURN).then_some(Try::Further),
        }
    }

    /// A response from a pending client's address is opened. It counts whatever comes of it: a token's holder can seal as
    /// many as a stranger can forge.
    pub(super) fn note_try(&mut self, place: u32, turn: u64) {
        let Some(Some(entry)) = self.entries.get_mut(place as usize) else { return };
        if entry.turn != turn {
            (entry.turn, entry.tries) = (turn, 0);
        }
        entry.tries += 1;
    }

    fn is_late(&self, place: u32, now: Instant) -> bool {
        self.deadlines.get(place as usize).is_none_or(|deadline| *deadline <= now)
    }

    pub(super) fn get(&self, place: u32) -> Option<&Pending> {
        self.entries.get(place as usize)?.as_ref()
    }

    /// Takes a client in, or finds it where it already is. Its time does not start anew then.
    ///
    /// # Errors
    /// `AddressPending`, `ClientIdPending`, `TokenAddresses` or `PendingFull`.
    pub(super) fn admit(
        &mut self,
        token: Presented,
        redeemed: &Redeemed,
        server_index: u8,
        from: Address,
        now: Instant,
        lifetime: Duration,
    ) -> Result<u32, Discard> {
        if let Some(place) = self.repeated(token.name, redeemed, from, now)? {
            return Ok(place);
        }
        self.make_room_for_client(token.name, redeemed, now)?;
        let place = self.take_free().ok_or(Discard::PendingFull)?;
        let bound =
            Binding { address: from, token: token.name, pending: self.next_identity, client_id: redeemed.client_id };
        self.next_identity += 1;
        let entry = Pending {
            bound,
            tag: token.tag,
            age: redeemed.age(),
            expires: redeemed.expires,
            client_to_server: redeemed.client_to_server.clone(),
            server_to_client: redeemed.server_to_client.clone(),
            timeout_seconds: redeemed.timeout_seconds,
            user_data: redeemed.user_data,
            server_index,
            since: now,
            turn: 0,
            tries: 0,
            challenged: false,
            owes: None,
        };
        self.list(place, &entry);
        if let Some(deadline) = self.deadlines.get_mut(place as usize) {
            *deadline = now.after(lifetime);
        }
        if let Some(home) = self.entries.get_mut(place as usize) {
            *home = Some(entry);
        }
        Ok(place)
    }

    fn take_free(&mut self) -> Option<u32> {
        if let Some(place) = self.free.pop() {
            return Some(place);
        }
        let place = self.entries.len();
        (place < self.capacity).then(|| {
            self.entries.push(None);
            self.deadlines.push(Instant::NEVER);
            self.in_debts.push(false);
            place as u32
        })
    }

    /// The place of this very token at this very address; room is made if something older is in the way.
    fn repeated(
        &mut self,
        token: Digest,
        redeemed: &Redeemed,
        from: Address,
        now: Instant,
    ) -> Result<Option<u32>, Discard> {
        let Some(place) = self.by_address.get(&from).copied() else { return Ok(None) };
        if self.is_late(place, now) {
            self.remove(place);
            return Ok(None);
        }
        let Some(entry) = self.get(place) else { return Ok(None) };
        if entry.bound.token == token {
            return Ok(Some(place));
        }
        if entry.bound.client_id == redeemed.client_id {
            return Ok(None);
        }
        // Whoever writes from this address under another name must neither push out the client that waits here, nor
        // keep its place for ever.
        if !now.reached(entry.since, FAIR_TIME) {
            return Err(Discard::AddressPending);
        }
        self.remove(place);
        Ok(None)
    }

    fn make_room_for_client(&mut self, token: Digest, redeemed: &Redeemed, now: Instant) -> Result<(), Discard> {
        self.remove_late_of(redeemed.client_id, now);
        let Some(group) = self.by_client_id.get(&redeemed.client_id) else { return Ok(()) };
        if group.token == token {
            return if group.count < self.per_token { Ok(()) } else { self.remove_oldest_of(redeemed.client_id, now) };
        }
        if !redeemed.age().is_newer_than(group.age) {
            return Err(Discard::ClientIdPending);
        }
        self.remove_client(redeemed.client_id);
        Ok(())
    }

    /// Makes room at another address for a token that is pending at as many as it may be: the oldest entry goes, if it
    /// has had a fair time. So thieves can neither keep all places nor push the owner out before it has answered.
    fn remove_oldest_of(&mut self, client_id: u64, now: Instant) -> Result<(), Discard> {
        let places = self.by_client_id.get(&client_id).map(Group::places).unwrap_or_default();
        let since = |place: &u32| self.get(*place).map_or(Instant::NEVER, |entry| entry.since);
        let oldest = places.iter().copied().min_by_key(since).ok_or(Discard::TokenAddresses)?;
        if !now.reached(since(&oldest), FAIR_TIME) {
            return Err(Discard::TokenAddresses);
        }
        self.remove(oldest);
        Ok(())
    }

    /// Removes every pending entry of a client id.
    pub(super) fn remove_client(&mut self, client_id: u64) {
        self.remove_of(client_id, |_, _| true);
    }

    fn remove_late_of(&mut self, client_id: u64, now: Instant) {
        self.remove_of(client_id, |pending, place| pending.is_late(place, now));
    }

    fn remove_of(&mut self, client_id: u64, unwanted: impl Fn(&Self, u32) -> bool) {
        let Some(group) = self.by_client_id.get(&client_id) else { return };
        let (places, count) = (group.places, group.count);
        for place in places.into_iter().take(count) {
            if unwanted(self, place) {
                self.remove(place);
            }
        }
    }

    /// Removes what has had its time.
    pub(super) fn sweep(&mut self, now: Instant) {
        if self.by_address.is_empty() {
            return;
        }
        for place in 0..self.entries.len() as u32 {
            if self.is_late(place, now) {
                self.remove(place);
            }
        }
    }

    /// From now on this client is owed a reply; a later one replaces an earlier one.
    pub(super) fn owe(&mut self, place: u32, reply: Reply) {
        let Some(Some(entry)) = self.entries.get_mut(place as usize) else { return };
        entry.owes = Some(reply);
        if let Some(in_debts) = self.in_debts.get_mut(place as usize).filter(|in_debts| !**in_debts) {
            *in_debts = true;
            self.debts.push_back(place);
        }
    }

    /// The next client that is owed a reply, and which.
    pub(super) fn next_debt(&mut self) -> Option<(u32, Reply)> {
        loop {
            let place = self.debts.pop_front()?;
            if let Some(in_debts) = self.in_debts.get_mut(place as usize) {
                *in_debts = false;
            }
            let Some(Some(entry)) = self.entries.get_mut(place as usize) else { continue };
            if let Some(reply) = entry.owes.take() {
                return Some((place, reply));
            }
        }
    }

    /// A reply has left. One that was denied without ever being challenged has nothing to come back for, and keeps no
    /// place: a full server can deny everybody who asks.
    pub(super) fn note_replied(&mut self, place: u32, reply: Reply) {
        let Some(Some(entry)) = self.entries.get_mut(place as usize) else { return };
        entry.challenged |= reply == Reply::Challenge;
        if !entry.challenged {
            self.remove(place);
        }
    }

    fn list(&mut self, place: u32, entry: &Pending) {
        self.by_address.insert(entry.bound.address, place);
        let group = self.by_client_id.entry(entry.bound.client_id).or_insert(Group {
            token: entry.bound.token,
            age: entry.age,
            places: [0; MAX_ADDRESSES_PER_TOKEN as usize],
            count: 0,
        });
        if let Some(home) = group.places.get_mut(group.count) {
            *home = place;
            group.count += 1;
        }
    }

    pub(super) fn remove(&mut self, place: u32) {
        let Some(home) = self.entries.get_mut(place as usize) else { return };
        if let Some(entry) = home {
            // Taking the entry out copies it, so its keys are wiped where they lie.
            entry.client_to_server.zeroize();
            entry.server_to_client.zeroize();
        }
        let Some(entry) = home.take() else { return };
        if let Some(deadline) = self.deadlines.get_mut(place as usize) {
            *deadline = Instant::NEVER;
        }
        self.by_address.remove(&entry.bound.address);
        self.free.push(place);
        let Some(group) = self.by_client_id.get_mut(&entry.bound.client_id) else { return };
        if let Some(index) = group.places().iter().position(|other| *other == place) {
            group.count -= 1;
            group.places.swap(index, group.count);
        }
        if group.count == 0 {
            self.by_client_id.remove(&entry.bound.client_id);
        }
    }
}
