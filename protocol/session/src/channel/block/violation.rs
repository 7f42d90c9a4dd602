//! What a peer does that no honest one does: whoever hears of it ends the connection.

use core::fmt;

/// Frames of blocks that no honest peer sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Violation {
    /// A frame of no known kind, cut off, too long, or not in its one form.
    Malformed,
    /// A block of more than [`super::MAX_BLOCK_BYTES`].
    BlockTooLong,
    /// Slices smaller than [`super::MIN_SLICE_BYTES`] or larger than [`super::MAX_SLICE_BYTES`].
    SliceBytes,
    /// A second `Begin` of a block says something else than the first.
    BeginDiffers,
    /// A slice of a block that was never begun, or not accepted.
    NotAccepted,
    /// A slice whose number is not below the number of slices.
    SliceIndex,
    /// Slices of another length than follows from what was announced.
    SliceLength,
    /// An answer to a block that was never begun.
    NeverBegun,
    /// An `Accept` of slices that the block does not have.
    Range,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "a block frame that cannot be read",
            Self::BlockTooLong => "a block of more than 64 MiB",
            Self::SliceBytes => "slices smaller or larger than any may be",
            Self::BeginDiffers => "a block was begun twice, in two ways",
            Self::NotAccepted => "a slice of a block that was not accepted",
            Self::SliceIndex => "a slice beyond the end of its block",
            Self::SliceLength => "a slice of another length than announced",
            Self::NeverBegun => "an answer to a block that was never begun",
            Self::Range => "an answer about slices that the block does not have",
        })
    }
}

impl core::error::Error for Violation {}
