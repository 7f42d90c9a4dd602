//! All shards of a server for a game loop on a thread of its own: events come out of rings, and what is sent goes into
//! others.
//!
//! ```text
//!                       ┌─ news ────◀ thread "shard-0": courier ─ Server
//!   game's thread ─ Hub ┤  errands ─▶
//!                       ├─ news ────◀ thread "shard-1": courier ─ Server
//!                       └─ errands ─▶
//! ```
//!
//! Rings are bounded and made once; a payload takes no lock and no memory on its way. What finds no room:
//!
//! | direction | what | then |
//! | --- | --- | --- |
//! | to the game | connects, ends, messages on channels | stay in the shard, which reads no further until there is room |
//! | to the game | payloads | are dropped and counted, as datagrams may be |
//! | to the clients | anything | is refused: `Backlogged` |
//!
//! How the clients' paths are passes beside the rings: once a tick, a whole shard at a time, and only the newest counts.

mod courier;
mod lane;
mod paths;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::crypto::key::KeyRing;
use slipgate_netcode::wire::{MAX_PAYLOAD_BYTES, USER_DATA_BYTES, UserData};
use slipgate_os::clock::Clock;
use slipgate_session::channel::block::Block;
use slipgate_session::channel::control::ByeCode;
use slipgate_session::channel::{ChannelId, Free, Kind, SendOptions};
use slipgate_session::session::{Budget, End, PathStats, SendError, Traffic};

use self::courier::{Counters, Courier, Errand, Known, More, News};
use self::lane::{Inlet, Outlet, lane};
use self::paths::{Reader, paths};
use crate::{ClientHandle, Crew, Ended, Event, Server, ShardId, Totals};

/// The most bytes of a text for a client that is kicked.
const TEXT_BYTES: usize = 256;
/// What is taken from one shard before the next one has its turn.
const NEWS_IN_A_ROW: u32 = 256;

/// How large the rings are, of which each shard has one of either kind in each direction, and what passes beside them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HubConfig {
    /// Events, payloads and messages that may wait: 16,384.
    pub entries: usize,
    /// Bytes of payloads and messages that may wait: 4 MiB.
    pub bytes: usize,
    /// How often shards tell how their clients' paths are, where they carry channels, for [`Hub::path`],
    /// [`Hub::budget`] and [`Hub::free`]: zero, once a tick. It takes some time of the tick for each client: a game of
    /// thousands that does not ask says something longer.
    pub paths_interval: Duration,
}

impl Default for HubConfig {
    fn default() -> Self {
        Self { entries: 1 << 14, bytes: 4 << 20, paths_interval: Duration::ZERO }
    }
}

/// Why a hub did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum HubError {
    /// A ring has room for fewer than 64 entries, or not for two of the largest messages, or 16 KiB.
    Config,
    /// Acknowledged packets cannot pass through a hub: their numbers are known where they are sent. A [`Crew`] has them.
    Packets,
    /// No shard was given.
    NoShard,
    /// Not all shards carry the same: [`Server::carrying`] was not said to each of them, or with other channels.
    Mixed,
    /// The system has no thread left, or no handle to wake one.
    Io(io::Error),
}

impl fmt::Display for HubError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config => f.write_str("the rings are too small for what must pass through them"),
            Self::Packets => f.write_str("a hub carries payloads or channels, and no acknowledged packets"),
            Self::NoShard => f.write_str("a hub needs at least one shard"),
            Self::Mixed => f.write_str("all shards of a hub carry the same: payloads, or the same channels"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for HubError {}

impl From<io::Error> for HubError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A connected client, as the game knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its handle, which names its shard.
    pub client: ClientHandle,
    /// Who it is, by its token.
    pub client_id: u64,
    /// Its index in the game, of all clients of all shards.
    pub index: u32,
    /// Where its packets come from; `None` for a client in the same program.
    pub address: Option<Address>,
    /// What the backend wrote into its token.
    pub user_data: UserData,
}

/// What did not get through, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HubCounts {
    /// Payloads of clients for which the ring to the game had no room.
    pub payloads_dropped: u64,
    /// Payloads of the game that a shard could not send, because their client had left meanwhile, or because nothing may
    /// be said to it yet.
    pub payloads_unsent: u64,
    /// How often a shard stopped reading because the game was behind.
    pub pauses: u64,
    /// Events that nobody took within five seconds of the end of their shard.
    pub events_lost: u64,
    /// What was given to a shard that ended, and not done because nobody took its news within the same five seconds.
    pub errands_lost: u64,
}

/// One shard, as the game sees it.
struct Line {
    news: Outlet<News>,
    errands: Inlet<Errand>,
    paths: Reader,
    counters: Arc<Counters>,
    /// By the slot on the shard.
    members: Vec<Option<Member>>,
    /// Something was put in since it was woken.
    has_errands: bool,
}

/// All shards of a server, for a game loop on a thread of its own. Dropped without [`stop`](Self::stop), it stops them too:
/// what it was given is done before, and nobody hears of the last events.
///
/// A tick: events from [`next_event`](Self::next_event), [`send`](Self::send), then [`flush`](Self::flush).
///
/// # Examples
/// ```no_run
/// use std::time::Duration;
///
/// use slipgate_server::{Clock, Event, Hub, HubConfig, HubError, Server};
///
/// # fn run(shards: Vec<Server>, clock: Clock) -> Result<(), HubError> {
/// let tick = Duration::from_millis(16);
/// let mut hub = Hub::start(shards, clock, tick, HubConfig::default())?;
/// let mut players = Vec::new();
/// while hub.is_running() {
///     while let Some(event) = hub.next_event() {
///         match event {
///             Event::Connected { client, .. } => players.push(client),
///             Event::Payload { client, bytes, .. } => println!("{} bytes of {client:?}", bytes.len()),
///             Event::Disconnected { client, .. } => players.retain(|player| *player != client),
///             _ => {}
///         }
///     }
///     for player in &players {
///         // `Backlogged` when the shard is behind: the next tick has newer state.
///         hub.send(*player, b"the state of the world").unwrap_or_default();
///     }
///     hub.flush();
///     std::thread::sleep(tick);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Hub {
    /// Before the crew: shards that end wait for nobody who is gone.
    lines: Vec<Line>,
    crew: Crew,
    traffic: Traffic,
    at: usize,
    in_a_row: u32,
    connected: u32,
    /// What was said at the end of whom the last such event told.
    ended: Option<(ClientHandle, End)>,
    /// Where values become messages; taken with the first one.
    pub(crate) typed_room: Vec<u8>,
}

impl Hub {
    /// Starts a thread for each shard, as [`Crew::start`] does.
    ///
    /// # Errors
    /// See [`HubError`].
    pub fn start(shards: Vec<Server>, clock: Clock, tick: Duration, config: HubConfig) -> Result<Self, HubError> {
        let traffic = shards.first().ok_or(HubError::NoShard)?.traffic().clone();
        if !shards.iter().all(|shard| is_same(shard.traffic(), &traffic)) {
            return Err(HubError::Mixed);
        }
        let largest = match &traffic {
            Traffic::Packets(_) => return Err(HubError::Packets),
            Traffic::Payloads => MAX_PAYLOAD_BYTES,
            Traffic::Channels(layout, _) => {
                layout.channels().map(|channel| channel.max_message_bytes as usize).max().unwrap_or(0)
            }
        };
        if config.entries < 64 || config.bytes < (2 * largest).max(16 << 10) {
            return Err(HubError::Config);
        }
        let mut lines = Vec::with_capacity(shards.len());
        let mut couriers = Vec::with_capacity(shards.len());
        for _ in &shards {
            let ((news_in, news), (errands, errands_out)) =
                (lane(config.entries, config.bytes), lane(config.entries, config.bytes));
            let counters = Arc::<Counters>::default();
            let (told, paths) = paths(&traffic, config.paths_interval);
            couriers.push(Courier::new(news_in, errands_out, told, &traffic, Arc::clone(&counters)));
            lines.push(Line { news, errands, paths, counters, members: Vec::new(), has_errands: false });
        }
        let pairs = shards.into_iter().zip(couriers).collect();
        let crew = Crew::start_each(pairs, clock, tick)?;
        let (ended, typed_room) = (None, Vec::new());
        Ok(Self { crew, lines, traffic, at: 0, in_a_row: 0, connected: 0, ended, typed_room })
    }

    /// The next event of any shard, or `None` when nothing waits. Those of one client come in order.
    pub fn next_event(&mut self) -> Option<Event<'_>> {
        for _ in 0..=self.lines.len() {
            let line = self.lines.get_mut(self.at)?;
            if self.in_a_row < NEWS_IN_A_ROW
                && let Some(news) = line.news.take()
            {
                self.in_a_row += 1;
                return self.event(news);
            }
            self.in_a_row = 0;
            self.at = (self.at + 1) % self.lines.len();
        }
        // Before the game composes its tick.
        self.lines.iter_mut().for_each(|line| line.paths.refresh());
        None
    }

    fn event(&mut self, news: News) -> Option<Event<'_>> {
        let line = self.lines.get_mut(self.at)?;
        let bytes = line.news.body();
        match (&news.event, news.more) {
            (Event::Connected { client, client_id }, More::Known(Known { index, address })) => {
                let user_data: UserData = bytes.try_into().unwrap_or([0; USER_DATA_BYTES]);
                let member = Member { client: *client, client_id: *client_id, index, address, user_data };
                let slot = client.slot() as usize;
                if slot >= line.members.len() {
                    line.members.resize_with(slot + 1, || None);
                }
                if let Some(place) = line.members.get_mut(slot) {
                    *place = Some(member);
                    self.connected += 1;
                }
            }
            (Event::Disconnected { client, .. }, more) => {
                self.ended = if let More::End(end) = more { Some((*client, end)) } else { None };
                let place = line.members.get_mut(client.slot() as usize);
                if place.and_then(|place| place.take_if(|member| member.client == *client)).is_some() {
                    self.connected -= 1;
                }
            }
            _ => {}
        }
        Some(news.event.with_bytes(bytes))
    }

    // Sending -------------------------------------------------------------------------------------------------------

    /// Gives a payload of 1 to 1200 bytes to its client's shard; only where [`Traffic`] is `Payloads`. It leaves after
    /// [`flush`](Self::flush).
    ///
    /// # Errors
    /// `Gone` if the game has heard of its end, `Empty`, `TooLarge`, `Backlogged` when the ring is full, or `WrongTraffic`.
    pub fn send(&mut self, client: ClientHandle, payload: &[u8]) -> Result<(), SendError> {
        let Traffic::Payloads = self.traffic else { return Err(SendError::WrongTraffic) };
        match payload.len() {
            0 => Err(SendError::Empty),
            1..=MAX_PAYLOAD_BYTES => self.put(client, Errand::Payload { client, bytes: payload.len() }, payload),
            _ => Err(SendError::TooLarge),
        }
    }

    /// Gives a message to its client's shard, which puts it into a channel; only where [`Traffic`] is `Channels`. `Ok` says
    /// that it is on its way to the shard, and no more: if the channel's queue is full there, or the client has left meanwhile,
    /// the message is not sent, and [`Event::Unsent`] tells. Whoever may fill a queue asks the shard by
    /// [`on_shard`](Self::on_shard), where [`Server::send_message`] answers at once.
    ///
    /// # Errors
    /// `Gone` if the game has heard of its end, `TooLarge`, `Backlogged` when the ring is full, `NoChannel`, `WrongKind`, or
    /// `WrongTraffic`.
    pub fn send_message(&mut self, client: ClientHandle, channel: ChannelId, message: &[u8]) -> Result<(), SendError> {
        self.send_message_with(client, channel, message, SendOptions::default())
    }

    /// As [`send_message`](Self::send_message), with a deadline, a key by which newer messages replace older ones, or a
    /// receipt, by which the game hears what became of it, unless it is [`Event::Unsent`].
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub fn send_message_with(
        &mut self,
        client: ClientHandle,
        channel: ChannelId,
        message: &[u8],
        options: SendOptions,
    ) -> Result<(), SendError> {
        let Traffic::Channels(layout, _) = &self.traffic else { return Err(SendError::WrongTraffic) };
        let settings = layout.channel(channel).ok_or(SendError::NoChannel)?;
        if settings.kind == Kind::Blocks {
            return Err(SendError::WrongKind);
        }
        if message.len() > settings.max_message_bytes as usize {
            return Err(SendError::TooLarge);
        }
        self.put(client, Errand::Message { client, channel, options, bytes: message.len() }, message)
    }

    /// Gives a block to its client's shard, which sends it on a channel of blocks; `label` tells the client what it is. Its
    /// content is shared, not copied: one block may go to everybody. `Ok` says that it is on its way to the shard, and no more:
    /// [`Event::Begun`] has the number by which later events tell of it, and if as many blocks wait as the channel allows, or
    /// the client has left meanwhile, [`Event::Unsent`] has its label.
    ///
    /// # Errors
    /// `Gone` if the game has heard of its end, `Backlogged` when the ring is full, `NoChannel`, `WrongKind`, or
    /// `WrongTraffic`.
    pub fn send_block(
        &mut self,
        client: ClientHandle,
        channel: ChannelId,
        block: Block,
        label: u64,
    ) -> Result<(), SendError> {
        let Traffic::Channels(layout, _) = &self.traffic else { return Err(SendError::WrongTraffic) };
        if layout.channel(channel).ok_or(SendError::NoChannel)?.kind != Kind::Blocks {
            return Err(SendError::WrongKind);
        }
        self.put(client, Errand::Block { client, channel, block, label }, &[])
    }

    /// Has a client disconnected; its event comes.
    ///
    /// What is not acknowledged by then may not arrive: put last words into the text of [`kick`](Self::kick), or wait for the
    /// receipt.
    ///
    /// # Errors
    /// `Gone` or `Backlogged`.
    pub fn disconnect(&mut self, client: ClientHandle) -> Result<(), SendError> {
        self.put(client, Errand::Disconnect { client }, &[])
    }

    /// Has a client disconnected with a text for people, of up to 256 bytes; its event comes.
    ///
    /// What is not acknowledged by then may not arrive: put last words into the text, or wait for the receipt.
    ///
    /// # Errors
    /// `Gone`, `TooLarge` (the text has more than 256 bytes; a hub cuts none), or `Backlogged`.
    pub fn kick(&mut self, client: ClientHandle, text: &str) -> Result<(), SendError> {
        self.kick_with(client, ByeCode::KICKED, text)
    }

    /// As [`kick`](Self::kick), with a reason for programs; see [`Server::kick_with`].
    ///
    /// What is not acknowledged by then may not arrive: put last words into the text, or wait for the receipt.
    ///
    /// # Errors
    /// As [`kick`](Self::kick).
    pub fn kick_with(&mut self, client: ClientHandle, code: ByeCode, text: &str) -> Result<(), SendError> {
        if text.len() > TEXT_BYTES {
            return Err(SendError::TooLarge);
        }
        self.put(client, Errand::Kick { client, code, bytes: text.len() }, text.as_bytes())
    }

    /// Has work done on a shard's own thread, with all that its server can do: weights, how far blocks are. It comes after
    /// what was sent before, also when [`stop`](Self::stop) comes right behind it, and asks for memory, so it is nothing for
    /// each packet.
    ///
    /// # Errors
    /// `Backlogged`, or `Gone` if there is no such shard.
    pub fn on_shard(
        &mut self,
        shard: ShardId,
        work: impl FnOnce(&mut Server) + Send + 'static,
    ) -> Result<(), SendError> {
        let line = self.lines.get_mut(usize::from(shard.0)).ok_or(SendError::Gone)?;
        line.put(Errand::Do(Box::new(work)), &[])
    }

    fn put(&mut self, client: ClientHandle, errand: Errand, body: &[u8]) -> Result<(), SendError> {
        let line = self.lines.get_mut(usize::from(client.shard().0)).ok_or(SendError::Gone)?;
        line.member(client).ok_or(SendError::Gone)?;
        line.put(errand, body)
    }

    /// Wakes the shards that were given something: once a tick, for it is a system call for each of them. Without it they
    /// find it at their own next tick.
    pub fn flush(&mut self) {
        for (number, line) in (0..).zip(&mut self.lines) {
            if std::mem::take(&mut line.has_errands) {
                self.crew.wake(ShardId(number));
            }
        }
    }

    // What is known, and the end ------------------------------------------------------------------------------------

    /// What may be known of a client, from its `Connected` to its `Disconnected` event.
    #[must_use]
    pub fn client(&self, client: ClientHandle) -> Option<&Member> {
        self.lines.get(usize::from(client.shard().0))?.member(client)
    }

    /// How a client's path is: round-trip time, jitter, loss, bandwidths, queueing delay; see [`Server::path`]. As its shard
    /// told by the time when [`next_event`](Self::next_event) last answered `None`: once a tick of the shard, or as
    /// [`HubConfig::paths_interval`] says. `None` where [`Traffic`] is `Payloads`, and of one who has just come.
    #[must_use]
    pub fn path(&self, client: ClientHandle) -> Option<PathStats> {
        Some(self.line_of(client)?.paths.of(client)?.path)
    }

    /// What may leave for a client in a tick, and how a game had best send it: ask before composing one. As old as
    /// [`path`](Self::path), and what was given to the hub since then is not taken from it.
    #[must_use]
    pub fn budget(&self, client: ClientHandle) -> Option<Budget> {
        Some(self.line_of(client)?.paths.of(client)?.budget)
    }

    /// What a client's channel can still take; nothing where there is none, or it is not known. As old as
    /// [`path`](Self::path), and what was given to the hub since then is not taken from it: who fills a channel counts that.
    #[must_use]
    pub fn free(&self, client: ClientHandle, channel: ChannelId) -> Free {
        let line = self.line_of(client);
        line.and_then(|line| line.paths.free(client, channel)).unwrap_or_default()
    }

    /// The shard of a client that is connected, as far as the game has heard.
    fn line_of(&self, client: ClientHandle) -> Option<&Line> {
        self.lines.get(usize::from(client.shard().0)).filter(|line| line.member(client).is_some())
    }

    /// What was said at the end of a client's connection, by either side, as [`Server::end`] tells it: code and text are in
    /// it. From its `Disconnected` event to the next one; `None` where nothing was said.
    #[must_use]
    pub fn end(&self, client: ClientHandle) -> Option<&End> {
        self.ended.as_ref().filter(|(of, _)| *of == client).map(|(_, end)| end)
    }

    /// Every client that is connected, as far as the game has heard.
    pub fn clients(&self) -> impl Iterator<Item = &Member> {
        self.lines.iter().flat_map(|line| line.members.iter().flatten())
    }

    /// How many clients are connected, as far as the game has heard.
    #[must_use]
    pub const fn connected(&self) -> u32 {
        self.connected
    }

    /// What did not get through on a shard; nothing on one that does not exist.
    #[must_use]
    pub fn counts(&self, shard: ShardId) -> HubCounts {
        let Some(line) = self.lines.get(usize::from(shard.0)) else { return HubCounts::default() };
        let counters = &line.counters;
        HubCounts {
            payloads_dropped: counters.payloads_dropped.load(Ordering::Relaxed),
            payloads_unsent: counters.payloads_unsent.load(Ordering::Relaxed),
            pauses: counters.pauses.load(Ordering::Relaxed),
            events_lost: counters.events_lost.load(Ordering::Relaxed),
            errands_lost: counters.errands_lost.load(Ordering::Relaxed),
        }
    }

    /// What each shard has counted, as of its last tick.
    #[must_use]
    pub fn totals(&self) -> Vec<Totals> {
        self.crew.totals()
    }

    /// Whether all shards run.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.crew.is_running()
    }

    /// Whether new clients are admitted; see [`Server::set_admitting`].
    pub fn set_admitting(&self, admitting: bool) {
        self.crew.set_admitting(admitting);
    }

    /// Replaces the private keys on all shards; see [`Server::set_keys`].
    pub fn set_keys(&self, keys: &KeyRing) {
        self.crew.set_keys(keys);
    }

    /// As [`stop`](Self::stop), with a text of its own for people, of up to 256 bytes; see [`Server::stop_with`], which cuts
    /// a longer one. A shard whose ring is full says what `stop` says.
    ///
    /// What is not acknowledged by then may not arrive: put last words into the text, or wait for the receipt.
    pub fn stop_with(mut self, text: &str, last: impl FnMut(Event<'_>)) -> Ended {
        for shard in (0..).map(ShardId).take(self.lines.len()) {
            let text = text.to_owned();
            // Nobody is left without an end: the stop comes behind it.
            let _ = self.on_shard(shard, move |server| server.stop_with(&text));
        }
        self.stop(last)
    }

    /// Disconnects everyone, hands out the last events, and waits for the threads. What was given to the shards before is
    /// done before, unless `last` keeps one of them waiting for room in its ring for more than five seconds.
    ///
    /// What is not acknowledged by then may not arrive: put last words into the text of [`stop_with`](Self::stop_with), or
    /// wait for the receipt.
    pub fn stop(mut self, mut last: impl FnMut(Event<'_>)) -> Ended {
        self.crew.tell_to_stop();
        loop {
            let had_ended = self.crew.has_ended();
            while let Some(event) = self.next_event() {
                last(event);
            }
            if had_ended {
                return self.crew.stop();
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Line {
    fn member(&self, client: ClientHandle) -> Option<&Member> {
        self.members.get(client.slot() as usize)?.as_ref().filter(|member| member.client == client)
    }

    fn put(&mut self, errand: Errand, body: &[u8]) -> Result<(), SendError> {
        if !self.errands.put(errand, body) {
            return Err(SendError::Backlogged);
        }
        self.has_errands = true;
        Ok(())
    }
}
/// Whether two shards carry the same.
fn is_same(one: &Traffic, other: &Traffic) -> bool {
    match (one, other) {
        (Traffic::Payloads, Traffic::Payloads) | (Traffic::Packets(_), Traffic::Packets(_)) => true,
        (Traffic::Channels(one, _), Traffic::Channels(other, _)) => one.hash() == other.hash(),
        _ => false,
    }
}
