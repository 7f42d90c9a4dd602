//! Payload queues between a server and a client in one process (host-and-play): no packets, no keys.

use alloc::collections::VecDeque;

use super::{PayloadError, check_payload};
use crate::wire::MAX_PAYLOAD_BYTES;

/// The maximum of queued payloads in one direction, as in the reference (§1.2).
pub const QUEUE_PAYLOADS: usize = 256;

/// A bounded queue of payloads, which refuses new ones while it is full. It takes memory for the bytes that are queued,
/// not for the largest payloads.
pub(crate) struct PayloadQueue {
    lengths: VecDeque<u16>,
    /// The payloads, one behind the other.
    bytes: VecDeque<u8>,
}

impl PayloadQueue {
    pub(crate) const fn new() -> Self {
        Self { lengths: VecDeque::new(), bytes: VecDeque::new() }
    }

    pub(crate) fn push(&mut self, payload: &[u8]) -> Result<(), PayloadError> {
        check_payload(payload)?;
        if self.lengths.len() >= QUEUE_PAYLOADS {
            return Err(PayloadError::Backlogged);
        }
        // `check_payload` has bounded the length, so nothing is cut here.
        self.lengths.push_back(payload.len() as u16);
        self.bytes.extend(payload);
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Moves the oldest payload into `buf` and returns its length in bytes.
    pub(crate) fn pop(&mut self, buf: &mut [u8; MAX_PAYLOAD_BYTES]) -> Option<usize> {
        let length = usize::from(self.lengths.pop_front()?);
        let (front, back) = self.bytes.as_slices();
        let split = front.len().min(length);
        // The ring may wrap within the payload.
        for (to, from) in [(0..split, front.get(..split)), (split..length, back.get(..length - split))] {
            if let (Some(to), Some(from)) = (buf.get_mut(to), from) {
                to.copy_from_slice(from);
            }
        }
        self.bytes.drain(..length);
        Some(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_queue_refuses_and_empty_queue_returns_none() {
        let (mut queue, mut buf) = (PayloadQueue::new(), [0; MAX_PAYLOAD_BYTES]);
        for number in 0..QUEUE_PAYLOADS {
            queue.push(&[number as u8; 3]).unwrap();
        }
        assert_eq!(queue.push(&[1]), Err(PayloadError::Backlogged));
        assert_eq!((queue.pop(&mut buf), buf[2]), (Some(3), 0));
        assert_eq!((queue.pop(&mut buf), buf[2]), (Some(3), 1));
        assert_eq!(queue.push(&[]), Err(PayloadError::Empty));
        assert_eq!(queue.push(&[0; 1201]), Err(PayloadError::TooLarge { bytes: 1201 }));
        while queue.pop(&mut buf).is_some() {}
        assert_eq!(queue.pop(&mut buf), None);
    }

    #[test]
    fn payloads_are_whole_where_the_memory_wraps() {
        let (mut queue, mut buf) = (PayloadQueue::new(), [0; MAX_PAYLOAD_BYTES]);
        let payload = |number: usize| [number as u8; MAX_PAYLOAD_BYTES][..1 + number * 7 % MAX_PAYLOAD_BYTES].to_vec();
        for number in 0..1000 {
            queue.push(&payload(number)).unwrap();
            if let Some(oldest) = number.checked_sub(3) {
                let bytes = queue.pop(&mut buf).unwrap();
                assert_eq!(buf[..bytes], payload(oldest), "{oldest}");
            }
        }
    }
}
