//! The sink of the client's packets: netcode seals them into the outbox.

use crate::reliability::Sink;
use slipgate_netcode::Outbox;
use slipgate_netcode::client::NetcodeClient;
use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;

pub(super) struct SealingSink<'a, O> {
    netcode: &'a mut NetcodeClient,
    now: Instant,
    outbox: &'a mut O,
    buf: &'a mut [u8; MAX_PAYLOAD_BYTES],
    /// Whether the outbox was full for a packet.
    pub(super) is_full: bool,
}

impl<'a, O: Outbox> SealingSink<'a, O> {
    pub(super) const fn new(
        netcode: &'a mut NetcodeClient,
        now: Instant,
        outbox: &'a mut O,
        buf: &'a mut [u8; MAX_PAYLOAD_BYTES],
    ) -> Self {
        Self { netcode, now, outbox, buf, is_full: false }
    }
}

impl<O: Outbox> Sink for SealingSink<'_, O> {
    #[inline]
    fn remaining(&self) -> usize {
        self.outbox.remaining()
    }

    #[inline]
    fn next_buf(&mut self) -> Option<&mut [u8]> {
        if self.remaining() == 0 {
            self.is_full = true;
            return None;
        }
        Some(self.buf)
    }

    fn commit(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.buf.len(), "a packet fits into the buffer that it was written into");
        let payload = self.buf.get(..bytes).unwrap_or_default();
        // Sealing fails if the connection has just ended. The packet then counts as lost.
        let _ = self.netcode.send(payload, self.now, self.outbox);
    }
}
