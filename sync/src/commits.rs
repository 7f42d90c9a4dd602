//! The server's states of the last commits, which differences refer to.

use alloc::vec::Vec;

/// The oldest baseline that a record can name, in ticks (§6.3).
pub(crate) const MAX_AGE: u32 = 255;
/// How many commits a server keeps: all that can be within 255 ticks, and the newest one.
pub(crate) const KEPT: usize = MAX_AGE as usize + 1;

/// The number of a commit, from 1; 0 stands for none.
pub(crate) type CommitNumber = u32;

#[derive(Debug, Default)]
struct Commit {
    tick: u32,
    words: Vec<i32>,
}

/// The words of all objects at each of the last commits.
#[derive(Debug)]
pub(crate) struct Commits {
    kept: Vec<Commit>,
    words_per_object: usize,
    newest: CommitNumber,
}

impl Commits {
    pub(crate) fn new(words_per_object: usize) -> Self {
        let kept = (0..KEPT).map(|_| Commit::default()).collect();
        Self { kept, words_per_object, newest: 0 }
    }

    pub(crate) const fn newest(&self) -> CommitNumber {
        self.newest
    }

    /// Keeps a copy of the words of the first objects, which are all that ever existed.
    pub(crate) fn add(&mut self, tick: u32, words: &[i32]) {
        self.newest += 1;
        if let Some(commit) = self.kept.get_mut(self.newest as usize % KEPT) {
            commit.tick = tick;
            // Memory of a commit is allocated at its first use, and when there are more objects than before.
            commit.words.resize(words.len(), 0);
            commit.words.copy_from_slice(words);
        }
    }

    fn get(&self, commit: CommitNumber) -> Option<&Commit> {
        let is_kept = commit > 0 && commit <= self.newest && self.newest - commit < KEPT as u32;
        self.kept.get(commit as usize % KEPT).filter(|_| is_kept)
    }

    /// Returns the tick of a commit that is kept.
    pub(crate) fn tick(&self, commit: CommitNumber) -> Option<u32> {
        self.get(commit).map(|commit| commit.tick)
    }

    /// Returns how many ticks ago a commit was, if a record can refer to it.
    pub(crate) fn age(&self, commit: CommitNumber) -> Option<u8> {
        let age = self.tick(self.newest)?.checked_sub(self.tick(commit)?)?;
        u8::try_from(age).ok()
    }

    /// Returns the words of all objects at the newest commit.
    pub(crate) fn newest_words(&self) -> &[i32] {
        self.get(self.newest).map_or(&[], |commit| &commit.words)
    }

    /// Returns the words of an object at a commit that is kept.
    pub(crate) fn words(&self, commit: CommitNumber, object: usize) -> Option<&[i32]> {
        let start = object * self.words_per_object;
        self.get(commit)?.words.get(start..start + self.words_per_object)
    }
}
