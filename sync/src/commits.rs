//! The server's states of the last commits, which deltas refer to.

use alloc::vec;
use alloc::vec::Vec;

/// How many commits a server and how many states of an object a client keeps (§6.3).
pub(crate) const KEPT: usize = 64;

/// The number of a commit, from 1; 0 stands for none.
pub(crate) type CommitNumber = u32;

/// The words of all objects at each of the last commits.
#[derive(Debug)]
pub(crate) struct Commits {
    ticks: [u32; KEPT],
    words: Vec<i32>,
    words_per_object: usize,
    objects: usize,
    newest: CommitNumber,
}

impl Commits {
    pub(crate) fn new(objects: usize, words_per_object: usize) -> Self {
        Self {
            ticks: [0; KEPT],
            words: vec![0; KEPT * objects * words_per_object],
            words_per_object,
            objects,
            newest: 0,
        }
    }

    pub(crate) const fn newest(&self) -> CommitNumber {
        self.newest
    }

    /// Keeps a copy of the words of all objects.
    pub(crate) fn add(&mut self, tick: u32, words: &[i32]) {
        self.newest += 1;
        let slot = self.newest as usize % KEPT;
        if let Some(kept) = self.ticks.get_mut(slot) {
            *kept = tick;
        }
        let size = self.objects * self.words_per_object;
        if let Some(kept) = self.words.get_mut(slot * size..(slot + 1) * size) {
            kept.copy_from_slice(words);
        }
    }

    /// Returns whether the states of a commit are still kept.
    pub(crate) const fn has(&self, commit: CommitNumber) -> bool {
        commit > 0 && commit <= self.newest && self.newest - commit < KEPT as u32
    }

    /// Returns the tick of a commit that is kept.
    pub(crate) fn tick(&self, commit: CommitNumber) -> Option<u32> {
        self.ticks.get(commit as usize % KEPT).copied().filter(|_| self.has(commit))
    }

    /// Returns the words of an object at a commit that is kept.
    pub(crate) fn words(&self, commit: CommitNumber, object: usize) -> Option<&[i32]> {
        if !self.has(commit) {
            return None;
        }
        let start = (commit as usize % KEPT * self.objects + object) * self.words_per_object;
        self.words.get(start..start + self.words_per_object)
    }
}
