//! What the shards of a server have in common: which tokens were used, who is connected, which client indices are free,
//! and how much may be decrypted.
//!
//! ```text
//!   shard 0 ──┐ handshakes and ends alone   ┌── used tokens
//!   shard 1 ──┼──────▶ Register ────────────┼── client id ─▶ shard, index, token's age
//!   shard 2 ──┘  lent to one at a time      ├── free client indices
//!                                           └── budget of decryptions
//! ```
//!
//! A server of one shard owns its register and asks no lock. Packets of connected clients never come here.
//!
//! Client ids are the whole server's, and only the shard that has a client knows how long it has been silent. So a newer
//! token that came to another shard takes over in steps, each at the pace at which clients repeat themselves:
//!
//! ```text
//!   newcomer's shard                register                       owner's shard, once a turn
//!   request: connected elsewhere ─▶ asked ─────────▶ flag ───────▶ "heard of it last at …"
//!   request: silent by then, challenged
//!   response: proven ─────────────▶ wanted by token ▶ flag ──────▶ silent still? ends it, index is kept for the token
//!   response again: the token gets the kept index
//! ```

use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use super::budget::Decrypts;
use super::config::{Config, ConfigError};
use crate::address::Address;
use crate::crypto::digest::{Digest, DigestKey};
use crate::crypto::key::Seed;
use crate::crypto::keyed::{HashKey, KeyedMap, map_with_capacity};
use crate::discard::Discard;
use crate::time::{Instant, Now, UnixSeconds};
use crate::token::history::{History, TokenTag, UsedToken};
use crate::token::redeem::Age;

/// The most shards of one server.
pub const MAX_SHARDS: u16 = 256;

/// How long an index is kept for the token that took its client over: ten times the interval at which clients repeat
/// their responses.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// One of the shards of a server, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct ShardId(pub u16);

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Lends what the shards of a server share, its register first of all, to one of them at a time: a lock, of whatever kind
/// there is.
pub trait Lend<T = Register>: Send {
    /// Calls `work` with it, once, while nobody else has it. The work is short, and never waits.
    fn lend(&self, work: &mut dyn FnMut(&mut T));
}

/// What the shards of a server have in common.
pub struct Register {
    history: History,
    names: DigestKey,
    decrypts: Decrypts,
    /// The client index of each client id, connected or kept.
    ids: KeyedMap<u64, u32>,
    /// By client index, as many as were ever used.
    holders: Vec<Option<Holder>>,
    free: BinaryHeap<Reverse<u32>>,
    /// Which shard has each client index; none if it is free or kept.
    owners: Vec<Option<ShardId>>,
    /// Client ids whose indices are kept.
    kept: Vec<u64>,
    desks: Vec<Desk>,
}

/// What one shard is asked.
struct Desk {
    bell: Arc<AtomicBool>,
    asked: VecDeque<u64>,
}

/// Who has a client index.
enum Holder {
    Connected {
        client_id: u64,
        shard: ShardId,
        /// Its token's; none for a client in the same program, which nobody takes over.
        age: Option<Age>,
        /// When its shard had heard of it last, when it was asked.
        heard: Option<Instant>,
        wanted_by: Option<Digest>,
        /// Its shard was asked, and has not answered yet.
        asked: bool,
    },
    /// It was taken over, and its index waits for the token that did.
    Kept { token: Digest, until: Instant },
}

/// A token about to be used.
#[derive(Clone, Copy)]
pub(super) struct Using {
    pub(super) tag: TokenTag,
    pub(super) used: UsedToken,
}

/// What a shard claims for a newcomer.
#[derive(Clone, Copy)]
pub(super) struct Claim {
    pub(super) shard: ShardId,
    pub(super) client_id: u64,
    pub(super) age: Option<Age>,
    pub(super) token: Option<Using>,
}

/// Why a claim was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    Discard(Discard),
    /// All slots of the server are used.
    Full,
}

/// Whether a client id may come in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Presence {
    /// It is not connected.
    Absent,
    /// It was taken over, and its index is kept for this token.
    Kept,
    /// It is connected to another shard, and was silent for long enough when that one was asked.
    SilentElsewhere,
}

/// What another shard wants to know of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Question {
    /// When it was heard last.
    HeardWhen,
    /// That it ends, if it is silent.
    MayItGo,
}

impl Register {
    /// The register of a server of so many shards that starts now; `storage` is what its earlier starts have left: the key
    /// of the names, and the unexpired tokens that they used.
    ///
    /// # Errors
    /// A setting that no server can run with.
    pub fn new(
        config: &Config,
        shards: u16,
        seed: &Seed,
        now: Now,
        storage: Option<(&[u8; 32], &[UsedToken])>,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        if !(1..=MAX_SHARDS).contains(&shards) {
            return Err(ConfigError::Shards);
        }
        let names = match storage {
            Some((names, _)) => DigestKey::new(names),
            None => DigestKey::new(&seed.derive("token names")),
        };
        let mut history = History::new(config.history_tokens, names.clone(), HashKey::derive(seed, "history"));
        for used in storage.map_or(&[][..], |(_, used)| used) {
            history.restore(*used, now).map_err(|_| ConfigError::JournalTooLarge)?;
        }
        let slots = config.slots as usize;
        Ok(Self {
            history,
            names,
            decrypts: Decrypts::new(&config.budgets, seed),
            ids: map_with_capacity(slots, HashKey::derive(seed, "holders")),
            holders: Vec::with_capacity(slots),
            free: (0..config.slots).map(Reverse).collect(),
            owners: vec![None; slots],
            kept: Vec::new(),
            desks: (0..shards).map(|_| Desk { bell: Arc::default(), asked: VecDeque::new() }).collect(),
        })
    }

    /// How many client indices are free.
    #[must_use]
    pub fn free_slots(&self) -> u32 {
        self.free.len() as u32
    }

    /// How many client ids are connected, on all shards.
    #[must_use]
    pub fn connected(&self) -> u32 {
        (self.ids.len() - self.kept.len()) as u32
    }

    /// On which shard a client id is connected.
    #[must_use]
    pub fn shard_of(&self, client_id: u64) -> Option<ShardId> {
        match self.holder(client_id)? {
            Holder::Connected { shard, .. } => Some(*shard),
            Holder::Kept { .. } => None,
        }
    }

    fn holder(&self, client_id: u64) -> Option<&Holder> {
        self.holders.get(*self.ids.get(&client_id)? as usize)?.as_ref()
    }

    fn holder_mut(&mut self, client_id: u64) -> Option<&mut Holder> {
        self.holders.get_mut(*self.ids.get(&client_id)? as usize)?.as_mut()
    }

    /// How many used, unexpired tokens are remembered.
    #[must_use]
    pub fn remembered_tokens(&self) -> usize {
        self.history.len()
    }

    pub(super) const fn names(&self) -> &DigestKey {
        &self.names
    }

    /// What tells a shard that it is asked something.
    pub(super) fn bell(&self, shard: ShardId) -> Option<Arc<AtomicBool>> {
        self.desks.get(usize::from(shard.0)).map(|desk| Arc::clone(&desk.bell))
    }

    // Tokens --------------------------------------------------------------------------------------------------------

    pub(super) fn may_have_forgotten(&self, expires: UnixSeconds) -> bool {
        self.history.may_have_forgotten(expires)
    }

    pub(super) fn is_consumed(&self, tag: &TokenTag) -> bool {
        self.history.is_consumed(tag)
    }

    pub(super) fn is_full_of_tokens(&self) -> bool {
        self.history.is_full()
    }

    /// Uses a token for a client that has an index already.
    pub(super) fn consume(&mut self, using: &Using, now: Now) -> Result<(), Discard> {
        if self.history.is_consumed(&using.tag) {
            return Err(Discard::TokenUsed);
        }
        self.history.consume(using.tag, using.used.expires, now)
    }

    /// The use of a token could not be written down, and has let nobody in.
    pub(super) fn retract(&mut self, tag: &TokenTag) {
        self.history.retract(tag);
    }

    pub(super) fn take_decrypt(&mut self, from: Address, keys: u32, now: Instant) -> Result<(), Discard> {
        self.decrypts.take(from, keys, now)
    }

    /// Forgets what has expired.
    pub(super) fn sweep(&mut self, now: Now) {
        self.history.sweep(now);
        self.give_up_kept(now.monotonic);
    }

    // Clients -------------------------------------------------------------------------------------------------------

    /// Whether an index is free, or kept longer than it is worth.
    pub(super) fn has_room(&mut self, now: Instant) -> bool {
        if self.free.is_empty() {
            self.give_up_kept(now);
        }
        !self.free.is_empty()
    }

    /// Whether a client id that `shard` does not have may come in there with a token of this age. If another shard has it,
    /// that one is asked how it is.
    pub(super) fn presence(
        &mut self,
        client_id: u64,
        age: Age,
        token: &Digest,
        grace: Option<Duration>,
        now: Instant,
    ) -> Result<Presence, Discard> {
        let heard = match self.holder(client_id) {
            None => return Ok(Presence::Absent),
            Some(Holder::Kept { token: keeper, until, .. }) => {
                let is_open = keeper == token || *until <= now;
                return if is_open { Ok(Presence::Kept) } else { Err(Discard::ClientIdConnected) };
            }
            Some(Holder::Connected { age: occupant, heard, .. }) => {
                if grace.is_none() || occupant.is_none_or(|occupant| !age.is_newer_than(occupant)) {
                    return Err(Discard::ClientIdConnected);
                }
                *heard
            }
        };
        let is_silent = heard.zip(grace).is_some_and(|(heard, grace)| now.reached(heard, grace));
        if is_silent {
            return Ok(Presence::SilentElsewhere);
        }
        self.ask(client_id);
        Err(Discard::ClientIdConnected)
    }

    /// Asks the shard of a client id to end it, if it is silent, for this token, which is proven and newer.
    pub(super) fn want(&mut self, client_id: u64, token: Digest) {
        let Some(Holder::Connected { wanted_by, .. }) = self.holder_mut(client_id) else { return };
        *wanted_by = Some(token);
        self.ask(client_id);
    }

    /// Asks the shard that has a client how it is; what was asked and is not answered yet is not asked again.
    fn ask(&mut self, client_id: u64) {
        let most = self.owners.len();
        let Self { ids, holders, desks, .. } = self;
        let holder = ids.get(&client_id).and_then(|index| holders.get_mut(*index as usize)?.as_mut());
        let Some(Holder::Connected { shard, asked, .. }) = holder else { return };
        let Some(desk) = desks.get_mut(usize::from(shard.0)) else { return };
        if !*asked && desk.asked.len() < most {
            *asked = true;
            desk.asked.push_back(client_id);
        }
        desk.bell.store(true, Ordering::Release);
    }

    /// What a shard was asked first, and not told yet.
    pub(super) fn next_question(&mut self, shard: ShardId) -> Option<(u64, Question)> {
        loop {
            let client_id = self.desks.get_mut(usize::from(shard.0))?.asked.pop_front()?;
            if let Some(Holder::Connected { shard: owner, wanted_by, asked, .. }) = self.holder_mut(client_id)
                && *owner == shard
            {
                *asked = false;
                let question = if wanted_by.is_some() { Question::MayItGo } else { Question::HeardWhen };
                return Some((client_id, question));
            }
        }
    }

    /// A shard tells when it heard of its client last: that one stays.
    pub(super) fn tell_heard(&mut self, client_id: u64, last: Instant) {
        if let Some(Holder::Connected { heard, wanted_by, .. }) = self.holder_mut(client_id) {
            (*heard, *wanted_by) = (Some(last), None);
        }
    }

    /// A shard lets its client go: the index is kept for the token that wants it.
    pub(super) fn keep(&mut self, client_id: u64, now: Instant) {
        let Some(index) = self.ids.get(&client_id).copied() else { return };
        let Some(Some(holder)) = self.holders.get_mut(index as usize) else { return };
        let Holder::Connected { wanted_by: Some(token), .. } = holder else { return };
        *holder = Holder::Kept { token: *token, until: now.after(KEPT_FOR) };
        self.kept.push(client_id);
        self.set_owner(index, None);
    }

    /// Gives a newcomer a client index, the lowest one that is free, and uses its token: both or none.
    pub(super) fn claim(&mut self, claim: &Claim, now: Now) -> Result<u32, Refused> {
        if let Some(Using { tag, .. }) = &claim.token
            && self.history.is_consumed(tag)
        {
            return Err(Refused::Discard(Discard::TokenUsed));
        }
        let name = claim.token.map(|using| using.used.name);
        let kept = match self.holder(claim.client_id) {
            None => None,
            Some(Holder::Kept { token, until }) if name == Some(*token) || *until <= now.monotonic => {
                self.ids.get(&claim.client_id).copied()
            }
            Some(_) => return Err(Refused::Discard(Discard::ClientIdConnected)),
        };
        if kept.is_none() && !self.has_room(now.monotonic) {
            return Err(Refused::Full);
        }
        if let Some(using) = &claim.token {
            self.history.consume(using.tag, using.used.expires, now).map_err(Refused::Discard)?;
        }
        let index = match kept {
            Some(index) => {
                self.kept.retain(|client_id| *client_id != claim.client_id);
                index
            }
            None => self.free.pop().ok_or(Refused::Full)?.0,
        };
        self.set_owner(index, Some(claim.shard));
        self.ids.insert(claim.client_id, index);
        if index as usize >= self.holders.len() {
            self.holders.resize_with(index as usize + 1, || None);
        }
        if let Some(holder) = self.holders.get_mut(index as usize) {
            let (client_id, shard, age) = (claim.client_id, claim.shard, claim.age);
            *holder = Some(Holder::Connected { client_id, shard, age, heard: None, wanted_by: None, asked: false });
        }
        Ok(index)
    }

    /// A newer token has taken over the client of the same id on the same shard.
    pub(super) fn renew(&mut self, client_id: u64, newer: Age) {
        if let Some(Holder::Connected { age, heard, wanted_by, .. }) = self.holder_mut(client_id) {
            (*age, *heard, *wanted_by) = (Some(newer), None, None);
        }
    }

    /// A client is connected no more; its index may still be used for its farewell.
    pub(super) fn leave(&mut self, shard: ShardId, client_id: u64) {
        let is_there = |holder: &Holder| matches!(holder, Holder::Connected { shard: owner, .. } if *owner == shard);
        if self.holder(client_id).is_some_and(is_there)
            && let Some(index) = self.ids.remove(&client_id)
            && let Some(holder) = self.holders.get_mut(index as usize)
        {
            *holder = None;
        }
    }

    /// A shard uses a client index no more.
    pub(super) fn release(&mut self, shard: ShardId, index: u32) {
        if self.owners.get(index as usize).is_some_and(|owner| *owner == Some(shard)) {
            self.set_owner(index, None);
            self.free.push(Reverse(index));
        }
    }

    /// A shard is gone, and whatever it had is free.
    pub(super) fn leave_all(&mut self, shard: ShardId) {
        let Self { ids, holders, .. } = self;
        for holder in holders {
            if let Some(gone) =
                holder.take_if(|holder| matches!(holder, Holder::Connected { shard: owner, .. } if *owner == shard))
                && let Holder::Connected { client_id, .. } = gone
            {
                ids.remove(&client_id);
            }
        }
        for index in 0..self.owners.len() as u32 {
            self.release(shard, index);
        }
    }

    fn set_owner(&mut self, index: u32, shard: Option<ShardId>) {
        if let Some(owner) = self.owners.get_mut(index as usize) {
            *owner = shard;
        }
    }

    /// Frees the indices that were kept and not fetched.
    fn give_up_kept(&mut self, now: Instant) {
        let Self { kept, ids, holders, free, .. } = self;
        kept.retain(|client_id| {
            let Some(index) = ids.get(client_id).copied() else { return false };
            let Some(holder) = holders.get_mut(index as usize) else { return false };
            let is_late = matches!(holder, Some(Holder::Kept { until, .. }) if *until <= now);
            if is_late {
                *holder = None;
                ids.remove(client_id);
                free.push(Reverse(index));
            }
            !is_late
        });
    }
}

/// A server's way to its register.
pub(super) enum Common {
    /// It is the only shard.
    Own(Box<Register>),
    Shared(Box<dyn Lend>),
}

impl Common {
    /// Works with the register; the answer is `refused` should it not be lent.
    pub(super) fn with<R>(&mut self, refused: R, work: impl FnOnce(&mut Register) -> R) -> R {
        match self {
            Self::Own(register) => work(register),
            Self::Shared(lender) => lent(lender.as_ref(), refused, work),
        }
    }

    /// Asks the register.
    pub(super) fn ask<R>(&self, refused: R, work: impl FnOnce(&Register) -> R) -> R {
        match self {
            Self::Own(register) => work(register),
            Self::Shared(lender) => lent(lender.as_ref(), refused, |register| work(register)),
        }
    }
}

fn lent<R>(lender: &dyn Lend, refused: R, work: impl FnOnce(&mut Register) -> R) -> R {
    let (mut work, mut answer) = (Some(work), refused);
    lender.lend(&mut |register| {
        if let Some(work) = work.take() {
            answer = work(register);
        }
    });
    answer
}

#[cfg(test)]
mod tests;
