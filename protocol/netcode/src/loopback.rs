//! Payloads between a server and a client in the same program, for host-and-play: no packets, no keys.

use alloc::collections::VecDeque;

use super::{PayloadError, check_payload};
use crate::wire::MAX_PAYLOAD_BYTES;

/// Payloads that may wait in one direction, as many as the reference queues (§1.2).
pub const QUEUE_PAYLOADS: usize = 256;

struct Waiting {
    length: usize,
    bytes: [u8; MAX_PAYLOAD_BYTES],
}

/// A bounded queue of payloads: full, it refuses new ones.
pub(crate) struct PayloadQueue(VecDeque<Waiting>);

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
        bytes.iter_mut().zip(payload).for_each(|(to, from)| *to = *from);
        self.0.push_back(Waiting { length: payload.len(), bytes });
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the oldest payload into `buffer` and answers its length.
    pub(crate) fn pop(&mut self, buffer: &mut [u8; MAX_PAYLOAD_BYTES]) -> Option<usize> {
        let waiting = self.0.pop_front()?;
        *buffer = waiting.bytes;
        Some(waiting.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_refuses_and_an_empty_one_gives_nothing() {
        let (mut queue, mut buffer) = (PayloadQueue::new(), [0; MAX_PAYLOAD_BYTES]);
        for number in 0..QUEUE_PAYLOADS {
            queue.push(&[number as u8; 3]).unwrap();
        }
        assert_eq!(queue.push(&[1]), Err(PayloadError::Backlogged));
        assert_eq!((queue.pop(&mut buffer), buffer[2]), (Some(3), 0));
        assert_eq!((queue.pop(&mut buffer), buffer[2]), (Some(3), 1));
        assert_eq!(queue.push(&[]), Err(PayloadError::Empty));
        assert_eq!(queue.push(&[0; 1201]), Err(PayloadError::TooLarge));
        while queue.pop(&mut buffer).is_some() {}
        assert_eq!(queue.pop(&mut buffer), None);
    }
}
