//! One use of one connect token: from the first request to the end.
//!
//! Client to server there is one lane of sequence numbers for the whole attempt, over all servers, because they share
//! the key. The token's lifetime counts over the whole attempt, too.

use core::net::SocketAddr;
use core::time::Duration;

use super::TokenName;
use super::state::{ClientState, EndReason};
use crate::address::{Address, is_dialable};
use crate::crypto::aead::packets::Kept;
use crate::crypto::lane::{self, Lane};
use crate::crypto::packet::PacketCipher;
use crate::crypto::replay::ReplayWindow;
use crate::discard::Discard;
use crate::time::Instant;
use crate::timing::{DISCONNECT_PACKETS, SEND_INTERVAL, TimeoutPolicy};
use crate::token::ConnectToken;
use crate::wire::cursor::Writer;
use crate::wire::packet::{Challenge, Header, KeepAlive, PacketKind, REQUEST_PREFIX, Request};
use crate::wire::{MAX_SERVERS_PER_TOKEN, TAG_BYTES};
use crate::{Outbox, Payload, PayloadError, SealHalf, Unsent};

/// What a datagram meant.
pub(super) enum Heard<'d> {
    Nothing,
    Payload(Payload<'d>),
    Connected,
    Ended(EndReason),
}

/// How far the session has come; each step holds what it learned.
#[expect(clippy::large_enum_variant, reason = "one session lies in one box; a second box would save nothing")]
enum Step {
    Requesting,
    Responding(Challenge),
    Connected(KeepAlive),
    /// On the way out: so many disconnect packets are still to leave.
    Leaving(u8),
}

pub(super) struct Session {
    name: TokenName,
    token: ConnectToken,
    cipher: PacketCipher,
    client_to_server: Kept,
    server_to_client: Kept,
    timeout: Option<Duration>,
    lane: Lane,
    /// Something was sealed under the token's key, so that no other session may start its lane anew.
    has_sealed: bool,
    began: Instant,
    server_index: usize,
    server: Address,
    /// The servers to which a packet can be sent, a bit for each.
    dialable: u32,
    /// The tags of handshake packets that were taken: all servers of the token seal under one key, so one server's
    /// denial would be believed when it is replayed in another's name. The replay window does not guard these.
    handshake: HandshakeTags,
    window: ReplayWindow,
    step: Step,
    last_receive: Instant,
    /// When something is to be sent at the latest: a request, a response, a keep-alive.
    next_send: Instant,
}

impl Session {
    /// Begins with the first server that can be dialled, or answers `None` if there is none.
    pub(super) fn begin(
        token: ConnectToken,
        timeouts: TimeoutPolicy,
        now: Instant,
        reaches: impl Fn(Address) -> bool,
    ) -> Option<Self> {
        let dialable = dialable(&token, reaches);
        let (server_index, server) = next_server(&token, dialable, 0)?;
        Some(Self {
            name: super::name(&token),
            cipher: PacketCipher::new(token.facts().protocol_id),
            client_to_server: token.client_to_server_key().into(),
            server_to_client: token.server_to_client_key().into(),
            timeout: timeouts.apply(token.facts().timeout_seconds),
            lane: Lane::client(),
            has_sealed: false,
            began: now,
            server_index,
            server,
            dialable,
            handshake: HandshakeTags::default(),
            window: ReplayWindow::default(),
            step: Step::Requesting,
            last_receive: now,
            next_send: now,
            token,
        })
    }

    pub(super) const fn name(&self) -> TokenName {
        self.name
    }

    /// Whether the token is used up: another session with it would seal under the same sequence numbers.
    pub(super) const fn has_sealed(&self) -> bool {
        self.has_sealed
    }

    pub(super) const fn server(&self) -> Address {
        self.server
    }

    pub(super) fn state(&self) -> ClientState {
        match self.step {
            Step::Requesting => ClientState::SendingRequest,
            Step::Responding(_) => ClientState::SendingResponse,
            Step::Connected(_) => ClientState::Connected,
            Step::Leaving(_) => ClientState::Disconnected,
        }
    }

    pub(super) fn seat(&self) -> Option<KeepAlive> {
        match self.step {
            Step::Connected(seat) => Some(seat),
            _ => None,
        }
    }

    /// Handles a datagram in the order of §1.8; only the server that is tried or connected is listened to.
    pub(super) fn handle<'d>(
        &mut self,
        from: Address,
        datagram: &'d mut [u8],
        now: Instant,
    ) -> Result<Heard<'d>, Discard> {
        match datagram.first() {
            None => return Err(Discard::Empty),
            Some(&REQUEST_PREFIX) => return Err(Discard::UnexpectedType),
            Some(_) if from != self.server => return Err(Discard::UnknownSender),
            Some(_) => {}
        }
        let header = Header::parse(datagram, PacketKind::TO_CLIENT)?;
        let tag = datagram.last_chunk::<TAG_BYTES>().copied().ok_or(Discard::TooShort)?;
        if self.handshake.contains(&tag) || self.is_of_another_server(&header) {
            return Err(Discard::Replayed);
        }
        let content = self.cipher.open_fresh(&self.server_to_client, &mut self.window, &header, datagram)?;
        match (header.kind, &self.step) {
            (PacketKind::Denied, Step::Requesting | Step::Responding(_)) => {
                self.handshake.note(tag);
                Ok(self.try_next_server(now).map_or(Heard::Ended(EndReason::Denied), |()| Heard::Nothing))
            }
            (PacketKind::Challenge, Step::Requesting) => {
                let challenge = Challenge::parse(content).ok_or(Discard::ContentSize)?;
                self.handshake.note(tag);
                self.step = Step::Responding(challenge);
                self.last_receive = now;
                // DECISION: the response leaves at once. The reference waits for its next 10 Hz slot.
                self.next_send = now;
                Ok(Heard::Nothing)
            }
            (PacketKind::KeepAlive, Step::Responding(_)) => {
                let seat = KeepAlive::parse(content).ok_or(Discard::ContentSize)?;
                self.step = Step::Connected(seat);
                self.last_receive = now;
                // The first keep-alive confirms the slot: until the server has it, it sends one before each payload.
                self.next_send = now;
                Ok(Heard::Connected)
            }
            (PacketKind::KeepAlive, Step::Connected(_)) => {
                self.last_receive = now;
                Ok(Heard::Nothing)
            }
            (PacketKind::Payload, Step::Connected(_)) => {
                self.last_receive = now;
                Ok(Heard::Payload(Payload { sequence: header.sequence, bytes: content }))
            }
            // DECISION: final, whatever servers the token still lists. The reference goes on to the next one, under the
            // same keys, although the server meant it.
            (PacketKind::Disconnect, Step::Connected(_)) => Ok(Heard::Ended(EndReason::DisconnectedByServer)),
            _ => Err(Discard::WrongState),
        }
    }

    /// Whether a packet of a slot was sealed in the lane of another server of the token: recorded there, replayed here.
    ///
    /// Servers of ours seal in the lane of their place in the token's list. Others all count from 0, so that lane says
    /// nothing.
    fn is_of_another_server(&self, header: &Header) -> bool {
        if !header.kind.is_replay_protected() {
            return false;
        }
        let Some(place) = lane::slot_lane(header.sequence).filter(|place| *place > 0) else { return false };
        let listed = self.token.facts().servers.as_slice().get(place).copied().map(Address::from);
        listed.is_some_and(|server| server != self.server)
    }

    /// What the time that passed means: nothing, the next server, or the end.
    pub(super) fn tick(&mut self, now: Instant) -> Option<EndReason> {
        let connecting = !matches!(self.step, Step::Connected(_));
        if connecting && now >= self.token_end() {
            return Some(EndReason::TokenExpired);
        }
        if now < self.silence_end() {
            return None;
        }
        let timed_out = match self.step {
            Step::Connected(_) | Step::Leaving(_) => return Some(EndReason::TimedOut),
            Step::Requesting => EndReason::RequestTimedOut,
            Step::Responding(_) => EndReason::ResponseTimedOut,
        };
        self.try_next_server(now).is_none().then_some(timed_out)
    }

    /// When something authentic arrived last.
    pub(super) const fn heard_at(&self) -> Instant {
        self.last_receive
    }

    /// When this session has something to do of its own.
    pub(super) fn next_deadline(&self) -> Instant {
        let end = if matches!(self.step, Step::Connected(_)) { Instant::NEVER } else { self.token_end() };
        self.next_send.min(self.silence_end()).min(end)
    }

    fn token_end(&self) -> Instant {
        let facts = self.token.facts();
        self.began.after(Duration::from_secs(facts.expires.0.saturating_sub(facts.created.0)))
    }

    fn silence_end(&self) -> Instant {
        self.timeout.map_or(Instant::NEVER, |timeout| self.last_receive.after(timeout))
    }

    /// Begins anew with the token's next server that can be dialled, or answers `None` if there is none.
    fn try_next_server(&mut self, now: Instant) -> Option<()> {
        let (server_index, server) = next_server(&self.token, self.dialable, self.server_index + 1)?;
        (self.server_index, self.server) = (server_index, server);
        self.window = ReplayWindow::default();
        self.step = Step::Requesting;
        (self.last_receive, self.next_send) = (now, now);
        Some(())
    }

    /// Sends what is due.
    pub(super) fn transmit(&mut self, now: Instant, outbox: &mut impl Outbox) {
        if now < self.next_send {
            return;
        }
        let sent = match &self.step {
            Step::Requesting => self.send_request(outbox),
            Step::Responding(challenge) => {
                let content = challenge.to_bytes();
                self.seal_half().send(PacketKind::Response, &content, outbox).is_ok()
            }
            Step::Connected(_) => {
                self.seal_half().send(PacketKind::KeepAlive, &KeepAlive::default().to_bytes(), outbox).is_ok()
            }
            Step::Leaving(_) => false,
        };
        if sent {
            self.next_send = now.after(SEND_INTERVAL);
        }
    }

    pub(super) fn send(&mut self, payload: &[u8], now: Instant, outbox: &mut impl Outbox) -> Result<(), PayloadError> {
        if !matches!(self.step, Step::Connected(_)) {
            return Err(PayloadError::Gone);
        }
        match self.seal_half().send(PacketKind::Payload, payload, outbox) {
            Ok(()) => {
                self.next_send = now.after(SEND_INTERVAL);
                Ok(())
            }
            Err(Unsent::NoRoom) => Err(PayloadError::Backlogged),
            // 2^63 packets: not in this universe, and the server's time-out would end it.
            Err(Unsent::LaneUsedUp) => Err(PayloadError::Gone),
        }
    }

    /// The session owes its disconnect packets and nothing else.
    pub(super) fn leave(&mut self) {
        self.step = Step::Leaving(DISCONNECT_PACKETS);
    }

    /// Sends disconnect packets until all are out (then answers true) or the outbox is full.
    pub(super) fn transmit_farewell(&mut self, outbox: &mut impl Outbox) -> bool {
        while let Step::Leaving(left @ 1..) = self.step {
            if self.seal_half().send(PacketKind::Disconnect, &[], outbox) == Err(Unsent::NoRoom) {
                return false;
            }
            self.step = Step::Leaving(left - 1);
        }
        true
    }

    /// Writes a connection request. It uses up a sequence number without showing it, as in the reference (§1.14).
    fn send_request(&mut self, outbox: &mut impl Outbox) -> bool {
        let Some(room) = outbox.room() else { return false };
        let (nonce, sealed) = (self.token.nonce(), self.token.sealed_private_part());
        let facts = self.token.facts();
        let request = Request { expires: facts.expires, nonce: &nonce, sealed: &sealed };
        let mut writer = Writer::new(room);
        request.emit(facts.protocol_id, &mut writer);
        let Some(bytes) = writer.written() else { return false };
        outbox.commit(self.server, bytes);
        self.lane.take().is_some()
    }

    fn seal_half(&mut self) -> SealHalf<'_, Kept> {
        self.has_sealed = true;
        SealHalf { cipher: &self.cipher, key: &self.client_to_server, lane: &mut self.lane, to: self.server }
    }
}

/// The places of the token's servers to which a packet can be sent, a bit for each of 32.
fn dialable(token: &ConnectToken, reaches: impl Fn(Address) -> bool) -> u32 {
    let servers = token.facts().servers.as_slice().iter().enumerate();
    let can_dial = |address: SocketAddr| is_dialable(address) && reaches(Address::from(address));
    servers.fold(0, |bits, (place, address)| bits | u32::from(can_dial(*address)) << place)
}

/// The first server from place `from` on in the token's list to which a packet can be sent.
fn next_server(token: &ConnectToken, dialable: u32, from: usize) -> Option<(usize, Address)> {
    let servers = token.facts().servers.as_slice().iter().enumerate().skip(from);
    let mut rest = servers.filter(|(place, _)| dialable >> place & 1 == 1);
    rest.next().map(|(place, address)| (place, Address::from(*address)))
}

/// The tags of the last handshake packets that were taken: two for each of a token's servers.
struct HandshakeTags {
    tags: [[u8; TAG_BYTES]; 2 * MAX_SERVERS_PER_TOKEN],
    count: usize,
}

impl Default for HandshakeTags {
    fn default() -> Self {
        Self { tags: [[0; TAG_BYTES]; 2 * MAX_SERVERS_PER_TOKEN], count: 0 }
    }
}

impl HandshakeTags {
    fn contains(&self, tag: &[u8; TAG_BYTES]) -> bool {
        self.tags.iter().take(self.count).any(|seen| seen == tag)
    }

    fn note(&mut self, tag: [u8; TAG_BYTES]) {
        if let Some(home) = self.tags.get_mut(self.count) {
            *home = tag;
            self.count += 1;
        }
    }
}
