//! The history of tokens: each admits one connection, once.
//!
//! A token is *pending* from its first valid request on: those lie in the server's table of pending clients, which is
//! bounded and forgets in seconds. It is *consumed* when a slot is assigned: those lie here, until the token has expired,
//! and are never evicted. A full history refuses new tokens instead of forgetting old ones.
//!
//! So only connections fill the history. Were an entry made at the request, whoever is given tokens could fill it
//! without ever connecting, and lock everybody out.
//!
//! A token of this start is found by its tag as it stands in the request, so that one that is replayed costs one keyed
//! lookup. A journal knows the names of tokens alone: names are made where it, or what it kept, asks for them.

use super::used::Used;
use crate::crypto::digest::{Digest, DigestKey};
use crate::crypto::keyed::HashKey;
use crate::discard::Discard;
use crate::time::{Now, UnixSeconds};
use crate::wire::{PRIVATE_TOKEN_BYTES, TAG_BYTES};

/// A token that was used for a connection, as a journal keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UsedToken {
    /// The keyed digest of the token's tag.
    pub name: Digest,
    /// When the token expires, and so when the record may be forgotten.
    pub expires: UnixSeconds,
}

/// Storage that survives a restart of the server, so that used tokens stay used.
pub trait Journal: Send {
    /// Writes down that a token was used. Called before its client gets a slot; an error refuses the connection.
    ///
    /// # Errors
    /// When it could not be written.
    fn record(&mut self, used: UsedToken) -> Result<(), JournalError>;

    /// Whether it takes no records for a moment. Nobody is admitted then, and whoever would be asks again.
    fn is_busy(&self) -> bool {
        false
    }

    /// Makes what was recorded durable, or goes on with it while others do that; answers how many of its records are durable
    /// by now, the oldest ones first. Called once a turn, and before something is sent to a newcomer, while there are fewer
    /// than were recorded: clients are told of their slots when their records are durable.
    ///
    /// # Errors
    /// When nothing more could be made durable; the clients concerned are not told of their slots yet.
    fn flush(&mut self) -> Result<u64, JournalError>;
}

/// The journal could not be written. The journal itself knows and tells why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalError;

/// A token's tag: the last 16 bytes of its sealed private part, which no two tokens share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct TokenTag(pub [u8; TAG_BYTES]);

impl TokenTag {
    /// The tag of a sealed private part.
    #[must_use]
    pub fn of(sealed: &[u8; PRIVATE_TOKEN_BYTES]) -> Self {
        Self(sealed.last_chunk().copied().unwrap_or_default())
    }
}

/// Which tokens were used for a connection.
pub struct History {
    names: DigestKey,
    used: Used<TokenTag>,
    /// Those that earlier starts used.
    restored: Used<Digest>,
    capacity: usize,
    /// The latest expiry of an entry that was forgotten: a token that expires by then may have been used, whatever a
    /// wall clock says that was stepped back since.
    forgotten: UnixSeconds,
}

impl History {
    /// An empty history for `capacity` unexpired tokens, which names them under `names`.
    #[must_use]
    pub fn new(capacity: usize, names: DigestKey, hash: HashKey) -> Self {
        Self {
            names,
            used: Used::new(capacity, hash.clone()),
            restored: Used::new(0, hash),
            capacity,
            forgotten: UnixSeconds(0),
        }
    }

    /// The name under which a journal keeps a token: the keyed digest of its tag.
    #[must_use]
    pub fn name(&self, tag: &TokenTag) -> Digest {
        self.names.digest(&[&tag.0])
    }

    /// Whether the token with this tag was used for a connection, in this start or in those that a journal has kept.
    #[must_use]
    pub fn is_consumed(&self, tag: &TokenTag) -> bool {
        self.used.contains(tag) || (self.restored.len() > 0 && self.restored.contains(&self.name(tag)))
    }

    /// Whether tokens that expire then may have been forgotten, so that none of them can be trusted to be unused.
    #[must_use]
    pub fn may_have_forgotten(&self, expires: UnixSeconds) -> bool {
        expires <= self.forgotten
    }

    /// How many tokens are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.used.len() + self.restored.len()
    }

    /// Whether no token is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is no room for another token.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    /// Remembers that the token with this tag was used.
    ///
    /// # Errors
    /// `HistoryFull` when there is no room.
    pub fn consume(&mut self, tag: TokenTag, expires: UnixSeconds, now: Now) -> Result<(), Discard> {
        if self.is_full() {
            return Err(Discard::HistoryFull);
        }
        if !self.used.contains(&tag) {
            self.used.insert(tag, expires, now);
        }
        Ok(())
    }

    /// The token with this tag was not used after all: it could not be written down.
    pub fn retract(&mut self, tag: &TokenTag) {
        self.used.remove(tag);
    }

    /// Remembers a token that an earlier start used, as a journal has kept it. Asks for memory: it is for the start.
    ///
    /// # Errors
    /// `HistoryFull` when there is no room.
    pub fn restore(&mut self, used: UsedToken, now: Now) -> Result<(), Discard> {
        if self.is_full() {
            return Err(Discard::HistoryFull);
        }
        if !self.restored.contains(&used.name) {
            self.restored.insert(used.name, used.expires, now);
        }
        Ok(())
    }

    /// Forgets tokens that have expired by both clocks: all of them within about a second, and few at a time.
    pub fn sweep(&mut self, now: Now) {
        let Self { used, restored, forgotten, .. } = self;
        let mut forgets = |expires| *forgotten = (*forgotten).max(expires);
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

    fn history(capacity: usize) -> History {
        let seed = Seed::from_bytes([3; 32]);
        History::new(capacity, DigestKey::new(&seed.derive("names")), HashKey::derive(&seed, "hash"))
    }

    fn at(monotonic: u64, unix: u64) -> Now {
        Now { monotonic: Instant::from_start(Duration::from_secs(monotonic)), unix: UnixMillis(unix * 1000) }
    }

    fn tag(number: u8) -> TokenTag {
        TokenTag([number; 16])
    }

    #[test]
    fn a_full_history_refuses_and_never_evicts() {
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
    fn what_an_earlier_start_used_is_found_by_its_tag_takes_room_and_is_forgotten_like_the_rest() {
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
    fn a_wall_clock_that_jumps_forward_and_back_revives_no_used_token() {
        let mut history = history(8);
        history.consume(tag(1), UnixSeconds(100), at(0, 60)).unwrap();
        history.sweep(at(2, 5000));
        assert!(history.is_consumed(&tag(1)), "expired by the wall clock alone");
        history.sweep(at(50, 5000));
        assert!(!history.is_consumed(&tag(1)) && history.may_have_forgotten(UnixSeconds(100)));
        assert!(!history.may_have_forgotten(UnixSeconds(101)), "the clock's error does not outlast the token");
    }
}
