//! The shard's end of a [`ShardedServer`](super::ShardedServer): it passes events to the game's thread, and executes
//! the game's commands.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use slipgate_netcode::ids::ClientIndex;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::wire::{USER_DATA_BYTES, UserData};
use slipgate_session::channel::transfer::{Transfer, TransferEvent, TransferId};
use slipgate_session::channel::{ChannelEvent, ChannelId, SendOptions, SharedMessage};
use slipgate_session::connection::{CloseCode, Intake, SendError, Traffic};
use tracing::warn;

use super::path_table::PathWriter;
use super::queue_shares::QueueShares;
use super::spsc::{QueueCapacity, QueueConsumer, QueueEntry, QueueProducer};
use crate::shard_threads::ShardApp;
use crate::{ClientHandle, ClientRef, Event, Inbox, Server};

/// The capacity that payloads leave free for events, which must not be lost.
const EVENT_RESERVE: QueueCapacity = QueueCapacity { entries: 16, bytes: 16 * USER_DATA_BYTES };
/// How long a shard sleeps when the queue to the game is full.
const FULL_QUEUE_PAUSE: Duration = Duration::from_millis(1);
/// How long a shard that ends waits for the game to take its events: once before it executes the last commands, and
/// once before it drops its last events.
const MAX_END_WAIT: Duration = Duration::from_secs(5);

/// An event on its way to the game; its bytes are beside it in the queue.
pub(super) struct ShardEvent {
    pub(super) event: Event<'static>,
    pub(super) byte_count: usize,
    /// The facts beside a `Connected` event; its bytes are the user data. `None` if the client has left before the
    /// event was passed on.
    pub(super) info: Option<ClientFacts>,
}

/// The facts about a client that the game can read without asking the shard.
#[derive(Clone, Copy)]
pub(super) struct ClientFacts {
    pub(super) index: ClientIndex,
    pub(super) address: Option<SocketAddr>,
}

impl QueueEntry for ShardEvent {
    fn byte_count(&self) -> usize {
        self.byte_count
    }
}

/// Work for a shard's thread.
pub(super) type ShardWork = Box<dyn FnOnce(&mut Server) + Send>;

/// A command of the game to a shard.
pub(super) enum Command {
    Payload {
        client: ClientHandle,
        byte_count: usize,
    },
    Message {
        client: ClientHandle,
        channel: ChannelId,
        options: SendOptions,
        byte_count: usize,
    },
    /// A message for every client of the shard but one. The bytes are shared by all shards, not copied.
    Broadcast {
        channel: ChannelId,
        message: SharedMessage,
        message_bytes: usize,
        except: Option<ClientHandle>,
    },
    /// The content is shared, not copied.
    Transfer {
        client: ClientHandle,
        channel: ChannelId,
        transfer: Transfer,
        label: u64,
    },
    Disconnect {
        client: ClientHandle,
    },
    /// The bytes are the text for the player.
    Kick {
        client: ClientHandle,
        code: CloseCode,
        byte_count: usize,
    },
    /// The bytes are the text for the player. The token is boxed: an entry of the queue stays small.
    Redirect {
        client: ClientHandle,
        token: Box<ConnectToken>,
        byte_count: usize,
    },
    Run(ShardWork),
}

impl QueueEntry for Command {
    fn byte_count(&self) -> usize {
        match self {
            Self::Payload { byte_count, .. }
            | Self::Message { byte_count, .. }
            | Self::Kick { byte_count, .. }
            | Self::Redirect { byte_count, .. } => *byte_count,
            Self::Broadcast { .. } | Self::Transfer { .. } | Self::Disconnect { .. } | Self::Run(_) => 0,
        }
    }
}

/// The counters of a bridge, read by the game's thread.
#[derive(Default)]
pub(super) struct BridgeCounters {
    pub(super) payloads_dropped: AtomicU64,
    pub(super) payloads_not_sent: AtomicU64,
    pub(super) broadcasts_not_sent: AtomicU64,
    pub(super) pauses: AtomicU64,
    pub(super) clients_refused: AtomicU64,
    pub(super) events_lost: AtomicU64,
    pub(super) commands_lost: AtomicU64,
    /// The bytes of the broadcasts in the queue, which are not in its ring of bytes. Both threads write it.
    pub(super) broadcast_bytes: AtomicUsize,
}

/// The app of a shard that passes everything on to the game's thread.
pub(super) struct ShardBridge {
    events: QueueProducer<ShardEvent>,
    shares: QueueShares,
    /// Clients that have used up their share of the queue: their packets are refused.
    refused: Vec<ClientHandle>,
    commands: QueueConsumer<Command>,
    paths: PathWriter,
    /// The queue must have room for this many bytes before the next event is taken from the inbox.
    max_event_bytes: usize,
    counters: Arc<BridgeCounters>,
    /// Since when the shard is ready to end and waits only for the game.
    ending_since: Option<Instant>,
}

impl ShardBridge {
    pub(super) fn new(
        events: QueueProducer<ShardEvent>,
        commands: QueueConsumer<Command>,
        paths: PathWriter,
        traffic: &Traffic,
        counters: Arc<BridgeCounters>,
    ) -> Self {
        let max_event_bytes = max_event_bytes(traffic);
        let shares = QueueShares::new(events.max_capacity());
        Self { events, shares, refused: Vec::new(), commands, paths, max_event_bytes, counters, ending_since: None }
    }

    /// Executes the queued commands. A command may fail with an event, so it waits until the queue to the game has
    /// room, unless nothing reads that queue any more.
    fn execute_commands(&mut self, server: &mut Server) {
        for _ in 0..self.commands.len() {
            if self.events.capacity().entries == 0 && !self.events.is_abandoned() {
                return;
            }
            let Some(command) = self.commands.pop() else { return };
            if let Some(event) = self.execute(command, server) {
                self.push(ShardEvent { event, byte_count: 0, info: None }, &[]);
            }
        }
    }

    fn push(&mut self, event: ShardEvent, body: &[u8]) -> bool {
        let (client, bytes) = (event.event.client(), body.len() + content_bytes(&event.event));
        let is_pushed = self.events.push(event, body);
        if is_pushed {
            self.shares.on_pushed(client, bytes);
        }
        is_pushed
    }

    /// Accepts packets again of the clients of which the game has taken enough.
    fn update_shares(&mut self, server: &mut Server) {
        self.shares.on_popped(self.events.len());
        let shares = &self.shares;
        self.refused.retain(|client| {
            let has_room = shares.has_room(*client);
            if has_room {
                server.set_intake(*client, Intake::Open);
            }
            !has_room
        });
    }

    /// Refuses further packets of a client that has used up its share.
    fn check_share(&mut self, client: ClientHandle, server: &mut Server) {
        if self.shares.is_used_up(client) && !self.refused.contains(&client) {
            server.set_intake(client, Intake::Refused);
            self.refused.push(client);
            increment(&self.counters.clients_refused);
        }
    }

    /// Executes a command, and returns the event that reports its result, if there is one.
    fn execute(&mut self, command: Command, server: &mut Server) -> Option<Event<'static>> {
        let body = self.commands.body();
        match command {
            Command::Payload { client, .. } => {
                // A payload may be lost as a datagram may, but it is counted.
                let is_lost = server.send(client, body).is_err();
                add(&self.counters.payloads_not_sent, u64::from(is_lost));
            }
            Command::Message { client, channel, options, .. } => {
                let receipt = options.receipt;
                let sent = with_client(server, client, |mut to| to.send_message_with(channel, body, options));
                return sent.err().map(|error| Event::NotSent { client, channel, receipt, error });
            }
            Command::Broadcast { channel, message, message_bytes, except } => {
                // The game has checked channel and size, so only clients with full queues refuse the message.
                let report = server.broadcast_shared(channel, message, except);
                add(&self.counters.broadcasts_not_sent, report.map_or(0, |report| report.refused).into());
                self.counters.broadcast_bytes.fetch_sub(message_bytes, Ordering::Relaxed);
            }
            Command::Transfer { client, channel, transfer, label } => {
                let sent = with_client(server, client, |mut to| to.send_transfer(channel, transfer, label));
                return Some(transfer_event(client, channel, label, sent));
            }
            Command::Disconnect { client } => {
                let _ = server.client(client).map(ClientRef::disconnect);
            }
            Command::Kick { client, code, .. } => {
                let text = std::str::from_utf8(body).unwrap_or_default();
                let _ = server.client(client).map(|client| client.kick_with(code, text));
            }
            Command::Redirect { client, token, .. } => {
                let text = std::str::from_utf8(body).unwrap_or_default();
                let _ = server.client(client).map(|client| client.redirect(*token, text));
            }
            Command::Run(work) => work(server),
        }
        None
    }

    /// Returns whether a shard that ends keeps waiting for the game.
    fn may_wait(&mut self) -> bool {
        let since = *self.ending_since.get_or_insert_with(Instant::now);
        since.elapsed() <= MAX_END_WAIT && !self.events.is_abandoned()
    }

    /// Passes events on until there is none or the queue is full. Returns whether all were passed on.
    fn pass_events(&mut self, server: &mut Server, inbox: &mut Inbox) -> bool {
        self.update_shares(server);
        while self.events.capacity().fits(self.max_event_bytes, QueueCapacity::ZERO) {
            let Some(event) = inbox.next(server) else { return true };
            let client = event.client();
            let is_passed = match event.split_bytes() {
                (Event::Payload { .. }, body)
                    if self.shares.is_used_up(client) || !self.events.capacity().fits(body.len(), EVENT_RESERVE) =>
                {
                    increment(&self.counters.payloads_dropped);
                    true
                }
                // A sharded server carries no acknowledged packets, and creates the other two itself.
                (Event::Packet { .. } | Event::Sent { .. } | Event::Started { .. } | Event::NotSent { .. }, _) => true,
                (event @ Event::Connected { client, .. }, _) => self.pass_connected(event, client, server),
                (event, body) => self.push(ShardEvent { event, byte_count: body.len(), info: None }, body),
            };
            self.check_share(client, server);
            debug_assert!(is_passed, "the queue had room for the largest event");
        }
        increment(&self.counters.pauses);
        false
    }

    fn pass_connected(&mut self, event: Event<'static>, client: ClientHandle, server: &mut Server) -> bool {
        let facts = |client: ClientRef<'_>| -> (ClientFacts, UserData) {
            (ClientFacts { index: client.client_index(), address: client.address() }, client.user_data())
        };
        match server.client(client).map(facts) {
            Some((info, user_data)) => {
                self.push(ShardEvent { event, byte_count: user_data.len(), info: Some(info) }, &user_data)
            }
            None => self.push(ShardEvent { event, byte_count: 0, info: None }, &[]),
        }
    }
}

/// Returns the event that reports the start of a transfer, or why it did not start.
const fn transfer_event(
    client: ClientHandle,
    channel: ChannelId,
    label: u64,
    started: Result<TransferId, SendError>,
) -> Event<'static> {
    match started {
        Ok(id) => Event::Started { client, channel, id, label },
        Err(error) => Event::NotSent { client, channel, receipt: Some(label), error },
    }
}

/// Returns the bytes that have arrived of a transfer that ended. They are neither in the ring of bytes nor in a memory
/// budget any more.
fn content_bytes(event: &Event<'_>) -> usize {
    match event {
        Event::Partial { partial, .. } => partial.memory_bytes(),
        Event::Channel { event: ChannelEvent::Transfer { event, .. }, .. } => match event {
            TransferEvent::Received { content, .. } => content.len(),
            TransferEvent::Broken { partial: Some(partial), .. } => partial.memory_bytes(),
            _ => 0,
        },
        _ => 0,
    }
}

fn with_client<T>(
    server: &mut Server,
    client: ClientHandle,
    work: impl FnOnce(ClientRef<'_>) -> Result<T, SendError>,
) -> Result<T, SendError> {
    work(server.client(client).ok_or(SendError::Gone)?)
}

/// Returns the size of the largest event that must not be lost. If the queue has no room for it, it stays in the inbox
/// or in the socket. Payloads do not count.
fn max_event_bytes(traffic: &Traffic) -> usize {
    let messages = match traffic {
        Traffic::Channels(layout, _) => layout.channels().map(|channel| channel.max_message_bytes as usize).max(),
        _ => None,
    };
    messages.unwrap_or(0).max(USER_DATA_BYTES)
}

fn increment(counter: &AtomicU64) {
    add(counter, 1);
}

/// Adds to a counter. Only the shard's thread writes it, so a load and a store suffice.
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
}

impl ShardApp for ShardBridge {
    fn turn(&mut self, server: &mut Server, inbox: &mut Inbox) {
        self.execute_commands(server);
        if !self.pass_events(server, inbox) {
            // The game is behind: reading more now would find no room either.
            thread::sleep(FULL_QUEUE_PAUSE);
        }
    }

    fn tick(&mut self, server: &mut Server) {
        self.paths.write(server);
    }

    fn is_done(&mut self) -> bool {
        let left = self.commands.len();
        if left > 0 && self.may_wait() {
            return false;
        }
        if left > 0 {
            warn!(left, "a shard ends without its last commands, because the game did not take its events");
            self.counters.commands_lost.store(left as u64, Ordering::Relaxed);
        }
        true
    }

    fn end(&mut self, server: &mut Server, inbox: &mut Inbox) {
        while !self.pass_events(server, inbox) {
            if !self.may_wait() {
                while inbox.next(server).is_some() {
                    increment(&self.counters.events_lost);
                }
                return;
            }
            thread::sleep(FULL_QUEUE_PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use slipgate_netcode::ids::ClientId;
    use slipgate_session::channel::transfer::{TransferAdmission, TransferConfig, Transfers};

    use super::super::path_table::path_table;
    use super::super::spsc::queue;
    use super::*;
    use crate::server::tests::with_connected_client;

    /// Returns the event of a transfer of these bytes, which ends after this number of its frames.
    fn ended(bytes: Vec<u8>, frames: usize) -> TransferEvent {
        let config = TransferConfig { admission: TransferAdmission::Automatic, ..TransferConfig::default() };
        let [mut one, mut other] = [0; 2].map(|_| Transfers::new(config.clone(), None).unwrap());
        let id = one.begin(Transfer::new(bytes).unwrap(), 0).unwrap();
        let (mut buf, mut written) = ([0; 1200], 0);
        for _ in 0..10 {
            while let Some((bytes, _)) = one.write(&mut buf) {
                other.on_frame(&buf[..bytes]).unwrap();
                written += 1;
                if written == frames {
                    one.cancel(id);
                }
            }
            if let Some(event) = other.poll_event() {
                return event;
            }
            while let Some((bytes, _)) = other.write(&mut buf) {
                one.on_frame(&buf[..bytes]).unwrap();
            }
        }
        panic!("it did not end");
    }

    #[test]
    fn ended_transfers_in_the_queue_count_for_their_client() {
        let channel = ChannelId(0);
        let of = |event| move |client| Event::Channel { client, event: ChannelEvent::Transfer { channel, event } };
        let whole = ended(vec![7; 16 << 10], usize::MAX);
        assert!(matches!(whole, TransferEvent::Received { .. }));
        counts_for_its_client(of(whole));
        let broken = || ended(vec![7; 16 << 10], 10);
        let TransferEvent::Broken { partial: Some(partial), .. } = broken() else { panic!("a part has arrived") };
        counts_for_its_client(of(broken()));
        counts_for_its_client(|client| Event::Partial { client, channel, partial });
    }

    fn counts_for_its_client(event: impl FnOnce(ClientHandle) -> Event<'static>) {
        let (server, _player, _, client) = with_connected_client();
        let traffic = server.traffic().clone();
        let ((events, mut passed), (_, commands)) = (queue(64, 16 << 10), queue(64, 16 << 10));
        let (paths, _) = path_table(&traffic, Duration::ZERO);
        let mut bridge = ShardBridge::new(events, commands, paths, &traffic, Arc::default());
        assert!(bridge.push(ShardEvent { event: event(client), byte_count: 0, info: None }, &[]));
        assert!(bridge.shares.is_used_up(client), "it is larger than an eighth of the queue");
        assert!(passed.pop().is_some());
        bridge.shares.on_popped(bridge.events.len());
        assert!(bridge.shares.has_room(client));
    }

    #[test]
    fn a_client_that_is_closing_already_is_reported_with_its_facts() {
        let (mut server, _player, event, client) = with_connected_client();
        server.kick(client, "before the game knows it").unwrap();
        let traffic = server.traffic().clone();
        let ((events, mut received), (_, commands)) = (queue(64, 16 << 10), queue(64, 16 << 10));
        let (paths, _) = path_table(&traffic, Duration::ZERO);
        let mut bridge = ShardBridge::new(events, commands, paths, &traffic, Arc::default());
        assert!(bridge.pass_connected(event, client, &mut server));
        let passed = received.pop().unwrap();
        assert!(matches!(passed.event, Event::Connected { client_id: ClientId(9), .. }));
        assert!(passed.info.is_some_and(|info| info.address.is_some()), "the game's thread needs them to register it");
        assert_eq!(received.body(), [9; USER_DATA_BYTES]);
    }
}
