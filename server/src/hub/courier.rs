//! The shard's side of a [`Hub`](super::Hub): it carries what happened to the game's thread, and does what that one asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use slipgate_protocol::address::Address;
use slipgate_protocol::channel::block::{Block, BlockId, PartialBlock};
use slipgate_protocol::channel::control::ByeCode;
use slipgate_protocol::channel::{ChannelEvent, ChannelId, SendOptions};
use slipgate_protocol::session::{End, SendError, Traffic};
use slipgate_protocol::wire::USER_DATA_BYTES;

use super::lane::{Entry, Inlet, NOTHING, Outlet, Room};
use crate::crew::Game;
use crate::{ClientHandle, DisconnectReason, Event, Inbox, Server};

/// What payloads leave free for events, which may not be lost.
const FOR_EVENTS: Room = Room { entries: 16, bytes: 16 * USER_DATA_BYTES };
/// How long a shard that found no room rests.
const REST: Duration = Duration::from_millis(1);
/// How long a shard that ends waits for the game to take its last events.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// What a shard tells the game.
pub(super) enum News {
    /// With its user data. Nothing is known any more of one that has left before its shard could tell.
    Connected {
        client: ClientHandle,
        client_id: u64,
        known: Option<Known>,
    },
    Disconnected {
        client: ClientHandle,
        client_id: u64,
        reason: DisconnectReason,
        end: Option<End>,
    },
    Payload {
        client: ClientHandle,
        sequence: u64,
        bytes: usize,
    },
    Message {
        client: ClientHandle,
        channel: ChannelId,
        bytes: usize,
    },
    Channel {
        client: ClientHandle,
        event: ChannelEvent,
    },
    Partial {
        client: ClientHandle,
        channel: ChannelId,
        partial: PartialBlock,
    },
    Begun {
        client: ClientHandle,
        channel: ChannelId,
        id: BlockId,
        label: u64,
    },
    Unsent {
        client: ClientHandle,
        channel: ChannelId,
        receipt: Option<u64>,
        error: SendError,
    },
}

/// What is known of a client that is there.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) index: u32,
    pub(super) address: Option<Address>,
}

impl Entry for News {
    fn bytes(&self) -> usize {
        match self {
            Self::Connected { .. } => USER_DATA_BYTES,
            Self::Payload { bytes, .. } | Self::Message { bytes, .. } => *bytes,
            _ => 0,
        }
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
}

pub(super) struct Courier {
    pub(super) news: Inlet<News>,
    pub(super) errands: Outlet<Errand>,
    /// What must find room before the next thing is taken from the inbox.
    largest: usize,
    counters: Arc<Counters>,
}

impl Courier {
    pub(super) fn new(news: Inlet<News>, errands: Outlet<Errand>, traffic: &Traffic, counters: Arc<Counters>) -> Self {
        Self { news, errands, largest: largest_without_loss(traffic), counters }
    }

    /// Does what the game has asked. What fails is told, so nothing is done without room to tell it.
    fn run_errands(&mut self, server: &mut Server) {
        for _ in 0..self.errands.waiting() {
            if self.news.room().entries == 0 {
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
                        self.news.put(News::Unsent { client, channel, receipt: options.receipt, error }, &[]);
                    }
                }
                Errand::Block { client, channel, block, label } => {
                    let begun = server.send_block(client, channel, block, label);
                    let unsent = |error| News::Unsent { client, channel, receipt: Some(label), error };
                    self.news.put(begun.map_or_else(unsent, |id| News::Begun { client, channel, id, label }), &[]);
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

    /// Tells what has happened, until nothing has or there is no room. Answers whether all was told.
    fn tell_news(&mut self, server: &mut Server, inbox: &mut Inbox) -> bool {
        while self.news.room().takes(self.largest, NOTHING) {
            let Some(event) = inbox.next(server) else { return true };
            let is_told = match event {
                Event::Connected { client, client_id } => {
                    let info = server.client(client);
                    let known = info.map(|info| Known { index: info.index, address: info.address });
                    let user_data = info.map_or(&[0; USER_DATA_BYTES], |info| info.user_data);
                    self.news.put(News::Connected { client, client_id, known }, user_data)
                }
                Event::Disconnected { client, client_id, reason } => {
                    let end = server.end(client).cloned();
                    self.news.put(News::Disconnected { client, client_id, reason, end }, &[])
                }
                Event::Payload { client, sequence, bytes } => {
                    let has_room = self.news.room().takes(bytes.len(), FOR_EVENTS);
                    if !has_room {
                        count(&self.counters.payloads_dropped);
                    }
                    !has_room || self.news.put(News::Payload { client, sequence, bytes: bytes.len() }, bytes)
                }
                Event::Message { client, channel, bytes } => {
                    self.news.put(News::Message { client, channel, bytes: bytes.len() }, bytes)
                }
                Event::Channel { client, event } => self.news.put(News::Channel { client, event }, &[]),
                Event::Partial { client, channel, partial } => {
                    self.news.put(News::Partial { client, channel, partial }, &[])
                }
                // A hub carries no acknowledged packets, and the others are its own.
                Event::Packet { .. } | Event::Sent { .. } | Event::Begun { .. } | Event::Unsent { .. } => true,
            };
            debug_assert!(is_told, "there was room for the largest");
        }
        count(&self.counters.pauses);
        false
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

    fn end(&mut self, server: &mut Server, inbox: &mut Inbox) {
        let start = Instant::now();
        while !self.tell_news(server, inbox) && !self.news.is_abandoned() {
            if start.elapsed() > LAST_WAIT {
                while inbox.next(server).is_some() {
                    count(&self.counters.events_lost);
                }
                return;
            }
            thread::sleep(REST);
        }
    }
}
