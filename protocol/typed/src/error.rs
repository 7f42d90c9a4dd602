//! The defects of typed messages.

use core::fmt;

/// A defect of a typed message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum TypedErrorKind {
    /// The message is larger than the codec's limit, or than the buffer in which the value is encoded.
    TooLarge {
        /// The bytes of the message.
        bytes: usize,
        /// The smaller one of the two limits.
        limit: usize,
    },
    /// The message ends before its value does.
    CutOff,
    /// The bytes do not encode a value of this type.
    Malformed,
    /// Bytes remain behind the value.
    Trailing,
    /// The value would take more memory than a message of this size is allowed.
    Expands,
    /// The value has more parts than a message of this size is allowed.
    TooManyValues,
    /// The value would allocate more often than [`MAX_ALLOCATIONS`](crate::MAX_ALLOCATIONS).
    TooManyAllocations,
    /// The value's parts are nested deeper than [`MAX_DEPTH`](crate::MAX_DEPTH).
    TooDeep,
}

impl fmt::Display for TypedErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge { bytes, limit } => return write!(f, "{bytes} bytes exceed the limit of {limit}"),
            Self::CutOff => "the message ends before its value does",
            Self::Malformed => "the message does not encode a value of this type",
            Self::Trailing => "bytes remain behind the message's value",
            Self::Expands => "the message's value takes too much memory",
            Self::TooManyValues => "the message's value has too many parts",
            Self::TooManyAllocations => "the message's value needs too many allocations",
            Self::TooDeep => "the message's value is nested too deeply",
        })
    }
}

impl core::error::Error for TypedErrorKind {}
