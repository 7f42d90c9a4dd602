//! What the server does with payloads: it is a dedicated server for trying things out, not a game.

use clap::ValueEnum;
use serde::Deserialize;
use slipgate_server::{ClientHandle, Event, Inbox, Server};

/// What is done with the payloads of clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AppKind {
    /// Each goes back to the client that sent it
    #[default]
    Echo,
    /// What one client sends goes to all others
    Relay,
}

impl AppKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Relay => "relay",
        }
    }
}

/// The application, with what it has to remember.
pub(crate) enum App {
    Echo,
    Relay {
        /// Who is connected, in no order.
        members: Vec<ClientHandle>,
    },
}

impl App {
    pub(crate) fn new(kind: AppKind, slots: u32) -> Self {
        match kind {
            AppKind::Echo => Self::Echo,
            AppKind::Relay => Self::Relay { members: Vec::with_capacity(slots as usize) },
        }
    }

    /// Takes and answers all events of this turn.
    pub(crate) fn answer(&mut self, server: &mut Server, inbox: &mut Inbox) {
        while let Some(event) = inbox.next(server) {
            match self {
                Self::Echo => echo(&event, server),
                Self::Relay { members } => relay(&event, members, server),
            }
        }
    }
}

fn echo(event: &Event<'_>, server: &mut Server) {
    if let Event::Payload { client, bytes, .. } = event {
        send(server, *client, bytes);
    }
}

fn relay(event: &Event<'_>, members: &mut Vec<ClientHandle>, server: &mut Server) {
    match event {
        Event::Connected { client, .. } => members.push(*client),
        Event::Disconnected { client, .. } => members.retain(|member| member != client),
        Event::Payload { client, bytes, .. } => {
            for member in members.iter().filter(|member| *member != client) {
                send(server, *member, bytes);
            }
        }
        _ => {}
    }
}

/// What cannot be sent is lost, as datagrams may be: its client has left, or its slot is not written down yet.
fn send(server: &mut Server, client: ClientHandle, bytes: &[u8]) {
    let _ = server.send(client, bytes);
}
