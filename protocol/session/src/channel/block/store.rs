//! The slices that have arrived. Memory grows with them: a block that is announced and never sent costs 4 KiB at most.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use sha2::{Digest as _, Sha256};

use super::hashing::Hashing;
use super::lease::Lease;
use super::shape::{CHUNK_SLICES, Shape};
use super::{ContentDigest, Progress};

/// Chunks of a region: the table of chunks grows by regions.
pub(super) const REGION_CHUNKS: u32 = 64;
/// Slices of a region.
const REGION_SLICES: u32 = REGION_CHUNKS * CHUNK_SLICES;

/// A part of the table of chunks.
pub(super) struct Region {
    /// Which slices of each chunk have arrived.
    masks: [u16; REGION_CHUNKS as usize],
    pub(super) chunks: [Option<Box<[u8]>>; REGION_CHUNKS as usize],
}

/// Slices in their places, and the digest of those that lie without a gap from the start.
pub(super) struct Store {
    pub(super) shape: Shape,
    regions: Vec<Option<Box<Region>>>,
    arrived: u32,
    last_arrived: bool,
    hash: Sha256,
    /// Chunks that are in `hash`.
    hashed: u32,
}

/// What became of a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stored {
    /// It is in its place now.
    New,
    /// It was there already.
    Duplicate,
    /// There is no memory for it.
    NoMemory,
}

/// What is known of the content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Not all of it has arrived, or not all of it is hashed.
    Unfinished,
    /// It is what was announced.
    Right,
    /// It is something else.
    Wrong,
}

impl Store {
    /// The store for a block of this shape; `None` if there is no memory.
    pub(super) fn new(shape: Shape, lease: &mut Lease) -> Option<Self> {
        let regions = shape.chunks().div_ceil(REGION_CHUNKS) as usize;
        lease.take(regions * size_of::<Option<Box<Region>>>()).then(|| Self {
            shape,
            regions: core::iter::repeat_with(|| None).take(regions).collect(),
            arrived: 0,
            last_arrived: false,
            hash: Sha256::new(),
            hashed: 0,
        })
    }

    pub(super) fn progress(&self) -> Progress {
        self.shape.progress(self.arrived, self.last_arrived)
    }

    /// Puts a slice in its place. Its number and length must be those of the shape.
    pub(super) fn put(&mut self, index: u32, bytes: &[u8], lease: &mut Lease) -> Stored {
        let (chunk, bit) = (index / CHUNK_SLICES, 1 << (index % CHUNK_SLICES));
        if self.mask(chunk) & bit != 0 {
            return Stored::Duplicate;
        }
        let from = (index % CHUNK_SLICES) as usize * usize::from(self.shape.slice_bytes);
        let place = self.chunk(chunk, lease).and_then(|(mask, chunk)| {
            chunk.get_mut(from..from + bytes.len())?.copy_from_slice(bytes);
            *mask |= bit;
            Some(())
        });
        if place.is_none() {
            return Stored::NoMemory;
        }
        self.arrived += 1;
        self.last_arrived |= index + 1 == self.shape.slices();
        Stored::New
    }

    /// Hashes at most `chunks` more chunks, as long as something is left of what may be hashed, and compares when it was
    /// the last one.
    pub(super) fn verify(&mut self, digest: ContentDigest, chunks: u32, hashing: &mut Hashing) -> Verdict {
        let until = self.hashed.saturating_add(chunks).min(self.shape.chunks());
        let mut hash = core::mem::take(&mut self.hash);
        while self.hashed < until && self.is_whole(self.hashed) && !hashing.is_used_up() {
            let Some(chunk) = self.content(self.hashed) else { break };
            hashing.spend(chunk.len());
            hash.update(chunk);
            self.hashed += 1;
        }
        self.hash = hash;
        if self.hashed < self.shape.chunks() {
            return Verdict::Unfinished;
        }
        let found: [u8; 32] = self.hash.clone().finalize().into();
        if found == digest.0 { Verdict::Right } else { Verdict::Wrong }
    }

    /// Whether a chunk waits to be hashed.
    pub(super) fn has_work(&self) -> bool {
        self.hashed < self.shape.chunks() && self.is_whole(self.hashed)
    }

    /// The next range of slices from `from` to the one before `end` that have arrived.
    pub(super) fn next_range(&self, from: u32, end: u32) -> Option<Range<u32>> {
        let start = self.find(from, end, true);
        (start < end).then(|| start..self.find(start, end, false))
    }

    /// The regions, whose chunks are the content.
    pub(super) fn into_regions(self) -> Vec<Option<Box<Region>>> {
        self.regions
    }

    /// The first slice from `from` on that has arrived, or has not; `end` if there is none before it.
    fn find(&self, from: u32, end: u32, arrived: bool) -> u32 {
        let mut at = from;
        while at < end {
            if !arrived && !self.has_region(at / REGION_SLICES) {
                return at;
            }
            if arrived && !self.has_region(at / REGION_SLICES) {
                at = (at / REGION_SLICES + 1) * REGION_SLICES;
                continue;
            }
            let mask = self.mask(at / CHUNK_SLICES);
            let wanted = if arrived { mask } else { !mask } >> (at % CHUNK_SLICES);
            if wanted != 0 {
                return (at + wanted.trailing_zeros()).min(end);
            }
            at = (at / CHUNK_SLICES + 1) * CHUNK_SLICES;
        }
        end
    }

    fn has_region(&self, region: u32) -> bool {
        self.regions.get(region as usize).is_some_and(Option::is_some)
    }

    fn region(&self, chunk: u32) -> Option<&Region> {
        self.regions.get((chunk / REGION_CHUNKS) as usize)?.as_deref()
    }

    fn mask(&self, chunk: u32) -> u16 {
        let mask = self.region(chunk).and_then(|region| region.masks.get((chunk % REGION_CHUNKS) as usize));
        mask.copied().unwrap_or(0)
    }

    fn is_whole(&self, chunk: u32) -> bool {
        self.mask(chunk).count_ones() == self.shape.slices_of_chunk(chunk)
    }

    fn content(&self, chunk: u32) -> Option<&[u8]> {
        self.region(chunk)?.chunks.get((chunk % REGION_CHUNKS) as usize)?.as_deref()
    }

    /// A chunk and its mask; memory for it is asked for with its first slice.
    fn chunk(&mut self, chunk: u32, lease: &mut Lease) -> Option<(&mut u16, &mut [u8])> {
        let bytes = self.shape.chunk(chunk)?.len();
        let region = self.regions.get_mut((chunk / REGION_CHUNKS) as usize)?;
        if region.is_none() {
            *region = lease.take(size_of::<Region>()).then(Region::empty);
        }
        let region = region.as_deref_mut()?;
        let place = (chunk % REGION_CHUNKS) as usize;
        let (mask, chunk) = (region.masks.get_mut(place)?, region.chunks.get_mut(place)?);
        if chunk.is_none() {
            *chunk = lease.take(bytes).then(|| vec![0; bytes].into_boxed_slice());
        }
        Some((mask, chunk.as_deref_mut()?))
    }
}

impl Region {
    fn empty() -> Box<Self> {
        Box::new(Self { masks: [0; REGION_CHUNKS as usize], chunks: [const { None }; REGION_CHUNKS as usize] })
    }
}
