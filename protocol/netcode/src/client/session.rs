//! One use of one connect token, from the first request to the end.
//!
//! All servers of the token share its keys, so one lane of sequence numbers from the client serves the whole attempt.
//! The token's lifetime limits the whole attempt, too.

use core::net::SocketAddr;
use core::time::Duration;

use super::state::{ClientState, EndReason};
use super::token_name::TokenName;
use crate::address::{Address, is_dialable};
use crate::crypto::aead::packets::PreparedKey;
use crate::crypto::lane::{self, Lane};
use crate::crypto::packet::PacketCipher;
use crate::crypto::replay::ReplayWindow;
use crate::discard::Discard;
use crate::ids::PacketNumber;
use crate::time::Instant;
use crate::timing::{DISCONNECT_PACKETS, SEND_INTERVAL, TimeoutPolicy};
use crate::token::ConnectToken;
use crate::wire::cursor::Writer;
use crate::wire::packet::{Challenge, KeepAlive, PacketHeader, PacketKind, REQUEST_PREFIX};
use crate::wire::{MAX_SERVERS_PER_TOKEN, TAG_BYTES};
use crate::{Outbox, Payload, PayloadError, SealError, SealHalf};

/// The time between two ticks after which the program was asleep: stopped, or starved by other programs.
const ASLEEP: Duration = Duration::from_secs(1);

/// The time after the program's own sleep until a packet of the server must arrive: ten of its keep-alives.
const GRACE_AFTER_SLEEP: Duration = Duration::from_secs(1);

/// The number of challenges of one server that are remembered after the first one.
const NEWER_CHALLENGES: usize = 16;

/// The effect of a handled datagram.
pub(super) enum Handled<'d> {
    Nothing,
    Payload(Payload<'d>),
    Connected,
    Ended(EndReason),
}

/// The progress of a session.
#[expect(clippy::large_enum_variant, reason = "a session is boxed as a whole, so a second box would save nothing")]
enum SessionStep {
    Requesting,
    Responding(Challenge),
    Connected(KeepAlive),
    /// Disconnecting, with the number of disconnect packets to send.
    Leaving(u8),
}

pub(super) struct TokenSession {
    name: TokenName,
    token: ConnectToken,
    cipher: PacketCipher,
    client_to_server: PreparedKey,
    server_to_client: PreparedKey,
    timeout: Option<Duration>,
    lane: Lane,
    /// Whether packets were sealed with the token's key. No other session may use the token then.
    has_sealed: bool,
    started: Instant,
    server_index: usize,
    server: Address,
    /// The servers to which a packet can be sent, as one bit for each index in the token's list.
    dialable: u32,
    /// The tags of accepted handshake packets, which the replay window does not protect. All servers of the token share
    /// its keys, so an attacker could replay one server's denial under another server's address.
    handshake: HandshakeTags,
    window: ReplayWindow,
    step: SessionStep,
    last_receive: Instant,
    /// The time of the last tick. After a longer time without one, the program was asleep.
    last_tick: Instant,
    /// No timeout ends the connection before this moment.
    no_timeout_before: Instant,
    /// The number of packets that were sent since the first challenge.
    responses: u32,
    /// When the next request, response or keep-alive is due.
    next_send: Instant,
}

impl TokenSession {
    /// Starts with the first server that can be dialled. Returns `None` if there is none.
    pub(super) fn start(
        token: ConnectToken,
        timeouts: TimeoutPolicy,
        now: Instant,
        is_reachable: impl Fn(Address) -> bool,
    ) -> Option<Self> {
        let dialable = dialable_servers(&token, is_reachable);
        let (server_index, server) = next_server(&token, dialable, 0)?;
        let keys = token.keys();
        Some(Self {
            name: TokenName::from(&token),
            cipher: PacketCipher::new(token.facts().protocol_id),
            client_to_server: keys.client_to_server.into(),
            server_to_client: keys.server_to_client.into(),
            timeout: timeouts.apply(token.facts().timeout_seconds),
            lane: Lane::client(),
            has_sealed: false,
            started: now,
            server_index,
            server,
            dialable,
            handshake: HandshakeTags::default(),
            window: ReplayWindow::default(),
            step: SessionStep::Requesting,
            last_receive: now,
            last_tick: now,
            no_timeout_before: now,
            responses: 0,
            next_send: now,
            token,
        })
    }

    pub(super) const fn name(&self) -> TokenName {
        self.name
    }

    /// Returns whether packets were sealed. Another session with this token would reuse the sequence numbers.
    pub(super) const fn has_sealed(&self) -> bool {
        self.has_sealed
    }

    pub(super) const fn server(&self) -> Address {
        self.server
    }

    pub(super) fn state(&self) -> ClientState {
        match self.step {
            SessionStep::Requesting => ClientState::SendingRequest,
            SessionStep::Responding(_) => ClientState::SendingResponse,
            SessionStep::Connected(_) => ClientState::Connected,
            SessionStep::Leaving(_) => ClientState::Disconnected,
        }
    }

    /// Returns the server's first keep-alive, while connected.
    pub(super) fn slot_info(&self) -> Option<KeepAlive> {
        match self.step {
            SessionStep::Connected(slot_info) => Some(slot_info),
            _ => None,
        }
    }

    /// Handles a datagram in the order of §1.8. Only packets of the current server are accepted.
    pub(super) fn handle<'d>(
        &mut self,
        from: Address,
        datagram: &'d mut [u8],
        now: Instant,
    ) -> Result<Handled<'d>, Discard> {
        self.check_sender(from, datagram)?;
        let header = PacketHeader::parse(datagram, PacketKind::TO_CLIENT)?;
        // Copied before the decryption in place overwrites it.
        let tag = datagram.last_chunk::<TAG_BYTES>().copied().ok_or(Discard::TooShort)?;
        if self.handshake.contains(&tag) || self.is_of_another_server(&header) {
            return Err(Discard::Replayed);
        }
        // The cheap checks are done, decryption comes last.
        let content = self.cipher.open_fresh(&self.server_to_client, &mut self.window, &header, datagram)?;
        self.on_opened(&header, &tag, content, now)
    }

    /// Checks the first byte and the source of a datagram.
    #[inline]
    fn check_sender(&self, from: Address, datagram: &[u8]) -> Result<(), Discard> {
        // The address is not proof of the sender, but a cheap filter before the decryption.
        match datagram.first() {
            None => Err(Discard::Empty),
            Some(&REQUEST_PREFIX) => Err(Discard::UnexpectedType),
            Some(_) if from != self.server => Err(Discard::UnknownSender),
            Some(_) => Ok(()),
        }
    }

    /// Handles an authentic packet.
    #[inline]
    fn on_opened<'d>(
        &mut self,
        header: &PacketHeader,
        tag: &[u8; TAG_BYTES],
        content: &'d [u8],
        now: Instant,
    ) -> Result<Handled<'d>, Discard> {
        match (header.kind, &self.step) {
            (PacketKind::Payload, SessionStep::Connected(_)) => {
                self.on_received(now);
                Ok(Handled::Payload(Payload { sequence: PacketNumber(header.sequence), bytes: content }))
            }
            (PacketKind::KeepAlive, SessionStep::Connected(_)) => {
                self.on_received(now);
                Ok(Handled::Nothing)
            }
            // DECISION: a disconnect is final, even if the token lists more servers. The reference tries the next
            // server with the same keys, although the server ended the connection on purpose.
            (PacketKind::Disconnect, SessionStep::Connected(_)) => Ok(Handled::Ended(self.disconnect_reason(now))),
            _ => self.on_handshake_packet(header.kind, tag, content, now),
        }
    }

    /// Returns why the server has ended the connection. It has timed this client out if the program was asleep until
    /// its last packet was as old as the timeout.
    fn disconnect_reason(&self, now: Instant) -> EndReason {
        let slept = now.since(self.last_tick);
        match self.timeout {
            Some(timeout) if slept > ASLEEP && slept.saturating_add(SEND_INTERVAL) >= timeout => EndReason::TimedOut,
            _ => EndReason::DisconnectedByServer,
        }
    }

    /// Restarts the timeout because an authentic packet was read.
    #[inline]
    fn on_received(&mut self, now: Instant) {
        if now.since(self.last_tick) <= ASLEEP {
            self.last_receive = now;
            return;
        }
        // The program was asleep, and the packet may have waited in the socket since then. The server may have ended
        // the connection meanwhile, so a new packet must follow soon.
        self.last_receive = self.last_receive.max(self.last_tick);
        self.no_timeout_before = now.after(GRACE_AFTER_SLEEP);
    }

    /// Handles an authentic packet that only a session without a slot expects.
    fn on_handshake_packet<'d>(
        &mut self,
        kind: PacketKind,
        tag: &[u8; TAG_BYTES],
        content: &[u8],
        now: Instant,
    ) -> Result<Handled<'d>, Discard> {
        match (kind, &self.step) {
            (PacketKind::Denied, SessionStep::Requesting | SessionStep::Responding(_)) => {
                // Recorded by its tag: the replay window does not cover handshake packets (§1.8).
                self.handshake.insert(*tag);
                Ok(self.try_next_server(now).map_or(Handled::Ended(EndReason::Denied), |()| Handled::Nothing))
            }
            (PacketKind::Challenge, SessionStep::Requesting) => {
                let challenge = Challenge::parse(content).ok_or(Discard::ContentSize)?;
                self.handshake.insert(*tag);
                self.step = SessionStep::Responding(challenge);
                (self.last_receive, self.responses) = (now, 0);
                // DECISION: the response is sent at once. The reference waits for its next 10 Hz slot.
                self.next_send = now;
                Ok(Handled::Nothing)
            }
            // The reply to a repeated request. The server may have forgotten the client since the last challenge. The
            // timeout does not restart: a server that only challenges must not hold the client for ever.
            (PacketKind::Challenge, SessionStep::Responding(_)) => {
                let challenge = Challenge::parse(content).ok_or(Discard::ContentSize)?;
                self.handshake.insert_newer(*tag);
                self.step = SessionStep::Responding(challenge);
                Ok(Handled::Nothing)
            }
            (PacketKind::KeepAlive, SessionStep::Responding(_)) => {
                let slot_info = KeepAlive::parse(content).ok_or(Discard::ContentSize)?;
                // A hostile server must not hand the game an index beyond its own tables.
                if slot_info.client_index.0 >= slot_info.max_clients {
                    return Err(Discard::SlotOutOfRange);
                }
                self.step = SessionStep::Connected(slot_info);
                self.last_receive = now;
                // The first keep-alive confirms the slot. Until it arrives, the server sends one before each payload.
                self.next_send = now;
                Ok(Handled::Connected)
            }
            // No other kind has a meaning in the present step.
            _ => Err(Discard::WrongState),
        }
    }

    /// Returns whether a slot's packet has a sequence number of another server's lane, so that it was recorded there
    /// and replayed here.
    ///
    /// Slipgate's servers seal in the lane of their index in the token's list. Servers of other libraries count from 0,
    /// so lane 0 proves nothing.
    fn is_of_another_server(&self, header: &PacketHeader) -> bool {
        if !header.kind.is_replay_protected() {
            return false;
        }
        let Some(index) = lane::slot_lane(header.sequence).filter(|index| *index > 0) else { return false };
        let listed = self.token.facts().servers.get(index).copied().map(Address::from);
        listed.is_some_and(|server| server != self.server)
    }

    /// Handles timeouts: tries the next server, or returns the reason for which the session ends.
    pub(super) fn tick(&mut self, now: Instant) -> Option<EndReason> {
        self.last_tick = now;
        let connecting = !matches!(self.step, SessionStep::Connected(_));
        // The token's lifetime does not limit an established connection.
        if connecting && now >= self.token_deadline() {
            return Some(EndReason::TokenExpired);
        }
        if now < self.silence_deadline() {
            return None;
        }
        let timed_out = match self.step {
            SessionStep::Connected(_) | SessionStep::Leaving(_) => return Some(EndReason::TimedOut),
            SessionStep::Requesting => EndReason::RequestTimedOut,
            SessionStep::Responding(_) => EndReason::ResponseTimedOut,
        };
        self.try_next_server(now).is_none().then_some(timed_out)
    }

    /// Returns when the last authentic packet arrived.
    pub(super) const fn last_received_at(&self) -> Instant {
        self.last_receive
    }

    /// Returns the next moment at which the session has work to do without a datagram.
    pub(super) fn next_deadline(&self) -> Instant {
        let end = if matches!(self.step, SessionStep::Connected(_)) { Instant::NEVER } else { self.token_deadline() };
        self.next_send.min(self.silence_deadline()).min(end)
    }

    fn token_deadline(&self) -> Instant {
        let facts = self.token.facts();
        self.started.after(Duration::from_secs(facts.expires.0.saturating_sub(facts.created.0)))
    }

    fn silence_deadline(&self) -> Instant {
        let silence = |timeout| self.last_receive.after(timeout).max(self.no_timeout_before);
        self.timeout.map_or(Instant::NEVER, silence)
    }

    /// Restarts with the token's next server that can be dialled. Returns `None` if there is none.
    fn try_next_server(&mut self, now: Instant) -> Option<()> {
        let (server_index, server) = next_server(&self.token, self.dialable, self.server_index + 1)?;
        (self.server_index, self.server) = (server_index, server);
        // The next server has a lane of its own. The client's lane continues, because the servers share the key.
        self.window = ReplayWindow::default();
        self.step = SessionStep::Requesting;
        (self.last_receive, self.next_send) = (now, now);
        Some(())
    }

    /// Sends the packet that is due, if any.
    pub(super) fn transmit(&mut self, now: Instant, outbox: &mut impl Outbox) {
        // One call sends at most one packet, so a slow caller does not send a burst afterwards.
        if now < self.next_send {
            return;
        }
        let sent = match &self.step {
            SessionStep::Requesting => self.send_request(outbox),
            // The server may have forgotten the client: its table of pending clients is bounded. A request brings a new
            // challenge, and a server that has not forgotten it loses nothing.
            SessionStep::Responding(_) if self.responses % 3 == 2 => self.send_request(outbox),
            SessionStep::Responding(challenge) => {
                let content = challenge.to_bytes();
                self.seal_half().send(PacketKind::Response, &content, outbox).is_ok()
            }
            SessionStep::Connected(_) => {
                self.seal_half().send(PacketKind::KeepAlive, &KeepAlive::default().to_bytes(), outbox).is_ok()
            }
            // `transmit_disconnects` sends these packets.
            SessionStep::Leaving(_) => false,
        };
        if sent {
            self.next_send = now.after(SEND_INTERVAL);
            self.responses = self.responses.wrapping_add(1);
        }
    }

    pub(super) fn send(&mut self, payload: &[u8], now: Instant, outbox: &mut impl Outbox) -> Result<(), PayloadError> {
        if !matches!(self.step, SessionStep::Connected(_)) {
            return Err(PayloadError::Gone);
        }
        match self.seal_half().send(PacketKind::Payload, payload, outbox) {
            Ok(()) => {
                // Every payload replaces a keep-alive.
                self.next_send = now.after(SEND_INTERVAL);
                Ok(())
            }
            Err(SealError::OutboxFull) => Err(PayloadError::Backlogged),
            // After 2^63 packets. The server's timeout would end the connection.
            Err(SealError::LaneExhausted) => Err(PayloadError::Gone),
        }
    }

    /// Starts to disconnect: only disconnect packets are sent from now on.
    pub(super) fn leave(&mut self) {
        self.step = SessionStep::Leaving(DISCONNECT_PACKETS);
    }

    /// Sends disconnect packets until the outbox is full. Returns true when all are sent.
    pub(super) fn transmit_disconnects(&mut self, outbox: &mut impl Outbox) -> bool {
        while let SessionStep::Leaving(left @ 1..) = self.step {
            // An exhausted lane counts as sent: there is no number left for another packet.
            if self.seal_half().send(PacketKind::Disconnect, &[], outbox) == Err(SealError::OutboxFull) {
                return false;
            }
            self.step = SessionStep::Leaving(left - 1);
        }
        true
    }

    /// Writes a connection request. It takes a sequence number that is not sent, as in the reference (§1.14).
    fn send_request(&mut self, outbox: &mut impl Outbox) -> bool {
        let Some(buf) = outbox.next_buf() else { return false };
        let mut writer = Writer::new(buf);
        self.token.request().emit(self.token.facts().protocol_id, &mut writer);
        let Some(bytes) = writer.written() else { return false };
        outbox.commit(self.server, bytes);
        // The request is not sealed, but the reference counts it.
        self.lane.take().is_some()
    }

    /// Returns the sealing half. Each caller seals a packet, so the token counts as used from here on.
    fn seal_half(&mut self) -> SealHalf<'_, PreparedKey> {
        self.has_sealed = true;
        SealHalf { cipher: &self.cipher, key: &self.client_to_server, lane: &mut self.lane, to: self.server }
    }
}

/// Returns the token's servers to which a packet can be sent, as one bit for each of up to 32 indices.
fn dialable_servers(token: &ConnectToken, is_reachable: impl Fn(Address) -> bool) -> u32 {
    let servers = token.facts().servers.iter().enumerate();
    let can_dial = |address: SocketAddr| is_dialable(address) && is_reachable(Address::from(address));
    servers.fold(0, |bits, (index, address)| bits | u32::from(can_dial(*address)) << index)
}

/// Returns the first server at index `from` or later in the token's list to which a packet can be sent.
fn next_server(token: &ConnectToken, dialable: u32, from: usize) -> Option<(usize, Address)> {
    let servers = token.facts().servers.iter().enumerate().skip(from);
    let mut rest = servers.filter(|(index, _)| dialable >> index & 1 == 1);
    rest.next().map(|(index, address)| (index, Address::from(*address)))
}

/// The tags of accepted handshake packets: at most a denial and the first challenge for each server of a token, and the
/// last of the newer challenges.
struct HandshakeTags {
    tags: [[u8; TAG_BYTES]; 2 * MAX_SERVERS_PER_TOKEN],
    count: usize,
    /// A ring. A replayed challenge that is older costs one response, until the server's next challenge.
    newer: [[u8; TAG_BYTES]; NEWER_CHALLENGES],
    next_newer: usize,
}

impl Default for HandshakeTags {
    fn default() -> Self {
        let none = [0; TAG_BYTES];
        Self { tags: [none; 2 * MAX_SERVERS_PER_TOKEN], count: 0, newer: [none; NEWER_CHALLENGES], next_newer: 0 }
    }
}

impl HandshakeTags {
    fn contains(&self, tag: &[u8; TAG_BYTES]) -> bool {
        self.tags.iter().take(self.count).chain(&self.newer).any(|seen| seen == tag)
    }

    fn insert(&mut self, tag: [u8; TAG_BYTES]) {
        if let Some(entry) = self.tags.get_mut(self.count) {
            *entry = tag;
            self.count += 1;
        }
    }

    fn insert_newer(&mut self, tag: [u8; TAG_BYTES]) {
        if let Some(entry) = self.newer.get_mut(self.next_newer) {
            *entry = tag;
        }
        self.next_newer = (self.next_newer + 1) % NEWER_CHALLENGES;
    }
}
