//! The middleware of every request: time limit, body limit, and security headers of the response.
//!
//! The body is read before any check. A client that is refused while it still sends would see a reset connection
//! instead of the response. The routes interpret the body.
//!
//! DECISION: requests for tokens do not pass through the router of axum. Its layers copied the headers and the state of
//! the service for each request.

use core::pin::pin;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, HOST, X_CONTENT_TYPE_OPTIONS};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Router, middleware};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use tokio::time::Instant;

use super::TokenService;
use super::answer::{Answer, closing};
use super::connection_state::ConnectionState;
use super::error::{ApiError, ErrorCode, RefusedWith};
use super::peer::HttpPeer;
use super::refused_head::RefusedHead;
use super::request_body::{RequestBody, read_body};
use super::request_id::{REQUEST_ID, RequestId};
use super::routes::{HEALTH, HEALTHZ, METRICS, READYZ, TOKENS, routes};
use super::tokens::create_token;

/// The service behind its own HTTP server.
#[derive(Clone)]
pub(super) struct GuardedService {
    service: TokenService,
    routes: TowerToHyperService<Router>,
}

impl GuardedService {
    pub(super) fn new(service: TokenService) -> Self {
        let routes = TowerToHyperService::new(routes(service.clone()));
        Self { service, routes }
    }

    /// Reports a connection that ended without a complete request.
    pub(super) fn on_refused_head(&self, reason: RefusedHead, peer: Option<HttpPeer>) {
        self.service.metrics.on_refused_head(reason);
        self.service.observer.on_refused_head(reason, peer);
    }

    /// Responds to a request of this connection, whose head arrived at `begin`.
    pub(super) async fn respond<B>(
        &self,
        request: Request<B>,
        connection: Arc<ConnectionState>,
        begin: Instant,
    ) -> Response
    where
        B: hyper::body::Body<Data = Bytes> + Unpin,
    {
        let others = async |request| {
            let Ok(response) = self.routes.call(request).await;
            response
        };
        handle(&self.service, request, Some(connection), begin, others).await
    }
}

/// Returns the service as an axum router, for an existing HTTP server.
///
/// It includes the request timeout, the body limit and the headers. The HTTP server must limit the number of
/// connections and their time, as [`serve`](super::serve()) does.
pub fn router(service: TokenService) -> Router {
    routes(service.clone()).layer(middleware::from_fn_with_state(service, guard))
}

/// Does the same as [`GuardedService`], as a layer of a router.
async fn guard(State(service): State<TokenService>, request: Request, next: Next) -> Response {
    handle(&service, request, None, Instant::now(), async |request| next.run(request).await).await
}

/// Handles one request within its limits, adds the headers of each response, and reports a refusal.
async fn handle<B>(
    service: &TokenService,
    request: Request<B>,
    connection: Option<Arc<ConnectionState>>,
    begin: Instant,
    others: impl AsyncFnOnce(Request) -> Response,
) -> Response
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
{
    let request_id = service.observer.request_id(request.headers());
    let peer = connection.as_ref().and_then(|connection| connection.peer());
    // Pinned here, because moving this future would copy a few kilobytes.
    let respond = pin!(respond(service, request, connection, &request_id, others));
    let answer = tokio::time::timeout_at(begin + service.limits.request_timeout, respond).await;
    let Answer { mut response, caller } = answer.unwrap_or_else(|_| closing(too_slow().into_response()).into());
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REQUEST_ID, request_id.to_header());
    let refused = response.extensions_mut().remove::<RefusedWith>();
    if let Some(refused) = &refused {
        service.observer.on_refused(refused, caller.as_deref(), &request_id, peer);
    }
    let code = refused.map(|refused| refused.code);
    service.metrics.on_response(response.status(), code, caller.as_deref(), begin.elapsed());
    response
}

async fn respond<B>(
    service: &TokenService,
    request: Request<B>,
    connection: Option<Arc<ConnectionState>>,
    request_id: &RequestId,
    others: impl AsyncFnOnce(Request) -> Response,
) -> Answer
where
    B: hyper::body::Body<Data = Bytes> + Unpin,
{
    let (mut parts, body) = request.into_parts();
    let body = read_body(body).await;
    if let Some(connection) = &connection {
        connection.on_body(Instant::now());
    }
    // The unread rest of a body would be parsed as the next request.
    let was_read_to_end = matches!(body, RequestBody::Complete(_) | RequestBody::TooLong);
    let names = service.hosts.as_deref().filter(|_| !takes_any_host(parts.uri.path()));
    let mut answer: Answer = match check_host(&parts.uri, &parts.headers, names) {
        Err(error) => error.into_response().into(),
        Ok(()) if parts.uri.path() == TOKENS => {
            create_token(service, &parts, body, connection.as_deref(), request_id).await
        }
        Ok(()) => {
            add_extensions(&mut parts, body, connection, request_id);
            others(Request::from_parts(parts, Body::empty())).await.into()
        }
    };
    if !was_read_to_end {
        answer.response = closing(answer.response);
    }
    answer
}

/// Adds what the other routes take from the request.
fn add_extensions(
    parts: &mut Parts,
    body: RequestBody,
    connection: Option<Arc<ConnectionState>>,
    request_id: &RequestId,
) {
    parts.extensions.insert(body);
    parts.extensions.insert(request_id.clone());
    if let Some(connection) = connection {
        parts.extensions.insert(connection);
    }
}

/// Refuses a request with no `Host`, with two, or for another host than the configured names. A proxy that forwards
/// names of others would otherwise pass on what a web page under such a name sends.
fn check_host(target: &Uri, headers: &HeaderMap, names: Option<&[String]>) -> Result<(), ApiError> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok()).filter(|host| !host.is_empty());
    let is_known = |host: &str| names.is_none_or(|names| names.iter().any(|name| is_host(host, name)));
    // The host of a target in absolute form replaces that of the header (RFC 9112, section 3.2.2).
    let effective = |host| target.authority().map_or(host, Authority::as_str);
    if host.map(effective).is_some_and(is_known) && hosts.next().is_none() {
        return Ok(());
    }
    Err(ApiError::new(ErrorCode::WrongHost, "one Host header and the name of this issuer are required"))
}

/// Returns whether a route takes any name of a host: probes and scrapers use the address of a machine. These routes
/// show nothing without a key, and change nothing.
fn takes_any_host(path: &str) -> bool {
    [HEALTH, HEALTHZ, READYZ, METRICS].contains(&path)
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

fn too_slow() -> ApiError {
    ApiError::new(ErrorCode::RequestTimeout, "the request took too long")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_and_scrapers_may_use_any_name() {
        assert!(["/healthz", "/readyz", "/v1/health", "/metrics"].into_iter().all(takes_any_host));
        assert!(!["/v1/tokens", "/v1/servers", "/docs", "/healthz/"].into_iter().any(takes_any_host));
    }

    #[test]
    fn host_must_occur_once_and_be_a_configured_name() {
        let headers = |hosts: &[&'static str]| -> HeaderMap {
            hosts.iter().map(|host| (HOST, HeaderValue::from_static(host))).collect()
        };
        let names = ["tokens.example".to_owned(), "[::1]".to_owned()];
        let check_host = |headers: &HeaderMap, names| check_host(&Uri::from_static("/v1/tokens"), headers, names);
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

    #[test]
    fn host_of_an_absolute_target_replaces_that_of_the_header() {
        let names = ["tokens.example".to_owned()];
        let is_accepted = |target: &'static str, host: &'static str| {
            let headers = [(HOST, HeaderValue::from_static(host))].into_iter().collect();
            check_host(&Uri::from_static(target), &headers, Some(&names)).is_ok()
        };
        assert!(is_accepted("http://tokens.example/v1/tokens", "tokens.example"));
        assert!(is_accepted("http://Tokens.example:8080/v1/tokens", "evil"));
        assert!(!is_accepted("http://evil/v1/tokens", "tokens.example"));
        assert!(!is_accepted("http://tokens.example@evil/v1/tokens", "tokens.example"));
        assert!(!is_accepted("http://tokens.example/v1/tokens", ""), "a Host header is required");
    }
}
