//! The replay window: which sequence numbers were received (§1.9).
//!
//! A bitmap after RFC 6479: moving forward clears whole words, and nothing is ever added to a number from outside, so
//! nothing wraps near 2^64.

/// How far behind the newest a sequence number may lie: 1,024 packets, where the reference has 256 (§1.2).
///
/// A path that reorders what a fast sender sent, or a burst that overtakes another, loses nothing for it.
pub const WINDOW: u64 = ReplayWindow::SIZE;

/// The sequence numbers of the last 1,024 that were marked.
pub type ReplayWindow = Window<17>;

/// The sequence numbers of the last `64 * (WORDS - 1)` that were marked: one word more than the window needs is being
/// filled.
///
/// Test, then open the packet, then mark: a number that was not authenticated must not move the window.
#[derive(Clone, Debug)]
pub struct Window<const WORDS: usize> {
    newest: Option<u64>,
    seen: [u64; WORDS],
}

impl<const WORDS: usize> Default for Window<WORDS> {
    fn default() -> Self {
        Self { newest: None, seen: [0; WORDS] }
    }
}

impl<const WORDS: usize> Window<WORDS> {
    /// How far behind the newest a sequence number may lie.
    pub const SIZE: u64 = (WORDS as u64 - 1) * 64;

    /// The newest sequence number marked so far.
    #[must_use]
    pub const fn newest(&self) -> Option<u64> {
        self.newest
    }

    /// Whether this sequence number was neither marked nor lies behind the window.
    #[must_use]
    pub fn is_fresh(&self, sequence: u64) -> bool {
        let Some(newest) = self.newest else { return true };
        if sequence > newest {
            return true;
        }
        newest - sequence < Self::SIZE && self.word(sequence) & bit(sequence) == 0
    }

    /// Marks the sequence number of an authentic packet.
    pub fn mark(&mut self, sequence: u64) {
        if self.newest.is_none_or(|newest| sequence > newest) {
            self.advance(sequence);
        }
        if let Some(word) = self.seen.get_mut(Self::place(sequence)) {
            *word |= bit(sequence);
        }
    }

    fn advance(&mut self, sequence: u64) {
        let from = self.newest.map_or(0, |newest| newest / 64);
        let words = (sequence / 64 - from).min(WORDS as u64);
        for step in 0..words {
            if let Some(word) = self.seen.get_mut(Self::place((sequence / 64 - step) * 64)) {
                *word = 0;
            }
        }
        self.newest = Some(sequence);
    }

    fn word(&self, sequence: u64) -> u64 {
        self.seen.get(Self::place(sequence)).copied().unwrap_or(u64::MAX)
    }

    const fn place(sequence: u64) -> usize {
        (sequence / 64 % WORDS as u64) as usize
    }
}

const fn bit(sequence: u64) -> u64 {
    1 << (sequence % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    /// The same rule, told the slow way.
    #[derive(Default)]
    struct Model(BTreeSet<u64>);

    impl Model {
        fn is_fresh(&self, sequence: u64) -> bool {
            let behind = self.0.last().is_some_and(|newest| *newest >= sequence && newest - sequence >= WINDOW);
            !behind && !self.0.contains(&sequence)
        }
    }

    /// Numbers near each other, near zero and near the top, with jumps of every size.
    fn sequences() -> impl Strategy<Value = Vec<u64>> {
        let start = prop_oneof![Just(0), Just(u64::MAX - 5000), any::<u64>(), Just(1 << 63)];
        let step = prop_oneof![0..4_u64, 0..70_u64, 250..260_u64, 1010..1100_u64, 0..5000_u64];
        (start, prop::collection::vec((step, any::<bool>()), 1..400)).prop_map(|(start, steps)| {
            let mut at = start;
            let go = |(step, forward): (u64, bool)| {
                at = if forward { at.saturating_add(step) } else { at.saturating_sub(step) };
                at
            };
            steps.into_iter().map(go).collect()
        })
    }

    proptest! {
        #[test]
        fn the_bitmap_decides_as_the_rule_says(sequences in sequences()) {
            let (mut window, mut model) = (ReplayWindow::default(), Model::default());
            for sequence in sequences {
                let fresh = window.is_fresh(sequence);
                prop_assert_eq!(fresh, model.is_fresh(sequence), "{}", sequence);
                if fresh {
                    window.mark(sequence);
                    model.0.insert(sequence);
                }
            }
        }
    }

    #[test]
    fn a_thousand_packets_that_overtake_one_do_not_lose_it() {
        let mut window = ReplayWindow::default();
        for sequence in 1..1024 {
            window.mark(sequence);
        }
        assert!(window.is_fresh(0), "1,023 are newer");
        window.mark(1024);
        assert!(!window.is_fresh(0), "1,024 are newer");
    }

    #[test]
    fn the_last_number_of_all_is_accepted_once() {
        let mut window = ReplayWindow::default();
        for sequence in [u64::MAX - WINDOW, u64::MAX] {
            assert!(window.is_fresh(sequence));
            window.mark(sequence);
        }
        assert!(!window.is_fresh(u64::MAX) && !window.is_fresh(u64::MAX - WINDOW));
        assert!(window.is_fresh(u64::MAX - (WINDOW - 1)));
    }
}
