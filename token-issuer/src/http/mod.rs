//! The HTTP service: connect tokens for backends in any language. `specs/http-api.md` tells how to call it.
//!
//! ```text
//!  accept ─▶ serve: seats, header time-out, connection age
//!              └▶ guard: request time-out, body read or drained, headers of every answer
//!                   └▶ routes: who asks? ─▶ request: what for? ─▶ Issuer::mint ─▶ answer
//! ```
//!
//! Rate limits belong between guard and routes, metrics into the guard, another route beside the others in `routes`.

mod error;
mod guard;
mod request;
mod routes;
mod running;
mod serve;

use std::time::Duration;

pub use self::error::ErrorCode;
pub use self::guard::{DRAIN_BYTES, MAX_BODY_BYTES};
pub use self::request::FIELDS;
pub use self::routes::{ANSWER_FIELDS, ROUTES, router};
pub use self::running::{Running, spawn};
pub use self::serve::serve;
use crate::api_key::ApiKeys;
use crate::issuer::Issuer;

/// What the service is made of: who mints, who may ask, and how much of the machine callers may take.
pub struct TokenService {
    issuer: Issuer,
    api_keys: ApiKeys,
    limits: HttpLimits,
}

impl TokenService {
    /// A service with the default [`HttpLimits`].
    #[must_use]
    pub fn new(issuer: Issuer, api_keys: ApiKeys) -> Self {
        Self { issuer, api_keys, limits: HttpLimits::default() }
    }

    /// The same service with other limits.
    #[must_use]
    pub fn with_limits(self, limits: HttpLimits) -> Self {
        Self { limits, ..self }
    }
}

/// How much of the machine callers may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HttpLimits {
    /// The most connections at a time; further ones wait in the system's queue. Default 512, at least 1.
    pub connections: usize,
    /// How long a request's head may take to arrive, and a connection may idle. Default 10 s.
    pub header_timeout: Duration,
    /// How long a request may take from the end of its head to its answer. Default 10 s.
    pub request_timeout: Duration,
    /// After this time a connection finishes its request and is closed. Default 5 min.
    pub connection_age: Duration,
    /// How long requests under way may take to finish when the service stops or the connection has aged. Default 10 s.
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
