//! The history of used tokens: each token admits one connection.
//!
//! A token is *pending* from its first valid request on. The server's bounded table of pending clients holds it for
//! some seconds. It is *consumed* when a slot is assigned, and is then stored here until it expires. A full history
//! refuses new tokens and never evicts old ones.
//!
//! Only connections fill the history. If a request made an entry, a holder of many tokens could fill it without ever
//! connecting, and lock all other clients out.
//!
//! Tokens of this start are found by their tag, which the request contains, so a replayed token costs one keyed lookup.
//! A journal stores the keyed names of tokens. Names are computed only for the journal and for entries that it
//! restored.

use alloc::vec::Vec;

use super::epochs::ForgottenExpiries;
use super::used::{KeyUse, UsedSet};
use crate::crypto::digest::{Digest, DigestKey};
use crate::crypto::keyed::{HashKey, KeyedMap, map_with_capacity};
use crate::discard::Discard;
use crate::ids::ClientId;
use crate::time::{Now, UnixSeconds};
use crate::wire::{PRIVATE_TOKEN_BYTES, TAG_BYTES};

/// A token that was used for a connection, as a journal stores it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UsedToken {
    /// The keyed digest of the token's tag.
    pub name: Digest,
    /// The second in which the token expires. The record may be forgotten then.
    pub expires: UnixSeconds,
}

/// The used tokens that a journal kept from earlier starts.
pub struct KeptTokens {
    /// The key of the token names in the journal. It lives as long as the journal.
    pub names: [u8; 32],
    /// The tokens that earlier starts used, without those that were dropped as expired.
    pub used: Vec<UsedToken>,
    /// The latest expiry of a token that was dropped, or 0. The server refuses tokens that expire by then, even if the
    /// wall clock was stepped back since.
    pub dropped_until: UnixSeconds,
}

/// Storage for used tokens that survives a restart of the server.
pub trait Journal: Send {
    /// Records that a token was used. The server calls this before the client gets a slot, and refuses the connection
    /// on an error.
    ///
    /// # Errors
    /// [`JournalError`] when the record could not be written.
    fn record(&mut self, used: UsedToken) -> Result<(), JournalError>;

    /// Returns whether the journal accepts no records for the moment. The server admits no client then, and clients
    /// repeat their responses.
    fn is_busy(&self) -> bool {
        false
    }

    /// Makes recorded tokens durable, or continues to do so in the background. Returns how many records of this journal
    /// are durable by now, counted from the oldest.
    ///
    /// The server calls this once per turn, and before it sends to a new client, as long as a record is not durable. A
    /// client gets its first keep-alive when its record is durable.
    ///
    /// # Errors
    /// [`JournalError`] when no more records could be made durable. Their clients keep waiting for a keep-alive.
    fn flush(&mut self) -> Result<u64, JournalError>;
}

/// The error of a journal that could not be written. The journal itself reports the cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalError;

/// A token's tag: the last 16 bytes of its sealed private part, unique to each token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) struct TokenTag(pub(crate) [u8; TAG_BYTES]);

impl TokenTag {
    /// Returns the tag of a sealed private part.
    #[must_use]
    pub(crate) fn of(sealed: &[u8; PRIVATE_TOKEN_BYTES]) -> Self {
        Self(sealed.last_chunk().copied().unwrap_or_default())
    }
}

/// The limits of a [`TokenHistory`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HistoryLimits {
    /// The maximum of unexpired tokens.
    pub(crate) tokens: usize,
    /// The maximum of unexpired tokens of one client id.
    pub(crate) tokens_per_client: u32,
    /// The number of tokens for which memory is allocated at the start.
    pub(crate) initial: usize,
}

/// The set of tokens that were used for a connection.
pub(crate) struct TokenHistory {
    names: DigestKey,
    used: UsedSet<TokenTag>,
    /// The tokens that earlier starts used, by name.
    restored: UsedSet<Digest>,
    /// The number of tokens in `used` of each client id.
    by_client: KeyedMap<ClientId, u32>,
    limits: HistoryLimits,
    /// The expiries of forgotten entries. A token that expires then may have been used, even if the wall clock was
    /// stepped back since.
    forgotten: ForgottenExpiries,
}

impl TokenHistory {
    /// Returns an empty history. `names` is the key of the tokens' names.
    #[must_use]
    pub(crate) fn new(limits: HistoryLimits, names: DigestKey, hash: HashKey) -> Self {
        let initial = limits.initial.min(limits.tokens);
        Self {
            names,
            used: UsedSet::new(initial, hash.clone()),
            // Grows with the restored tokens only: most servers have none.
            restored: UsedSet::new(0, hash.clone()),
            by_client: map_with_capacity(initial, hash),
            limits,
            forgotten: ForgottenExpiries::new(),
        }
    }

    /// Refuses all tokens that expire by this moment: an earlier start may have used and forgotten them.
    pub(crate) fn forget_until(&mut self, moment: UnixSeconds) {
        self.forgotten.insert_until(moment);
    }

    /// Returns the name of a token in a journal: the keyed digest of its tag.
    #[must_use]
    pub(crate) fn name(&self, tag: &TokenTag) -> Digest {
        self.names.digest(&[&tag.0])
    }

    /// Returns whether the token with this tag was used for a connection, in this start or in a restored one.
    #[must_use]
    pub(crate) fn is_consumed(&self, tag: &TokenTag) -> bool {
        // The digest is computed only while restored entries are left: after a minute or so there are none.
        self.used.contains(tag) || (self.restored.len() > 0 && self.restored.contains(&self.name(tag)))
    }

    /// Returns whether a used token with this expiry may have been forgotten. The server must refuse that token.
    #[must_use]
    pub(crate) fn may_have_forgotten(&self, expires: UnixSeconds) -> bool {
        self.forgotten.may_contain(expires)
    }

    /// Returns the number of stored tokens.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.used.len() + self.restored.len()
    }

    /// Returns whether the history has no capacity for another token.
    #[must_use]
    fn is_full(&self) -> bool {
        self.len() >= self.limits.tokens
    }

    /// Checks that there is capacity for another token of a client.
    ///
    /// # Errors
    /// - `HistoryFull` when the history is full.
    /// - `ClientIdTokens` when the client id has its maximum of unexpired used tokens.
    pub(crate) fn check_capacity(&self, client_id: ClientId) -> Result<(), Discard> {
        if self.is_full() {
            return Err(Discard::HistoryFull);
        }
        // Without this limit one account could fill the history by connecting again and again.
        let count = self.by_client.get(&client_id).copied().unwrap_or(0);
        if count >= self.limits.tokens_per_client { Err(Discard::ClientIdTokens) } else { Ok(()) }
    }

    /// Stores that a client used the token with this tag.
    ///
    /// # Errors
    /// As [`check_capacity`](Self::check_capacity).
    pub(crate) fn consume(
        &mut self,
        tag: TokenTag,
        client_id: ClientId,
        expires: UnixSeconds,
        now: Now,
    ) -> Result<(), Discard> {
        self.check_capacity(client_id)?;
        // A token that was retracted and used again is inserted once.
        if !self.used.contains(&tag) {
            let epoch = self.forgotten.observe(now);
            self.used.insert(tag, KeyUse { expires, client_id: Some(client_id), epoch }, now);
            *self.by_client.entry(client_id).or_insert(0) += 1;
        }
        Ok(())
    }

    /// Removes the token with this tag, because its record could not be written.
    pub(crate) fn retract(&mut self, tag: &TokenTag) {
        if let Some(used) = self.used.remove(tag) {
            uncount(&mut self.by_client, used);
        }
    }

    /// Stores a token that an earlier start used, as a journal recorded it. A journal has no client ids, so the token
    /// does not count for its client. It allocates, so call it at the start only.
    ///
    /// # Errors
    /// `HistoryFull` when the history is full.
    pub(crate) fn restore(&mut self, used: UsedToken, now: Now) -> Result<(), Discard> {
        if self.is_full() {
            return Err(Discard::HistoryFull);
        }
        if !self.restored.contains(&used.name) {
            let epoch = self.forgotten.observe(now);
            self.restored.insert(used.name, KeyUse { expires: used.expires, client_id: None, epoch }, now);
        }
        Ok(())
    }

    /// Forgets tokens that have expired by both clocks. One call examines a small share of all entries, and calls over
    /// one second examine each entry once.
    pub(crate) fn sweep(&mut self, now: Now) {
        let epoch = self.forgotten.observe(now);
        let Self { used, restored, by_client, forgotten, .. } = self;
        // Forgotten expiries are recorded, because the wall clock may be stepped back later.
        let mut forget = |used: KeyUse| {
            forgotten.insert(used.expires, used.epoch);
            uncount(by_client, used);
        };
        used.sweep(now, epoch, &mut forget);
        restored.sweep(now, epoch, &mut forget);
    }
}

/// Subtracts a removed token from the count of its client.
fn uncount(by_client: &mut KeyedMap<ClientId, u32>, used: KeyUse) {
    let Some(client_id) = used.client_id else { return };
    let Some(count) = by_client.get_mut(&client_id) else { return };
    *count = count.saturating_sub(1);
    if *count == 0 {
        by_client.remove(&client_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::key::Seed;
    use crate::time::{Instant, UnixMillis};
    use core::time::Duration;

    fn history(capacity: usize) -> TokenHistory {
        let seed = Seed::from([3; 32]);
        let limits = HistoryLimits { tokens: capacity, tokens_per_client: 8, initial: 4 };
        TokenHistory::new(limits, DigestKey::from(&seed.derive("names")), HashKey::derive(&seed, "hash"))
    }

    fn at(monotonic: u64, unix: u64) -> Now {
        Now { monotonic: Instant::from_start(Duration::from_secs(monotonic)), unix: UnixMillis(unix * 1000) }
    }

    fn tag(number: u8) -> TokenTag {
        TokenTag([number; 16])
    }

    #[test]
    fn full_history_refuses_and_never_evicts() {
        let mut history = history(2);
        for number in 1..=2 {
            history.consume(tag(number), ClientId(number.into()), UnixSeconds(100), at(0, 60)).unwrap();
        }
        assert_eq!(history.consume(tag(3), ClientId(3), UnixSeconds(100), at(0, 60)), Err(Discard::HistoryFull));
        assert!(history.is_consumed(&tag(1)) && !history.is_consumed(&tag(3)));
        history.sweep(at(41, 101));
        assert_eq!(history.consume(tag(3), ClientId(3), UnixSeconds(130), at(41, 101)), Ok(()));
    }

    #[test]
    fn restored_token_is_found_counted_and_forgotten_like_others() {
        let mut history = history(2);
        let used = |number| UsedToken { name: history.name(&tag(number)), expires: UnixSeconds(100) };
        let (first, second) = (used(1), used(2));
        history.restore(first, at(0, 60)).unwrap();
        assert!(history.is_consumed(&tag(1)) && !history.is_consumed(&tag(2)));
        history.consume(tag(3), ClientId(3), UnixSeconds(130), at(0, 60)).unwrap();
        assert_eq!(history.len(), 2);
        assert_eq!(history.consume(tag(4), ClientId(4), UnixSeconds(100), at(0, 60)), Err(Discard::HistoryFull));
        assert_eq!(history.restore(second, at(0, 60)), Err(Discard::HistoryFull));
        history.sweep(at(41, 101));
        assert!(!history.is_consumed(&tag(1)) && history.is_consumed(&tag(3)));
        assert!(history.may_have_forgotten(UnixSeconds(100)) && history.len() == 1);
    }

    #[test]
    fn used_token_is_remembered_until_it_expires_by_both_clocks() {
        // Used at 60 s, valid for 40 s. A second before its expiry by either clock it is remembered.
        for (monotonic, unix, is_remembered) in
            [(39, 99, true), (39, 100, true), (40, 99, true), (40, 100, false), (41, 101, false)]
        {
            let mut history = history(4);
            history.consume(tag(1), ClientId(1), UnixSeconds(100), at(0, 60)).unwrap();
            let restored = UsedToken { name: history.name(&tag(2)), expires: UnixSeconds(100) };
            history.restore(restored, at(0, 60)).unwrap();
            history.sweep(at(monotonic, unix));
            assert_eq!(history.is_consumed(&tag(1)), is_remembered, "after {monotonic} s, at {unix} s");
            assert_eq!(history.is_consumed(&tag(2)), is_remembered, "restored: after {monotonic} s, at {unix} s");
        }
    }

    #[test]
    fn client_id_has_at_most_eight_unexpired_used_tokens() {
        let mut history = history(20);
        let (account, other) = (ClientId(7), ClientId(8));
        for number in 0..8 {
            assert_eq!(history.check_capacity(account), Ok(()), "token {number}");
            history.consume(tag(number), account, UnixSeconds(90 + u64::from(number)), at(0, 60)).unwrap();
        }
        assert_eq!(history.check_capacity(account), Err(Discard::ClientIdTokens));
        assert_eq!(history.consume(tag(8), account, UnixSeconds(100), at(0, 60)), Err(Discard::ClientIdTokens));
        assert!(!history.is_consumed(&tag(8)));
        history.consume(tag(9), other, UnixSeconds(100), at(0, 60)).unwrap();
        // A token that was given back or has expired no longer counts.
        history.retract(&tag(3));
        history.retract(&tag(3));
        history.consume(tag(8), account, UnixSeconds(100), at(0, 60)).unwrap();
        assert_eq!(history.check_capacity(account), Err(Discard::ClientIdTokens));
        history.sweep(at(30, 90));
        assert_eq!(history.check_capacity(account), Ok(()), "the first one has expired");
        history.sweep(at(60, 120));
        assert!(history.len() == 0 && history.by_client.is_empty());
    }

    #[test]
    fn history_grows_from_its_initial_memory_to_its_capacity() {
        let mut history = history(5000);
        let tag = |number: u64| TokenTag([number.to_le_bytes(), number.to_le_bytes()].concat().try_into().unwrap());
        for number in 0..5000 {
            history.consume(tag(number), ClientId(number / 8), UnixSeconds(100), at(0, 60)).unwrap();
        }
        assert_eq!(history.check_capacity(ClientId(9999)), Err(Discard::HistoryFull));
        assert!((0..5000).all(|number| history.is_consumed(&tag(number))) && !history.is_consumed(&tag(5000)));
    }

    #[test]
    fn token_used_in_a_clock_glitch_is_forgotten_but_never_valid() {
        // One hour ahead for 10 s: two tokens are used, and one of them expires within the glitch.
        let mut history = history(8);
        history.consume(tag(1), ClientId(1), UnixSeconds(90), at(0, 60)).unwrap();
        history.consume(tag(2), ClientId(2), UnixSeconds(3665), at(1, 3661)).unwrap();
        history.consume(tag(3), ClientId(3), UnixSeconds(3691), at(1, 3661)).unwrap();
        history.sweep(at(9, 3669));
        assert!(!history.is_consumed(&tag(2)) && history.may_have_forgotten(UnixSeconds(3665)));
        // The clock is right again: fresh tokens are admitted at once.
        for seconds in 10..80 {
            history.sweep(at(seconds, 60 + seconds));
            assert!(!history.may_have_forgotten(UnixSeconds(60 + seconds + 30)), "{seconds} s");
        }
        assert_eq!(history.len(), 0, "an hour is not waited for");
        for (number, expires) in [(1, 90), (2, 3665), (3, 3691)] {
            assert!(!history.is_consumed(&tag(number)) && history.may_have_forgotten(UnixSeconds(expires)));
        }
    }

    #[test]
    fn stepping_the_wall_clock_does_not_make_a_used_token_valid() {
        let mut history = history(8);
        history.consume(tag(1), ClientId(1), UnixSeconds(100), at(0, 60)).unwrap();
        history.sweep(at(2, 5000));
        assert!(history.is_consumed(&tag(1)), "expired by the wall clock alone");
        history.sweep(at(50, 5000));
        assert!(!history.is_consumed(&tag(1)) && history.may_have_forgotten(UnixSeconds(100)));
        assert!(!history.may_have_forgotten(UnixSeconds(101)), "the clock's error does not outlast the token");
    }
}
