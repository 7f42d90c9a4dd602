//! How the application ends connections: of one client or of all.

use alloc::vec::Vec;

use super::SessionServer;
use super::event_queue::report_end;
use crate::channel::close_code::CloseCode;
use crate::connection::{CloseKind, CloseReason, ClosedBy, SendError};
use slipgate_netcode::server::{ClientHandle, DisconnectReason};
use slipgate_netcode::time::Instant;
use slipgate_netcode::token::ConnectToken;

/// The text for players when a server stops without a text of its own.
pub const STOP_TEXT: &str = "The server shuts down.";

/// Whether a server that stops waits for its clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StopMode {
    /// The text is repeated until a client has acknowledged it or `close_timeout` has passed. The program runs turns
    /// until no slot is in use: all copies of what is sent at one moment may get lost.
    Repeat,
    /// The next [`transmit`](SessionServer::transmit) sends three close messages to each client that has not
    /// acknowledged its text, and disconnect packets to all. Then all slots are free: for a program that ends.
    AtOnce,
}

impl SessionServer {
    /// Disconnects a client with a text for the player, of up to 256 bytes. The only events that follow are its
    /// partial transfers and its `Disconnected`, which can be polled at once. The slot is freed when the client has
    /// acknowledged the text or `close_timeout` has passed.
    ///
    /// Without channels the text is not sent. Codes that are not an application's ([`CloseCode`])
    /// count as 0.
    ///
    /// # Errors
    /// `Gone` when the client is not connected, or was kicked before.
    pub fn kick(&mut self, client: ClientHandle, code: CloseCode, text: &str) -> Result<(), SendError> {
        let session = self.session_mut(client)?;
        // A client that left or was kicked is gone for the application.
        if session.is_closing() {
            return Err(SendError::Gone);
        }
        session.report_end_only();
        if session.protocol.connection().is_none() {
            // No message can carry the text.
            return self.disconnect(client);
        }
        session.close(code, text);
        self.wake(client.slot());
        Ok(())
    }

    /// Disconnects a client with a text for the player, of up to 256 bytes, and with a token for another server: our
    /// clients continue there by themselves. A client that cannot follow sees the end of a server that stops, with the
    /// text. Events and slot are as for [`kick`](Self::kick), but the client has `close_timeout` once more for the
    /// token.
    ///
    /// Without channels neither token nor text is sent. The token must name the same client.
    ///
    /// # Errors
    /// `Gone` when the client is not connected, or was kicked before.
    pub fn redirect(&mut self, client: ClientHandle, token: ConnectToken, text: &str) -> Result<(), SendError> {
        let session = self.session_mut(client)?;
        match session.protocol.connection_mut().filter(|connection| connection.close_reason().is_none()) {
            Some(connection) => connection.redirect(token, if text.is_empty() { STOP_TEXT } else { text }),
            None => return self.kick(client, CloseCode::SHUTDOWN, text),
        }
        session.report_end_only();
        self.wake(client.slot());
        Ok(())
    }

    /// Disconnects a client at once, without a text. The only events that follow are its partial transfers and its
    /// `Disconnected`, which can be polled at once.
    ///
    /// # Errors
    /// `Gone` when the client is not connected.
    pub fn disconnect(&mut self, client: ClientHandle) -> Result<(), SendError> {
        if let Ok(session) = self.session_mut(client) {
            session.report_end_only();
        }
        let was_connected = self.netcode.disconnect(client);
        self.sync_with_netcode();
        if was_connected { Ok(()) } else { Err(SendError::Gone) }
    }

    /// Disconnects all clients and admits no new ones. The events can be polled at once. Clients with channels get
    /// [`CloseCode::SHUTDOWN`] and the text, of up to 256 bytes; the others get disconnect packets with the next
    /// [`transmit`](Self::transmit).
    ///
    /// [`STOP_TEXT`] replaces an empty text. The code is always the same, so that clients can tell a stop from a kick.
    pub fn stop(&mut self, text: &str, mode: StopMode) {
        let text = if text.is_empty() { STOP_TEXT } else { text };
        // New clients would connect to a server that is about to end.
        self.netcode.accept_new_clients(false);
        self.sync_with_netcode();
        self.is_ending |= mode == StopMode::AtOnce;
        // A client whose record is not durable has no session yet, and does not know of its slot: it would connect.
        let is_durable = |client: &ClientHandle| self.netcode.client(*client).is_some_and(|client| client.durable);
        let waiting: Vec<_> = self.netcode.clients().filter(|client| !is_durable(client)).collect();
        for client in waiting {
            self.netcode.disconnect_for(client, DisconnectReason::ServerStopped);
        }
        let Self { sessions, events, netcode, hashing, deadlines, earliest_deadline, .. } = self;
        for (session, deadline) in sessions.iter_mut().zip(deadlines) {
            let Some(session) = session else { continue };
            if session.protocol.connection().is_some() {
                // Clients that were kicked or left before keep their own reason.
                session.close(CloseCode::SHUTDOWN, text);
                let reason = CloseReason::from_netcode(ClosedBy::Local, CloseKind::ServerStopped);
                report_end(session, reason, hashing, events);
                (*deadline, *earliest_deadline) = (Instant::default(), Instant::default());
            } else {
                netcode.disconnect_for(session.client(), DisconnectReason::ServerStopped);
            }
        }
        self.sync_with_netcode();
    }
}
