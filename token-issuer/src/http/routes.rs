//! The routes of the service.

use axum::routing::{get, post, put};
use axum::{Json, Router, middleware};
use serde::Serialize;

use super::error::{ApiError, ErrorCode};
use super::guard::guard;
use super::server_events::events;
use super::tokens::create_token;
use super::{TokenService, servers};

/// Every route: its path, and its method in lower case.
pub const ROUTES: [(&str, &str); 6] =
    [(TOKENS, "post"), (HEALTH, "get"), (SERVERS, "get"), (SERVER, "put"), (SERVER, "delete"), (SERVER_EVENTS, "get")];

const TOKENS: &str = "/v1/tokens";
const HEALTH: &str = "/v1/health";
const SERVERS: &str = "/v1/servers";
const SERVER: &str = "/v1/servers/{id}";
const SERVER_EVENTS: &str = "/v1/server-events";

/// Returns the service as an axum router, for an existing HTTP server.
///
/// It includes the request timeout, the body limit and the headers. The HTTP server must limit the number of
/// connections and their time, as [`serve`](super::serve()) does.
pub fn router(service: TokenService) -> Router {
    Router::new()
        .route(TOKENS, post(create_token))
        .route(HEALTH, get(health))
        .route(SERVERS, get(servers::list))
        .route(SERVER, put(servers::register).delete(servers::remove))
        .route(SERVER_EVENTS, get(events))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(service.clone(), guard))
        .with_state(service)
}

async fn health() -> Json<Health> {
    Json(Health { status: "ok" })
}

async fn not_found() -> ApiError {
    ApiError::new(ErrorCode::NotFound, format!("unknown path; the API is documented at {TOKENS} and {SERVERS}"))
}

async fn method_not_allowed() -> ApiError {
    ApiError::new(ErrorCode::MethodNotAllowed, "method not allowed; the Allow header lists the methods of this path")
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
}
