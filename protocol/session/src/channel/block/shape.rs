//! How a block is cut into slices, and those are grouped into chunks.

use core::ops::Range;

use super::{MAX_BLOCK_BYTES, MAX_SLICE_BYTES, MIN_SLICE_BYTES, Progress, Violation};

/// Slices of one chunk: memory is asked for in chunks, and digests are taken of chunks.
pub(super) const CHUNK_SLICES: u32 = 16;

/// The length of a block and of its slices. The last slice may be shorter; a block without bytes has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    pub(super) length: u32,
    pub(super) slice_bytes: u16,
}

impl Shape {
    /// The shape that a peer announces.
    pub(super) fn check(length: u32, slice_bytes: u16) -> Result<Self, Violation> {
        if length > MAX_BLOCK_BYTES {
            return Err(Violation::BlockTooLong);
        }
        if !(MIN_SLICE_BYTES..=MAX_SLICE_BYTES).contains(&slice_bytes) {
            return Err(Violation::SliceBytes);
        }
        Ok(Self { length, slice_bytes })
    }

    /// How many slices there are.
    pub(super) fn slices(self) -> u32 {
        self.length.div_ceil(u32::from(self.slice_bytes).max(1))
    }

    /// How many chunks there are.
    pub(super) fn chunks(self) -> u32 {
        self.slices().div_ceil(CHUNK_SLICES)
    }

    /// Where a slice's bytes lie in the block; `None` if there is no such slice.
    pub(super) fn slice(self, index: u32) -> Option<Range<usize>> {
        self.range(index, self.slices(), self.slice_bytes.into())
    }

    /// How many slices have so many bytes, at least one, from slice `first` on.
    pub(super) fn run(self, first: u32, bytes: usize) -> Result<u16, Violation> {
        let start = self.slice(first).ok_or(Violation::SliceIndex)?.start;
        let (slice, end) = (usize::from(self.slice_bytes), start.saturating_add(bytes));
        let whole = bytes > 0 && bytes.is_multiple_of(slice) && end <= self.length as usize;
        let count = u16::try_from(bytes.div_ceil(slice)).map_err(|_| Violation::SliceLength)?;
        if whole || end == self.length as usize { Ok(count) } else { Err(Violation::SliceLength) }
    }

    /// Where a chunk's bytes lie in the block; `None` if there is no such chunk.
    pub(super) fn chunk(self, index: u32) -> Option<Range<usize>> {
        self.range(index, self.chunks(), self.chunk_bytes())
    }

    /// Bytes of each chunk but the last.
    pub(super) fn chunk_bytes(self) -> u32 {
        u32::from(self.slice_bytes) * CHUNK_SLICES
    }

    /// How many slices a chunk has.
    pub(super) fn slices_of_chunk(self, index: u32) -> u32 {
        self.slices().saturating_sub(index * CHUNK_SLICES).min(CHUNK_SLICES)
    }

    /// How far one is with so many slices, the last one among them or not.
    pub(super) fn progress(self, slices: u32, with_last: bool) -> Progress {
        let missing_of_last = self.slices() * u32::from(self.slice_bytes) - self.length;
        let bytes = slices * u32::from(self.slice_bytes) - if with_last { missing_of_last } else { 0 };
        Progress { bytes, of: self.length }
    }

    fn range(self, index: u32, count: u32, bytes: u32) -> Option<Range<usize>> {
        // Numbers from outside are compared before they are multiplied.
        let from = if index < count { index * bytes } else { return None };
        Some(from as usize..(from + bytes).min(self.length) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_lie_behind_each_other_and_the_last_one_is_what_is_left() {
        let shape = Shape { length: 1000, slice_bytes: 300 };
        assert_eq!((shape.slices(), shape.chunks()), (4, 1));
        assert_eq!([0, 1, 3, 4].map(|index| shape.slice(index)), [Some(0..300), Some(300..600), Some(900..1000), None]);
        assert_eq!((shape.chunk(0), shape.chunk(1)), (Some(0..1000), None));
        assert_eq!(shape.progress(3, false).bytes, 900);
        assert_eq!(shape.progress(1, true).bytes, 100);
        assert_eq!(shape.progress(4, true), Progress { bytes: 1000, of: 1000 });
    }

    #[test]
    fn a_run_of_slices_is_known_by_its_length() {
        let shape = Shape { length: 1000, slice_bytes: 300 };
        for (first, bytes, count) in [
            (0, 300, Ok(1)),
            (0, 600, Ok(2)),
            (1, 700, Ok(3)),
            (3, 100, Ok(1)),
            (0, 1000, Ok(4)),
            (0, 299, Err(Violation::SliceLength)),
            (0, 301, Err(Violation::SliceLength)),
            (3, 300, Err(Violation::SliceLength)),
            (1, 1000, Err(Violation::SliceLength)),
            (4, 100, Err(Violation::SliceIndex)),
        ] {
            assert_eq!(shape.run(first, bytes), count, "{bytes} bytes from {first} on");
        }
    }

    #[test]
    fn the_largest_block_in_the_smallest_slices_is_counted_without_overflow() {
        let shape = Shape::check(MAX_BLOCK_BYTES, MIN_SLICE_BYTES).unwrap();
        assert_eq!((shape.slices(), shape.chunks()), (524_288, 32_768));
        assert_eq!(shape.slice(524_287).unwrap().end, 64 << 20);
        assert_eq!(shape.slices_of_chunk(32_767), 16);
        assert_eq!(Shape { length: 0, slice_bytes: 256 }.slices(), 0);
    }
}
