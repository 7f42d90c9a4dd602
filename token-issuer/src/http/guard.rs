//! The middleware of every request: time limit, body limit, and security headers of the response.
//!
//! The body is read before any check. A client that is refused while it still sends would see a reset connection
//! instead of the response. The routes interpret the body.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONNECTION, X_CONTENT_TYPE_OPTIONS};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use tokio::time::Instant;

use super::TokenService;
use super::connection_state::ConnectionState;
use super::error::{ApiError, ErrorCode};
use super::request_id::REQUEST_ID;

/// The maximum size of a request's body, in bytes. The largest valid request has about 2,100.
pub const MAX_BODY_BYTES: usize = 4096;
/// The number of bytes that are read and discarded of a body that is too long, before the connection is closed.
pub const DRAIN_BYTES: usize = 65_536;

/// The result of reading a request's body.
#[derive(Clone)]
pub(super) enum RequestBody {
    /// The complete body, of at most [`MAX_BODY_BYTES`] bytes.
    Complete(Bytes),
    /// A longer body, which was read to its end.
    TooLong,
    /// A body that is longer than [`DRAIN_BYTES`], or is announced to be. Its rest was not read.
    Unread,
    /// An incomplete body or invalid HTTP.
    Broken,
}

impl RequestBody {
    /// Returns the body, or the error response.
    pub(super) fn complete(self) -> Result<Bytes, ApiError> {
        match self {
            Self::Complete(bytes) => Ok(bytes),
            Self::TooLong | Self::Unread => {
                Err(ApiError::new(ErrorCode::BodyTooLarge, format!("the body is longer than {MAX_BODY_BYTES} bytes")))
            }
            Self::Broken => Err(ApiError::new(ErrorCode::MalformedBody, "the body is incomplete")),
        }
    }
}

/// Handles one request within its limits, adds the headers of each response, and reports a refusal.
pub(super) async fn guard(State(service): State<TokenService>, mut request: Request, next: Next) -> Response {
    let request_id = service.observer.request_id(request.headers());
    let peer = request.extensions().get::<Arc<ConnectionState>>().and_then(|connection| connection.peer());
    request.extensions_mut().insert(request_id.clone());
    let response = tokio::time::timeout(service.limits.request_timeout, respond(request, next)).await;
    let mut response = response.unwrap_or_else(|_| closing(too_slow().into_response()));
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REQUEST_ID, request_id.to_header());
    service.observer.on_response(&response, &request_id, peer);
    response
}

async fn respond(request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let body = read_body(body).await;
    if let Some(connection) = parts.extensions.get::<Arc<ConnectionState>>() {
        connection.on_body(Instant::now());
    }
    // The unread rest of a body would be parsed as the next request.
    let was_read_to_end = matches!(body, RequestBody::Complete(_) | RequestBody::TooLong);
    parts.extensions.insert(body);
    let response = next.run(Request::from_parts(parts, Body::empty())).await;
    if was_read_to_end { response } else { closing(response) }
}

async fn read_body(mut body: Body) -> RequestBody {
    if body.size_hint().lower() > DRAIN_BYTES as u64 {
        return RequestBody::Unread;
    }
    let (mut kept, mut seen) = (Vec::new(), 0_usize);
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return RequestBody::Broken };
        let Some(data) = frame.data_ref() else { continue };
        seen = seen.saturating_add(data.len());
        if seen > DRAIN_BYTES {
            return RequestBody::Unread;
        }
        if seen <= MAX_BODY_BYTES {
            kept.extend_from_slice(data);
        }
    }
    if seen > MAX_BODY_BYTES { RequestBody::TooLong } else { RequestBody::Complete(kept.into()) }
}

fn too_slow() -> ApiError {
    ApiError::new(ErrorCode::RequestTimeout, "the request took too long")
}

/// Marks the response as the last one of its connection.
pub(super) fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
