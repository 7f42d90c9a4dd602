//! The client put together: netcode's client, and what its payloads carry.
//!
//! The line begins when a server gives a slot, and ends with the connection.

mod event;
mod sink;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

pub use self::event::{Event, Message, Received};

use self::sink::ServerSink;
use crate::channel::block::{Block, BlockId};
use crate::channel::control::ByeCode;
use crate::channel::{ChannelId, SendOptions};
use crate::session::{Budget, ConfigError, Connection, End, Line, PathStats, Place, SendError, Traffic};
use crate::wire::reliable::Sequence;
use slipgate_netcode::Outbox;
use slipgate_netcode::address::Address;
use slipgate_netcode::client::{self as netcode, ConnectError, EndReason};
use slipgate_netcode::discard::Discard;
use slipgate_netcode::time::Instant;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;

/// The line is not looked at more often for its own sake.
const LEAST_WAIT: Duration = Duration::from_millis(1);
/// A program that sleeps until it has something to do ends a turn when it wakes, which is a tick: for what only waits for a
/// channel's bytes per tick it wakes as often as a game of 60 ticks a second.
const SLEEPERS_TICK: Duration = Duration::from_nanos(1_000_000_000 / 60);

/// A client whose payloads carry a [`Traffic`].
pub struct Client {
    netcode: netcode::Client,
    traffic: Traffic,
    line: Option<Line>,
    /// From when on the line is looked at.
    wake: Instant,
    /// Until when a program may sleep, if `wake` is not over already.
    rest: Instant,
    /// Everything that had arrived by then was brought in.
    caught_up_at: Instant,
    /// What is told before the line's own news: comings and goings, and what lines that are gone had to tell.
    events: VecDeque<Event>,
    farewell: Option<String>,
    end: Option<End>,
    room: Box<[u8; MAX_PAYLOAD_BYTES]>,
}

impl Client {
    /// Puts a line upon a client that is not connected; payloads travel as they are until it carries something else.
    #[must_use]
    pub fn new(netcode: netcode::Client) -> Self {
        Self {
            netcode,
            traffic: Traffic::Payloads,
            line: None,
            wake: Instant::NEVER,
            rest: Instant::NEVER,
            caught_up_at: Instant::NEVER,
            events: VecDeque::new(),
            farewell: None,
            end: None,
            room: Box::new([0; MAX_PAYLOAD_BYTES]),
        }
    }

    /// The client beneath.
    #[must_use]
    pub const fn netcode(&self) -> &netcode::Client {
        &self.netcode
    }

    /// The client beneath: to connect it.
    pub const fn netcode_mut(&mut self) -> &mut netcode::Client {
        &mut self.netcode
    }

    /// Says what payloads carry, from the next connection on.
    ///
    /// # Errors
    /// A setting that no connection can run with.
    pub fn set_traffic(&mut self, traffic: Traffic) -> Result<(), ConfigError> {
        traffic.check()?;
        self.traffic = traffic;
        Ok(())
    }

    /// What payloads carry.
    #[must_use]
    pub const fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Begins to connect to the first of the token's servers that gives a slot, passing over those that `reaches` denies.
    /// What the last connection said at its end is forgotten.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect(
        &mut self,
        token: ConnectToken,
        now: Instant,
        reaches: impl Fn(Address) -> bool,
    ) -> Result<(), ConnectError> {
        let began = self.netcode.connect_where(token, now, reaches);
        if began != Err(ConnectError::Busy) {
            (self.farewell, self.end) = (None, None);
        }
        began
    }

    /// Refuses a token that another client of this program has used, as if this one had.
    pub fn refuse_used_token(&mut self) -> ConnectError {
        let error = self.netcode.refuse_used_token();
        if error != ConnectError::Busy {
            (self.farewell, self.end) = (None, None);
        }
        error
    }

    // Receiving -----------------------------------------------------------------------------------------------------

    /// Everything that had arrived by now was brought in: what comes next has waited no longer. A program that sleeps until
    /// a datagram arrives says so when it wakes; to all others [`tick`](Self::tick) is enough.
    pub fn caught_up(&mut self, now: Instant) {
        self.caught_up_at = now;
    }

    /// Brings a datagram in, to be asked for its messages with [`next`](Self::next). It is decrypted where it lies.
    ///
    /// # Errors
    /// Why it was dropped; it has been counted.
    pub fn handle(
        &mut self,
        from: Address,
        datagram: &mut [u8],
        scratch: &mut Vec<u8>,
        now: Instant,
    ) -> Result<Option<Received>, Discard> {
        let base = datagram.as_ptr().addr();
        let result = self.netcode.handle(from, datagram, now);
        let found = result.map(|payload| {
            payload.map(|payload| {
                let start = payload.bytes.as_ptr().addr().wrapping_sub(base);
                (payload.sequence, start..start + payload.bytes.len())
            })
        });
        self.follow();
        let Some((sequence, range)) = found? else { return Ok(None) };
        let payload = datagram.get(range.clone()).unwrap_or_default();
        Ok(self.take(sequence, payload, range.start, scratch, now))
    }

    /// Brings in a payload of a server in the same program; it lies at the start of what [`next`](Self::next) is given.
    pub fn handle_loopback(&mut self, payload: &[u8], scratch: &mut Vec<u8>, now: Instant) -> Option<Received> {
        self.follow();
        self.take(0, payload, 0, scratch, now)
    }

    fn take(
        &mut self,
        sequence: u64,
        payload: &[u8],
        start: usize,
        scratch: &mut Vec<u8>,
        now: Instant,
    ) -> Option<Received> {
        self.wake = Instant::default();
        let whole = start..start + payload.len();
        let unread = now.since(self.caught_up_at);
        match self.line.as_mut()? {
            Line::Payloads => {
                let message = Message::Payload { sequence, place: Place::Datagram(whole) };
                Some(Received::Message(Some(message)))
            }
            Line::Packets(packets) => {
                let arrived = packets.handle(payload, scratch, now).ok().flatten()?;
                let place = arrived.place.shifted(start);
                Some(Received::Message(Some(Message::Packet { sequence: arrived.sequence, place })))
            }
            Line::Channels(connection) => {
                let incoming = connection.handle_late(payload, unread, now).ok().flatten()?;
                Some(Received::Frames { payload: whole, incoming })
            }
        }
    }

    /// Takes the next message of a datagram that was brought in; `scratch` is lent for what must be put together.
    pub fn next(
        &mut self,
        datagram: &[u8],
        received: &mut Received,
        scratch: &mut Vec<u8>,
        now: Instant,
    ) -> Option<Message> {
        match received {
            Received::Message(message) => message.take(),
            Received::Frames { payload, incoming } => {
                let Some(Line::Channels(connection)) = &mut self.line else { return None };
                let frames = datagram.get(payload.clone())?;
                self.wake = Instant::default();
                let arrival = connection.next(frames, incoming, scratch, now)?;
                Some(Message::arrived(arrival, payload.start + incoming.start()))
            }
        }
    }

    // Events --------------------------------------------------------------------------------------------------------

    /// The oldest event that was not taken yet.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front().or_else(|| {
            let event = poll_line(self.line.as_mut()?)?;
            // To have told of it may be something to answer: that a block was taken.
            self.wake = Instant::default();
            Some(event)
        })
    }

    /// Follows netcode: a slot begins a line, an end ends it.
    fn follow(&mut self) {
        while let Some(event) = self.netcode.poll_event() {
            match event {
                netcode::Event::Connected { client_index, max_clients } => {
                    // The settings were checked when the client was made.
                    self.line = self.traffic.line(None).ok();
                    self.wake = Instant::default();
                    (self.farewell, self.end) = (None, None);
                    self.events.push_back(Event::Connected { client_index, max_clients });
                }
                netcode::Event::Ended { reason } => {
                    self.note_end(reason);
                    self.end_line();
                    self.wake = Instant::NEVER;
                    // The line's own word on why it ended counts for more.
                    let reason = self.end.as_ref().map_or(reason, reason_of);
                    self.netcode.amend_end(reason);
                    self.events.push_back(Event::Ended { reason });
                }
            }
        }
    }

    /// Keeps what the line has to tell, and what is left of its blocks.
    fn end_line(&mut self) {
        let Some(mut line) = self.line.take() else { return };
        self.events.extend(core::iter::from_fn(|| poll_line(&mut line)));
        if let Line::Channels(connection) = &mut line {
            let partial = |(channel, partial)| Event::Partial { channel, partial };
            self.events.extend(connection.take_partials().map(partial));
        }
    }

    /// Keeps what the connection said about its end.
    fn note_end(&mut self, reason: EndReason) {
        (self.farewell, self.end) = (None, None);
        let Some(Line::Channels(connection)) = &self.line else { return };
        let left = || (reason == EndReason::Left).then(|| End::Left { code: ByeCode::KICKED, text: String::new() });
        self.end = connection.end().cloned().or_else(left);
        if let Some(End::Farewell { text, .. }) = &self.end {
            self.farewell = Some(text.clone());
        }
    }

    /// What the server said to this player when it ended the last connection, if it said something.
    #[must_use]
    pub fn farewell(&self) -> Option<&str> {
        self.farewell.as_deref().filter(|text| !text.is_empty())
    }

    /// What was said at the end of the last connection, by either side, where traffic is on channels: code and text are in
    /// it. `None` where nothing was said.
    #[must_use]
    pub const fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    // Sending -------------------------------------------------------------------------------------------------------

    /// Seals a payload of 1 to 1,200 bytes for the server; only where payloads travel as they are.
    ///
    /// # Errors
    /// `Gone`, `Empty`, `TooLarge`, `Backlogged`, or `WrongTraffic`.
    pub fn send_payload(&mut self, payload: &[u8], now: Instant, outbox: &mut impl Outbox) -> Result<(), SendError> {
        if !matches!(self.traffic, Traffic::Payloads) {
            return Err(SendError::WrongTraffic);
        }
        Ok(self.netcode.send(payload, now, outbox)?)
    }

    /// Sends an acknowledged packet, in fragments if it is large, and answers its number.
    ///
    /// # Errors
    /// `Gone`, `Empty`, `TooLarge`, `Backlogged` when the path should carry no more now or the outbox is full, or
    /// `WrongTraffic`.
    pub fn send_packet(
        &mut self,
        payload: &[u8],
        now: Instant,
        outbox: &mut impl Outbox,
    ) -> Result<Sequence, SendError> {
        if !matches!(self.traffic, Traffic::Packets(_)) {
            return Err(SendError::WrongTraffic);
        }
        let Some(Line::Packets(packets)) = &mut self.line else { return Err(SendError::Gone) };
        self.wake = Instant::default();
        let mut sink = ServerSink::new(&mut self.netcode, now, outbox, &mut self.room);
        Ok(packets.send(payload, now, &mut sink)?)
    }

    /// Puts a message into a channel; it is copied once, and leaves with the next [`transmit`](Self::transmit) that the
    /// path allows.
    ///
    /// # Errors
    /// `Gone`, `TooLarge`, `Backlogged`, `NoChannel`, `WrongKind` or `WrongTraffic`.
    pub fn send_message(
        &mut self,
        channel: ChannelId,
        message: &[u8],
        options: SendOptions,
        now: Instant,
    ) -> Result<(), SendError> {
        if !matches!(self.traffic, Traffic::Channels(..)) {
            return Err(SendError::WrongTraffic);
        }
        let connection = self.connection_mut().filter(|connection| connection.end().is_none());
        connection.ok_or(SendError::Gone)?.send(channel, message, options, now)?;
        self.wake = Instant::default();
        Ok(())
    }

    /// Begins to send a block on a channel of blocks; `label` tells the server what it is.
    ///
    /// # Errors
    /// `Gone`, `Backlogged`, `NoChannel`, `WrongKind` or `WrongTraffic`.
    pub fn send_block(&mut self, channel: ChannelId, block: Block, label: u64) -> Result<BlockId, SendError> {
        if !matches!(self.traffic, Traffic::Channels(..)) {
            return Err(SendError::WrongTraffic);
        }
        let connection = self.connection_mut().filter(|connection| connection.end().is_none());
        let id = connection.ok_or(SendError::Gone)?.channels_mut().send_block(channel, block, label)?;
        self.wake = Instant::default();
        Ok(id)
    }

    // Time ----------------------------------------------------------------------------------------------------------

    /// Time has passed: deadlines of netcode and of the line.
    pub fn tick(&mut self, now: Instant) {
        self.caught_up(now);
        self.netcode.tick(now);
        self.follow();
        if self.wake > now {
            return;
        }
        if let Some(line) = &mut self.line {
            line.tick(now);
        }
    }

    /// Sends what is due until nothing is or the outbox is full; the rest leaves with the next call.
    pub fn transmit(&mut self, now: Instant, outbox: &mut impl Outbox) {
        self.netcode.transmit(now, outbox);
        if self.wake <= now {
            self.transmit_line(now, outbox);
        }
    }

    fn transmit_line(&mut self, now: Instant, outbox: &mut impl Outbox) {
        if let (Some(Line::Channels(connection)), Some(at)) = (&mut self.line, self.netcode.heard_at()) {
            connection.heard(at);
        }
        let mut sink = ServerSink::new(&mut self.netcode, now, outbox, &mut self.room);
        match &mut self.line {
            Some(Line::Packets(packets)) => packets.transmit(now, &mut sink),
            Some(Line::Channels(connection)) => connection.transmit(now, &mut sink),
            Some(Line::Payloads) | None => {}
        }
        if sink.full {
            self.wake = Instant::default();
            return;
        }
        // What could not leave now is tried again a little later, not at once.
        let later = |at: Option<Instant>| at.map_or(Instant::NEVER, |at| at.max(now.after(LEAST_WAIT)));
        (self.wake, self.rest) = match &self.line {
            Some(Line::Channels(connection)) if connection.is_over() => {
                let reason = connection.end().map_or(EndReason::Left, reason_of);
                self.netcode.disconnect_for(reason);
                self.follow();
                self.netcode.transmit(now, outbox);
                return;
            }
            Some(Line::Channels(connection)) => {
                let by_ticks = connection.next_deadline_by_ticks(now, SLEEPERS_TICK);
                (later(connection.next_deadline(now)), later(by_ticks))
            }
            Some(Line::Packets(packets)) => [later(packets.next_deadline()); 2].into(),
            Some(Line::Payloads) | None => (Instant::NEVER, Instant::NEVER),
        };
    }

    /// When the client next has something to do of its own, if nothing arrives: wake up then.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let of_line = if self.wake == Instant::default() { self.wake } else { self.rest };
        let of_line = Some(of_line).filter(|_| self.wake != Instant::NEVER);
        self.netcode.next_deadline().into_iter().chain(of_line).min()
    }

    /// Whether more waits to leave at once than the outbox could take.
    #[must_use]
    pub fn owes(&self) -> bool {
        self.netcode.owes() || self.wake == Instant::default()
    }

    // What is known -------------------------------------------------------------------------------------------------

    /// The connection, where traffic is on channels, while there is one.
    #[must_use]
    pub const fn connection(&self) -> Option<&Connection> {
        if let Some(Line::Channels(connection)) = &self.line { Some(connection) } else { None }
    }

    /// As [`connection`](Self::connection), to be changed.
    pub fn connection_mut(&mut self) -> Option<&mut Connection> {
        self.wake = Instant::default();
        if let Some(Line::Channels(connection)) = &mut self.line { Some(connection) } else { None }
    }

    /// What may leave now: ask before composing a tick. `None` where payloads travel as they are, and while there is no
    /// connection.
    #[must_use]
    pub fn budget(&self, now: Instant) -> Option<Budget> {
        self.line.as_ref()?.budget(now)
    }

    /// How the path is; `None` as for [`budget`](Self::budget).
    #[must_use]
    pub fn path(&self, now: Instant) -> Option<PathStats> {
        self.line.as_ref()?.path(now)
    }

    /// Leaves for a reason, with a text for people of up to 256 bytes (codes as [`ByeCode::of_application`] has them: 5 to 255
    /// count as 0): it is said until the server has heard it or the time
    /// for farewells is up; then the end comes as an event. Where there are no channels the text is not sent, and the
    /// client leaves at once.
    pub fn leave(&mut self, code: ByeCode, text: &str) {
        match self.connection_mut() {
            Some(connection) => connection.leave(code, text),
            None => self.disconnect(),
        }
    }

    /// Leaves at once; ten disconnect packets go out with the next [`transmit`](Self::transmit).
    pub fn disconnect(&mut self) {
        self.netcode.disconnect();
        self.follow();
    }
}

fn poll_line(line: &mut Line) -> Option<Event> {
    match line {
        Line::Payloads => None,
        Line::Packets(packets) => packets.poll_event().map(Event::Packet),
        Line::Channels(connection) => connection.poll_event().map(Event::Channel),
    }
}

/// What an end is to a player.
const fn reason_of(end: &End) -> EndReason {
    match end {
        End::Left { .. } => EndReason::Left,
        End::Farewell { code: ByeCode::SHUTDOWN, .. } => EndReason::ServerStopped,
        End::Farewell { .. } => EndReason::Kicked,
        End::LayoutMismatch { .. } => EndReason::LayoutMismatch,
        End::VersionMismatch => EndReason::VersionMismatch,
        End::NotASession => EndReason::NotASession,
        End::Violation(_) => EndReason::Violation,
        End::Accused => EndReason::Accused,
    }
}
