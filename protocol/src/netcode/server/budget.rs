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
        self.since = now;
        fits
    }
}

/// The budgets of one server.
pub(super) struct Ledger {
    budgets: Budgets,
    strangers_left: u32,
    forgeries_left: u32,
    all: Bucket,
    sources: Box<[Bucket]>,
    hash: HashKey,
}

impl Ledger {
    pub(super) fn new(budgets: Budgets, seed: &Seed) -> Self {
        Self {
            budgets,
            strangers_left: budgets.strangers_per_turn,
            forgeries_left: budgets.forgeries_per_turn,
            all: Bucket::default(),
            sources: vec![Bucket::default(); SOURCE_BUCKETS].into_boxed_slice(),
            hash: HashKey::derive(seed, "source budgets"),
        }
    }

    /// A new turn: strangers have their share again.
    pub(super) fn begin_turn(&mut self) {
        self.strangers_left = self.budgets.strangers_per_turn;
        self.forgeries_left = self.budgets.forgeries_per_turn;
    }

    /// Whether another packet from a client's address may be opened, that may turn out to be forged.
    pub(super) fn check_forgeries(&self) -> Result<(), Discard> {
        if self.forgeries_left > 0 { Ok(()) } else { Err(Discard::ForgeryBudget) }
    }

    /// A packet from a client's address did not open.
    pub(super) fn note_forgery(&mut self) {
        self.forgeries_left = self.forgeries_left.saturating_sub(1);
    }

    /// A stranger's datagram is looked at.
    pub(super) fn take_stranger(&mut self) -> Result<(), Discard> {
        self.strangers_left = self.strangers_left.checked_sub(1).ok_or(Discard::StrangerBudget)?;
        Ok(())
    }

    /// A token is decrypted for `from`, with up to `keys` keys: first its own budget, then that of all.
    pub(super) fn take_decrypt(&mut self, from: Address, keys: u32, now: Instant) -> Result<(), Discard> {
        let place = self.hash.hash(&from.network()) as usize % SOURCE_BUCKETS;
        let source = self.sources.get_mut(place).ok_or(Discard::SourceBudget)?;
        if !source.take(keys, self.budgets.decrypts_per_source, now) {
            return Err(Discard::SourceBudget);
        }
        if !self.all.take(keys, self.budgets.decrypts, now) {
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
    fn the_largest_budget_of_all_is_no_limit() {
        let mut bucket = Bucket::default();
        for step in 0..100 {
            assert!(bucket.take(u32::MAX, u32::MAX, at(1000 * step)) && !bucket.take(1, u32::MAX, at(1000 * step)));
        }
    }

    #[test]
    fn one_source_cannot_spend_what_all_may() {
        let budgets = Budgets { decrypts_per_source: 5, decrypts: 8, ..Budgets::default() };
        let mut ledger = Ledger::new(budgets, &Seed::from_bytes([1; 32]));
        let from = |last: u8| Address::from(core::net::SocketAddr::from(([192, 0, 2, last], 1)));
        let taken = |ledger: &mut Ledger, last| {
            (0..9).map(|_| ledger.take_decrypt(from(last), 1, at(1))).filter(Result::is_ok).count()
        };
        assert_eq!(taken(&mut ledger, 1), 5);
        assert_eq!(ledger.take_decrypt(from(1), 1, at(1)), Err(Discard::SourceBudget));
        assert_eq!(taken(&mut ledger, 2), 3);
        assert_eq!(ledger.take_decrypt(from(3), 1, at(1)), Err(Discard::GlobalBudget));
    }
}
