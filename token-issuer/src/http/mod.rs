//! The HTTP service: connect tokens for backends in any language. `specs/http-api.md` documents the API.
//!
//! ```text
//!  accept ─▶ serve, connections: limits of all and of each address, which connection gives way
//!              └▶ turns: valid API keys first, others one after the other
//!              └▶ connection: header, write and idle timeouts, age, pipelining
//!              └▶ guard: request timeout, body limit, headers of every response, observer: log lines
//!                   └▶ routes ─▶ authorize: key, scopes, limits
//!                        ├▶ tokens ─▶ request: parsing ─▶ registry: slots of a group ─▶ Issuer::mint ─▶ response
//!                        └▶ servers ─▶ registration: parsing ─▶ registry ─▶ server_watch: log lines
//! ```

mod answer;
mod authorize;
mod client_limit;
mod connection;
mod connection_io;
mod connection_state;
mod connections;
mod error;
#[cfg(feature = "fuzzing")]
pub(crate) mod exchange;
mod fields;
mod games;
mod guard;
mod keyed_limit;
mod limited_log;
mod listener;
mod metrics;
mod observer;
mod peer;
mod players;
mod probes;
mod query;
mod refused_head;
mod registration;
mod request;
mod request_body;
mod request_id;
mod routes;
mod serve;
mod server_changes;
mod server_events;
mod server_facts;
mod server_feed;
mod server_watch;
mod servers;
mod spawn;
mod stream_limit;
#[cfg(feature = "tls")]
mod tls;
mod tokens;
mod turns;

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use slipgate_netcode::ids::ClientId;

use self::client_limit::ClientLimit;
pub use self::connections::MAX_CLOSING;
pub use self::error::ErrorCode;
pub use self::games::{Games, GamesError, MAX_GAMES};
pub use self::guard::router;
use self::keyed_limit::KeyedLimit;
pub use self::listener::IssuerListener;
use self::metrics::Metrics;
use self::observer::Observer;
use self::peer::ConnectionSource;
use self::players::PlayerIdentity;
pub use self::registration::REGISTRATION_FIELDS;
pub use self::request::REQUEST_FIELDS;
pub use self::request_body::{DRAIN_BYTES, MAX_BODY_BYTES};
pub use self::routes::ROUTES;
pub use self::serve::serve;
use self::server_changes::ServerWatch;
use self::server_feed::ServerFeed;
pub use self::spawn::{RunningService, spawn};
use self::stream_limit::StreamLimit;
pub use self::stream_limit::{MAX_EVENT_STREAMS, MAX_EVENT_STREAMS_PER_KEY};
#[cfg(feature = "tls")]
pub use self::tls::{TlsError, TlsIdentity};
pub use self::tokens::RESPONSE_FIELDS;
use crate::callers::ApiKeys;
#[cfg(feature = "player-jwt")]
use crate::players::Players;
use crate::registry::{MemoryRegistry, Registry};

/// The requests without a valid API key that an address (for IPv6 a /64) may send in a minute, all of them at once.
/// Further ones get status 429. Requests with a valid key are not concerned.
pub const WRONG_KEYS_PER_MINUTE: NonZeroU32 = NonZeroU32::new(30).unwrap();

/// The service: the games, the accepted API keys, the registry of servers, and the resource limits. A clone is a handle
/// to the same service.
#[derive(Clone)]
pub struct TokenService {
    current: Arc<RwLock<Arc<Current>>>,
    registry: Arc<dyn Registry>,
    players: PlayerIdentity,
    client_limit: Option<Arc<ClientLimit>>,
    wrong_keys: Arc<KeyedLimit<ConnectionSource>>,
    streams: Arc<StreamLimit>,
    server_feed: Arc<ServerFeed>,
    server_watch: Arc<ServerWatch>,
    observer: Arc<Observer>,
    metrics: Arc<Metrics>,
    hosts: Option<Arc<[String]>>,
    is_stopping: Arc<AtomicBool>,
    limits: HttpLimits,
}

/// The parts that can be replaced while the service runs. A request uses one state from its start to its end.
struct Current {
    games: Games,
    api_keys: ApiKeys,
}

impl TokenService {
    /// Creates a service with a registry in memory and the default [`HttpLimits`].
    #[must_use]
    pub fn new(games: impl Into<Games>, api_keys: ApiKeys) -> Self {
        let current = Current { games: games.into(), api_keys };
        Self {
            current: Arc::new(RwLock::new(Arc::new(current))),
            registry: Arc::new(MemoryRegistry::default()),
            players: PlayerIdentity::default(),
            client_limit: None,
            wrong_keys: Arc::new(KeyedLimit::per_minute(WRONG_KEYS_PER_MINUTE)),
            streams: Arc::default(),
            server_feed: Arc::default(),
            server_watch: Arc::default(),
            observer: Arc::default(),
            metrics: Arc::default(),
            hosts: None,
            is_stopping: Arc::default(),
            limits: HttpLimits::default(),
        }
    }

    /// Returns the service with these limits. A handle that was cloned before keeps its own limits.
    #[must_use]
    pub fn with_limits(self, limits: HttpLimits) -> Self {
        let client_limit = limits.tokens_per_minute.map(|tokens| Arc::new(ClientLimit::per_minute(tokens)));
        Self { limits, client_limit, ..self }
    }

    /// Returns the service with this registry of game servers.
    #[must_use]
    pub fn with_registry(self, registry: Arc<dyn Registry>) -> Self {
        Self { registry, server_feed: Arc::default(), server_watch: Arc::default(), ..self }
    }

    /// Returns the service for requests to one of these hosts, with or without a port. Others get status 421. Without
    /// this, each host is accepted. The host is that of a target in absolute form, otherwise that of the `Host` header.
    #[must_use]
    pub fn with_hosts(self, hosts: Vec<String>) -> Self {
        Self { hosts: Some(hosts.into()), ..self }
    }

    /// Returns the service that takes client ids from players' own JSON Web Tokens. Without this, it refuses them.
    #[cfg(feature = "player-jwt")]
    #[must_use]
    pub fn with_players(self, players: Arc<Players>) -> Self {
        Self { players: PlayerIdentity::new(players), ..self }
    }

    /// Replaces the games, with their private keys, and the accepted API keys, for all clones of this handle.
    ///
    /// No request is refused or delayed by this: requests that have started finish with the previous keys. A named key
    /// with the same limit as before keeps its count of requests.
    pub fn replace(&self, games: impl Into<Games>, api_keys: ApiKeys) {
        let api_keys = api_keys.with_counts_of(&self.current().api_keys);
        let replacement = Arc::new(Current { games: games.into(), api_keys });
        // Poisoning is harmless: the critical sections only swap and clone a pointer.
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = replacement;
    }

    /// Turns `/readyz` 503 with the status `stopping`, for all clones of this handle. Everything else is served until
    /// the service ends: load balancers need some time to notice it.
    pub fn announce_stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a token for this client id if they are limited, or returns how long to wait for the next one.
    fn count_token(&self, client_id: ClientId) -> Result<(), Duration> {
        self.client_limit.as_ref().map_or(Ok(()), |limit| limit.count(client_id))
    }

    /// Gives the count of a token back that was refused before anything was reserved for it.
    fn give_token_back(&self, client_id: ClientId) {
        if let Some(limit) = &self.client_limit {
            limit.give_back(client_id);
        }
    }

    /// Counts a request without a valid key, or returns how long its address has to wait for the next one.
    fn count_wrong_key(&self, source: ConnectionSource) -> Result<(), Duration> {
        self.wrong_keys.count(source)
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
    /// Requests that get no token, such as those for a full group, do not count, up to 60 per minute.
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
