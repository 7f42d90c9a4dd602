//! The routes of the service.

use axum::Router;
use axum::routing::{get, put};

use super::error::{ApiError, ErrorCode};
use super::server_events::events;
use super::{TokenService, probes, servers};

/// Every route: its path, and its method in lower case.
pub const ROUTES: [(&str, &str); 13] = [
    (TOKENS, "post"),
    (HEALTH, "get"),
    (SERVERS, "get"),
    (SERVER, "put"),
    (SERVER, "delete"),
    (SERVER_EVENTS, "get"),
    (HEALTHZ, "get"),
    (READYZ, "get"),
    (METRICS, "get"),
    (OPENAPI, "get"),
    (DOCS, "get"),
    (DOCS_SCRIPT, "get"),
    (DOCS_STYLE, "get"),
];

pub(super) const TOKENS: &str = "/v1/tokens";
pub(super) const HEALTH: &str = "/v1/health";
const SERVERS: &str = "/v1/servers";
const SERVER: &str = "/v1/servers/{id}";
const SERVER_EVENTS: &str = "/v1/server-events";
pub(super) const HEALTHZ: &str = "/healthz";
pub(super) const READYZ: &str = "/readyz";
pub(super) const METRICS: &str = "/metrics";
const OPENAPI: &str = "/openapi.json";
const DOCS: &str = "/docs";
const DOCS_SCRIPT: &str = "/docs.js";
const DOCS_STYLE: &str = "/docs.css";

/// Returns the routes behind the guard, which serves [`TOKENS`] itself.
pub(super) fn routes(service: TokenService) -> Router {
    Router::new()
        .route(HEALTH, get(probes::health))
        .route(SERVERS, get(servers::list))
        .route(SERVER, put(servers::register).delete(servers::remove))
        .route(SERVER_EVENTS, get(events))
        .route(HEALTHZ, get(probes::health))
        .route(READYZ, get(probes::ready))
        .route(METRICS, get(probes::metrics))
        .route(OPENAPI, get(probes::openapi))
        .route(DOCS, get(probes::docs))
        .route(DOCS_SCRIPT, get(probes::docs_script))
        .route(DOCS_STYLE, get(probes::docs_style))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(service)
}

async fn not_found() -> ApiError {
    ApiError::new(ErrorCode::NotFound, format!("unknown path; {DOCS} shows the paths"))
}

async fn method_not_allowed() -> ApiError {
    ApiError::method_not_allowed()
}
