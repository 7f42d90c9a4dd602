//! The clients that have connected since they were last taken, also those that have left since: a registration reports
//! each of them once.

use std::collections::VecDeque;

use slipgate_netcode::ids::ClientId;

use crate::ClientHandle;

/// The maximum number of clients that are kept. A turn admits far fewer.
const MAX_CLIENTS: usize = 1024;

/// A server that remembers the clients that have connected, for a registration.
pub trait TakeNewClients {
    /// Takes the clients with a `Connected` event since the last call, oldest first, also those that have left since.
    /// The last 1024 are kept for the next call. The game must have taken the event.
    fn take_new_clients(&mut self) -> impl Iterator<Item = (ClientHandle, ClientId)>;
}

/// The newest clients, in the order of their `Connected` events.
#[derive(Default)]
pub(crate) struct NewClients(VecDeque<(ClientHandle, ClientId)>);

impl NewClients {
    /// Adds a client. The oldest one gives way if nothing takes them.
    pub(crate) fn add(&mut self, client: ClientHandle, client_id: ClientId) {
        if self.0.len() == MAX_CLIENTS {
            self.0.pop_front();
        }
        self.0.push_back((client, client_id));
    }

    pub(crate) fn take(&mut self) -> impl Iterator<Item = (ClientHandle, ClientId)> + '_ {
        self.0.drain(..)
    }
}
