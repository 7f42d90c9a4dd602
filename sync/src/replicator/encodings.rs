//! The encoded fields of objects at the newest commit: encoded once, and copied into the messages of all clients.

use alloc::vec;
use alloc::vec::Vec;

use crate::bits::BitWriter;
use crate::commits::{CommitNumber, Commits, KEPT};
use crate::record::{self, KnownState, MAX_MOTION_TICKS};
use crate::schema::{KindLayout, MAX_WORDS};

/// How many encodings of an object are kept for other clients: clients differ by what they are known to have.
const VARIANTS: usize = 16;
/// Bytes of all encodings for other clients, for each object. What finds no room is encoded for each client.
const BYTES_PER_OBJECT: usize = 64;
/// Bytes of the encodings for one client only, for each object. What finds no room is encoded again as it is written.
const OWN_BYTES_PER_OBJECT: usize = 16;
/// The most bytes of an encoding: each word has a number of at most 65 bits, and each field two flags.
const MAX_BODY_BYTES: usize = MAX_WORDS * 67 / 8 + 1;
const NOT_KEPT: u32 = u32::MAX;
/// How many errors of an object are kept for other clients: most of them show one of its last states.
const SHOWN_STATES: usize = 8;

/// What a client is known to have of an object: a commit, and the one on which that state was coded; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KnownCommits {
    pub(super) newest: CommitNumber,
    pub(super) before: CommitNumber,
}

/// The baseline of a record: how many commits ago the known state was, and the one on which that was coded; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BaselineAges {
    pub(super) newest: u8,
    before: u8,
}

/// Where the fields of a record are, and how many bits they take.
#[derive(Clone, Copy, Debug)]
pub(super) struct EncodedBody {
    start: u32,
    pub(super) bits: u16,
}

impl Default for EncodedBody {
    fn default() -> Self {
        Self { start: NOT_KEPT, bits: 0 }
    }
}

/// The error at a commit of clients that show the state of an earlier one.
#[derive(Clone, Copy, Debug, Default)]
struct ShownError {
    at: CommitNumber,
    shown: CommitNumber,
    error: f32,
}

/// The encodings of all objects at one commit, and the errors of what clients show.
#[derive(Debug)]
pub(super) struct Encodings {
    counts: Vec<u8>,
    baselines: Vec<[BaselineAges; VARIANTS]>,
    bodies: Vec<[EncodedBody; VARIANTS]>,
    /// Encodings for all clients, and behind them those for one client.
    bytes: Vec<u8>,
    /// The number of bytes for all clients, and how many of them are used.
    shared: usize,
    used: usize,
    /// Where the next encoding for one client begins.
    own: usize,
    /// How many encodings were made.
    made: u64,
    errors: Vec<[ShownError; SHOWN_STATES]>,
    /// The ages in ticks of the last commits; 0 for those that are no baseline.
    ages: [u8; KEPT],
}

impl Encodings {
    pub(super) fn new(objects: usize) -> Self {
        let shared = objects * BYTES_PER_OBJECT + MAX_BODY_BYTES;
        Self {
            counts: vec![0; objects],
            baselines: vec![[BaselineAges::default(); VARIANTS]; objects],
            bodies: vec![[EncodedBody::default(); VARIANTS]; objects],
            bytes: vec![0; shared + objects * OWN_BYTES_PER_OBJECT + MAX_BODY_BYTES],
            shared,
            used: 0,
            own: shared,
            made: 0,
            errors: vec![[ShownError::default(); SHOWN_STATES]; objects],
            ages: [0; KEPT],
        }
    }

    /// Forgets all encodings, because there is a new commit.
    pub(super) fn start(&mut self, commits: &Commits) {
        self.used = 0;
        self.counts.fill(0);
        for (age, ticks) in (0..).zip(&mut self.ages) {
            *ticks = commits.newest().checked_sub(age).and_then(|commit| commits.age(commit)).unwrap_or(0);
        }
    }

    /// Forgets the encodings for one client.
    pub(super) const fn forget_own(&mut self) {
        self.own = self.shared;
    }

    /// Returns how many encodings were made.
    pub(super) const fn made(&self) -> u64 {
        self.made
    }

    /// Returns what a record can refer to.
    pub(super) fn baseline(&self, known: KnownCommits, newest: CommitNumber) -> BaselineAges {
        let ticks = |commit: CommitNumber| {
            let age = if commit == 0 { 0 } else { newest - commit };
            (age as u8, self.ages.get(age as usize).copied().unwrap_or(0))
        };
        let (newest_age, newest_ticks) = ticks(known.newest);
        let (before_age, before_ticks) = ticks(known.before);
        let has_motion = before_ticks > 0 && u32::from(before_ticks) <= MAX_MOTION_TICKS;
        match newest_ticks {
            0 => BaselineAges::default(),
            _ => BaselineAges { newest: newest_age, before: if has_motion { before_age } else { 0 } },
        }
    }

    /// Returns the age of a baseline in ticks.
    pub(super) fn age(&self, baseline: BaselineAges) -> u8 {
        self.ages.get(usize::from(baseline.newest)).copied().unwrap_or(0)
    }

    /// Returns the encoded fields of an object. Encodes them, if no client needed them before.
    pub(super) fn body(
        &mut self,
        commits: &Commits,
        layout: &KindLayout,
        object: usize,
        baseline: BaselineAges,
    ) -> EncodedBody {
        let count = self.counts.get(object).map_or(0, |count| usize::from(*count));
        if let Some(kept) = self.baselines.get(object)
            && let Some(index) = kept.iter().take(count).position(|kept| *kept == baseline)
            && let Some(body) = self.bodies.get(object).and_then(|bodies| bodies.get(index))
        {
            return *body;
        }
        let is_shared = count < VARIANTS && self.used + MAX_BODY_BYTES <= self.shared;
        let start = if is_shared { self.used } else { self.own };
        let mut writer = BitWriter::new(self.bytes.get_mut(start..start + MAX_BODY_BYTES).unwrap_or(&mut []));
        encode(&mut writer, commits, layout, object, baseline);
        self.made += 1;
        let body = EncodedBody { start: start as u32, bits: writer.finish() as u16 };
        if is_shared {
            self.keep(object, count, baseline, body);
        } else if start + MAX_BODY_BYTES <= self.bytes.len() {
            self.own += usize::from(body.bits).div_ceil(8);
        } else {
            return EncodedBody { start: NOT_KEPT, ..body };
        }
        body
    }

    /// Returns the error of clients that show this state of an object. Measures it, if no client needed it before.
    pub(super) fn error(
        &mut self,
        object: usize,
        shown: CommitNumber,
        at: CommitNumber,
        measure: impl FnOnce() -> f32,
    ) -> f32 {
        let kept = self.errors.get_mut(object).and_then(|kept| kept.get_mut(shown as usize % SHOWN_STATES));
        let Some(kept) = kept else { return measure() };
        if (kept.at, kept.shown) != (at, shown) {
            *kept = ShownError { at, shown, error: measure() };
        }
        kept.error
    }

    fn keep(&mut self, object: usize, index: usize, baseline: BaselineAges, body: EncodedBody) {
        self.used += usize::from(body.bits).div_ceil(8);
        if let Some(kept) = self.baselines.get_mut(object).and_then(|kept| kept.get_mut(index)) {
            *kept = baseline;
        }
        if let Some(kept) = self.bodies.get_mut(object).and_then(|kept| kept.get_mut(index)) {
            *kept = body;
        }
        if let Some(count) = self.counts.get_mut(object) {
            *count += 1;
        }
    }

    /// Returns the bytes of encoded fields; `None` if they must be encoded again.
    pub(super) fn bytes(&self, body: EncodedBody) -> Option<&[u8]> {
        if body.start == NOT_KEPT { None } else { self.bytes.get(body.start as usize..) }
    }
}

/// Writes the fields of an object at the newest commit.
pub(super) fn encode(
    writer: &mut BitWriter<'_>,
    commits: &Commits,
    layout: &KindLayout,
    object: usize,
    baseline: BaselineAges,
) {
    let state = |age: u8| {
        let commit = commits.newest().checked_sub(u32::from(age)).filter(|_| age > 0)?;
        Some((commits.words(commit, object)?, commits.tick(commit)?))
    };
    let tick = commits.tick(commits.newest()).unwrap_or(0);
    let words = commits.words(commits.newest(), object).unwrap_or(&[]);
    match state(baseline.newest) {
        Some((known, known_tick)) => {
            let known = KnownState { words: known, tick: known_tick, before: state(baseline.before) };
            record::write_delta(writer, layout, words, known, tick);
        }
        None => record::write_whole(writer, layout, words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_is_measured_once_for_each_commit_and_state_shown() {
        let (mut encodings, mut measured) = (Encodings::new(2), 0);
        for (object, shown, at, is_new) in [
            (0, 1, 3, true),
            (0, 1, 3, false),
            (0, 2, 3, true),
            (1, 1, 3, true),
            (0, 1, 3, false),
            (0, 1, 4, true),
            // The same place in the table.
            (0, 5, 6, true),
            (0, 1, 6, true),
            (0, 0, 6, true),
        ] {
            let before = measured;
            let error = encodings.error(object, shown, at, || {
                measured += 1;
                (object as u32 * 100 + shown * 10 + at) as f32
            });
            assert_eq!(error, (object as u32 * 100 + shown * 10 + at) as f32);
            assert_eq!(measured > before, is_new, "{object}, {shown}, {at}");
        }
    }
}
