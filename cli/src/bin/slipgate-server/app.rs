//! The built-in applications, for trying things out: `echo`, `echo-messages` and `relay`.

use clap::ValueEnum;
use serde::Deserialize;
use slipgate_cli::Failure;
use slipgate_server::{Channel, ClientHandle, Event, Inbox, Layout, Server, Traffic};

/// The application that handles what clients send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AppKind {
    /// Sends each payload back to its sender
    #[default]
    Echo,
    /// Sends each message back on its channel: `reliable`, ordered, and `state`, sequenced
    EchoMessages,
    /// Sends each payload to all other clients
    Relay,
}

impl AppKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::EchoMessages => "echo-messages",
            Self::Relay => "relay",
        }
    }

    /// Returns whether the clients have channels, on which they can be redirected.
    pub(crate) const fn has_channels(self) -> bool {
        matches!(self, Self::EchoMessages)
    }

    /// Sets what the payloads of the application's clients carry.
    pub(crate) fn set_traffic(self, server: Server) -> Result<Server, Failure> {
        if !self.has_channels() {
            return Ok(server);
        }
        let mut layout = Layout::builder();
        layout.add(Channel::reliable_ordered("reliable"));
        layout.add(Channel::sequenced("state"));
        let layout = layout.build().map_err(|error| Failure::run_time(error.to_string()))?;
        server.with_traffic(Traffic::channels(layout)).map_err(|error| Failure::run_time(error.to_string()))
    }
}

/// A running application with its state.
pub(crate) enum App {
    Echo,
    EchoMessages,
    Relay {
        /// The connected clients, in no particular order.
        clients: Vec<ClientHandle>,
    },
}

impl App {
    pub(crate) fn new(kind: AppKind, slots: u32) -> Self {
        match kind {
            AppKind::Echo => Self::Echo,
            AppKind::EchoMessages => Self::EchoMessages,
            AppKind::Relay => Self::Relay { clients: Vec::with_capacity(slots as usize) },
        }
    }

    /// Handles all events of this turn.
    pub(crate) fn handle_events(&mut self, server: &mut Server, inbox: &mut Inbox) {
        while let Some(event) = inbox.next(server) {
            match self {
                Self::Echo => echo(&event, server),
                Self::EchoMessages => echo_message(&event, server),
                Self::Relay { clients } => relay(&event, clients, server),
            }
        }
    }
}

fn echo(event: &Event<'_>, server: &mut Server) {
    if let Event::Payload { client, bytes, .. } = event {
        send(server, *client, bytes);
    }
}

/// Sends a message back. One for a full queue is dropped: the client sends faster than its path carries.
fn echo_message(event: &Event<'_>, server: &mut Server) {
    if let Event::Message { client, channel, bytes, .. } = event {
        let _ = server.send_message(*client, *channel, bytes);
    }
}

fn relay(event: &Event<'_>, clients: &mut Vec<ClientHandle>, server: &mut Server) {
    match event {
        Event::Connected { client, .. } => clients.push(*client),
        Event::Disconnected { client, .. } => clients.retain(|other| other != client),
        Event::Payload { client, bytes, .. } => {
            for other in clients.iter().filter(|other| *other != client) {
                send(server, *other, bytes);
            }
        }
        _ => {}
    }
}

/// Sends a payload. A refused one is dropped, as datagrams may be: the client left, or its token is not durable yet.
fn send(server: &mut Server, client: ClientHandle, bytes: &[u8]) {
    let _ = server.send(client, bytes);
}
