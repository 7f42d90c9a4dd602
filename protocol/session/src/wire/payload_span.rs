//! The position of a received payload.

use alloc::vec::Vec;
use core::ops::Range;

/// The position of a received payload or message. It is copied only if it was put together from several datagrams.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PayloadSpan {
    /// A range of the datagram, or of the part of it that was read.
    Datagram(Range<usize>),
    /// The whole scratch buffer.
    Scratch,
}

impl PayloadSpan {
    /// Returns the span within a buffer that has `before` more bytes in front.
    #[must_use]
    pub(crate) fn shifted(self, before: usize) -> Self {
        match self {
            Self::Datagram(Range { start, end }) => Self::Datagram(before + start..before + end),
            Self::Scratch => Self::Scratch,
        }
    }

    /// Returns the bytes, given the datagram and the scratch buffer of the call that returned the span.
    #[must_use]
    #[inline]
    pub fn bytes<'a>(&self, datagram: &'a [u8], scratch: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Datagram(range) => {
                debug_assert!(range.end <= datagram.len(), "a span belongs to the datagram that it was made for");
                datagram.get(range.clone()).unwrap_or_default()
            }
            Self::Scratch => scratch,
        }
    }

    /// Returns where `payload` lies; a payload outside of `datagram` is copied into `scratch`.
    pub(crate) fn locate(datagram: &[u8], payload: &[u8], scratch: &mut Vec<u8>) -> Self {
        // A reassembled payload lies in the endpoint's own memory, so its address is outside of the datagram.
        let start = payload.as_ptr().addr().wrapping_sub(datagram.as_ptr().addr());
        if start <= datagram.len() && start + payload.len() <= datagram.len() {
            return Self::Datagram(start..start + payload.len());
        }
        // The endpoint reuses its memory with the next datagram.
        scratch.clear();
        scratch.extend_from_slice(payload);
        Self::Scratch
    }
}
