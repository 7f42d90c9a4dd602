//! The middleware of every request: time limit, body limit, and security headers of the response.
//!
//! The body is read before any check. A client that is refused while it still sends would see a reset connection
//! instead of the response. The routes interpret the body.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONNECTION, HOST, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use tokio::time::Instant;

use super::TokenService;
use super::connection_state::ConnectionState;
use super::error::{ApiError, ErrorCode};
use super::request_id::REQUEST_ID;
use crate::callers::Caller;

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
    let begin = Instant::now();
    let request_id = service.observer.request_id(request.headers());
    let peer = request.extensions().get::<Arc<ConnectionState>>().and_then(|connection| connection.peer());
    request.extensions_mut().insert(request_id.clone());
    let host = check_host(request.headers(), service.hosts.as_deref());
    let respond = respond(request, next, host);
    let response = tokio::time::timeout(service.limits.request_timeout, respond).await;
    let mut response = response.unwrap_or_else(|_| closing(too_slow().into_response()));
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REQUEST_ID, request_id.to_header());
    service.observer.on_response(&response, &request_id, peer);
    let key = response.extensions().get::<Arc<Caller>>().map(|caller| caller.id());
    service.metrics.on_response(&response, key, begin.elapsed());
    response
}

async fn respond(request: Request, next: Next, host: Result<(), ApiError>) -> Response {
    let (mut parts, body) = request.into_parts();
    let body = read_body(body).await;
    if let Some(connection) = parts.extensions.get::<Arc<ConnectionState>>() {
        connection.on_body(Instant::now());
    }
    // The unread rest of a body would be parsed as the next request.
    let was_read_to_end = matches!(body, RequestBody::Complete(_) | RequestBody::TooLong);
    parts.extensions.insert(body);
    let response = match host {
        Ok(()) => next.run(Request::from_parts(parts, Body::empty())).await,
        Err(error) => error.into_response(),
    };
    if was_read_to_end { response } else { closing(response) }
}

/// Refuses a request with no `Host`, with two, or with another than the configured names. A proxy that forwards
/// names of others would otherwise pass on what a web page under such a name sends.
fn check_host(headers: &HeaderMap, names: Option<&[String]>) -> Result<(), ApiError> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).filter(|host| !host.is_empty());
    let is_known = |host: &str| names.is_none_or(|names| names.iter().any(|name| is_host(host, name)));
    if host.is_some_and(is_known) && hosts.next().is_none() {
        return Ok(());
    }
    Err(ApiError::new(ErrorCode::WrongHost, "one Host header with the name of this issuer is required"))
}

/// Returns whether the value of a `Host` header is this name, with or without a port.
fn is_host(value: &str, name: &str) -> bool {
    let (host, port) = match value.rsplit_once(':') {
        // The last colon of `[::1]` belongs to the address.
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (value, ""),
    };
    host.eq_ignore_ascii_case(name) && port.bytes().all(|byte| byte.is_ascii_digit())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_must_occur_once_and_be_a_configured_name() {
        let headers = |hosts: &[&'static str]| -> HeaderMap {
            hosts.iter().map(|host| (HOST, HeaderValue::from_static(host))).collect()
        };
        let names = ["tokens.example".to_owned(), "[::1]".to_owned()];
        for host in ["tokens.example", "TOKENS.example:8080", "[::1]", "[::1]:80"] {
            assert!(check_host(&headers(&[host]), Some(&names)).is_ok(), "{host}");
        }
        for host in ["", "example", "tokens.example.evil", "tokens.example:x", "evil:80", "::1", "[::1]x"] {
            assert!(check_host(&headers(&[host]), Some(&names)).is_err(), "{host}");
        }
        assert!(check_host(&headers(&["any.example"]), None).is_ok());
        for hosts in [&[][..], &["a", "a"], &[""]] {
            assert!(check_host(&headers(hosts), None).is_err(), "{hosts:?}");
        }
    }
}
