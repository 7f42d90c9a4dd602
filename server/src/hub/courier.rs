//! The shard's side of a [`Hub`](super::Hub): it carries what happened to the game's thread, and does what that one asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use slipgate_netcode::address::Address;
use slipgate_netcode::wire::USER_DATA_BYTES;
use slipgate_session::channel::block::Block;
use slipgate_session::channel::control::ByeCode;
use slipgate_session::channel::{ChannelId, SendOptions};
use slipgate_session::session::{End, Traffic};
use tracing::warn;

use super::lane::{Entry, Inlet, NOTHING, Outlet, Room};
use super::paths::Writer;
use crate::crew::Game;
use crate::{ClientHandle, Event, Inbox, Server};

/// What payloads leave free for events, which may not be lost.
const FOR_EVENTS: Room = Room { entries: 16, bytes: 16 * USER_DATA_BYTES };
/// How long a shard that found no room rests.
const REST: Duration = Duration::from_millis(1);
/// How long a shard that ends waits for the game to take its news: before it does what was asked last, and its last events.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// What a shard tells the game: an event, whose bytes go beside it.
pub(super) struct News {
    pub(super) event: Event<'static>,
    pub(super) bytes: usize,
    pub(super) more: More,
}

/// What belongs to an event, and is asked of the server where that is at hand.
pub(super) enum More {
    Nothing,
    /// Of one that has come, with its user data for bytes. Nothing is known any more of one that has left before its shard
    /// could tell.
    Known(Known),
    /// Of one that has left: what was said.
    End(End),
}

/// What is known of a client that is there.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) index: u32,
    pub(super) address: Option<Address>,
}

impl Entry for News {
    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Work on a shard, by its server.
pub(super) type Work = Box<dyn FnOnce(&mut Server) + Send>;

/// What the game asks of a shard.
pub(super) enum Errand {
    Payload {
        client: ClientHandle,
        bytes: usize,
    },
    Message {
        client: ClientHandle,
        channel: ChannelId,
        options: SendOptions,
        bytes: usize,
    },
    /// Its content is shared, and not copied.
    Block {
        client: ClientHandle,
        channel: ChannelId,
        block: Block,
        label: u64,
    },
    Disconnect {
        client: ClientHandle,
    },
    /// With a text for people.
    Kick {
        client: ClientHandle,
        code: ByeCode,
        bytes: usize,
    },
    Do(Work),
}

impl Entry for Errand {
    fn bytes(&self) -> usize {
        match self {
            Self::Payload { bytes, .. } | Self::Message { bytes, .. } | Self::Kick { bytes, .. } => *bytes,
            Self::Block { .. } | Self::Disconnect { .. } | Self::Do(_) => 0,
        }
    }
}

/// What a courier counts, for the game to look at.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) payloads_dropped: AtomicU64,
    pub(super) payloads_unsent: AtomicU64,
    pub(super) pauses: AtomicU64,
    pub(super) events_lost: AtomicU64,
    pub(super) errands_lost: AtomicU64,
}

pub(super) struct Courier {
    pub(super) news: Inlet<News>,
    pub(super) errands: Outlet<Errand>,
    paths: Writer,
    /// What must find room before the next thing is taken from the inbox.
    largest: usize,
    counters: Arc<Counters>,
    /// Since when its shard waits for nothing but the game.
    ending: Option<Instant>,
}

impl Courier {
    pub(super) fn new(
        news: Inlet<News>,
        errands: Outlet<Errand>,
        paths: Writer,
        traffic: &Traffic,
        counters: Arc<Counters>,
    ) -> Self {
        Self { news, errands, paths, largest: largest_without_loss(traffic), counters, ending: None }
    }

    /// Does what the game has asked. What fails is told, so nothing is done without room to tell it, while anybody listens.
    fn run_errands(&mut self, server: &mut Server) {
        for _ in 0..self.errands.waiting() {
            if self.news.room().entries == 0 && !self.news.is_abandoned() {
                return;
            }
            let Some(errand) = self.errands.take() else { return };
            let body = self.errands.body();
            match errand {
                Errand::Payload { client, .. } => {
                    // As datagrams may be, it is lost; but not in silence.
                    if server.send(client, body).is_err() {
                        count(&self.counters.payloads_unsent);
                    }
                }
                Errand::Message { client, channel, options, .. } => {
                    if let Err(error) = server.send_message_with(client, channel, body, options) {
                        let event = Event::Unsent { client, channel, receipt: options.receipt, error };
                        self.news.put(News { event, bytes: 0, more: More::Nothing }, &[]);
                    }
                }
                Errand::Block { client, channel, block, label } => {
                    let event = match server.send_block(client, channel, block, label) {
                        Ok(id) => Event::Begun { client, channel, id, label },
                        Err(error) => Event::Unsent { client, channel, receipt: Some(label), error },
                    };
                    self.news.put(News { event, bytes: 0, more: More::Nothing }, &[]);
                }
                Errand::Disconnect { client } => {
                    server.disconnect(client);
                }
                Errand::Kick { client, code, .. } => {
                    server.kick_with(client, code, std::str::from_utf8(body).unwrap_or_default());
                }
                Errand::Do(work) => work(server),
            }
        }
    }

    /// Whether a shard that ends waits on for the game.
    fn may_wait(&mut self) -> bool {
        let since = *self.ending.get_or_insert_with(Instant::now);
        since.elapsed() <= LAST_WAIT && !self.news.is_abandoned()
    }

    /// Tells what has happened, until nothing has or there is no room. Answers whether all was told.
    fn tell_news(&mut self, server: &mut Server, inbox: &mut Inbox) -> bool {
        while self.news.room().takes(self.largest, NOTHING) {
            let Some(event) = inbox.next(server) else { return true };
            let is_told = match event.take_apart() {
                (Event::Payload { .. }, body) if !self.news.room().takes(body.len(), FOR_EVENTS) => {
                    count(&self.counters.payloads_dropped);
                    true
                }
                // A hub carries no acknowledged packets, and the others are its own.
                (Event::Packet { .. } | Event::Sent { .. } | Event::Begun { .. } | Event::Unsent { .. }, _) => true,
                (event, body) => {
                    let (more, body) = more_of(&event, server, body);
                    self.news.put(News { event, bytes: body.len(), more }, body)
                }
            };
            debug_assert!(is_told, "there was room for the largest");
        }
        count(&self.counters.pauses);
        false
    }
}

/// What belongs to an event, and the bytes that go with it.
fn more_of<'a>(event: &Event<'_>, server: &'a Server, body: &'a [u8]) -> (More, &'a [u8]) {
    match event {
        Event::Connected { client, .. } => server.client(*client).map_or((More::Nothing, body), |info| {
            (More::Known(Known { index: info.index, address: info.address }), info.user_data)
        }),
        Event::Disconnected { client, .. } => (server.end(*client).cloned().map_or(More::Nothing, More::End), body),
        _ => (More::Nothing, body),
    }
}

/// The largest thing that may not be lost: what the ring has no room for stays in the inbox, or in the socket. Payloads are
/// not among them.
fn largest_without_loss(traffic: &Traffic) -> usize {
    let messages = match traffic {
        Traffic::Channels(layout, _) => layout.channels().map(|channel| channel.max_message_bytes as usize).max(),
        _ => None,
    };
    messages.unwrap_or(0).max(USER_DATA_BYTES)
}

fn count(counter: &AtomicU64) {
    // This thread alone writes it.
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

impl Game for Courier {
    fn turn(&mut self, server: &mut Server, inbox: &mut Inbox) {
        self.run_errands(server);
        if !self.tell_news(server, inbox) {
            // The game is behind. Whoever reads on now finds no room either.
            thread::sleep(REST);
        }
    }

    fn tick(&mut self, server: &mut Server) {
        self.paths.write(server);
    }

    fn is_done(&mut self) -> bool {
        let left = self.errands.waiting();
        if left > 0 && self.may_wait() {
            return false;
        }
        if left > 0 {
            warn!(left, "the game took no news of a shard that ends: what it had asked last is not done");
            self.counters.errands_lost.store(left as u64, Ordering::Relaxed);
        }
        true
    }

    fn end(&mut self, server: &mut Server, inbox: &mut Inbox) {
        while !self.tell_news(server, inbox) {
            if !self.may_wait() {
                while inbox.next(server).is_some() {
                    count(&self.counters.events_lost);
                }
                return;
            }
            thread::sleep(REST);
        }
    }
}
