//! The clients of a draining server on their way to other servers: the game asks for a token for each, a driver gets it
//! from the issuer, and the game sends it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use slipgate_netcode::ids::ClientId;
use slipgate_server::connection::ConnectToken;
use slipgate_server::sharded::{ShardClient, ShardedServer};
use slipgate_server::{ClientHandle, Instant, SendError, Server, Traffic, UserData};

use crate::population::lock;
use crate::redirect_counts::RedirectCounter;

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
    pub(crate) counter: RedirectCounter,
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
    #[cfg(all(test, unix))]
    pub(crate) fn clients_with_tokens(&self) -> Vec<ClientHandle> {
        lock(&self.tokens).iter().map(|(client, _)| *client).collect()
    }

    /// Adds the token for a request.
    pub(crate) fn push_token(&self, client: ClientHandle, token: ConnectToken) {
        lock(&self.tokens).push_back((client, token));
    }
}

/// The server of a game loop, or one shard of a server.
pub(crate) trait RedirectingServer {
    /// Returns each client that is not in `known`, and its request if it can follow. Without channels no message can
    /// carry a token.
    fn new_clients(&mut self, known: &BTreeSet<ClientHandle>) -> Vec<(ClientHandle, Option<RedirectRequest>)>;

    /// Sends a client to another server.
    ///
    /// # Errors
    /// `Backlogged`: the same call may succeed in a later turn.
    fn redirect(&mut self, client: ClientHandle, token: ConnectToken) -> Result<(), SendError>;
}

impl RedirectingServer for Server {
    fn new_clients(&mut self, known: &BTreeSet<ClientHandle>) -> Vec<(ClientHandle, Option<RedirectRequest>)> {
        let new: Vec<_> = self.clients().filter(|client| !known.contains(client)).collect();
        let request = |client| {
            let found = self.client(client)?;
            let (client_id, user_data) = (found.client_id(), Box::new(found.user_data()));
            let request = RedirectRequest { client, client_id, user_data };
            Some((client, found.connection().is_some().then_some(request)))
        };
        new.into_iter().filter_map(request).collect()
    }

    fn redirect(&mut self, client: ClientHandle, token: ConnectToken) -> Result<(), SendError> {
        self.client(client).ok_or(SendError::Gone)?.redirect(token, "")
    }
}

impl RedirectingServer for ShardedServer {
    fn new_clients(&mut self, known: &BTreeSet<ClientHandle>) -> Vec<(ClientHandle, Option<RedirectRequest>)> {
        let has_channels = matches!(self.traffic(), Traffic::Channels(..));
        let request = |found: &ShardClient| {
            let (client, client_id, user_data) = (found.client, found.client_id, Box::new(found.user_data));
            (client, has_channels.then_some(RedirectRequest { client, client_id, user_data }))
        };
        self.clients().filter(|found| !known.contains(&found.client)).map(request).collect()
    }

    fn redirect(&mut self, client: ClientHandle, token: ConnectToken) -> Result<(), SendError> {
        self.redirect(client, token, "")
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
    pub(crate) fn on_turn(&mut self, server: &mut impl RedirectingServer, queue: &RedirectQueue, now: Instant) {
        if !queue.is_enabled.load(Ordering::Relaxed) {
            return;
        }
        if self.next_scan.is_none_or(|next| now >= next) && self.request_tokens(server, queue) {
            self.next_scan = Some(now.after(SCAN_INTERVAL));
        }
        self.send_tokens(server, queue);
    }

    /// Returns false while a driver holds the queue.
    fn request_tokens(&mut self, server: &mut impl RedirectingServer, queue: &RedirectQueue) -> bool {
        let Some(mut requests) = try_lock(&queue.requests) else { return false };
        for (client, request) in server.new_clients(&self.requested) {
            self.requested.insert(client);
            match request {
                Some(request) => {
                    queue.counter.on_requested();
                    requests.push_back(request);
                }
                None => queue.counter.on_without_channels(),
            }
        }
        true
    }

    fn send_tokens(&mut self, server: &mut impl RedirectingServer, queue: &RedirectQueue) {
        let Some(mut tokens) = try_lock(&queue.tokens) else { return };
        // The clients of other shards stay in the queue.
        let mut left = MAX_PER_TURN;
        tokens.retain(|(client, token)| {
            if left == 0 || !self.requested.contains(client) {
                return true;
            }
            left -= 1;
            let result = server.redirect(*client, token.clone());
            match result {
                Ok(()) => queue.counter.on_sent(),
                Err(SendError::Backlogged) => {}
                Err(_) => queue.counter.on_left(),
            }
            result == Err(SendError::Backlogged)
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
