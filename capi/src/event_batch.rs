//! Several events with one call.
//!
//! The next event may reuse the memory of the one before. So the content of an event is copied, unless the event is the
//! last one of its call.

use std::mem::MaybeUninit;

use crate::event::CEvent;
use crate::pointer;

/// The bytes that the events of one call share: 64 messages of a full datagram each. An event with more bytes than are
/// left ends its call.
const MAX_COPIED_BYTES: usize = 64 * 1200;

/// Copies of the contents of the last events. Allocated with the first ones, and never moved after that.
#[derive(Default)]
pub(crate) struct EventCopies(Vec<u8>);

impl EventCopies {
    /// Fills `events` from `next`, which returns `None` if there is no event. Returns the number of events.
    pub(crate) fn fill(
        &mut self,
        events: &mut [MaybeUninit<CEvent>],
        mut next: impl FnMut() -> Option<CEvent>,
    ) -> usize {
        self.0.clear();
        let mut filled = 0;
        for out in events {
            let Some(event) = next() else { break };
            let copied = self.copy(event);
            out.write(copied.unwrap_or(event));
            filled += 1;
            if copied.is_none() {
                break;
            }
        }
        filled
    }

    /// Returns the event with a copy of its content; `None` if there is no space for it.
    fn copy(&mut self, event: CEvent) -> Option<CEvent> {
        if event.length == 0 {
            return Some(event);
        }
        if self.0.capacity() == 0 {
            self.0.reserve_exact(MAX_COPIED_BYTES);
        }
        let start = self.0.len();
        if event.length > MAX_COPIED_BYTES - start {
            return None;
        }
        self.0.extend_from_slice(pointer::bytes(event.bytes, event.length).ok()?);
        Some(event.lend(self.0.get(start..)?))
    }
}
