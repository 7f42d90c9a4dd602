//! The clients of a draining server on their way to other servers: the game asks for a token for each, a driver gets it
//! from the issuer, and the game sends it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use slipgate_netcode::ids::ClientId;
use slipgate_server::connection::ConnectToken;
use slipgate_server::{ClientHandle, Instant, Server, UserData};

use crate::population::lock;

/// The maximum number of clients that one turn redirects, which bounds its work.
const MAX_PER_TURN: usize = 32;
/// The time between two looks for clients without a request: a handshake may end during the drain.
const SCAN_INTERVAL: Duration = Duration::from_millis(250);

/// A client that needs a token for another server.
#[derive(Clone)]
pub(crate) struct RedirectRequest {
    pub(crate) client: ClientHandle,
    pub(crate) client_id: ClientId,
    pub(crate) user_data: Box<UserData>,
}

/// The requests of the game, and the tokens for them. The game's threads only try these locks.
#[derive(Default)]
pub(crate) struct RedirectQueue {
    /// Whether a driver takes requests.
    is_enabled: AtomicBool,
    /// Whether the issuer knows that this server drains: before, it may choose this server.
    is_drain_known: AtomicBool,
    requests: Mutex<VecDeque<RedirectRequest>>,
    tokens: Mutex<VecDeque<(ClientHandle, ConnectToken)>>,
}

impl RedirectQueue {
    pub(crate) fn enable(&self) {
        self.is_enabled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn set_drain_known(&self) {
        self.is_drain_known.store(true, Ordering::Relaxed);
    }

    /// Takes all requests, none before the issuer knows of the drain.
    pub(crate) fn take_requests(&self) -> VecDeque<RedirectRequest> {
        if !self.is_drain_known.load(Ordering::Relaxed) {
            return VecDeque::new();
        }
        std::mem::take(&mut *lock(&self.requests))
    }

    /// Adds requests that could not be served yet.
    pub(crate) fn put_back(&self, requests: impl IntoIterator<Item = RedirectRequest>) {
        lock(&self.requests).extend(requests);
    }

    /// Returns the clients for which there are tokens that no turn has taken.
    #[cfg(test)]
    pub(crate) fn clients_with_tokens(&self) -> Vec<ClientHandle> {
        lock(&self.tokens).iter().map(|(client, _)| *client).collect()
    }

    /// Adds the token for a request.
    pub(crate) fn push_token(&self, client: ClientHandle, token: ConnectToken) {
        lock(&self.tokens).push_back((client, token));
    }
}

/// The part of one server, or of one shard.
#[derive(Default)]
pub(crate) struct ShardRedirects {
    requested: BTreeSet<ClientHandle>,
    next_scan: Option<Instant>,
}

impl ShardRedirects {
    /// Requests a token for each client of a draining server that can follow, and sends the tokens that have come.
    pub(crate) fn on_turn(&mut self, server: &mut Server, queue: &RedirectQueue, now: Instant) {
        if !queue.is_enabled.load(Ordering::Relaxed) {
            return;
        }
        if self.next_scan.is_none_or(|next| now >= next) && self.request_tokens(server, queue) {
            self.next_scan = Some(now.after(SCAN_INTERVAL));
        }
        self.send_tokens(server, queue);
    }

    /// Returns false while a driver holds the queue.
    fn request_tokens(&mut self, server: &mut Server, queue: &RedirectQueue) -> bool {
        let Some(mut requests) = try_lock(&queue.requests) else { return false };
        let new: Vec<_> = server.clients().filter(|client| !self.requested.contains(client)).collect();
        for client in new {
            let Some(found) = server.client(client) else { continue };
            // Without channels no message can carry the token.
            if found.connection().is_some() {
                let (client_id, user_data) = (found.client_id(), Box::new(found.user_data()));
                requests.push_back(RedirectRequest { client, client_id, user_data });
            }
            self.requested.insert(client);
        }
        true
    }

    fn send_tokens(&mut self, server: &mut Server, queue: &RedirectQueue) {
        let Some(mut tokens) = try_lock(&queue.tokens) else { return };
        // The clients of other shards stay in the queue.
        let mut left = MAX_PER_TURN;
        tokens.retain(|(client, token)| {
            if left == 0 || !self.requested.contains(client) {
                return true;
            }
            left -= 1;
            if let Some(found) = server.client(*client) {
                // A client that left meanwhile needs no token.
                let _ = found.redirect(token.clone(), "");
            }
            false
        });
    }
}

/// Locks a mutex, unless another thread holds it: then the next turn tries again.
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        // Poisoning is harmless: the critical sections only move values.
        Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
