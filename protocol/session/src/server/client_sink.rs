//! The sink of one client's packets: netcode seals them into the outbox.

use crate::reliability::Sink;
use slipgate_netcode::Outbox;
use slipgate_netcode::server::{ClientHandle, NetcodeServer};
use slipgate_netcode::time::Now;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;

/// Bytes on the path of the headers below a payload: IPv4, UDP, and netcode's prefix, number and tag.
pub(super) const HEADER_BYTES: u64 = 28 + 21;

pub(super) struct ClientSink<'a, O> {
    netcode: &'a mut NetcodeServer,
    client: ClientHandle,
    now: Now,
    outbox: &'a mut O,
    buf: &'a mut [u8; MAX_PAYLOAD_BYTES],
    /// Datagrams that each packet takes: two while a keep-alive precedes it (§1.13).
    datagrams: usize,
    /// Bytes on the path that have left.
    pub(super) sent_bytes: u64,
    /// Packets that have left.
    pub(super) sent_packets: u64,
    /// Whether the outbox was full for a packet.
    pub(super) is_full: bool,
}

impl<'a, O: Outbox> ClientSink<'a, O> {
    pub(super) fn new(
        netcode: &'a mut NetcodeServer,
        client: ClientHandle,
        now: Now,
        outbox: &'a mut O,
        buf: &'a mut [u8; MAX_PAYLOAD_BYTES],
    ) -> Self {
        let confirmed = netcode.client(client).is_some_and(|info| info.confirmed);
        let datagrams = if confirmed { 1 } else { 2 };
        Self { netcode, client, now, outbox, buf, datagrams, sent_bytes: 0, sent_packets: 0, is_full: false }
    }
}

impl<O: Outbox> Sink for ClientSink<'_, O> {
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
        // Sealing fails if the client has just gone or its token is not durable yet. The packet then counts as lost.
        if self.netcode.send(self.client, payload, self.now, self.outbox).is_ok() {
            self.sent_bytes += bytes as u64 + HEADER_BYTES;
            self.sent_packets += 1;
        }
    }
}
