//! The receiving side: datagrams go through netcode to the session of their slot.

use alloc::vec::Vec;

use super::event_queue::report_end;
use super::{ClientDatagram, SessionServer};
use crate::channel::ChannelViolation;
use crate::channel::close_code::CloseCode;
use crate::connection::work_budget::{BYTE_WORK, PLAIN_PAYLOAD_WORK};
use crate::connection::{CloseKind, CloseReason, ClosedBy, Intake, ReceivedDatagram, SessionMessage};
use slipgate_netcode::address::Address;
use slipgate_netcode::discard::Discard;
use slipgate_netcode::ids::PacketNumber;
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
    ) -> Result<Option<ClientDatagram>, Discard> {
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
    ) -> Option<ClientDatagram> {
        self.sync_with_netcode();
        self.handle_payload(client, PacketNumber(0), payload, 0, scratch, now.monotonic)
    }

    /// Sets whether the packets of a client are refused: for a program that cannot take more of its messages now.
    /// Refused packets are sent again. Without channels only [`Intake::Flooded`] has an effect: it disconnects the
    /// client.
    pub fn set_intake(&mut self, client: ClientHandle, intake: Intake) {
        let Ok(session) = self.wake_client(client) else { return };
        if let Some(connection) = session.protocol.connection_mut() {
            connection.set_intake(intake);
        } else if intake == Intake::Flooded {
            self.disconnect_flood(client);
        }
    }

    /// Disconnects a client without channels, which no close message can reach.
    fn disconnect_flood(&mut self, client: ClientHandle) {
        let Self { sessions, events, hashing, .. } = self;
        let session = sessions.get_mut(client.slot().0 as usize).and_then(Option::as_mut);
        let Some(session) = session.filter(|session| session.is(client)) else { return };
        let kind = CloseKind::Violation(ChannelViolation::Flood);
        // The reason of netcode, which follows, would be a kick by the application.
        report_end(session, CloseReason::from_session(ClosedBy::Local, kind, CloseCode::VIOLATION), hashing, events);
        self.netcode.disconnect(client);
        self.sync_with_netcode();
    }

    fn handle_payload(
        &mut self,
        client: ClientHandle,
        sequence: PacketNumber,
        payload: &[u8],
        start: usize,
        scratch: &mut Vec<u8>,
        now: Instant,
    ) -> Option<ClientDatagram> {
        // The datagram arrived after the socket was last empty.
        let unread = now.since(self.drained_at);
        let session = self.wake_client(client).ok()?;
        let received = session.handle(sequence, payload, start, scratch, unread, now);
        let Some(connection) = session.protocol.connection_mut() else {
            let runs_channels = session.protocol.take_peer_with_channels();
            self.peers_with_channels += u64::from(runs_channels);
            self.work_done += PLAIN_PAYLOAD_WORK + payload.len() as u64 * BYTE_WORK;
            return received;
        };
        let (refused, work) = (connection.take_refused(), connection.take_work_done());
        self.packets_over_budget += u64::from(refused.over_budget);
        self.packets_not_taken += u64::from(refused.not_taken);
        self.work_done += work;
        received
    }

    /// Returns whether the next message of a datagram should be taken now, after `in_a_row` others of it; 0 if the
    /// datagram was set aside. It should wait while its client's intake is [`Intake::Refused`], and while the client
    /// owes work for more than 64 messages. The client's packets are refused until it was taken.
    pub fn may_deliver(&mut self, datagram: &ClientDatagram, in_a_row: u32, now: Now) -> bool {
        let ReceivedDatagram::Frames { .. } = datagram.received else { return true };
        let Ok(session) = self.session_mut(datagram.client) else { return true };
        let Some(connection) = session.protocol.connection_mut() else { return true };
        connection.may_deliver(in_a_row, now.monotonic)
    }

    /// Takes the next message of a datagram that was processed; `scratch` receives messages that do not lie in the
    /// datagram in one piece.
    #[inline]
    pub fn next_message(
        &mut self,
        datagram: &[u8],
        received: &mut ClientDatagram,
        scratch: &mut Vec<u8>,
        now: Now,
    ) -> Option<SessionMessage> {
        let client = received.client;
        match &mut received.received {
            ReceivedDatagram::Message(message) => message.take(),
            ReceivedDatagram::Frames { payload, cursor } => {
                // The client may have been disconnected since its datagram was processed.
                let connection = self.session_mut(client).ok()?.protocol.connection_mut()?;
                let message = connection.next_message(datagram.get(payload.clone())?, cursor, scratch, now.monotonic);
                let work = connection.take_work_done();
                self.work_done += work;
                let Some(message) = message else {
                    // Events are polled when all messages are taken, and not for each message: a poll visits all
                    // transfers.
                    let _ = self.wake_client(client);
                    return None;
                };
                Some(SessionMessage::from_channel(message, payload.start))
            }
        }
    }
}
