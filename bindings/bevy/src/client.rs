//! The client: a resource and a plugin.

use std::sync::{Mutex, PoisonError};

use bevy_app::{App, Plugin, PostUpdate, PreUpdate};
use bevy_ecs::prelude::*;
use slipgate::ChannelId;
use slipgate::client::{Client, ClientState, Clock, CloseReason, ConnectError, ConnectToken, Event, Inbox};

use crate::SlipgateSystems;

/// A client as a resource.
#[derive(Resource)]
pub struct SlipgateClient {
    /// A client may move between threads, but two must not share it. The mutex is never locked.
    inner: Mutex<(Client, Inbox)>,
    clock: Clock,
    /// The state at the end of the last turn, and of the turn before.
    state: ClientState,
    state_before: ClientState,
}

/// A message of a channel, copied by the plugin.
#[derive(Message, Clone, PartialEq, Eq, Debug)]
pub struct ServerMessage {
    /// The channel.
    pub channel: ChannelId,
    /// 0 bytes to the channel's `max_message_bytes`.
    pub bytes: Vec<u8>,
}

/// The attempt or the connection has ended; written by the plugin that copies messages.
#[derive(Message, Clone, PartialEq, Eq, Debug)]
pub struct ClientEnded {
    /// Why. Its `Display` is a sentence for the player.
    pub reason: CloseReason,
}

/// The server has sent the client to another one, to which it connects by itself; written by the plugin that copies
/// messages. A new connection or [`ClientEnded`] follows. Messages that were not acknowledged are lost.
#[derive(Message, Clone, PartialEq, Eq, Debug)]
pub struct ClientRedirected {
    /// Why the server has ended the connection.
    pub reason: CloseReason,
}

impl SlipgateClient {
    /// Creates the resource.
    #[must_use]
    pub fn new(client: Client) -> Self {
        let (state, inner) = (client.state(), Mutex::new((client, Inbox::default())));
        Self { inner, clock: Clock::start(), state, state_before: state }
    }

    fn parts(&mut self) -> &mut (Client, Inbox) {
        self.inner.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the client, for everything beside the turn: sends, path, budget.
    pub fn client(&mut self) -> &mut Client {
        &mut self.parts().0
    }

    /// Starts to connect; see [`Client::connect`].
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect(&mut self, token: ConnectToken) -> Result<(), ConnectError> {
        let now = self.clock.now();
        self.client().connect(token, now)
    }

    /// Returns the next event of this turn. Its bytes are lent until the next one.
    pub fn next_event(&mut self) -> Option<Event<'_>> {
        let (client, inbox) = self.parts();
        inbox.next(client)
    }

    /// Returns the state at the end of the last turn.
    #[must_use]
    pub const fn state(&self) -> ClientState {
        self.state
    }

    fn begin_turn(&mut self) {
        let now = self.clock.now();
        self.client().begin_turn(now);
    }

    fn end_turn(&mut self) {
        let client = self.client();
        client.end_turn();
        let state = client.state();
        (self.state_before, self.state) = (self.state, state);
    }
}

/// Runs the turn of a [`SlipgateClient`], which a game may insert and remove at any time.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlipgateClientPlugin {
    /// Whether the plugin takes all events itself, and copies the messages of channels into [`ServerMessage`]s, the
    /// end into [`ClientEnded`] and a redirect into [`ClientRedirected`]. Other events are dropped. Otherwise the
    /// game calls [`SlipgateClient::next_event`].
    pub copy_messages: bool,
}

impl Plugin for SlipgateClientPlugin {
    fn build(&self, app: &mut App) {
        app.add_message::<ServerMessage>().add_message::<ClientEnded>().add_message::<ClientRedirected>();
        let exists = resource_exists::<SlipgateClient>;
        app.add_systems(PreUpdate, begin_turn.in_set(SlipgateSystems::Receive).run_if(exists));
        app.add_systems(PostUpdate, end_turn.in_set(SlipgateSystems::Send).run_if(exists));
        if self.copy_messages {
            let copies = copy_messages.in_set(SlipgateSystems::Receive).after(begin_turn);
            app.add_systems(PreUpdate, copies.run_if(exists));
        }
    }
}

fn begin_turn(mut client: ResMut<SlipgateClient>) {
    client.begin_turn();
}

fn end_turn(mut client: ResMut<SlipgateClient>) {
    client.end_turn();
}

fn copy_messages(
    mut client: ResMut<SlipgateClient>,
    mut messages: MessageWriter<ServerMessage>,
    mut ended: MessageWriter<ClientEnded>,
    mut redirected: MessageWriter<ClientRedirected>,
) {
    while let Some(event) = client.next_event() {
        match event {
            Event::Message { channel, bytes, .. } => {
                messages.write(ServerMessage { channel, bytes: bytes.to_vec() });
            }
            Event::Ended { reason } => {
                ended.write(ClientEnded { reason });
            }
            Event::Redirected { reason } => {
                redirected.write(ClientRedirected { reason });
            }
            _ => {}
        }
    }
}

/// Returns whether the client is connected: a run condition.
pub fn client_connected(client: Option<Res<SlipgateClient>>) -> bool {
    client.is_some_and(|client| client.state.is_connected())
}

/// Returns whether the client has connected in the last frame: a run condition.
pub fn client_just_connected(client: Option<Res<SlipgateClient>>) -> bool {
    client.is_some_and(|client| client.state.is_connected() && !client.state_before.is_connected())
}

/// Returns whether the connection or the attempt has ended in the last frame: a run condition.
pub fn client_just_ended(client: Option<Res<SlipgateClient>>) -> bool {
    client.is_some_and(|client| !client.state.is_active() && client.state_before.is_active())
}
