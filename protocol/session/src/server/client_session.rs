//! One client above netcode: its protocol, and which of its events were reported.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use super::event::{ClientDatagram, ConnectionTotals, SessionEvent};
use crate::channel::close_code::CloseCode;
use crate::connection::{Budget, ClientProtocol, CloseReason, Connection, HEADER_BYTES, PathStats};
use slipgate_netcode::ids::{ClientId, PacketNumber};
use slipgate_netcode::server::ClientHandle;
use slipgate_netcode::time::Instant;

pub(super) struct ClientSession {
    client: ClientHandle,
    client_id: ClientId,
    pub(super) protocol: ClientProtocol,
    /// Whether its slot is queued for [`poll_event`](Self::poll_event).
    pub(super) has_events: bool,
    reporting: Reporting,
    /// The bytes so far. The measurements of the path are added at the end.
    pub(super) totals: ConnectionTotals,
    /// The time of the last packet or tick.
    last_active: Instant,
    /// The events of its end.
    last_events: VecDeque<SessionEvent>,
}

/// Which events of a client are reported.
///
/// ```text
///  All ──▶ EndOnly (the application disconnected it) ──▶ Ended
///   └─────────────────────────────────────────────────────▲
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reporting {
    All,
    /// The application has finished with the client, and wants nothing but the end.
    EndOnly,
    /// The end was reported or is in `last_events`.
    Ended,
}

impl ClientSession {
    pub(super) fn new(client: ClientHandle, client_id: ClientId, protocol: ClientProtocol) -> Self {
        Self {
            client,
            client_id,
            protocol,
            has_events: false,
            reporting: Reporting::All,
            totals: ConnectionTotals::default(),
            last_active: Instant::default(),
            last_events: VecDeque::new(),
        }
    }

    #[inline]
    pub(super) fn is(&self, client: ClientHandle) -> bool {
        self.client == client
    }

    #[inline]
    pub(super) const fn client(&self) -> ClientHandle {
        self.client
    }

    /// Returns whether the protocol ever sends or reports anything without a call; plain payloads only pass through.
    #[inline]
    pub(super) const fn has_deadlines(&self) -> bool {
        !matches!(self.protocol, ClientProtocol::Payloads(_))
    }

    /// Processes a payload that begins at `start` in its datagram and may have waited up to `unread` in the socket.
    #[inline]
    pub(super) fn handle(
        &mut self,
        sequence: PacketNumber,
        payload: &[u8],
        start: usize,
        scratch: &mut Vec<u8>,
        unread: Duration,
        now: Instant,
    ) -> Option<ClientDatagram> {
        self.totals.on_received(payload.len() as u64 + HEADER_BYTES);
        self.last_active = now;
        let received = self.protocol.handle(sequence, payload, start, scratch, unread, now)?;
        Some(ClientDatagram { client: self.client, received })
    }

    /// Takes the next event; the end comes last.
    pub(super) fn poll_event(&mut self) -> Option<SessionEvent> {
        if self.reporting == Reporting::All
            // Events of a client that the application has disconnected are dropped.
            && let Some(event) = self.poll_protocol()
        {
            return Some(event);
        }
        if self.reporting != Reporting::Ended {
            let reason = self.close_reason()?.clone();
            self.emit_disconnected(reason);
        }
        self.last_events.pop_front()
    }

    fn poll_protocol(&mut self) -> Option<SessionEvent> {
        let client = self.client;
        match &mut self.protocol {
            ClientProtocol::Payloads(_) => None,
            ClientProtocol::Packets(packets) => {
                packets.poll_event().map(|event| SessionEvent::Packet { client, event })
            }
            ClientProtocol::Channels(connection) => {
                connection.poll_event().map(|event| SessionEvent::Channel { client, event })
            }
        }
    }

    /// Queues the events of the end, unless it was reported before. The connection's own reason wins: netcode knows
    /// less.
    pub(super) fn emit_disconnected(&mut self, reason: CloseReason) {
        if core::mem::replace(&mut self.reporting, Reporting::Ended) == Reporting::Ended {
            return;
        }
        let (client, client_id) = (self.client, self.client_id);
        let reason = self.close_reason().cloned().unwrap_or(reason);
        if let Some(connection) = self.protocol.connection_mut() {
            let partial = |(channel, partial)| SessionEvent::Partial { client, channel, partial };
            // The application may resume these transfers when the client comes back.
            self.last_events.extend(connection.take_partials().map(partial));
        }
        let totals = self.path(self.last_active).map_or(self.totals, |path| self.totals.with_path(&path));
        self.last_events.push_back(SessionEvent::Disconnected { client, client_id, reason, totals });
    }

    /// Reports nothing more but the end: the application disconnected the client.
    pub(super) fn report_end_only(&mut self) {
        if self.reporting == Reporting::All {
            self.reporting = Reporting::EndOnly;
        }
    }

    /// Sends a close message, where there are channels.
    pub(super) fn close(&mut self, code: CloseCode, text: &str) {
        if let Some(connection) = self.protocol.connection_mut() {
            connection.close(code, text);
        }
    }

    /// Returns whether received transfers wait to be hashed.
    #[inline]
    pub(super) fn has_transfers_to_hash(&self) -> bool {
        self.protocol.connection().is_some_and(|connection| connection.channels.has_transfers_to_hash())
    }

    /// Returns whether the connection has ended, and only the slot is not free yet.
    #[inline]
    pub(super) fn is_closing(&self) -> bool {
        self.reporting != Reporting::All || self.close_reason().is_some()
    }

    /// Returns why the connection has ended, where there are channels.
    #[inline]
    fn close_reason(&self) -> Option<&CloseReason> {
        self.protocol.connection()?.close_reason()
    }

    pub(super) fn tick(&mut self, now: Instant) {
        self.last_active = now;
        self.protocol.tick(now);
    }

    /// Returns about how many bytes on the path would leave now, if only the path limited them.
    pub(super) fn wanted_bytes(&self, now: Instant) -> u64 {
        self.protocol.connection().map_or(0, |connection| connection.wanted_bytes(now))
    }

    /// Returns whether the slot should be freed now.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.protocol.connection().is_some_and(Connection::is_closed)
    }

    pub(super) fn budget(&self, now: Instant) -> Option<Budget> {
        self.protocol.budget(now)
    }

    pub(super) fn path(&self, now: Instant) -> Option<PathStats> {
        self.protocol.stats(now)
    }
}
