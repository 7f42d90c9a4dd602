//! A pool of datagram buffers, so that a path allocates no memory after warm-up.

/// The largest capacity of a spare buffer, in bytes. Larger ones are freed, so that a few large datagrams do not pin
/// memory.
const MAX_SPARE_BYTES: usize = 2 * STEP_BYTES;
/// Buffers grow in steps of this many bytes. Every datagram of a game fits into the first step.
const STEP_BYTES: usize = 1280;

/// A datagram in transit, and its tag.
#[derive(Debug)]
pub(crate) struct InTransit<T> {
    pub(crate) tag: T,
    pub(crate) bytes: Vec<u8>,
}

/// The spare buffers.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    spare: Vec<Vec<u8>>,
}

impl BufferPool {
    /// Copies a datagram into a spare buffer.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        if buffer.capacity() < bytes.len() {
            buffer.reserve_exact(bytes.len().next_multiple_of(STEP_BYTES));
        }
        buffer.extend_from_slice(bytes);
        buffer
    }

    /// Returns a buffer to the pool. The pool never holds more buffers than were in use at one time.
    pub(crate) fn recycle(&mut self, buffer: Vec<u8>) {
        if (1..=MAX_SPARE_BYTES).contains(&buffer.capacity()) {
            self.spare.push(buffer);
        }
    }
}
