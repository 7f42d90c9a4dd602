//! Where the line's packets leave: through netcode, which seals them, into the outbox.

use crate::reliability::Sink;
use slipgate_netcode::Outbox;
use slipgate_netcode::client::Client;
use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;

pub(super) struct ServerSink<'a, O> {
    netcode: &'a mut Client,
    now: Instant,
    outbox: &'a mut O,
    room: &'a mut [u8; MAX_PAYLOAD_BYTES],
    /// A packet found no room.
    pub(super) full: bool,
}

impl<'a, O: Outbox> ServerSink<'a, O> {
    pub(super) const fn new(
        netcode: &'a mut Client,
        now: Instant,
        outbox: &'a mut O,
        room: &'a mut [u8; MAX_PAYLOAD_BYTES],
    ) -> Self {
        Self { netcode, now, outbox, room, full: false }
    }
}

impl<O: Outbox> Sink for ServerSink<'_, O> {
    fn rooms(&self) -> usize {
        self.outbox.rooms()
    }

    fn room(&mut self) -> Option<&mut [u8]> {
        if self.rooms() == 0 {
            self.full = true;
            return None;
        }
        Some(self.room)
    }

    fn commit(&mut self, bytes: usize) {
        // A packet that cannot be sealed, because the connection has just ended, is lost as any may be.
        let payload = self.room.get(..bytes).unwrap_or_default();
        let _ = self.netcode.send(payload, self.now, self.outbox);
    }
}
