//! The server: a resource and a plugin.

use std::sync::{Mutex, PoisonError};

use bevy_app::{App, Plugin, PostUpdate, PreUpdate};
use bevy_ecs::prelude::*;
use slipgate::ChannelId;
use slipgate::server::ids::ClientId;
use slipgate::server::{ClientHandle, Clock, CloseReason, Event, Inbox, Server};

use crate::SlipgateSystems;

/// A server as a resource.
#[derive(Resource)]
pub struct SlipgateServer {
    /// A server may move between threads, but two must not share it. The mutex is never locked.
    inner: Mutex<(Server, Inbox)>,
    clock: Clock,
}

/// A client has connected; written by the plugin that copies messages.
#[derive(Message, Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientConnected {
    /// Its handle from now on.
    pub client: ClientHandle,
    /// The client id of its token.
    pub client_id: ClientId,
}

/// A client's connection has ended; written by the plugin that copies messages.
#[derive(Message, Clone, PartialEq, Eq, Debug)]
pub struct ClientDisconnected {
    /// The handle that it had.
    pub client: ClientHandle,
    /// Why.
    pub reason: CloseReason,
}

/// A message of a client, copied by the plugin.
#[derive(Message, Clone, PartialEq, Eq, Debug)]
pub struct ClientMessage {
    /// The sender.
    pub client: ClientHandle,
    /// The channel.
    pub channel: ChannelId,
    /// 0 bytes to the channel's `max_message_bytes`.
    pub bytes: Vec<u8>,
}

impl SlipgateServer {
    /// Creates the resource. `clock` is the one that started the server.
    #[must_use]
    pub fn new(server: Server, clock: Clock) -> Self {
        Self { inner: Mutex::new((server, Inbox::default())), clock }
    }

    fn parts(&mut self) -> &mut (Server, Inbox) {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the server, for everything beside the turn: sends, broadcasts, kicks.
    pub fn server(&mut self) -> &mut Server {
        &mut self.parts().0
    }

    /// Returns the next event of this turn. Its bytes are lent until the next one.
    pub fn next_event(&mut self) -> Option<Event<'_>> {
        let (server, inbox) = self.parts();
        inbox.next(server)
    }
}

/// Runs the turn of a [`SlipgateServer`], which a game may insert and remove at any time.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlipgateServerPlugin {
    /// Whether the plugin takes all events itself, and copies them into [`ClientConnected`], [`ClientMessage`] and
    /// [`ClientDisconnected`]. Other events are dropped. Otherwise the game calls [`SlipgateServer::next_event`].
    pub copy_messages: bool,
}

impl Plugin for SlipgateServerPlugin {
    fn build(&self, app: &mut App) {
        app.add_message::<ClientConnected>().add_message::<ClientMessage>().add_message::<ClientDisconnected>();
        let exists = resource_exists::<SlipgateServer>;
        app.add_systems(PreUpdate, begin_turn.in_set(SlipgateSystems::Receive).run_if(exists));
        app.add_systems(PostUpdate, end_turn.in_set(SlipgateSystems::Send).run_if(exists));
        if self.copy_messages {
            let copies = copy_messages.in_set(SlipgateSystems::Receive).after(begin_turn);
            app.add_systems(PreUpdate, copies.run_if(exists));
        }
    }
}

fn begin_turn(mut server: ResMut<SlipgateServer>) {
    let now = server.clock.now();
    server.server().begin_turn(now);
}

fn end_turn(mut server: ResMut<SlipgateServer>) {
    server.server().end_turn();
}

fn copy_messages(
    mut server: ResMut<SlipgateServer>,
    mut connected: MessageWriter<ClientConnected>,
    mut messages: MessageWriter<ClientMessage>,
    mut disconnected: MessageWriter<ClientDisconnected>,
) {
    while let Some(event) = server.next_event() {
        match event {
            Event::Connected { client, client_id } => {
                connected.write(ClientConnected { client, client_id });
            }
            Event::Message { client, channel, bytes, .. } => {
                messages.write(ClientMessage { client, channel, bytes: bytes.to_vec() });
            }
            Event::Disconnected { client, reason, .. } => {
                disconnected.write(ClientDisconnected { client, reason });
            }
            _ => {}
        }
    }
}

/// Returns whether the program runs a server: a run condition.
pub fn server_running(server: Option<Res<SlipgateServer>>) -> bool {
    server.is_some()
}
