//! Payload queues between a server and a client in one process (host-and-play): no packets, no keys.

use alloc::collections::VecDeque;

use super::{PayloadError, check_payload};
use crate::wire::MAX_PAYLOAD_BYTES;

/// The maximum of queued payloads in one direction, as in the reference (§1.2).
pub const QUEUE_PAYLOADS: usize = 256;

struct QueuedPayload {
    length: usize,
    bytes: [u8; MAX_PAYLOAD_BYTES],
}

/// A bounded queue of payloads, which refuses new ones while it is full.
pub(crate) struct PayloadQueue(VecDeque<QueuedPayload>);

impl PayloadQueue {
    pub(crate) fn new() -> Self {
        Self(VecDeque::with_capacity(QUEUE_PAYLOADS))
    }

    pub(crate) fn push(&mut self, payload: &[u8]) -> Result<(), PayloadError> {
        check_payload(payload)?;
        if self.0.len() >= QUEUE_PAYLOADS {
            return Err(PayloadError::Backlogged);
        }
        let mut bytes = [0; MAX_PAYLOAD_BYTES];
        // `check_payload` has bounded the length, so nothing is cut here.
        bytes.iter_mut().zip(payload).for_each(|(to, from)| *to = *from);
        self.0.push_back(QueuedPayload { length: payload.len(), bytes });
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Moves the oldest payload into `buf` and returns its length in bytes.
    pub(crate) fn pop(&mut self, buf: &mut [u8; MAX_PAYLOAD_BYTES]) -> Option<usize> {
        let queued = self.0.pop_front()?;
        // The whole array is copied: bytes behind the payload are zeros, and no length is checked twice.
        *buf = queued.bytes;
        Some(queued.length)
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
}
