//! The encoded fields of objects at the newest commit: encoded once, and copied into the messages of all clients.

use alloc::vec;
use alloc::vec::Vec;

use crate::bits::BitWriter;
use crate::commits::{CommitNumber, Commits};
use crate::record::{self, KnownState, MAX_MOTION_TICKS};
use crate::schema::KindLayout;

/// How many encodings of an object are kept for other clients: clients differ by what they are known to have.
const VARIANTS: usize = 4;
/// The error of an object if its state at a client is not known.
const UNKNOWN_ERROR: f32 = 1.0;

/// What a client is known to have of an object: a commit, and the one on which that state was coded; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KnownCommits {
    pub(super) newest: CommitNumber,
    pub(super) before: CommitNumber,
}

/// Where the fields of a record are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EncodedBody {
    start: u32,
    pub(super) bits: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct EncodedObject {
    variants: [(KnownCommits, EncodedBody); VARIANTS],
    count: usize,
    /// The error against a commit, for the clients that show it.
    error: Option<(CommitNumber, f32)>,
}

/// The encodings of all objects at one commit.
#[derive(Debug)]
pub(super) struct Encodings {
    objects: Vec<EncodedObject>,
    bytes: Vec<u8>,
    bits: usize,
    max_body_bits: usize,
}

impl Encodings {
    pub(super) fn new(objects: usize, max_body_bits: usize) -> Self {
        Self { objects: vec![EncodedObject::default(); objects], bytes: Vec::new(), bits: 0, max_body_bits }
    }

    /// Forgets all encodings, because there is a new commit.
    pub(super) fn clear(&mut self) {
        self.bits = 0;
        for object in &mut self.objects {
            (object.count, object.error) = (0, None);
        }
    }

    /// Returns the error of what a client shows, if that is the state of the commit `shown`.
    pub(super) fn error(&mut self, commits: &Commits, layout: &KindLayout, object: usize, shown: CommitNumber) -> f32 {
        let Some(cached) = self.objects.get_mut(object) else { return 0.0 };
        if let Some((commit, error)) = cached.error.filter(|(commit, _)| *commit == shown) {
            debug_assert_eq!(commit, shown, "the filter compares them");
            return error;
        }
        let error = match (commits.words(commits.newest(), object), commits.words(shown, object)) {
            (Some(words), Some(others)) => record::error_between(layout, words, others),
            _ => UNKNOWN_ERROR,
        };
        cached.error = Some((shown, error));
        error
    }

    /// Returns the encoded fields of an object for a client that has `known`. Encodes them, if no client needed them
    /// before.
    pub(super) fn body(
        &mut self,
        commits: &Commits,
        layout: &KindLayout,
        object: usize,
        known: KnownCommits,
    ) -> Option<EncodedBody> {
        let cached = self.objects.get(object)?;
        let mut kept = cached.variants.iter().take(cached.count.min(VARIANTS));
        if let Some((_, body)) = kept.find(|(commits, _)| *commits == known) {
            return Some(*body);
        }
        let end = (self.bits + self.max_body_bits).div_ceil(8);
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        let mut writer = BitWriter::resume(&mut self.bytes, self.bits);
        let (tick, words) = (commits.tick(commits.newest())?, commits.words(commits.newest(), object)?);
        match known_state(commits, object, known, tick) {
            Some(state) => record::write_delta(&mut writer, layout, words, state, tick),
            None => record::write_whole(&mut writer, layout, words),
        }
        let body = EncodedBody { start: self.bits as u32, bits: (writer.bits() - self.bits) as u32 };
        self.bits = writer.bits();
        let cached = self.objects.get_mut(object)?;
        if let Some(variant) = cached.variants.get_mut(cached.count % VARIANTS) {
            *variant = (known, body);
        }
        cached.count += 1;
        Some(body)
    }

    pub(super) fn copy(&self, writer: &mut BitWriter<'_>, body: EncodedBody) {
        writer.copy(&self.bytes, body.start as usize, body.bits as usize);
    }
}

/// Returns the states that both ends have. The client applies the same rule to the older one (§6.4).
fn known_state(commits: &Commits, object: usize, known: KnownCommits, tick: u32) -> Option<KnownState<'_>> {
    let words = commits.words(known.newest, object)?;
    let before = commits.tick(known.before).filter(|before| tick - before <= MAX_MOTION_TICKS);
    let before = before.and_then(|before| Some((commits.words(known.before, object)?, before)));
    Some(KnownState { words, tick: commits.tick(known.newest)?, before })
}
