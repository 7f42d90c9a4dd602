//! Limits on the work that received datagrams cause: token buckets for decryptions, and counters for a turn.

use alloc::boxed::Box;
use alloc::vec;

use super::config::Budgets;
use crate::address::Address;
use crate::crypto::key::Seed;
use crate::crypto::keyed::HashKey;
use crate::discard::Discard;
use crate::time::Instant;

/// The number of source buckets. A keyed hash maps each source to a bucket, so memory is fixed and an attacker cannot
/// aim at another source's bucket. Sources with the same bucket share a budget.
const SOURCE_BUCKETS: usize = 4096;

/// A token bucket that refills at `per_second` and holds one second's refill.
#[derive(Clone, Copy, Default)]
struct TokenBucket {
    /// The amount that is spent and not refilled yet, in millionths: a rate of 1/s refills one of them per microsecond.
    spent: u64,
    since: Instant,
}

const UNIT: u64 = 1_000_000;

impl TokenBucket {
    fn take(&mut self, count: u32, per_second: u32, now: Instant) -> bool {
        // One second refills the whole bucket, and with this bound the product cannot overflow.
        let elapsed = now.since(self.since).as_micros().min(1_000_000) as u64;
        let refill = elapsed * u64::from(per_second);
        let spent = self.spent.saturating_sub(refill) + u64::from(count) * UNIT;
        let fits = spent <= u64::from(per_second) * UNIT;
        if fits {
            self.spent = spent;
        } else {
            self.spent = self.spent.saturating_sub(refill);
        }
        // The maximum: shards read the clock separately, and a slower one must not refill the same time twice.
        self.since = self.since.max(now);
        fits
    }
}

/// The rank of a pending client's response in a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Attempt {
    First,
    Further,
}

/// The remaining budgets of the present turn.
pub(super) struct TurnBudgets {
    budgets: Budgets,
    requests_left: u32,
    responses_left: u32,
    forgeries_left: u32,
}

impl TurnBudgets {
    pub(super) const fn new(budgets: Budgets) -> Self {
        Self {
            budgets,
            requests_left: budgets.strangers_per_turn,
            responses_left: budgets.responses_per_turn,
            forgeries_left: budgets.forgeries_per_turn,
        }
    }

    /// Restores all budgets at the start of a turn.
    pub(super) const fn start_turn(&mut self) {
        self.requests_left = self.budgets.strangers_per_turn;
        self.responses_left = self.budgets.responses_per_turn;
        self.forgeries_left = self.budgets.forgeries_per_turn;
    }

    /// Returns whether the budget of forged packets, which all clients share, is not used up.
    #[inline]
    pub(super) const fn has_forgeries_left(&self) -> bool {
        self.forgeries_left > 0
    }

    /// Counts a packet from a client's address that did not decrypt.
    pub(super) const fn count_forgery(&mut self) {
        self.forgeries_left = self.forgeries_left.saturating_sub(1);
    }

    /// Takes budget for decrypting a response of a pending client.
    pub(super) fn take_response(&mut self, attempt: Attempt) -> Result<(), Discard> {
        // Half of the budget is reserved for first responses, so that a few busy addresses do not lock the others out.
        let reserved = if attempt == Attempt::First { 0 } else { self.budgets.responses_per_turn / 2 };
        if self.responses_left <= reserved {
            return Err(Discard::PendingBudget);
        }
        self.responses_left -= 1;
        Ok(())
    }

    /// Takes budget for a connection request.
    pub(super) fn take_request(&mut self) -> Result<(), Discard> {
        self.requests_left = self.requests_left.checked_sub(1).ok_or(Discard::StrangerBudget)?;
        Ok(())
    }
}

/// Limits the rate of token decryptions, for each source and for all sources together. All shards share it.
pub(super) struct DecryptLimiter {
    per_source: u32,
    max_total: u32,
    total: TokenBucket,
    sources: Box<[TokenBucket]>,
    hash: HashKey,
}

impl DecryptLimiter {
    pub(super) fn new(budgets: &Budgets, seed: &Seed) -> Self {
        Self {
            per_source: budgets.decrypts_per_source,
            max_total: budgets.decrypts,
            total: TokenBucket::default(),
            sources: vec![TokenBucket::default(); SOURCE_BUCKETS].into_boxed_slice(),
            hash: HashKey::derive(seed, "source budgets"),
        }
    }

    /// Takes budget for decrypting a token from `from` with up to `keys` keys.
    pub(super) fn take(&mut self, from: Address, keys: u32, now: Instant) -> Result<(), Discard> {
        let index = self.hash.hash(&from.network()) as usize % SOURCE_BUCKETS;
        let source = self.sources.get_mut(index).ok_or(Discard::SourceBudget)?;
        // The source's own budget comes first: a source that exceeds it must not use up the total.
        if !source.take(keys, self.per_source, now) {
            return Err(Discard::SourceBudget);
        }
        if !self.total.take(keys, self.max_total, now) {
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
    fn bucket_holds_one_seconds_refill_then_follows_its_rate() {
        let mut bucket = TokenBucket::default();
        let taken = |bucket: &mut TokenBucket, now| (0..1000).filter(|_| bucket.take(1, 10, now)).count();
        assert_eq!(taken(&mut bucket, at(0)), 10);
        assert_eq!(taken(&mut bucket, at(99)), 0);
        assert_eq!(taken(&mut bucket, at(201)), 2);
        assert_eq!(taken(&mut bucket, at(900_000)), 10);
    }

    #[test]
    fn frequently_used_bucket_still_refills() {
        let mut bucket = TokenBucket::default();
        let taken = (0..=10_000_u64).filter(|step| bucket.take(1, 10, at(*step))).count();
        assert!((105..=111).contains(&taken), "{taken} in 10 s at 10 a second");
    }

    #[test]
    fn shards_with_different_clocks_do_not_refill_twice() {
        let mut bucket = TokenBucket::default();
        let taken = (0..2000_u64).filter(|step| bucket.take(1, 10, at(1000 + step % 2 * 50))).count();
        assert_eq!(taken, 10, "both clocks stand still");
    }

    #[test]
    fn maximum_budget_does_not_overflow() {
        let mut bucket = TokenBucket::default();
        for step in 0..100 {
            assert!(bucket.take(u32::MAX, u32::MAX, at(1000 * step)) && !bucket.take(1, u32::MAX, at(1000 * step)));
        }
    }

    #[test]
    fn one_source_cannot_use_up_the_total_budget() {
        let budgets = Budgets { decrypts_per_source: 5, decrypts: 8, ..Budgets::default() };
        let mut decrypts = DecryptLimiter::new(&budgets, &Seed::from([1; 32]));
        let from = |last: u8| Address::from(core::net::SocketAddr::from(([192, 0, 2, last], 1)));
        let taken = |decrypts: &mut DecryptLimiter, last| {
            (0..9).map(|_| decrypts.take(from(last), 1, at(1))).filter(Result::is_ok).count()
        };
        assert_eq!(taken(&mut decrypts, 1), 5);
        assert_eq!(decrypts.take(from(1), 1, at(1)), Err(Discard::SourceBudget));
        assert_eq!(taken(&mut decrypts, 2), 3);
        assert_eq!(decrypts.take(from(3), 1, at(1)), Err(Discard::GlobalBudget));
    }
}
