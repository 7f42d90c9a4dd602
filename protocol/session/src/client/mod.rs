//! The client: netcode's client, and the protocol that its payloads carry.
//!
//! The protocol's state begins when a server gives a slot, and ends with the connection.

mod event;
mod redirect_policy;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

pub use self::event::ClientSessionEvent;

use self::redirect_policy::RedirectPolicy;
use crate::channel::close_code::CloseCode;
use crate::connection::{
    Budget, ClientProtocol, CloseKind, CloseReason, ClosedBy, Connection, ConnectionConfigError, PathStats,
    ReceivedDatagram, Role, SealingSink, SendError, SessionMessage, Traffic,
};
use crate::reliability::NumberSkips;
use crate::wire::reliable::Sequence;
use slipgate_netcode::Outbox;
use slipgate_netcode::address::Address;
use slipgate_netcode::client::{ClientState, ConnectError, EndReason, NetcodeClient, NetcodeClientEvent};
use slipgate_netcode::crypto::key::Seed;
use slipgate_netcode::crypto::keyed::HashKey;
use slipgate_netcode::discard::Discard;
use slipgate_netcode::ids::PacketNumber;
use slipgate_netcode::time::Instant;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;

/// The shortest interval between two visits of the protocol for its own deadlines.
const MIN_WAIT: Duration = Duration::from_millis(1);
/// A program that sleeps until the next deadline begins a tick when it wakes. Data that only waits for its channel's
/// bytes per tick wakes it 60 times per second, as a game does.
const SLEEPERS_TICK: Duration = Duration::from_nanos(1_000_000_000 / 60);

/// A client that carries a [`Traffic`] in its payloads.
pub struct SessionClient {
    /// Every datagram that had arrived by then was processed: later ones cannot have waited longer. A program that
    /// sleeps until a datagram arrives sets it when it wakes; for all others [`tick`](Self::tick) is enough.
    pub drained_at: Instant,
    /// Netcode's client: its state, slot and server, and the connection to a server in the same program.
    pub netcode: NetcodeClient,
    traffic: Traffic,
    /// The key by which the packet numbers of connections are skipped, and how many connections there were.
    numbers: HashKey,
    connections: u64,
    protocol: Option<ClientProtocol>,
    /// When the protocol is visited next.
    deadline: Instant,
    /// Until when a program may sleep, unless `deadline` has passed.
    sleep_until: Instant,
    /// Events that precede the protocol's own: of netcode, and of connections that have ended.
    events: VecDeque<ClientSessionEvent>,
    close_reason: Option<CloseReason>,
    redirects: RedirectPolicy,
    buf: Box<[u8; MAX_PAYLOAD_BYTES]>,
}

impl SessionClient {
    /// Creates a client upon netcode's client, which must not be connected. It carries plain payloads until the
    /// traffic is set.
    ///
    /// Connections with channels skip packet numbers by the seed, so that a server cannot make this client send more
    /// than it receives. The seed must be unpredictable for the server.
    #[must_use]
    pub fn new(netcode: NetcodeClient, seed: &Seed) -> Self {
        Self {
            netcode,
            traffic: Traffic::Payloads,
            numbers: NumberSkips::key(seed),
            connections: 0,
            protocol: None,
            deadline: Instant::NEVER,
            sleep_until: Instant::NEVER,
            drained_at: Instant::NEVER,
            events: VecDeque::new(),
            close_reason: None,
            redirects: RedirectPolicy::default(),
            buf: Box::new([0; MAX_PAYLOAD_BYTES]),
        }
    }

    /// Sets the traffic, from the next connection on.
    ///
    /// # Errors
    /// - `PayloadBytes`: `max_payload_bytes` is not within 508 to 1,200.
    /// - `SliceBytes`: the slices of a channel's transfers are too large for a payload.
    /// - `Window`: the window of received packets exceeds 2,048, with channels.
    /// - `Endpoint`: a setting of the endpoint is out of its bounds.
    pub fn set_traffic(&mut self, traffic: Traffic) -> Result<(), ConnectionConfigError> {
        traffic.check()?;
        self.traffic = traffic;
        Ok(())
    }

    /// Returns whether the server runs channels although this client runs none, once for each connection. The packets
    /// of such a server are handed out as payloads.
    #[inline]
    pub fn take_peer_with_channels(&mut self) -> bool {
        self.protocol.as_mut().is_some_and(ClientProtocol::take_peer_with_channels)
    }

    /// Returns the traffic.
    #[must_use]
    pub const fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Connects to the first of the token's servers that gives a slot, except for those that `reaches` rejects. Resets
    /// [`close_reason`](Self::close_reason).
    ///
    /// # Errors
    /// - `TokenUsed`: this program has used the token before.
    /// - `NoServer`: `reaches` rejects all addresses of the token.
    /// - `Busy`: the client is connecting or connected.
    pub fn connect(
        &mut self,
        token: ConnectToken,
        now: Instant,
        reaches: impl Fn(Address) -> bool,
    ) -> Result<(), ConnectError> {
        // The event of a redirect is not taken yet, and comes first.
        if self.is_redirected() {
            return Err(ConnectError::Busy);
        }
        let redirects = self.redirects.connect(&token);
        let result = self.netcode.connect(token, now, reaches);
        match result {
            // The present connection goes on.
            Err(ConnectError::Busy) => {}
            Err(_) => self.set_invalid_token(),
            Ok(()) => (self.close_reason, self.redirects) = (None, redirects),
        }
        result
    }

    fn set_invalid_token(&mut self) {
        self.close_reason = self.netcode.end_reason().map(from_netcode);
    }

    // Receiving -----------------------------------------------------------------------------------------------------

    /// Processes a datagram, which is decrypted in place. Take its messages with [`next_message`](Self::next_message).
    ///
    /// # Errors
    /// The reason why it was dropped, which is already counted.
    pub fn handle(
        &mut self,
        from: Address,
        datagram: &mut [u8],
        scratch: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<ReceivedDatagram>, Discard> {
        let base = datagram.as_ptr().addr();
        // The payload borrows the datagram, so only its position is kept while events are processed.
        let found = self.netcode.handle(from, datagram, now).map(|payload| {
            payload.map(|payload| {
                let start = payload.bytes.as_ptr().addr().wrapping_sub(base);
                (payload.sequence, start..start + payload.bytes.len())
            })
        });
        self.sync_with_netcode();
        let Some((sequence, range)) = found? else { return Ok(None) };
        debug_assert!(range.end <= datagram.len(), "netcode decrypts in place");
        let payload = datagram.get(range.clone()).unwrap_or_default();
        Ok(self.handle_payload(sequence, payload, range.start, scratch, now))
    }

    fn handle_payload(
        &mut self,
        sequence: PacketNumber,
        payload: &[u8],
        start: usize,
        scratch: &mut Vec<u8>,
        now: Instant,
    ) -> Option<ReceivedDatagram> {
        self.deadline = Instant::default();
        let unread = now.since(self.drained_at);
        self.protocol.as_mut()?.handle(sequence, payload, start, scratch, unread, now)
    }

    /// Returns whether the next message of a datagram should be taken now, after `in_a_row` others of it. If not, the
    /// server has used up its work budget: no datagram is processed until this one may go on, so that messages stay in
    /// order and none is refused.
    pub fn may_deliver(&mut self, received: &ReceivedDatagram, in_a_row: u32, now: Instant) -> bool {
        let ReceivedDatagram::Frames { .. } = received else { return true };
        let Some(connection) = self.protocol.as_mut().and_then(ClientProtocol::connection_mut) else { return true };
        connection.may_deliver(in_a_row, now)
    }

    /// Takes the next message of a datagram that was processed; `scratch` receives messages that do not lie in the
    /// datagram in one piece.
    #[inline]
    pub fn next_message(
        &mut self,
        datagram: &[u8],
        received: &mut ReceivedDatagram,
        scratch: &mut Vec<u8>,
        now: Instant,
    ) -> Option<SessionMessage> {
        match received {
            ReceivedDatagram::Message(message) => message.take(),
            ReceivedDatagram::Frames { payload, cursor } => {
                // The connection may have ended since the datagram was processed.
                let connection = self.wake()?;
                let message = connection.next_message(datagram.get(payload.clone())?, cursor, scratch, now)?;
                Some(SessionMessage::from_channel(message, payload.start))
            }
        }
    }

    // Events --------------------------------------------------------------------------------------------------------

    /// Takes the oldest event.
    pub fn poll_event(&mut self) -> Option<ClientSessionEvent> {
        self.events.pop_front().or_else(|| {
            let event = poll_protocol(self.protocol.as_mut()?)?;
            // The event may cause an answer to the server: that a transfer was received.
            self.deadline = Instant::default();
            Some(event)
        })
    }

    /// Begins the protocol's state when netcode has a slot, and ends it with netcode's connection.
    fn sync_with_netcode(&mut self) {
        while let Some(event) = self.netcode.poll_event() {
            match event {
                NetcodeClientEvent::Connected { client_index, max_clients } => {
                    // A client has no shared memory budget: one server cannot starve another connection.
                    let skips = NumberSkips::new(self.numbers.clone(), self.connections);
                    self.connections += 1;
                    self.protocol = self.traffic.protocol(Role::Client, None, Some(skips)).ok();
                    debug_assert!(self.protocol.is_some(), "the settings were checked when they were set");
                    self.deadline = Instant::default();
                    self.close_reason = None;
                    self.events.push_back(ClientSessionEvent::Connected { client_index, max_clients });
                }
                NetcodeClientEvent::Ended { reason } => self.end_connection(reason),
            }
        }
    }

    /// Reports the remaining events of the protocol, the rest of its transfers, and then the end.
    fn end_connection(&mut self, reason: EndReason) {
        let (mut reason, mut redirect) = (from_netcode(reason), None);
        if let Some(mut protocol) = self.protocol.take() {
            self.events.extend(core::iter::from_fn(|| poll_protocol(&mut protocol)));
            if let Some(connection) = protocol.connection_mut() {
                if reason.kind == CloseKind::Left {
                    // Leaving at once is the same as leaving with code 0 and no text.
                    reason = CloseReason::from_application(Role::Client, ClosedBy::Local, CloseCode::KICKED, "");
                }
                // The connection's own reason wins: netcode knows less.
                reason = connection.close_reason().cloned().unwrap_or(reason);
                let partial = |(channel, partial)| ClientSessionEvent::Partial { channel, partial };
                self.events.extend(connection.take_partials().map(partial));
                redirect = connection.take_redirect();
            }
        }
        self.deadline = Instant::NEVER;
        self.close_reason = Some(reason.clone());
        let redirect = redirect.filter(|token| is_redirectable(reason.kind) && self.redirects.allows(token));
        self.events.push_back(match redirect {
            Some(token) => ClientSessionEvent::Redirected { token: Box::new(token), reason },
            None => ClientSessionEvent::Ended { reason },
        });
    }

    /// Returns whether the event of a redirect is not taken yet. It is the last event of a connection.
    fn is_redirected(&self) -> bool {
        matches!(self.events.back(), Some(ClientSessionEvent::Redirected { .. }))
    }

    /// Returns the state of the connection in the standard's words. After its end, the state agrees with
    /// [`close_reason`](Self::close_reason). Until the event of a redirect is taken, the client counts as connecting.
    #[must_use]
    pub fn state(&self) -> ClientState {
        if self.is_redirected() {
            return ClientState::SendingRequest;
        }
        match (self.netcode.state(), &self.close_reason) {
            // Netcode knows less: it may have timed out after the server reported why it closes the connection.
            (state, Some(reason)) if !state.is_active() => state_after(reason.kind),
            (state, _) => state,
        }
    }

    /// Returns why the last attempt or connection ended, as its `Ended` event did; `None` before that and after
    /// [`connect`](Self::connect).
    #[must_use]
    pub const fn close_reason(&self) -> Option<&CloseReason> {
        self.close_reason.as_ref()
    }

    // Sending -------------------------------------------------------------------------------------------------------

    /// Seals a payload of 1 to 1,200 bytes for the server.
    ///
    /// # Errors
    /// - `Gone` when the client is not connected.
    /// - `Empty` or `TooLarge` when the payload is not of 1 to 1,200 bytes.
    /// - `Backlogged` when the outbox is full.
    /// - `WrongTraffic` unless the traffic is plain payloads.
    #[inline]
    pub fn send_payload(&mut self, payload: &[u8], now: Instant, outbox: &mut impl Outbox) -> Result<(), SendError> {
        if !matches!(self.traffic, Traffic::Payloads) {
            return Err(SendError::WrongTraffic);
        }
        Ok(self.netcode.send(payload, now, outbox)?)
    }

    /// Sends an acknowledged packet, in fragments if it is large, and returns its number.
    ///
    /// # Errors
    /// - `Gone` when the client is not connected.
    /// - `Empty` or `TooLarge` when the packet has no bytes or exceeds the endpoint's limit.
    /// - `Backlogged` when the path can carry no more now or the outbox is full.
    /// - `WrongTraffic` unless the traffic is packets.
    pub fn send_packet(
        &mut self,
        payload: &[u8],
        now: Instant,
        outbox: &mut impl Outbox,
    ) -> Result<Sequence, SendError> {
        if !matches!(self.traffic, Traffic::Packets(_)) {
            return Err(SendError::WrongTraffic);
        }
        let Some(ClientProtocol::Packets(packets)) = &mut self.protocol else { return Err(SendError::Gone) };
        self.deadline = Instant::default();
        let mut sink = sink(&mut self.netcode, now, outbox, &mut self.buf);
        packets.send(payload, now, &mut sink)
    }

    // Time ----------------------------------------------------------------------------------------------------------

    /// Handles the deadlines of netcode and of the protocol.
    pub fn tick(&mut self, now: Instant) {
        self.drained_at = now;
        self.netcode.tick(now);
        self.sync_with_netcode();
        if self.deadline > now {
            return;
        }
        if let Some(protocol) = &mut self.protocol {
            protocol.tick(now);
        }
    }

    /// Sends what is due until nothing is or the outbox is full; the rest leaves with the next call.
    pub fn transmit(&mut self, now: Instant, outbox: &mut impl Outbox) {
        self.netcode.transmit(now, outbox);
        if self.deadline <= now {
            self.transmit_protocol(now, outbox);
        }
    }

    fn transmit_protocol(&mut self, now: Instant, outbox: &mut impl Outbox) {
        let Self { netcode, protocol, buf, .. } = self;
        let Some(protocol) = protocol else {
            (self.deadline, self.sleep_until) = (Instant::NEVER, Instant::NEVER);
            return;
        };
        if let (Some(connection), Some(at)) = (protocol.connection_mut(), netcode.last_received_at()) {
            connection.on_received(at);
        }
        let is_full = {
            let mut sink = sink(netcode, now, outbox, buf);
            protocol.transmit_within(u64::MAX, now, &mut sink);
            sink.is_full
        };
        // The rest leaves with the next call, without a pause.
        if is_full {
            self.deadline = Instant::default();
            return;
        }
        if protocol.connection().is_some_and(Connection::is_closed) {
            // The session has nothing left to send: netcode's disconnect packets end the connection.
            self.netcode.disconnect();
            self.sync_with_netcode();
            self.netcode.transmit(now, outbox);
            return;
        }
        (self.deadline, self.sleep_until) = next_visit(protocol, now);
    }

    /// Returns when the client has something to do, if nothing arrives before: wake up then.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        // A default deadline means work that is due now.
        let protocol = if self.deadline == Instant::default() { self.deadline } else { self.sleep_until };
        let protocol = Some(protocol).filter(|_| self.deadline != Instant::NEVER);
        self.netcode.next_deadline().into_iter().chain(protocol).min()
    }

    /// Returns whether more waits to leave at once than the outbox could take.
    #[must_use]
    #[inline]
    pub fn has_unsent_packets(&self) -> bool {
        self.netcode.has_unsent_packets() || self.deadline == Instant::default()
    }

    // State ---------------------------------------------------------------------------------------------------------

    /// Returns the connection, where traffic is on channels and the client is connected.
    #[must_use]
    #[inline]
    pub fn connection(&self) -> Option<&Connection> {
        self.protocol.as_ref()?.connection()
    }

    /// Returns the connection to send messages and transfers, and visits it in this tick. They leave with the next
    /// [`transmit`](Self::transmit) that the path allows.
    ///
    /// # Errors
    /// - `Gone` when the client is not connected, or its connection is closed or closing.
    /// - `WrongTraffic` unless the traffic is on channels.
    #[inline]
    pub fn connection_mut(&mut self) -> Result<&mut Connection, SendError> {
        if !matches!(self.traffic, Traffic::Channels(..)) {
            return Err(SendError::WrongTraffic);
        }
        let connection = self.wake().filter(|connection| connection.close_reason().is_none());
        connection.ok_or(SendError::Gone)
    }

    /// Returns the connection, also while it closes, and visits it in this tick.
    #[inline]
    fn wake(&mut self) -> Option<&mut Connection> {
        self.deadline = Instant::default();
        self.protocol.as_mut()?.connection_mut()
    }

    /// Returns what may leave now; ask before composing a tick. `None` for plain payloads, and while the client is not
    /// connected.
    #[must_use]
    pub fn budget(&self, now: Instant) -> Option<Budget> {
        self.protocol.as_ref()?.budget(now)
    }

    /// Returns the measurements of the path; `None` as for [`budget`](Self::budget).
    #[must_use]
    pub fn path(&self, now: Instant) -> Option<PathStats> {
        self.protocol.as_ref()?.stats(now)
    }

    /// Leaves with a code and a text for people of up to 256 bytes. They are repeated until the server has
    /// acknowledged them or `close_timeout` has passed; then `Ended` is reported. Codes that are not an
    /// application's ([`CloseCode`]) count as 0.
    ///
    /// Without channels the client leaves at once, and code and text are not sent.
    pub fn leave(&mut self, code: CloseCode, text: &str) {
        match self.wake() {
            Some(connection) => connection.close(code, text),
            None => self.disconnect(),
        }
    }

    /// Leaves at once: ten disconnect packets are sent with the next [`transmit`](Self::transmit). A redirect whose
    /// event is not taken yet is an end.
    pub fn disconnect(&mut self) {
        if let Some(event) = self.events.back_mut()
            && let ClientSessionEvent::Redirected { reason, .. } = event
        {
            *event = ClientSessionEvent::Ended { reason: reason.clone() };
        }
        self.netcode.disconnect();
        self.sync_with_netcode();
    }
}

/// Returns when the protocol is visited next, and until when a program may sleep.
fn next_visit(protocol: &ClientProtocol, now: Instant) -> (Instant, Instant) {
    // Data that could not leave now is tried again a little later, not at once.
    let later = |at: Instant| at.max(now.after(MIN_WAIT));
    (later(protocol.next_deadline(Duration::ZERO, now)), later(protocol.next_deadline(SLEEPERS_TICK, now)))
}

/// Returns the sink of the client's packets.
fn sink<'a, O: Outbox>(
    netcode: &'a mut NetcodeClient,
    now: Instant,
    outbox: &'a mut O,
    buf: &'a mut [u8; MAX_PAYLOAD_BYTES],
) -> SealingSink<'a, O, impl FnMut(&[u8], &mut O) -> bool + 'a> {
    SealingSink::new(outbox, buf, 1, move |payload: &[u8], outbox: &mut O| netcode.send(payload, now, outbox).is_ok())
}

fn poll_protocol(protocol: &mut ClientProtocol) -> Option<ClientSessionEvent> {
    match protocol {
        ClientProtocol::Payloads(_) => None,
        ClientProtocol::Packets(packets) => packets.poll_event().map(ClientSessionEvent::Packet),
        ClientProtocol::Channels(connection) => connection.poll_event().map(ClientSessionEvent::Channel),
    }
}

/// Returns whether a redirect counts at this end: the server has ended a connection without a fault.
const fn is_redirectable(kind: CloseKind) -> bool {
    matches!(kind, CloseKind::ServerStopped | CloseKind::Kicked | CloseKind::DisconnectedByServer)
}

/// Returns netcode's reason as the session reports it.
fn from_netcode(reason: EndReason) -> CloseReason {
    let (by, kind) = match reason {
        EndReason::Left => (ClosedBy::Local, CloseKind::Left),
        EndReason::TimedOut => (ClosedBy::Netcode, CloseKind::TimedOut),
        EndReason::ResponseTimedOut => (ClosedBy::Netcode, CloseKind::ResponseTimedOut),
        EndReason::RequestTimedOut => (ClosedBy::Netcode, CloseKind::RequestTimedOut),
        EndReason::Denied => (ClosedBy::Remote, CloseKind::Denied),
        EndReason::TokenExpired => (ClosedBy::Netcode, CloseKind::TokenExpired),
        EndReason::InvalidToken => (ClosedBy::Local, CloseKind::InvalidToken),
        // The server may have reported a reason to the session; then the session replaces this reason.
        _ => (ClosedBy::Remote, CloseKind::DisconnectedByServer),
    };
    CloseReason::from_netcode(by, kind)
}

/// Returns the standard's state after a connection ended for this reason.
const fn state_after(kind: CloseKind) -> ClientState {
    match kind {
        CloseKind::TimedOut => ClientState::TimedOut,
        CloseKind::ResponseTimedOut => ClientState::ResponseTimedOut,
        CloseKind::RequestTimedOut => ClientState::RequestTimedOut,
        CloseKind::Denied => ClientState::Denied,
        CloseKind::TokenExpired => ClientState::TokenExpired,
        CloseKind::InvalidToken => ClientState::InvalidToken,
        // The standard knows no reasons of the session layer: all of them are a clean end.
        _ => ClientState::Disconnected,
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn players_read_one_text_for_one_reason() {
        for reason in EndReason::ALL {
            assert_eq!(from_netcode(reason).to_string(), reason.to_string(), "{reason:?}");
        }
    }

    #[test]
    fn the_state_after_netcodes_reasons_is_netcodes() {
        for reason in EndReason::ALL {
            assert_eq!(state_after(from_netcode(reason).kind), ClientState::from(reason), "{reason:?}");
        }
    }
}
