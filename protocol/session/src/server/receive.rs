//! The receiving side: datagrams go through netcode to the session of their slot.

use alloc::vec::Vec;

use super::{ReceivedDatagram, SessionMessage, SessionServer};
use crate::connection::{Connection, Intake};
use slipgate_netcode::address::Address;
use slipgate_netcode::discard::Discard;
use slipgate_netcode::server::ClientHandle;
use slipgate_netcode::time::{Instant, Now};

impl SessionServer {
    /// Processes a datagram, which is decrypted in place. Take its messages with [`next_message`](Self::next_message).
    ///
    /// # Errors
    /// The reason why it was dropped, which is already counted.
    pub fn handle(
        &mut self,
        from: Address,
        datagram: &mut [u8],
        scratch: &mut Vec<u8>,
        now: Now,
    ) -> Result<Option<ReceivedDatagram>, Discard> {
        let base = datagram.as_ptr().addr();
        // The payload borrows the datagram, so only its position is kept while events are processed.
        let found = self.netcode.handle(from, datagram, now).map(|payload| {
            payload.map(|(client, payload)| {
                let start = payload.bytes.as_ptr().addr().wrapping_sub(base);
                (client, payload.sequence, start..start + payload.bytes.len())
            })
        });
        self.sync_with_netcode();
        let Some((client, sequence, range)) = found? else { return Ok(None) };
        debug_assert!(range.end <= datagram.len(), "netcode decrypts in place");
        let payload = datagram.get(range.clone()).unwrap_or_default();
        Ok(self.handle_payload(client, sequence, payload, range.start, scratch, now.monotonic))
    }

    /// Processes a payload of a client in the same program. It lies at the start of the slice that
    /// [`next_message`](Self::next_message) is given.
    pub fn handle_loopback(
        &mut self,
        client: ClientHandle,
        payload: &[u8],
        scratch: &mut Vec<u8>,
        now: Now,
    ) -> Option<ReceivedDatagram> {
        self.sync_with_netcode();
        self.handle_payload(client, 0, payload, 0, scratch, now.monotonic)
    }

    /// Sets whether the packets of a client are refused: for a program that cannot take more of its messages now.
    /// Refused packets are sent again. Without channels it does nothing.
    pub fn set_intake(&mut self, client: ClientHandle, intake: Intake) {
        if let Ok(Some(connection)) = self.session_mut(client).map(|session| session.protocol.connection_mut()) {
            connection.set_intake(intake);
        }
    }

    fn handle_payload(
        &mut self,
        client: ClientHandle,
        sequence: u64,
        payload: &[u8],
        start: usize,
        scratch: &mut Vec<u8>,
        now: Instant,
    ) -> Option<ReceivedDatagram> {
        // The datagram arrived after the socket was last empty.
        let unread = now.since(self.drained_at);
        let session = self.session_mut(client).ok()?;
        let received = session.handle(sequence, payload, start, scratch, unread, now);
        let over_budget = session.protocol.connection_mut().map_or(0, Connection::take_packets_over_budget);
        self.packets_over_budget += u64::from(over_budget);
        self.wake(client.slot().0);
        received
    }

    /// Takes the next message of a datagram that was processed; `scratch` receives messages that do not lie in the
    /// datagram in one piece.
    #[inline]
    pub fn next_message(
        &mut self,
        datagram: &[u8],
        received: &mut ReceivedDatagram,
        scratch: &mut Vec<u8>,
        now: Now,
    ) -> Option<SessionMessage> {
        match received {
            ReceivedDatagram::Message(message) => message.take(),
            ReceivedDatagram::Frames { client, payload, cursor } => {
                let client = *client;
                // The client may have been disconnected since its datagram was processed.
                self.wake(client.slot().0);
                let connection = self.session_mut(client).ok()?.protocol.connection_mut()?;
                let message =
                    connection.next_message(datagram.get(payload.clone())?, cursor, scratch, now.monotonic)?;
                Some(SessionMessage::from_channel(client, message, payload.start))
            }
        }
    }
}
