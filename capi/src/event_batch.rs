//! Several events with one call.
//!
//! The next event, and the next turn, may reuse the memory of an event. So its content is copied, except that of a
//! large transfer: it lies in the object until the next event.

use std::mem::MaybeUninit;

use crate::event::{CEvent, TakenEvent};
use crate::event_kinds::SLIPGATE_TRANSFER_RECEIVED;
use crate::pointer;

/// The bytes that the events of one call share: 64 messages of a full datagram each. An event with more bytes than are
/// left ends its call.
const MAX_COPIED_BYTES: usize = 64 * 1200;

/// Copies of the contents of the last events.
#[derive(Default)]
pub(crate) struct EventCopies {
    /// Allocated with the first call, and never moved after that.
    shared: Vec<u8>,
    /// The content of the last event of a call, if it had no space in `shared`. Keeps its capacity.
    last: Vec<u8>,
}

/// Whether another event may follow in the same call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Inner,
    Last,
}

impl EventCopies {
    /// Fills `events` from `next`, which returns `None` if there is no event. Returns the number of events.
    #[inline]
    pub(crate) fn fill(
        &mut self,
        events: &mut [MaybeUninit<CEvent>],
        mut next: impl FnMut() -> Option<TakenEvent>,
    ) -> usize {
        self.shared.clear();
        self.shared.reserve_exact(MAX_COPIED_BYTES);
        let mut filled = 0;
        for out in events {
            let Some(event) = next() else { break };
            filled += 1;
            if self.copy(event, out) == Position::Last {
                break;
            }
        }
        filled
    }

    /// Writes the event with a copy of its content.
    #[inline]
    fn copy(&mut self, event: TakenEvent, out: &mut MaybeUninit<CEvent>) -> Position {
        let (bytes, length) = event.content();
        let Ok(bytes) = pointer::bytes(bytes, length) else {
            out.write(event.into());
            return Position::Last;
        };
        let start = self.shared.len();
        if bytes.is_empty() {
            out.write(event.into());
            return Position::Inner;
        }
        if bytes.len() > self.shared.capacity() - start {
            out.write(self.copy_last(event.into(), bytes));
            return Position::Last;
        }
        self.shared.extend_from_slice(bytes);
        out.write(CEvent::from(event).lend(self.shared.get(start..).unwrap_or_default()));
        Position::Inner
    }

    /// Returns the event, whose content has no space in `shared`.
    #[cold]
    fn copy_last(&mut self, event: CEvent, bytes: &[u8]) -> CEvent {
        // A transfer has up to 64 MiB, and only the next event takes its memory.
        if event.kind == SLIPGATE_TRANSFER_RECEIVED {
            return event;
        }
        self.last.clear();
        self.last.extend_from_slice(bytes);
        event.lend(&self.last)
    }
}
