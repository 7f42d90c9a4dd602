//! Buffers for datagrams, used again, so that a path in use asks for no memory.

/// What a spare buffer has room for at most: a larger one is given back, so that a few large datagrams do not hold
/// memory for ever.
const SPARE_BYTES: usize = 2 * STEP_BYTES;
/// Buffers grow in steps of so many bytes: any datagram of a game fits into the first.
const STEP_BYTES: usize = 1280;

/// A datagram on its way.
#[derive(Debug)]
pub(crate) struct Held<T> {
    pub(crate) tag: T,
    pub(crate) bytes: Vec<u8>,
}

/// Buffers that wait for a datagram.
#[derive(Debug, Default)]
pub(crate) struct Store {
    spare: Vec<Vec<u8>>,
}

impl Store {
    /// A copy of a datagram.
    pub(crate) fn keep(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        if buffer.capacity() < bytes.len() {
            buffer.reserve_exact(bytes.len().next_multiple_of(STEP_BYTES));
        }
        buffer.extend_from_slice(bytes);
        buffer
    }

    /// Takes a buffer back. There are never more than were kept at one time.
    pub(crate) fn take_back(&mut self, buffer: Vec<u8>) {
        if (1..=SPARE_BYTES).contains(&buffer.capacity()) {
            self.spare.push(buffer);
        }
    }
}
