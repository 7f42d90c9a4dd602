//! The server put together: netcode's server, and for each client what its payloads carry.
//!
//! ```text
//!  datagrams ──▶ netcode ──▶ payloads ──▶ line of the slot ──▶ messages, packets, payloads
//!                  ▲                          │ deadlines, one flat list
//!                  └──── sealed ◀─────────────┘
//! ```
//!
//! A turn costs what happened: lines are looked at when something arrived for them, when something was sent on them, or
//! when a deadline of theirs has passed.

mod event;
mod hashing;
mod seat;
mod sink;
mod transmit;
mod uplink;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

pub use self::event::{Event, Message, Received};
pub use self::hashing::HASHED_PER_TURN;

use self::hashing::HashingTurns;
use self::seat::Seat;
use self::uplink::ServerUplink;
use crate::channel::block::{Block, BlockId};
use crate::channel::control::ByeCode;
use crate::channel::{ChannelId, SendOptions};
use crate::congestion::{BytesPerSecond, Trunk, Weight};
use crate::session::{Budget, ConfigError, Connection, End, Line, Memory, PathStats, SendError, Traffic};
use crate::wire::reliable::Sequence;
use slipgate_netcode::address::Address;
use slipgate_netcode::discard::Discard;
use slipgate_netcode::server::{self as netcode, ClientHandle, DisconnectReason, Lend};
use slipgate_netcode::time::{Instant, Now};
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_netcode::{self as lower, Outbox};

/// What players read of a server that was stopped, unless it says something else.
pub const STOP_TEXT: &str = "The server shuts down.";

/// The uplink of a server of so many shards, without a limit at first, for [`Server::join_trunk`].
#[must_use]
pub fn trunk(shards: u16) -> Trunk {
    Trunk::new(shards.into(), uplink::BURST)
}

/// A server whose clients' payloads carry a [`Traffic`].
pub struct Server {
    netcode: netcode::Server,
    traffic: Traffic,
    memory: Memory,
    /// One for each slot that was ever used: memory for the others is reserved, and not touched.
    seats: Vec<Option<Seat>>,
    /// When each slot's line is to be looked at: apart from the seats, because every turn reads all of it.
    wakes: Vec<Instant>,
    /// Not later than any of them: until then no turn reads them.
    next_wake: Instant,
    /// Everything that had arrived by then was brought in.
    caught_up_at: Instant,
    /// The slot at which the next turn begins, so that none always comes last.
    first: u32,
    uplink: ServerUplink,
    hashing: HashingTurns,
    events: VecDeque<Event>,
    /// What was said at the end of the last connection in each slot, where something was; as long as it needs to be.
    ends: Vec<Option<(ClientHandle, End)>>,
    /// Slots whose lines may have events to ask for; each is here once at most.
    noisy: VecDeque<u32>,
    room: Box<[u8; MAX_PAYLOAD_BYTES]>,
    /// The server was stopped, and clients with channels have not been told.
    stopping: bool,
}

impl Server {
    /// Puts lines upon a server that has no clients yet.
    ///
    /// # Errors
    /// A setting that no connection can run with.
    pub fn new(netcode: netcode::Server, traffic: Traffic, memory: Memory) -> Result<Self, ConfigError> {
        traffic.check()?;
        let slots = netcode.config().slots as usize;
        Ok(Self {
            netcode,
            traffic,
            memory,
            seats: Vec::with_capacity(slots),
            wakes: Vec::with_capacity(slots),
            next_wake: Instant::NEVER,
            caught_up_at: Instant::NEVER,
            first: 0,
            uplink: ServerUplink::new(slots),
            hashing: HashingTurns::new(slots),
            // Everybody may come, or go, between two looks at it; both at once asks for memory, once.
            events: VecDeque::with_capacity(slots + 2),
            ends: Vec::new(),
            noisy: VecDeque::with_capacity(slots),
            room: Box::new([0; MAX_PAYLOAD_BYTES]),
            stopping: false,
        })
    }

    /// The server beneath.
    #[must_use]
    pub const fn netcode(&self) -> &netcode::Server {
        &self.netcode
    }

    /// The server beneath, for its settings: admission, keys, clients in the same program.
    pub const fn netcode_mut(&mut self) -> &mut netcode::Server {
        &mut self.netcode
    }

    /// Says what clients' payloads carry, for those who come from now on.
    ///
    /// # Errors
    /// A setting that no connection can run with.
    pub fn set_traffic(&mut self, traffic: Traffic) -> Result<(), ConfigError> {
        traffic.check()?;
        self.traffic = traffic;
        Ok(())
    }

    /// Gives the connections that come from now on this memory.
    pub fn set_memory(&mut self, memory: Memory) {
        self.memory = memory;
    }

    /// Shares an uplink of this rate over all clients, by their weights: what one does not need, others have, and nobody's
    /// burst delays the rest. Of a shard's it is the rate of the whole server, whichever shard is told. `None`, at first: the
    /// uplink has no limit.
    ///
    /// Messages on channels are held to it. What else leaves for clients (payloads as they are, acknowledged packets, and
    /// acknowledgements) cannot be held back without loss: it leaves, and the messages share the rest.
    pub fn set_uplink(&mut self, rate: Option<BytesPerSecond>) {
        self.uplink.set_rate(rate);
    }

    /// From now on its uplink is that of a server of several shards, of which this is one.
    pub fn join_trunk(&mut self, trunk: Box<dyn Lend<Trunk>>) {
        self.uplink.join(usize::from(self.netcode.shard_id().0), trunk);
    }

    /// A client's share of the uplink compared with others, 1 at first. It is kept as long as the client is connected,
    /// whatever limit the uplink has meanwhile, or none. Answers whether the client is connected.
    pub fn set_weight(&mut self, client: ClientHandle, weight: Weight) -> bool {
        let is_there = self.seat_of(client).is_some();
        if is_there {
            self.uplink.set_weight(client.slot(), weight);
        }
        is_there
    }

    /// What clients' payloads carry.
    #[must_use]
    pub const fn traffic(&self) -> &Traffic {
        &self.traffic
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
        now: Now,
    ) -> Result<Option<Received>, Discard> {
        let base = datagram.as_ptr().addr();
        let result = self.netcode.handle(from, datagram, now);
        let found = result.map(|payload| {
            payload.map(|(client, payload)| {
                let start = payload.bytes.as_ptr().addr().wrapping_sub(base);
                (client, payload.sequence, start..start + payload.bytes.len())
            })
        });
        self.follow();
        let Some((client, sequence, range)) = found? else { return Ok(None) };
        let payload = datagram.get(range.clone()).unwrap_or_default();
        Ok(self.take(client, sequence, payload, range.start, scratch, now.monotonic))
    }

    /// Brings in the payload of a client in the same program; it lies at the start of what [`next`](Self::next) is given.
    pub fn handle_loopback(
        &mut self,
        client: ClientHandle,
        payload: &[u8],
        scratch: &mut Vec<u8>,
        now: Now,
    ) -> Option<Received> {
        self.follow();
        self.take(client, 0, payload, 0, scratch, now.monotonic)
    }

    /// Hands a payload to its client's line.
    fn take(
        &mut self,
        client: ClientHandle,
        sequence: u64,
        payload: &[u8],
        start: usize,
        scratch: &mut Vec<u8>,
        now: Instant,
    ) -> Option<Received> {
        let slot = client.slot();
        let unread = now.since(self.caught_up_at);
        let seat = self.seat_at(slot).filter(|seat| seat.is(client))?;
        let received = seat.take(sequence, payload, start, scratch, unread, now);
        self.wake(slot);
        received
    }

    /// Takes the next message of a datagram that was brought in; `scratch` is lent for what must be put together.
    pub fn next(
        &mut self,
        datagram: &[u8],
        received: &mut Received,
        scratch: &mut Vec<u8>,
        now: Now,
    ) -> Option<Message> {
        match received {
            Received::Message(message) => message.take(),
            Received::Frames { client, payload, incoming } => {
                let client = *client;
                let connection = self.connection_mut(client)?;
                let frames = datagram.get(payload.clone())?;
                let arrival = connection.next(frames, incoming, scratch, now.monotonic);
                let origin = payload.start + incoming.start();
                self.wake(client.slot());
                arrival.map(|arrival| Message::arrived(client, arrival, origin))
            }
        }
    }

    // Events --------------------------------------------------------------------------------------------------------

    /// The oldest event that was not taken yet. To be called until `None` once a turn: until then at most
    /// [`HASHED_PER_TURN`] bytes are hashed of the blocks that have arrived, of all clients by turns.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front().or_else(|| self.poll_lines()).or_else(|| self.hash_by_turns())
    }

    /// Asks the lines that may have something to tell.
    fn poll_lines(&mut self) -> Option<Event> {
        while let Some(slot) = self.noisy.front().copied() {
            if let Some(event) = self.seat_at(slot).and_then(Seat::poll_event) {
                // To have told of it may be something to answer: that a block was taken.
                self.set_wake(slot, Instant::default());
                return Some(event);
            }
            self.noisy.pop_front();
            let Some(seat) = self.seat_at(slot) else { continue };
            seat.noisy = false;
            if seat.has_blocks_to_hash() {
                self.hashing.wait(slot);
            }
        }
        None
    }

    /// Lets those hash by turns who have something to, as long as the turn allows, until there is something to tell of it.
    fn hash_by_turns(&mut self) -> Option<Event> {
        while let Some(slot) = self.hashing.next() {
            let event = self.seat_at(slot).and_then(Seat::poll_event);
            self.hashing.took();
            if self.seat_at(slot).is_some_and(|seat| seat.has_blocks_to_hash()) {
                self.hashing.wait(slot);
            }
            if event.is_some() {
                // To have told of it may be something to answer, and there may be more to tell.
                self.wake(slot);
                return event;
            }
        }
        None
    }

    /// Follows netcode: who has come gets a line, who has gone loses it.
    fn follow(&mut self) {
        while let Some(event) = self.netcode.poll_event() {
            match event {
                netcode::Event::Connected { client, client_id } => self.seat(client, client_id),
                netcode::Event::Disconnected { client, reason, .. } => {
                    let seat = self.seats.get_mut(client.slot() as usize).and_then(Option::take);
                    self.set_wake(client.slot(), Instant::NEVER);
                    self.uplink.forget(client.slot());
                    let Some(mut seat) = seat else { continue };
                    // What the line has to tell comes first, and its own word on why it ended counts for more.
                    tell_end(&mut seat, reason, &mut self.hashing, &mut self.events);
                    self.keep_end(&seat);
                }
            }
        }
    }

    /// Keeps what was said at the end until the slot's next connection ends: the event of it may be taken later.
    fn keep_end(&mut self, seat: &Seat) {
        let Some(end) = seat.end() else { return };
        let slot = seat.client().slot() as usize;
        if slot >= self.ends.len() {
            self.ends.resize(slot + 1, None);
        }
        if let Some(home) = self.ends.get_mut(slot) {
            *home = Some((seat.client(), end.clone()));
        }
    }

    fn seat(&mut self, client: ClientHandle, client_id: u64) {
        // The settings were checked when the server was made.
        let Ok(mut line) = self.traffic.line(Some(&self.memory)) else { return };
        if let Line::Channels(connection) = &mut line {
            connection.channels_mut().hash_within(self.hashing.grant().clone());
        }
        let slot = client.slot() as usize;
        if slot >= self.seats.len() {
            self.seats.resize_with(slot + 1, || None);
            self.wakes.resize(slot + 1, Instant::NEVER);
        }
        if let Some(place) = self.seats.get_mut(slot) {
            let seat = place.insert(Seat::new(client, client_id, line));
            if seat.acts_by_itself() {
                self.set_wake(client.slot(), Instant::default());
            }
            self.events.push_back(Event::Connected { client, client_id });
        }
    }

    // Sending -------------------------------------------------------------------------------------------------------

    /// Seals a payload of 1 to 1,200 bytes for a client; only where payloads travel as they are.
    ///
    /// # Errors
    /// `Gone`, `Empty`, `TooLarge`, `Backlogged`, or `WrongTraffic`.
    pub fn send_payload(
        &mut self,
        client: ClientHandle,
        payload: &[u8],
        now: Now,
        outbox: &mut impl Outbox,
    ) -> Result<(), SendError> {
        let Line::Payloads = self.seat_mut(client)?.line else { return Err(SendError::WrongTraffic) };
        self.netcode.send(client, payload, now, outbox)?;
        // One in the same program has no address, and needs no uplink.
        if self.uplink.is_limited() && self.netcode.client(client).is_some_and(|info| info.address.is_some()) {
            self.uplink.spend(client.slot(), 0, payload.len() as u64 + sink::HEADER_BYTES);
        }
        Ok(())
    }

    /// Sends an acknowledged packet to a client, in fragments if it is large, and answers its number.
    ///
    /// # Errors
    /// `Gone`, `Empty`, `TooLarge`, `Backlogged` when the path should carry no more now or the outbox is full, or
    /// `WrongTraffic`.
    pub fn send_packet(
        &mut self,
        client: ClientHandle,
        payload: &[u8],
        now: Now,
        outbox: &mut impl Outbox,
    ) -> Result<Sequence, SendError> {
        let slot = client.slot() as usize;
        let seat = self.seats.get_mut(slot).and_then(Option::as_mut).filter(|seat| seat.is(client));
        let seat = seat.ok_or(SendError::Gone)?;
        let Line::Packets(packets) = &mut seat.line else { return Err(SendError::WrongTraffic) };
        let mut sink = sink::ClientSink::new(&mut self.netcode, client, now, outbox, &mut self.room);
        let sent = packets.send(payload, now.monotonic, &mut sink);
        self.uplink.spend(client.slot(), 0, sink.left);
        self.wake(client.slot());
        sent.map_err(SendError::from)
    }

    /// Puts a message into a client's channel; it is copied once, and leaves with the next
    /// [`transmit`](Self::transmit) that the path allows.
    ///
    /// # Errors
    /// `Gone`, `TooLarge`, `Backlogged`, `NoChannel`, `WrongKind` or `WrongTraffic`.
    pub fn send_message(
        &mut self,
        client: ClientHandle,
        channel: ChannelId,
        message: &[u8],
        options: SendOptions,
        now: Now,
    ) -> Result<(), SendError> {
        let connection = self.open_connection(client)?;
        connection.send(channel, message, options, now.monotonic)?;
        self.wake(client.slot());
        Ok(())
    }

    /// Begins to send a block to a client on a channel of blocks; `label` tells it what the block is.
    ///
    /// # Errors
    /// `Gone`, `Backlogged`, `NoChannel`, `WrongKind` or `WrongTraffic`.
    pub fn send_block(
        &mut self,
        client: ClientHandle,
        channel: ChannelId,
        block: Block,
        label: u64,
    ) -> Result<BlockId, SendError> {
        let id = self.open_connection(client)?.channels_mut().send_block(channel, block, label)?;
        self.wake(client.slot());
        Ok(id)
    }

    fn open_connection(&mut self, client: ClientHandle) -> Result<&mut Connection, SendError> {
        let Line::Channels(connection) = &mut self.seat_mut(client)?.line else { return Err(SendError::WrongTraffic) };
        if connection.end().is_some() { Err(SendError::Gone) } else { Ok(connection) }
    }

    fn seat_mut(&mut self, client: ClientHandle) -> Result<&mut Seat, SendError> {
        self.seat_at(client.slot()).filter(|seat| seat.is(client)).ok_or(SendError::Gone)
    }

    // The end -------------------------------------------------------------------------------------------------------

    /// Disconnects a client with a text for people, of up to 256 bytes: its event comes now, and the slot is free when the
    /// client has heard the text or the time for farewells is up. Where there are no channels the text is not sent. Codes that
    /// are no application's count as 0: see [`ByeCode::of_application`].
    ///
    /// Answers whether the client was connected.
    pub fn kick(&mut self, client: ClientHandle, code: ByeCode, text: &str) -> bool {
        let Some(connection) = self.connection_mut(client) else { return self.disconnect(client) };
        let was_open = connection.end().is_none();
        connection.leave(code, text);
        was_open
    }

    /// Disconnects a client at once. Answers whether it was connected.
    pub fn disconnect(&mut self, client: ClientHandle) -> bool {
        let was_connected = self.netcode.disconnect(client);
        self.follow();
        was_connected
    }

    /// Disconnects everyone and admits nobody any more. The events come now; with the next
    /// [`transmit`](Self::transmit) clients with channels are told that the server stops, by [`ByeCode::SHUTDOWN`] and
    /// [`STOP_TEXT`], and all get their disconnect packets. Nobody waits to be heard: who wants that kicks them first.
    pub fn stop(&mut self) {
        self.stop_with(STOP_TEXT);
    }

    /// As [`stop`](Self::stop), with another text for people. The code stays: by it players know a stop from a kick.
    pub fn stop_with(&mut self, text: &str) {
        self.netcode.set_admitting(false);
        self.follow();
        self.stopping = true;
        for slot in 0..self.seats.len() as u32 {
            let Self { seats, events, netcode, hashing, .. } = self;
            let Some(seat) = seats.get_mut(slot as usize).and_then(Option::as_mut) else { continue };
            if let Line::Channels(_) = &seat.line {
                tell_end(seat, DisconnectReason::ServerStopped, hashing, events);
                seat.leave(ByeCode::SHUTDOWN, text);
            } else {
                netcode.disconnect_for(seat.client(), DisconnectReason::ServerStopped);
            }
        }
        self.follow();
    }

    // What is known -------------------------------------------------------------------------------------------------

    /// A client's connection, where traffic is on channels.
    #[must_use]
    pub fn connection(&self, client: ClientHandle) -> Option<&Connection> {
        let seat = self.seats.get(client.slot() as usize)?.as_ref().filter(|seat| seat.is(client))?;
        if let Line::Channels(connection) = &seat.line { Some(connection) } else { None }
    }

    /// What was said at the end of a client's connection, by either side, where traffic is on channels: code and text are
    /// in it. `None` while it goes on, where nothing was said, and when the next connection in its slot has ended.
    #[must_use]
    pub fn end(&self, client: ClientHandle) -> Option<&End> {
        if let Some(seat) = self.seat_of(client) {
            return seat.end();
        }
        let (of, end) = self.ends.get(client.slot() as usize)?.as_ref()?;
        (*of == client).then_some(end)
    }

    /// As [`connection`](Self::connection), to be changed.
    pub fn connection_mut(&mut self, client: ClientHandle) -> Option<&mut Connection> {
        self.wake(client.slot());
        let seat = self.seats.get_mut(client.slot() as usize)?.as_mut().filter(|seat| seat.is(client))?;
        if let Line::Channels(connection) = &mut seat.line { Some(connection) } else { None }
    }

    /// Every client of whose end no event has told, in the order of the slots.
    pub fn clients(&self) -> impl Iterator<Item = ClientHandle> + '_ {
        let is_leaving = |client| self.seat_of(client).is_some_and(Seat::is_leaving);
        self.netcode.clients().filter(move |client| self.netcode.is_announced(*client) && !is_leaving(*client))
    }

    /// What may leave for a client now, by its path and its share of the uplink: ask before composing a tick. `None` where
    /// payloads travel as they are, and for who is leaving.
    #[must_use]
    pub fn budget(&self, client: ClientHandle, now: Now) -> Option<Budget> {
        let budget = self.seat_of(client).filter(|seat| !seat.is_leaving())?.budget(now.monotonic)?;
        let prospect = self.uplink.prospect(client.slot());
        Some(prospect.map_or(budget, |prospect| budget.within(prospect)))
    }

    /// Bytes of clients' blocks that were hashed since the start.
    #[must_use]
    pub const fn hashed_bytes(&self) -> u64 {
        self.hashing.hashed()
    }

    /// How a client's path is; `None` where payloads travel as they are.
    #[must_use]
    pub fn path(&self, client: ClientHandle, now: Now) -> Option<PathStats> {
        self.seat_of(client)?.path(now.monotonic)
    }

    fn seat_of(&self, client: ClientHandle) -> Option<&Seat> {
        self.seats.get(client.slot() as usize)?.as_ref().filter(|seat| seat.is(client))
    }

    fn seat_at(&mut self, slot: u32) -> Option<&mut Seat> {
        self.seats.get_mut(slot as usize)?.as_mut()
    }

    /// Something happened on a slot's line: it is looked at in this turn, and may have something to tell.
    fn wake(&mut self, slot: u32) {
        let Some(seat) = self.seat_at(slot).filter(|seat| seat.acts_by_itself()) else { return };
        if !core::mem::replace(&mut seat.noisy, true) {
            self.noisy.push_back(slot);
        }
        self.set_wake(slot, Instant::default());
    }

    fn set_wake(&mut self, slot: u32, at: Instant) {
        if let Some(wake) = self.wakes.get_mut(slot as usize) {
            *wake = at;
            self.next_wake = self.next_wake.min(at);
        }
    }
}

/// Has the events tell what a line still has to, and then its end. What has arrived of its blocks is hashed as far as this
/// turn allows: it has no later one.
fn tell_end(seat: &mut Seat, reason: DisconnectReason, hashing: &mut HashingTurns, events: &mut VecDeque<Event>) {
    hashing.let_leave();
    events.extend(core::iter::from_fn(|| seat.poll_event()));
    hashing.took();
    seat.tell_end(reason);
    events.extend(core::iter::from_fn(|| seat.poll_event()));
}

impl From<lower::PayloadError> for SendError {
    fn from(error: lower::PayloadError) -> Self {
        match error {
            lower::PayloadError::Gone => Self::Gone,
            lower::PayloadError::Empty => Self::Empty,
            lower::PayloadError::TooLarge => Self::TooLarge,
            lower::PayloadError::Backlogged => Self::Backlogged,
        }
    }
}
