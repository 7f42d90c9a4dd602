//! The HTTP service: connect tokens for backends in any language. `specs/http-api.md` documents the API.
//!
//! ```text
//!  accept ─▶ serve: connection limit, header time-out, connection age
//!              └▶ guard: request time-out, body limit, headers of every response
//!                   └▶ routes: authorization ─▶ request: parsing ─▶ Issuer::mint ─▶ response
//! ```
//!
//! Rate limits would go between guard and routes, metrics into the guard, further routes into `routes`.

mod error;
mod guard;
mod request;
mod routes;
mod serve;
mod spawn;

use std::time::Duration;

pub use self::error::ErrorCode;
pub use self::guard::{DRAIN_BYTES, MAX_BODY_BYTES};
pub use self::request::REQUEST_FIELDS;
pub use self::routes::{RESPONSE_FIELDS, ROUTES, router};
pub use self::serve::serve;
pub use self::spawn::{RunningService, spawn};
use crate::api_key::ApiKeys;
use crate::issuer::Issuer;

/// The parts of the service: the issuer, the accepted API keys, and the resource limits.
pub struct TokenService {
    issuer: Issuer,
    api_keys: ApiKeys,
    limits: HttpLimits,
}

impl TokenService {
    /// Creates a service with the default [`HttpLimits`].
    #[must_use]
    pub fn new(issuer: Issuer, api_keys: ApiKeys) -> Self {
        Self { issuer, api_keys, limits: HttpLimits::default() }
    }

    /// Returns the service with these limits.
    #[must_use]
    pub fn with_limits(self, limits: HttpLimits) -> Self {
        Self { limits, ..self }
    }
}

/// Resource limits of the service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HttpLimits {
    /// Maximum number of open connections, at least 1; further ones wait in the system's queue. Default 512.
    pub connections: usize,
    /// Maximum time for receiving a request's head, and for a connection to be idle. Default 10 s.
    pub header_timeout: Duration,
    /// Maximum time from the end of a request's head to its response. Default 10 s.
    pub request_timeout: Duration,
    /// Maximum age of a connection: after it, the connection finishes its request and is closed. Default 5 min.
    pub connection_age: Duration,
    /// Maximum time to finish a request after the service was stopped or the connection has aged. Default 10 s.
    pub shutdown_timeout: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections: 512,
            header_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(10),
            connection_age: Duration::from_secs(300),
            shutdown_timeout: Duration::from_secs(10),
        }
    }
}
