//! The routes and their responses.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use serde::Serialize;

use super::error::AdminFailure;
use super::guard::guard;
use super::paths::{CLIENTS, DRAIN, EVENTS, HEALTH, KICK, METRICS, PAGE, READY, SCRIPT, STYLE};
use super::{clients, dashboard};
use crate::metrics;
use crate::state::{AdminState, NotReady};

/// Returns the routes with their checks.
pub(crate) fn router(state: Arc<AdminState>) -> Router {
    Router::new()
        .route(HEALTH, get(health))
        .route(READY, get(ready))
        .route(METRICS, get(metrics_text))
        .route(CLIENTS, get(clients::list))
        .route(KICK, post(clients::kick))
        .route(DRAIN, post(clients::drain))
        .route(PAGE, get(dashboard::page))
        .route(SCRIPT, get(dashboard::script))
        .route(STYLE, get(dashboard::style))
        .route(EVENTS, get(dashboard::events))
        .fallback(async || AdminFailure::NOT_FOUND)
        .method_not_allowed_fallback(async || AdminFailure::METHOD_NOT_ALLOWED)
        .layer(middleware::from_fn_with_state(Arc::clone(&state), guard))
        .with_state(state)
}

/// The body of `/healthz` and `/readyz`.
#[derive(Serialize)]
struct HealthBody {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

/// Returns status 200 without a reason, and status 503 with one.
fn health_response(reason: Option<NotReady>, status: &'static str) -> Response {
    let (code, status) = match reason {
        None => (StatusCode::OK, "ok"),
        Some(_) => (StatusCode::SERVICE_UNAVAILABLE, status),
    };
    (code, Json(HealthBody { status, reason: reason.map(NotReady::name) })).into_response()
}

/// Handles `GET /healthz`: a supervisor may restart the program when its turns no longer advance. A server that starts
/// is healthy: reading a long history takes a while.
async fn health(State(state): State<Arc<AdminState>>) -> Response {
    health_response(state.is_stalled(state.uptime()).then_some(NotReady::Stalled), "unhealthy")
}

/// Handles `GET /readyz`: a matchmaker should send no players while this is not 200.
async fn ready(State(state): State<Arc<AdminState>>) -> Response {
    health_response(state.not_ready(state.uptime()), "not_ready")
}

/// Handles `GET /metrics`.
async fn metrics_text(State(state): State<Arc<AdminState>>) -> Result<Response, AdminFailure> {
    let text = metrics::text(&state).map_err(|_| AdminFailure::INTERNAL)?;
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}
