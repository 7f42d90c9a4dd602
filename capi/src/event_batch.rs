//! Several events with one call.
//!
//! The next event, and the next turn, may reuse the memory of an event. So its content is copied, except that of a
//! large transfer: it lies in the object until the next event.

use std::mem::MaybeUninit;

use crate::event::CEvent;
use crate::event_kinds::SLIPGATE_TRANSFER_RECEIVED;
use crate::pointer;

/// The bytes that the events of one call share: 64 messages of a full datagram each. An event with more bytes than are
/// left ends its call.
const MAX_COPIED_BYTES: usize = 64 * 1200;

/// Copies of the contents of the last events.
#[derive(Default)]
pub(crate) struct EventCopies {
    /// Allocated with the first copy, and never moved after that.
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
    pub(crate) fn fill(
        &mut self,
        events: &mut [MaybeUninit<CEvent>],
        mut next: impl FnMut() -> Option<CEvent>,
    ) -> usize {
        self.shared.clear();
        let mut filled = 0;
        for out in events {
            let Some(event) = next() else { break };
            let (event, position) = self.copy(event);
            out.write(event);
            filled += 1;
            if position == Position::Last {
                break;
            }
        }
        filled
    }

    /// Returns the event with a copy of its content.
    fn copy(&mut self, event: CEvent) -> (CEvent, Position) {
        if event.length == 0 {
            return (event, Position::Inner);
        }
        let Ok(bytes) = pointer::bytes(event.bytes, event.length) else { return (event, Position::Last) };
        let start = self.shared.len();
        if bytes.len() <= MAX_COPIED_BYTES - start {
            self.shared.reserve_exact(MAX_COPIED_BYTES - start);
            self.shared.extend_from_slice(bytes);
            return (event.lend(self.shared.get(start..).unwrap_or_default()), Position::Inner);
        }
        // A transfer has up to 64 MiB, and only the next event takes its memory.
        if event.kind == SLIPGATE_TRANSFER_RECEIVED {
            return (event, Position::Last);
        }
        self.last.clear();
        self.last.extend_from_slice(bytes);
        (event.lend(&self.last), Position::Last)
    }
}
