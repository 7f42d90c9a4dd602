//! The game's backend: it requests tokens for its players from the issuers, and reads the list of servers.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use slipgate_client::ConnectToken;

use super::{GROUP, TIMEOUT};

/// The maximum time of a request. A killed issuer refuses at once.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// A token, and when it was requested.
pub(crate) struct MintedToken {
    pub(crate) requested: Instant,
    pub(crate) token: ConnectToken,
    pub(crate) server_ids: Vec<String>,
}

/// A backend that knows several issuers.
#[derive(Clone)]
pub(crate) struct Backend {
    agent: ureq::Agent,
    issuers: Vec<SocketAddr>,
    bearer: String,
}

impl Backend {
    pub(crate) fn new(issuers: &[SocketAddr], key: &str) -> Self {
        let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(REQUEST_TIMEOUT));
        let agent = config.proxy(None).build().into();
        Self { agent, issuers: issuers.to_vec(), bearer: format!("Bearer {key}") }
    }

    /// Requests a token for a player from the first issuer that mints one, in an order that depends on the player.
    pub(crate) fn token(&self, client_id: u64) -> Option<MintedToken> {
        let body = json!({"client_id": client_id.to_string(), "group": GROUP, "timeout_seconds": TIMEOUT.as_secs()});
        let first = client_id as usize % self.issuers.len();
        let order = self.issuers[first..].iter().chain(&self.issuers[..first]);
        order.copied().find_map(|issuer| {
            let requested = Instant::now();
            let request = self.agent.post(format!("http://{issuer}/v1/tokens")).header("Authorization", &self.bearer);
            let mut response = request.content_type("application/json").send(body.to_string()).ok()?;
            let minted: Value = serde_json::from_str(&response.body_mut().read_to_string().ok()?).ok()?;
            let token = STANDARD.decode(minted["token"].as_str()?).ok()?;
            let servers = minted["server_ids"].as_array()?.iter();
            let server_ids = servers.map(|server| server.as_str().unwrap().to_owned()).collect();
            Some(MintedToken { requested, token: ConnectToken::from_bytes(&token).ok()?, server_ids })
        })
    }

    /// Returns the registered servers by the first issuer that responds.
    pub(crate) fn servers(&self) -> Vec<Value> {
        let list = self.issuers.iter().find_map(|issuer| {
            let request = self.agent.get(format!("http://{issuer}/v1/servers")).header("Authorization", &self.bearer);
            let mut response = request.call().ok().filter(|response| response.status() == 200)?;
            let list: Value = serde_json::from_str(&response.body_mut().read_to_string().ok()?).ok()?;
            list["servers"].as_array().cloned()
        });
        list.unwrap_or_default()
    }

    /// Returns the ids of the servers in this state.
    pub(crate) fn in_state(&self, state: &str) -> Vec<String> {
        let servers = self.servers().into_iter().filter(|server| server["state"] == state);
        servers.map(|server| server["id"].as_str().unwrap().to_owned()).collect()
    }
}

/// Requests tokens on threads of its own, so that players go on meanwhile.
pub(crate) struct TokenFetcher {
    requests: Sender<u64>,
    tokens: Receiver<(u64, Option<MintedToken>)>,
}

impl TokenFetcher {
    /// Starts this number of threads.
    pub(crate) fn start(backend: &Backend, threads: usize) -> Self {
        let ((requests, queue), (done, tokens)) = (channel(), channel());
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..threads {
            let (backend, queue, done) = (backend.clone(), Arc::clone(&queue), done.clone());
            thread::spawn(move || {
                loop {
                    let next = queue.lock().unwrap().recv();
                    let Ok(client_id) = next else { return };
                    let _ = done.send((client_id, backend.token(client_id)));
                }
            });
        }
        Self { requests, tokens }
    }

    pub(crate) fn request(&self, client_id: u64) {
        self.requests.send(client_id).unwrap();
    }

    /// Returns a token that has come, or `None` for a player without one.
    pub(crate) fn next(&self) -> Option<(u64, Option<MintedToken>)> {
        self.tokens.try_recv().ok()
    }
}
