//! The built-in applications, for trying things out: `echo` and `relay`.

use clap::ValueEnum;
use serde::Deserialize;
use slipgate_server::{ClientHandle, Event, Inbox, Server};

/// The application that handles the clients' payloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AppKind {
    /// Sends each payload back to its sender
    #[default]
    Echo,
    /// Sends each payload to all other clients
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

/// A running application with its state.
pub(crate) enum App {
    Echo,
    Relay {
        /// The connected clients, in no particular order.
        clients: Vec<ClientHandle>,
    },
}

impl App {
    pub(crate) fn new(kind: AppKind, slots: u32) -> Self {
        match kind {
            AppKind::Echo => Self::Echo,
            AppKind::Relay => Self::Relay { clients: Vec::with_capacity(slots as usize) },
        }
    }

    /// Handles all events of this turn.
    pub(crate) fn handle_events(&mut self, server: &mut Server, inbox: &mut Inbox) {
        while let Some(event) = inbox.next(server) {
            match self {
                Self::Echo => echo(&event, server),
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
