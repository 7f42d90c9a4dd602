//! Tokens for the clients of a draining server, from the issuer: a client continues at a server that does not drain
//! (`specs/http-api.md`, POST /v1/tokens).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::Value;
use slipgate_server::connection::ConnectToken;
use tracing::info;
use zeroize::Zeroizing;

use crate::driver::Driver;
use crate::http::{CALL_TIMEOUT, CallMethod, CallResponse, warn_refused};
use crate::issuer_link::{IssuerLink, IssuerReply};
use crate::life_cycle::{LifeCycle, LifeState};
use crate::population::lock;
use crate::redirect_queue::{RedirectQueue, RedirectRequest};
use crate::registration::RegistrationConfig;

/// The maximum number of requests at a time.
const MAX_AT_ONCE: usize = 4;
/// The time between two looks at the requests of a draining server.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The pause after a request that may succeed later: no server of the group has a free slot, or there were too many.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// The time between two looks at the state before the drain; a new state ends the wait.
const IDLE: Duration = Duration::from_secs(60);

/// The body of a request. The issuer knows this server as draining, so it chooses another one.
#[derive(Serialize)]
struct RedirectTokenBody<'a> {
    client_id: String,
    protocol_id: String,
    group: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    regions: Option<[&'a str; 1]>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    only_regions: bool,
    user_data: String,
}

/// The result of one request.
enum RequestOutcome {
    Token(Box<ConnectToken>),
    /// It may succeed later.
    Later(RedirectRequest),
    /// The client stays until the drain is over.
    Refused,
}

/// Requests the tokens, on a thread of its own with some more during a drain.
pub(crate) struct RedirectDriver {
    config: RegistrationConfig,
    issuer: IssuerLink,
    life: LifeCycle,
    queue: Arc<RedirectQueue>,
    /// Whether a refusal is in the log.
    has_warned: bool,
}

impl RedirectDriver {
    pub(crate) fn new(config: RegistrationConfig, life: LifeCycle, queue: Arc<RedirectQueue>) -> Self {
        queue.enable();
        let issuer = IssuerLink::new(&config.issuers, config.authorities.as_ref(), config.key.clone());
        Self { config, issuer, life, queue, has_warned: false }
    }

    /// Requests a token for each waiting client. Returns whether some of them have to wait longer.
    fn serve(&mut self) -> bool {
        let requests = self.queue.take_requests();
        let (count, workers) = (requests.len(), requests.len().min(MAX_AT_ONCE));
        let requests = Mutex::new(requests);
        let (later, refused) = (Mutex::new(VecDeque::new()), Mutex::new(None));
        thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| self.work(&requests, &later, &refused));
            }
        });
        let refused = refused.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(reply) = refused.filter(|_| !std::mem::replace(&mut self.has_warned, true)) {
            warn_refused("issuer", Some(&reply.url), "token for a redirect", &reply.result);
        }
        let later = std::mem::take(&mut *lock(&later));
        let has_later = !later.is_empty();
        if count > later.len() {
            info!(clients = count - later.len(), waiting = later.len(), "clients are redirected to other servers");
        }
        self.queue.put_back(later);
        has_later
    }

    /// Serves requests until none is left, or the server ends.
    fn work(
        &self,
        requests: &Mutex<VecDeque<RedirectRequest>>,
        later: &Mutex<VecDeque<RedirectRequest>>,
        refused: &Mutex<Option<IssuerReply>>,
    ) {
        while self.life.state() == LifeState::Draining {
            let Some(request) = lock(requests).pop_front() else { return };
            let client = request.client;
            let reply = self.request(&request);
            match self.outcome(request, &reply.result) {
                RequestOutcome::Token(token) => self.queue.push_token(client, *token),
                RequestOutcome::Later(request) => {
                    // The others would most likely get the same response. This one is last, in case they do not.
                    let mut later = lock(later);
                    later.append(&mut lock(requests));
                    later.push_back(request);
                    *lock(refused) = Some(reply);
                }
                RequestOutcome::Refused => {
                    self.queue.counter.on_refused();
                    *lock(refused) = Some(reply);
                }
            }
        }
    }

    fn request(&self, request: &RedirectRequest) -> IssuerReply {
        let body = RedirectTokenBody {
            client_id: request.client_id.to_string(),
            protocol_id: self.config.protocol_id.to_string(),
            group: &self.config.group,
            regions: self.config.region.as_deref().map(|region| [region]),
            only_regions: self.config.redirects_in_region && self.config.region.is_some(),
            user_data: STANDARD.encode(&request.user_data[..]),
        };
        self.issuer.call(CALL_TIMEOUT, CallMethod::Post, "/v1/tokens", Some(&body))
    }

    fn outcome(&self, request: RedirectRequest, response: &Result<CallResponse, String>) -> RequestOutcome {
        match response {
            Ok(CallResponse { status: 201, body }) => match token_of(body) {
                // The registry may have forgotten the drain; the next heartbeat repeats it.
                Some(_) if names_server(body, &self.config.server_id) => RequestOutcome::Later(request),
                Some(token) => RequestOutcome::Token(Box::new(token)),
                None => RequestOutcome::Refused,
            },
            Ok(CallResponse { status: 408 | 429 | 500.., .. }) | Err(_) => RequestOutcome::Later(request),
            Ok(_) => RequestOutcome::Refused,
        }
    }
}

/// Returns the token of a response.
fn token_of(body: &Value) -> Option<ConnectToken> {
    let bytes = STANDARD.decode(body.get("token")?.as_str()?).ok().map(Zeroizing::new)?;
    ConnectToken::from_bytes(&bytes).ok()
}

/// Returns whether a response leads to this server.
fn names_server(body: &Value, server_id: &str) -> bool {
    let servers = body.get("server_ids").and_then(Value::as_array);
    servers.into_iter().flatten().any(|server| server.as_str() == Some(server_id))
}

impl Driver for RedirectDriver {
    fn run(&mut self, state: LifeState) -> Option<Duration> {
        match state {
            LifeState::Starting | LifeState::Ready | LifeState::Allocated => Some(IDLE),
            LifeState::Draining => Some(if self.serve() { RETRY_PAUSE } else { POLL_INTERVAL }),
            LifeState::Ended => None,
        }
    }
}

#[cfg(all(test, unix))]
mod tests;
