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

use super::used::UsedSet;
use crate::crypto::digest::{Digest, DigestKey};
use crate::crypto::keyed::HashKey;
use crate::discard::Discard;
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

/// The set of tokens that were used for a connection.
pub(crate) struct TokenHistory {
    names: DigestKey,
    used: UsedSet<TokenTag>,
    /// The tokens that earlier starts used, by name.
    restored: UsedSet<Digest>,
    capacity: usize,
    /// The latest expiry of a forgotten entry. A token that expires by then may have been used, even if the wall clock
    /// was stepped back since.
    forgotten: UnixSeconds,
}

impl TokenHistory {
    /// Returns an empty history for `capacity` unexpired tokens. `names` is the key of their names.
    #[must_use]
    pub(crate) fn new(capacity: usize, names: DigestKey, hash: HashKey) -> Self {
        Self {
            names,
            used: UsedSet::new(capacity, hash.clone()),
            // Grows with the restored tokens only: most servers have none.
            restored: UsedSet::new(0, hash),
            capacity,
            forgotten: UnixSeconds(0),
        }
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
        expires <= self.forgotten
    }

    /// Returns the number of stored tokens.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.used.len() + self.restored.len()
    }

    /// Returns whether the history has no capacity for another token.
    #[must_use]
    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    /// Stores that the token with this tag was used.
    ///
    /// # Errors
    /// `HistoryFull` when the history is full.
    pub(crate) fn consume(&mut self, tag: TokenTag, expires: UnixSeconds, now: Now) -> Result<(), Discard> {
        if self.is_full() {
            return Err(Discard::HistoryFull);
        }
        // A token that was retracted and used again is inserted once.
        if !self.used.contains(&tag) {
            self.used.insert(tag, expires, now);
        }
        Ok(())
    }

    /// Removes the token with this tag, because its record could not be written.
    pub(crate) fn retract(&mut self, tag: &TokenTag) {
        self.used.remove(tag);
    }

    /// Stores a token that an earlier start used, as a journal recorded it. It allocates, so call it at the start only.
    ///
    /// # Errors
    /// `HistoryFull` when the history is full.
    pub(crate) fn restore(&mut self, used: UsedToken, now: Now) -> Result<(), Discard> {
        if self.is_full() {
            return Err(Discard::HistoryFull);
        }
        if !self.restored.contains(&used.name) {
            self.restored.insert(used.name, used.expires, now);
        }
        Ok(())
    }

    /// Forgets tokens that have expired by both clocks. One call examines a small share of all entries, and calls over
    /// one second examine each entry once.
    pub(crate) fn sweep(&mut self, now: Now) {
        let Self { used, restored, forgotten, .. } = self;
        let mut forgets = |expires| *forgotten = (*forgotten).max(expires);
        // Forgotten expiries are recorded, because the wall clock may be stepped back later.
        used.sweep(now, &mut forgets);
        restored.sweep(now, &mut forgets);
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
        TokenHistory::new(capacity, DigestKey::from(&seed.derive("names")), HashKey::derive(&seed, "hash"))
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
            history.consume(tag(number), UnixSeconds(100), at(0, 60)).unwrap();
        }
        assert_eq!(history.consume(tag(3), UnixSeconds(100), at(0, 60)), Err(Discard::HistoryFull));
        assert!(history.is_consumed(&tag(1)) && !history.is_consumed(&tag(3)));
        history.sweep(at(41, 101));
        assert_eq!(history.consume(tag(3), UnixSeconds(130), at(41, 101)), Ok(()));
    }

    #[test]
    fn restored_token_is_found_counted_and_forgotten_like_others() {
        let mut history = history(2);
        let used = |number| UsedToken { name: history.name(&tag(number)), expires: UnixSeconds(100) };
        let (first, second) = (used(1), used(2));
        history.restore(first, at(0, 60)).unwrap();
        assert!(history.is_consumed(&tag(1)) && !history.is_consumed(&tag(2)));
        history.consume(tag(3), UnixSeconds(130), at(0, 60)).unwrap();
        assert_eq!(history.len(), 2);
        assert_eq!(history.consume(tag(4), UnixSeconds(100), at(0, 60)), Err(Discard::HistoryFull));
        assert_eq!(history.restore(second, at(0, 60)), Err(Discard::HistoryFull));
        history.sweep(at(41, 101));
        assert!(!history.is_consumed(&tag(1)) && history.is_consumed(&tag(3)));
        assert!(history.may_have_forgotten(UnixSeconds(100)) && history.len() == 1);
    }

    #[test]
    fn stepping_the_wall_clock_does_not_make_a_used_token_valid() {
        let mut history = history(8);
        history.consume(tag(1), UnixSeconds(100), at(0, 60)).unwrap();
        history.sweep(at(2, 5000));
        assert!(history.is_consumed(&tag(1)), "expired by the wall clock alone");
        history.sweep(at(50, 5000));
        assert!(!history.is_consumed(&tag(1)) && history.may_have_forgotten(UnixSeconds(100)));
        assert!(!history.may_have_forgotten(UnixSeconds(101)), "the clock's error does not outlast the token");
    }
}
