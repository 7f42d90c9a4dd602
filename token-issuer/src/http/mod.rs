//! The HTTP service: connect tokens for backends in any language. `specs/http-api.md` documents the API.
//!
//! ```text
//!  accept ─▶ serve, connections: limits of all and of each address, which connection gives way
//!              └▶ turns: valid API keys first, others one after the other
//!              └▶ connection: header, write and idle timeouts, age, pipelining
//!              └▶ guard: request timeout, body limit, headers of every response, observer: log lines
//!                   └▶ routes: authorization ─▶ request: parsing ─▶ client_limit ─▶ Issuer::mint ─▶ response
//! ```
//!
//! Metrics would go into the guard, further routes into `routes`.

mod client_limit;
mod connection;
mod connection_io;
mod connection_state;
mod connections;
mod error;
mod guard;
mod line_budget;
mod observer;
mod request;
mod request_id;
mod routes;
mod serve;
mod spawn;
mod turns;

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use slipgate_netcode::ids::ClientId;

use self::client_limit::ClientLimit;
pub use self::connections::MAX_CLOSING;
pub use self::error::ErrorCode;
pub use self::guard::{DRAIN_BYTES, MAX_BODY_BYTES};
use self::observer::Observer;
pub use self::request::REQUEST_FIELDS;
pub use self::routes::{RESPONSE_FIELDS, ROUTES, router};
pub use self::serve::serve;
pub use self::spawn::{RunningService, spawn};
use crate::api_key::ApiKeys;
use crate::issuer::Issuer;

/// The service: the issuer, the accepted API keys, and the resource limits. A clone is a handle to the same service.
#[derive(Clone)]
pub struct TokenService {
    current: Arc<RwLock<Arc<Current>>>,
    client_limit: Option<Arc<Mutex<ClientLimit>>>,
    observer: Arc<Observer>,
    limits: HttpLimits,
}

/// The parts that can be replaced while the service runs. A request uses one state from its start to its end.
struct Current {
    issuer: Issuer,
    api_keys: ApiKeys,
}

impl TokenService {
    /// Creates a service with the default [`HttpLimits`].
    #[must_use]
    pub fn new(issuer: Issuer, api_keys: ApiKeys) -> Self {
        let current = Arc::new(RwLock::new(Arc::new(Current { issuer, api_keys })));
        Self { current, client_limit: None, observer: Arc::default(), limits: HttpLimits::default() }
    }

    /// Returns the service with these limits. A handle that was cloned before keeps its own limits.
    #[must_use]
    pub fn with_limits(self, limits: HttpLimits) -> Self {
        let client_limit = limits.tokens_per_minute.map(|tokens| Arc::new(Mutex::new(ClientLimit::new(tokens))));
        Self { limits, client_limit, ..self }
    }

    /// Replaces the issuer, with its private keys, and the accepted API keys, for all clones of this handle.
    ///
    /// No request is refused or delayed by this: requests that have started finish with the previous keys.
    pub fn replace(&self, issuer: Issuer, api_keys: ApiKeys) {
        let replacement = Arc::new(Current { issuer, api_keys });
        // Poisoning is harmless: the critical sections only swap and clone a pointer.
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = replacement;
    }

    fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a token for this client id, or returns how long to wait for the next one.
    fn count_token(&self, client_id: ClientId) -> Result<(), Duration> {
        let Some(limit) = &self.client_limit else { return Ok(()) };
        // Poisoning is harmless: a count that is off by one token.
        limit.lock().unwrap_or_else(PoisonError::into_inner).count(client_id, Instant::now())
    }
}

/// Resource limits of the service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HttpLimits {
    /// Maximum number of open connections, at least 1. Default 512. When all are taken, the longest idle one is closed
    /// for a new one: an unauthenticated one if these have an eighth of the places, otherwise an authenticated one. Up
    /// to [`MAX_CLOSING`] more file descriptors are in use while connections close.
    pub connections: usize,
    /// Maximum number of open connections from one address (IPv6: one /64) on which no request had a valid API key yet,
    /// at least 1. Default 64. The longest idle one is closed for a new one. Behind a proxy all connections have one
    /// address; authenticated ones do not count.
    pub connections_per_address: usize,
    /// Maximum time for receiving a request's head, and for a connection to be idle. Default 10 s.
    pub header_timeout: Duration,
    /// Maximum time from the end of a request's head to its response. Default 10 s.
    pub request_timeout: Duration,
    /// Maximum time that a client may take to read a response. Default 10 s.
    pub write_timeout: Duration,
    /// Maximum time to wait for a client's close after the last response of its connection. Default 5 s.
    pub linger_timeout: Duration,
    /// Maximum age of a connection: after it, the connection finishes its request and is closed. Default 5 min.
    pub connection_age: Duration,
    /// Maximum time to finish a request after the service was stopped or the connection has aged. Default 10 s.
    pub shutdown_timeout: Duration,
    /// Maximum number of tokens for one client id per minute, counted over all API keys. Default `None`: unlimited.
    ///
    /// As many may be requested at once; each counts for one minute, spread evenly: 6 allow one more every 10 s.
    pub tokens_per_minute: Option<NonZeroU32>,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections: 512,
            connections_per_address: 64,
            header_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(10),
            linger_timeout: Duration::from_secs(5),
            connection_age: Duration::from_secs(300),
            shutdown_timeout: Duration::from_secs(10),
            tokens_per_minute: None,
        }
    }
}
