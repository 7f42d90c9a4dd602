//! The events of sessions, and how sessions follow netcode's connections.

use alloc::collections::VecDeque;

use super::client_session::ClientSession;
use super::hashing::HashingQueue;
use super::{SessionEvent, SessionServer};
use crate::connection::{CloseKind, CloseReason, ClosedBy, Role};
use crate::reliability::NumberSkips;
use slipgate_netcode::ids::ClientId;
use slipgate_netcode::server::{ClientHandle, DisconnectReason, LoopbackSlotError, NetcodeEvent};
use slipgate_netcode::time::{Instant, Now};
use slipgate_netcode::wire::UserData;

impl SessionServer {
    /// Takes the oldest event. Call it until `None` once per tick: it hashes received transfers, at most
    /// [`HASHED_BYTES_PER_TICK`](super::HASHED_BYTES_PER_TICK) of all clients together.
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        self.events.pop_front().or_else(|| self.poll_sessions()).or_else(|| self.hash_transfers())
    }

    /// Polls the sessions that may have events.
    fn poll_sessions(&mut self) -> Option<SessionEvent> {
        while let Some(slot) = self.slots_with_events.front().copied() {
            if let Some(session) = self.session_at(slot) {
                if let Some(event) = session.poll_event() {
                    // The event may cause an answer to the peer: that a transfer was received.
                    self.set_deadline(slot, Instant::default());
                    return Some(event);
                }
                session.has_events = false;
                if session.has_transfers_to_hash() {
                    self.hashing.push(slot);
                }
            }
            // The slot stays queued until it has no event left.
            self.slots_with_events.pop_front();
        }
        None
    }

    /// Hashes received transfers round-robin, as long as the tick allows, until there is an event.
    fn hash_transfers(&mut self) -> Option<SessionEvent> {
        while let Some(slot) = self.hashing.next() {
            // Polling hashes within the grant, and may complete a transfer.
            let event = self.session_at(slot).and_then(ClientSession::poll_event);
            self.hashing.finish();
            if self.session_at(slot).is_some_and(|session| session.has_transfers_to_hash()) {
                self.hashing.push(slot);
            }
            if event.is_some() {
                // The event may cause an answer to the peer, and there may be more events.
                self.wake(slot);
                return event;
            }
        }
        None
    }

    /// Gives a client in the same process a slot. Its session exists at once, and its `Connected` event can be polled.
    ///
    /// # Errors
    /// - `ClientIdConnected` when the client id is connected.
    /// - `Full` when no slot is free, the server admits no clients, or the event queue is full.
    pub fn connect_loopback(
        &mut self,
        client_id: ClientId,
        user_data: UserData,
        now: Now,
    ) -> Result<ClientHandle, LoopbackSlotError> {
        let client = self.netcode.connect_loopback(client_id, user_data, now)?;
        self.sync_with_netcode();
        Ok(client)
    }

    /// Creates sessions for new connections of netcode, and removes the sessions of ended connections.
    pub(super) fn sync_with_netcode(&mut self) {
        while let Some(event) = self.netcode.poll_event() {
            match event {
                NetcodeEvent::Connected { client, client_id } => self.add_session(client, client_id),
                NetcodeEvent::Disconnected { client, reason, .. } => self.remove_session(client, reason),
            }
        }
    }

    fn add_session(&mut self, client: ClientHandle, client_id: ClientId) {
        let skips = NumberSkips::new(self.numbers.clone(), self.connections);
        self.connections += 1;
        let Ok(mut protocol) = self.traffic.protocol(Role::Server, Some(&self.memory), Some(skips)) else {
            debug_assert!(false, "the settings were checked when they were set");
            return;
        };
        if let Some(connection) = protocol.connection_mut() {
            connection.channels.hash_within(self.hashing.grant().clone());
        }
        let slot = client.slot().0 as usize;
        if slot >= self.sessions.len() {
            self.sessions.resize_with(slot + 1, || None);
            self.deadlines.resize(slot + 1, Instant::NEVER);
        }
        if let Some(entry) = self.sessions.get_mut(slot) {
            debug_assert!(entry.is_none(), "netcode frees a slot before it gives it to another client");
            let session = entry.insert(ClientSession::new(client, client_id, protocol));
            if session.has_deadlines() {
                self.set_deadline(client.slot(), Instant::default());
            }
            self.events.push_back(SessionEvent::Connected { client, client_id });
        }
    }

    fn remove_session(&mut self, client: ClientHandle, reason: DisconnectReason) {
        let session = self.sessions.get_mut(client.slot().0 as usize).and_then(Option::take);
        self.uplink.reset_slot(client.slot());
        debug_assert!(session.is_some(), "netcode reports the end of connections that it reported before");
        let Some(mut session) = session else { return };
        self.set_deadline(client.slot(), Instant::NEVER);
        report_end(&mut session, close_reason(reason), &mut self.hashing, &mut self.events);
    }
}

/// Queues the pending events of a session, and then its end. Received transfers are hashed as far as this tick
/// allows, because the session has no later tick.
pub(super) fn report_end(
    session: &mut ClientSession,
    reason: CloseReason,
    hashing: &mut HashingQueue,
    events: &mut VecDeque<SessionEvent>,
) {
    // The rest of the tick's allowance is for the last chunks of this client.
    hashing.begin_last();
    events.extend(core::iter::from_fn(|| session.poll_event()));
    hashing.finish();
    session.emit_disconnected(reason);
    events.extend(core::iter::from_fn(|| session.poll_event()));
}

/// Returns netcode's reason as the session reports it.
fn close_reason(reason: DisconnectReason) -> CloseReason {
    let (by, kind) = match reason {
        DisconnectReason::Left => (ClosedBy::Remote, CloseKind::Left),
        DisconnectReason::TimedOut => (ClosedBy::Netcode, CloseKind::TimedOut),
        DisconnectReason::ServerStopped => (ClosedBy::Local, CloseKind::ServerStopped),
        DisconnectReason::TakenOver => (ClosedBy::Netcode, CloseKind::TakenOver),
        DisconnectReason::SequencesUsedUp => (ClosedBy::Netcode, CloseKind::SequencesUsedUp),
        // The other reasons are the session's own: it knows more about them and has reported them.
        _ => (ClosedBy::Local, CloseKind::Kicked),
    };
    CloseReason::from_netcode(by, kind)
}
