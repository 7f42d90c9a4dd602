//! The sink of one connection's packets: netcode seals them into the outbox.

use crate::reliability::Sink;
use slipgate_netcode::Outbox;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;

/// Bytes on the path of the headers below a payload: IPv4, UDP, and netcode's prefix, number and tag.
pub(crate) const HEADER_BYTES: u64 = 28 + 21;

pub(crate) struct SealingSink<'a, O, S> {
    outbox: &'a mut O,
    buf: &'a mut [u8; MAX_PAYLOAD_BYTES],
    /// Seals a payload into the outbox. Returns whether it left.
    seal: S,
    /// Datagrams that each packet takes: two while a keep-alive precedes it (§1.13).
    datagrams: usize,
    /// Bytes on the path that have left.
    pub(crate) sent_bytes: u64,
    /// Packets that have left.
    pub(crate) sent_packets: u64,
    /// Whether the outbox was full for a packet.
    pub(crate) is_full: bool,
}

impl<'a, O: Outbox, S: FnMut(&[u8], &mut O) -> bool> SealingSink<'a, O, S> {
    pub(crate) const fn new(
        outbox: &'a mut O,
        buf: &'a mut [u8; MAX_PAYLOAD_BYTES],
        datagrams: usize,
        seal: S,
    ) -> Self {
        Self { outbox, buf, seal, datagrams, sent_bytes: 0, sent_packets: 0, is_full: false }
    }
}

impl<O: Outbox, S: FnMut(&[u8], &mut O) -> bool> Sink for SealingSink<'_, O, S> {
    #[inline]
    fn remaining(&self) -> usize {
        self.outbox.remaining() / self.datagrams
    }

    #[inline]
    fn next_buf(&mut self) -> Option<&mut [u8]> {
        // No division: this is asked for each packet.
        self.is_full |= self.outbox.remaining() < self.datagrams;
        if self.is_full { None } else { Some(self.buf) }
    }

    fn commit(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.buf.len(), "a packet fits into the buffer that it was written into");
        let payload = self.buf.get(..bytes).unwrap_or_default();
        // Sealing fails if the connection has just ended or its token is not durable yet. The packet then counts as
        // lost.
        if (self.seal)(payload, self.outbox) {
            self.sent_bytes += bytes as u64 + HEADER_BYTES;
            self.sent_packets += 1;
        }
    }
}
