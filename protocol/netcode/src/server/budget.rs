//! How much work others may cause: token buckets for decryptions, counts for a turn.

use alloc::boxed::Box;
use alloc::vec;

use super::config::Budgets;
use crate::address::Address;
use crate::crypto::key::Seed;
use crate::crypto::keyed::HashKey;
use crate::discard::Discard;
use crate::time::Instant;

/// Buckets for sources. A source's bucket is chosen by a keyed hash, so memory is fixed and nobody can aim at another's
/// bucket; sources that share one share its budget.
const SOURCE_BUCKETS: usize = 4096;

/// A bucket that fills at `per_second` and holds one second's worth.
#[derive(Clone, Copy, Default)]
struct Bucket {
    /// Spent and not yet regained, in millionths: what one a second regains in a microsecond.
    spent: u64,
    since: Instant,
}

const UNIT: u64 = 1_000_000;

impl Bucket {
    fn take(&mut self, count: u32, per_second: u32, now: Instant) -> bool {
        let elapsed = now.since(self.since).as_micros().min(1_000_000) as u64;
        let regained = elapsed * u64::from(per_second);
        let spent = self.spent.saturating_sub(regained) + u64::from(count) * UNIT;
        let fits = spent <= u64::from(per_second) * UNIT;
        if fits {
            self.spent = spent;
        } else {
            self.spent = self.spent.saturating_sub(regained);
        }
        // Shards read the clock each for themselves: one that is a little behind must not make time pass twice.
        self.since = self.since.max(now);
        fits
    }
}

/// Which of a pending client's responses in a turn one is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Try {
    First,
    Further,
}

/// What one turn may look at.
pub(super) struct Ledger {
    budgets: Budgets,
    strangers_left: u32,
    responses_left: u32,
    forgeries_left: u32,
}

impl Ledger {
    pub(super) const fn new(budgets: Budgets) -> Self {
        Self {
            budgets,
            strangers_left: budgets.strangers_per_turn,
            responses_left: budgets.responses_per_turn,
            forgeries_left: budgets.forgeries_per_turn,
        }
    }

    /// A new turn: strangers and pending clients have their shares again.
    pub(super) const fn begin_turn(&mut self) {
        self.strangers_left = self.budgets.strangers_per_turn;
        self.responses_left = self.budgets.responses_per_turn;
        self.forgeries_left = self.budgets.forgeries_per_turn;
    }

    /// Whether all forgers together have not spent theirs yet.
    pub(super) const fn has_forgeries(&self) -> bool {
        self.forgeries_left > 0
    }

    /// A packet from a client's address did not open.
    pub(super) const fn note_forgery(&mut self) {
        self.forgeries_left = self.forgeries_left.saturating_sub(1);
    }

    /// A response from a pending client's address is opened. Half of all is kept for clients' first ones, so that a few who
    /// send many do not keep out the others.
    pub(super) fn take_response(&mut self, which: Try) -> Result<(), Discard> {
        let kept = if which == Try::First { 0 } else { self.budgets.responses_per_turn / 2 };
        if self.responses_left <= kept {
            return Err(Discard::PendingBudget);
        }
        self.responses_left -= 1;
        Ok(())
    }

    /// A stranger's request is looked at.
    pub(super) fn take_request(&mut self) -> Result<(), Discard> {
        self.strangers_left = self.strangers_left.checked_sub(1).ok_or(Discard::StrangerBudget)?;
        Ok(())
    }
}

/// How many tokens may be decrypted, by source and by all together: for the whole server, whatever its shards.
pub(super) struct Decrypts {
    per_source: u32,
    most: u32,
    all: Bucket,
    sources: Box<[Bucket]>,
    hash: HashKey,
}

impl Decrypts {
    pub(super) fn new(budgets: &Budgets, seed: &Seed) -> Self {
        Self {
            per_source: budgets.decrypts_per_source,
            most: budgets.decrypts,
            all: Bucket::default(),
            sources: vec![Bucket::default(); SOURCE_BUCKETS].into_boxed_slice(),
            hash: HashKey::derive(seed, "source budgets"),
        }
    }

    /// A token is decrypted for `from`, with up to `keys` keys: first its own budget, then that of all.
    pub(super) fn take(&mut self, from: Address, keys: u32, now: Instant) -> Result<(), Discard> {
        let place = self.hash.hash(&from.network()) as usize % SOURCE_BUCKETS;
        let source = self.sources.get_mut(place).ok_or(Discard::SourceBudget)?;
        if !source.take(keys, self.per_source, now) {
            return Err(Discard::SourceBudget);
        }
        if !self.all.take(keys, self.most, now) {
            return Err(Discard::GlobalBudget);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    #[test]
    fn a_bucket_gives_a_seconds_worth_at_once_and_then_its_rate() {
        let mut bucket = Bucket::default();
        let taken = |bucket: &mut Bucket, now| (0..1000).filter(|_| bucket.take(1, 10, now)).count();
        assert_eq!(taken(&mut bucket, at(0)), 10);
        assert_eq!(taken(&mut bucket, at(99)), 0);
        assert_eq!(taken(&mut bucket, at(201)), 2);
        assert_eq!(taken(&mut bucket, at(900_000)), 10);
    }

    #[test]
    fn a_bucket_that_is_asked_often_still_fills() {
        let mut bucket = Bucket::default();
        let taken = (0..=10_000_u64).filter(|step| bucket.take(1, 10, at(*step))).count();
        assert!((105..=111).contains(&taken), "{taken} in 10 s at 10 a second");
    }

    #[test]
    fn clocks_of_shards_that_are_a_little_apart_make_no_time_pass_twice() {
        let mut bucket = Bucket::default();
        let taken = (0..2000_u64).filter(|step| bucket.take(1, 10, at(1000 + step % 2 * 50))).count();
        assert_eq!(taken, 10, "both clocks stand still");
    }

    #[test]
    fn the_largest_budget_of_all_is_no_limit() {
        let mut bucket = Bucket::default();
        for step in 0..100 {
            assert!(bucket.take(u32::MAX, u32::MAX, at(1000 * step)) && !bucket.take(1, u32::MAX, at(1000 * step)));
        }
    }

    #[test]
    fn one_source_cannot_spend_what_all_may() {
        let budgets = Budgets { decrypts_per_source: 5, decrypts: 8, ..Budgets::default() };
        let mut decrypts = Decrypts::new(&budgets, &Seed::from_bytes([1; 32]));
        let from = |last: u8| Address::from(core::net::SocketAddr::from(([192, 0, 2, last], 1)));
        let taken = |decrypts: &mut Decrypts, last| {
            (0..9).map(|_| decrypts.take(from(last), 1, at(1))).filter(Result::is_ok).count()
        };
        assert_eq!(taken(&mut decrypts, 1), 5);
        assert_eq!(decrypts.take(from(1), 1, at(1)), Err(Discard::SourceBudget));
        assert_eq!(taken(&mut decrypts, 2), 3);
        assert_eq!(decrypts.take(from(3), 1, at(1)), Err(Discard::GlobalBudget));
    }
}
