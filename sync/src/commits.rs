//! The server's states of the last commits, which differences refer to.
//!
//! The words of 16 objects are a page. A commit shares the pages without a change with the commit before, so that
//! objects at rest take neither time nor memory.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::object_set::ObjectSet;

/// The oldest baseline that a record can name, in ticks (§6.3).
pub(crate) const MAX_AGE: u32 = 255;
/// How many commits a server keeps: all that can be within 255 ticks, and the newest one.
pub(crate) const KEPT: usize = MAX_AGE as usize + 1;
/// A larger page is copied for more objects that did not change; a smaller one makes the list of pages longer.
const OBJECTS_PER_PAGE: usize = 16;
/// How many pages are allocated at once.
const PAGES_PER_BLOCK: usize = 64;

/// The number of a commit, from 1; 0 stands for none.
pub(crate) type CommitNumber = u32;

#[derive(Debug, Default)]
struct Commit {
    tick: u32,
    /// The index of each page.
    pages: Vec<u32>,
}

/// The words of all objects at each of the last commits.
#[derive(Debug)]
pub(crate) struct Commits {
    kept: Vec<Commit>,
    /// The words of all pages, in blocks.
    blocks: Vec<Box<[i32]>>,
    /// How many commits have each page.
    uses: Vec<u16>,
    /// The pages that no commit has.
    free: Vec<u32>,
    words_per_object: usize,
    newest: CommitNumber,
}

impl Commits {
    pub(crate) fn new(words_per_object: usize) -> Self {
        let kept = (0..KEPT).map(|_| Commit::default()).collect();
        Self { kept, blocks: Vec::new(), uses: Vec::new(), free: Vec::new(), words_per_object, newest: 0 }
    }

    pub(crate) const fn newest(&self) -> CommitNumber {
        self.newest
    }

    /// Keeps the words of the first objects, which are all that ever existed. Copies the pages of those that changed
    /// since the commit before.
    pub(crate) fn add(&mut self, tick: u32, words: &[i32], changed: &ObjectSet) {
        let before = self.newest as usize % KEPT;
        self.newest += 1;
        let index = self.newest as usize % KEPT;
        let mut pages = self.kept.get_mut(index).map(|commit| core::mem::take(&mut commit.pages)).unwrap_or_default();
        pages.drain(..).for_each(|page| self.release(page));
        for (number, words) in words.chunks(self.words_per_page().max(1)).enumerate() {
            let shared = self.kept.get(before).and_then(|commit| commit.pages.get(number)).copied();
            let is_changed = changed.has_any_of(number * OBJECTS_PER_PAGE, OBJECTS_PER_PAGE);
            let page = shared.filter(|_| !is_changed).unwrap_or_else(|| self.copy(words));
            self.uses.get_mut(page as usize).into_iter().for_each(|uses| *uses += 1);
            pages.push(page);
        }
        if let Some(commit) = self.kept.get_mut(index) {
            (commit.tick, commit.pages) = (tick, pages);
        }
    }

    /// Notes that a commit no longer has this page.
    fn release(&mut self, page: u32) {
        let Some(uses) = self.uses.get_mut(page as usize) else { return };
        *uses -= 1;
        if *uses == 0 {
            self.free.push(page);
        }
    }

    /// Copies words into a free page. Allocates a block if there is none.
    fn copy(&mut self, words: &[i32]) -> u32 {
        if self.free.is_empty() {
            let first = self.uses.len();
            self.blocks.push(vec![0; PAGES_PER_BLOCK * self.words_per_page()].into_boxed_slice());
            self.uses.resize(first + PAGES_PER_BLOCK, 0);
            // Pages that are released later find room in the list, too.
            self.free.reserve(self.uses.len());
            self.free.extend((first as u32..self.uses.len() as u32).rev());
        }
        let page = self.free.pop().unwrap_or_default();
        let start = page as usize % PAGES_PER_BLOCK * self.words_per_page();
        let block = self.blocks.get_mut(page as usize / PAGES_PER_BLOCK);
        if let Some(kept) = block.and_then(|block| block.get_mut(start..start + words.len())) {
            kept.copy_from_slice(words);
        }
        page
    }

    const fn words_per_page(&self) -> usize {
        OBJECTS_PER_PAGE * self.words_per_object
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

    /// Returns the words of an object at a commit that is kept.
    pub(crate) fn words(&self, commit: CommitNumber, object: usize) -> Option<&[i32]> {
        let page = *self.get(commit)?.pages.get(object / OBJECTS_PER_PAGE)? as usize;
        let in_block = page % PAGES_PER_BLOCK * OBJECTS_PER_PAGE + object % OBJECTS_PER_PAGE;
        let start = in_block * self.words_per_object;
        self.blocks.get(page / PAGES_PER_BLOCK)?.get(start..start + self.words_per_object)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OBJECTS: usize = 70;
    const WORDS: usize = 3;

    proptest! {
        #[test]
        fn all_kept_commits_have_their_words(
            steps in prop::collection::vec(prop::collection::vec((0..OBJECTS, any::<i32>()), 0..5), 1..600),
        ) {
            let (mut commits, mut words, mut copies) = (Commits::new(WORDS), Vec::new(), Vec::new());
            let mut changed = ObjectSet::new(OBJECTS);
            for (changes, tick) in steps.iter().zip(1..) {
                changed.clear();
                for (object, value) in changes {
                    words.resize(words.len().max((object + 1) * WORDS), 0);
                    words[object * WORDS + 1] = *value;
                    changed.insert(*object);
                }
                commits.add(tick, &words, &changed);
                copies.push(words.clone());
            }
            for (copy, commit) in copies.iter().zip(1..) {
                let is_kept = copies.len() as u32 - commit < KEPT as u32;
                for object in 0..copy.len() / WORDS {
                    let expected = is_kept.then(|| &copy[object * WORDS..(object + 1) * WORDS]);
                    prop_assert_eq!(commits.words(commit, object), expected);
                }
            }
        }
    }

    #[test]
    fn objects_at_rest_take_memory_once() {
        let (mut commits, mut words, mut changed) = (Commits::new(1), vec![0; 1600], ObjectSet::new(1600));
        for tick in 1..2000 {
            words[7] = tick as i32;
            changed.insert(7);
            commits.add(tick, &words, &changed);
        }
        // 100 pages of the first commit, and one for each commit that is kept.
        assert!(commits.uses.len() <= 100 + KEPT + PAGES_PER_BLOCK, "{} pages", commits.uses.len());
    }
}
