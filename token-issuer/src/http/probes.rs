//! Health, readiness, metrics, and the documents of the API.

use axum::Json;
use axum::extract::State;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::TokenService;
use super::authorize::{Authorized, require, with_caller};
use super::error::{ApiError, ErrorCode};
use super::metrics::MEDIA_TYPE;
use super::query::{NoQuery, expect_no_query};
use crate::callers::Permission;

/// What a browser may load into the page of the API: files of this service only.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'",
);

#[derive(Serialize)]
struct Health {
    status: &'static str,
}

/// Handles `GET /healthz` and `GET /v1/health`: the service responds.
pub(super) async fn health(_: NoQuery) -> impl IntoResponse {
    Json(Health { status: "ok" })
}

/// Handles `GET /readyz`: tokens of each kind can be minted, and the service does not stop soon.
pub(super) async fn ready(_: NoQuery, State(service): State<TokenService>) -> Response {
    let reason = if service.is_stopping() {
        "stopping"
    } else if let Err(error) = service.registry.check() {
        ErrorCode::from(&error).name()
    } else if !service.players.is_available() {
        "player_keys_unavailable"
    } else {
        return Json(Health { status: "ready" }).into_response();
    };
    (StatusCode::SERVICE_UNAVAILABLE, Json(Health { status: reason })).into_response()
}

/// Handles `GET /metrics`.
pub(super) async fn metrics(State(service): State<TokenService>, authorized: Authorized, uri: Uri) -> Response {
    let text = match require(&authorized.caller, Permission::Observe).and_then(|()| expect_no_query(&uri)) {
        Ok(()) => {
            let servers = service.registry.servers().await.ok();
            Ok((
                [(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE))],
                service.metrics.encode(servers.as_deref(), service.players.key_count(), &service.current().games),
            ))
        }
        Err(error) => Err::<_, ApiError>(error),
    };
    with_caller(text, &authorized)
}

/// Handles `GET /openapi.json`.
pub(super) async fn openapi(_: NoQuery) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], include_str!("openapi.json"))
}

/// Handles `GET /docs`.
pub(super) async fn docs(_: NoQuery) -> impl IntoResponse {
    let headers =
        [(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")), (CONTENT_SECURITY_POLICY, POLICY)];
    (headers, include_str!("docs.html"))
}

/// Handles `GET /docs.js`.
pub(super) async fn docs_script(_: NoQuery) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("docs.js"))
}

/// Handles `GET /docs.css`.
pub(super) async fn docs_style(_: NoQuery) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("docs.css"))
}
