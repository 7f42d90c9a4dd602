//! The checks of every request before its route: time, size of the body, protection against web pages, and the token.
//!
//! A page that an operator visits can send requests to loopback. The check of `Host` stops a page under a name that
//! resolves to loopback (DNS rebinding). `Origin` and `Sec-Fetch-Site` stop all other pages. No response has CORS
//! headers. With a token any `Host` is allowed: such a page does not know the token, and a proxy has a name.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, ORIGIN, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Limited};

use super::error::AdminFailure;
use super::paths::OPEN;
use super::places::AdminPeer;
use crate::state::AdminState;
use crate::token::AdminToken;

/// The maximum size of a request's body, in bytes.
const MAX_BODY_BYTES: usize = 4096;
/// The maximum size of a body that is read before its request is refused, so that the response arrives.
const MAX_READ_BYTES: usize = 64 * 1024;
/// What a browser may load into the page with charts: files and values of this server only. No other page may frame it.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'",
);
/// Other pages cannot embed a response, not even in browsers without `Sec-Fetch-Site` (Fetch standard, section 3.7).
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
/// The maximum time from the end of a request's head to its response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Handles one request within its limits and adds the security headers to the response.
pub(super) async fn guard(State(state): State<Arc<AdminState>>, request: Request, next: Next) -> Response {
    let response = tokio::time::timeout(REQUEST_TIMEOUT, respond(&state, request, next)).await;
    let mut response = response.unwrap_or_else(|_| AdminFailure::TIMEOUT.into_response());
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

async fn respond(state: &AdminState, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    // The body is read first: a client that is refused while it still sends would see a reset connection.
    let body = match read_body(body).await {
        Ok(body) => body,
        Err(failure) => return failure.into_response(),
    };
    if let Err(failure) = check(state.token.as_ref(), &parts.uri, &parts.headers) {
        let peer = parts.extensions.get().map(AdminPeer::address);
        state.refusals.count(peer, failure.code());
        return failure.into_response();
    }
    if let Some(peer) = parts.extensions.get::<AdminPeer>().filter(|_| !is_open(&parts.uri)) {
        peer.allow();
    }
    next.run(Request::from_parts(parts, Body::from(body))).await
}

/// Reads a body of at most 4096 bytes. A longer one is read up to 64 KiB, and refused.
async fn read_body(body: Body) -> Result<Bytes, AdminFailure> {
    match Limited::new(body, MAX_READ_BYTES).collect().await {
        Ok(body) => {
            Some(body.to_bytes()).filter(|body| body.len() <= MAX_BODY_BYTES).ok_or(AdminFailure::BODY_TOO_LARGE)
        }
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(AdminFailure::BODY_TOO_LARGE),
        Err(_) => Err(AdminFailure::MALFORMED),
    }
}

/// Returns whether the route needs no token.
fn is_open(uri: &Uri) -> bool {
    OPEN.contains(&uri.path())
}

/// Checks the sender of a request: no web page and, where a token is required, a client that has it.
fn check(token: Option<&AdminToken>, uri: &Uri, headers: &HeaderMap) -> Result<(), AdminFailure> {
    check_page(headers)?;
    match token {
        None => check_host(uri, headers),
        Some(_) if is_open(uri) => Ok(()),
        Some(token) => authorize(token, headers),
    }
}

/// Refuses requests without the token. Two headers are ambiguous.
fn authorize(token: &AdminToken, headers: &HeaderMap) -> Result<(), AdminFailure> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (first, second) = (values.next(), values.next());
    let is_accepted = second.is_none() && first.is_some_and(|value| token.accepts(value.as_bytes()));
    if is_accepted { Ok(()) } else { Err(AdminFailure::UNAUTHORIZED) }
}

/// Refuses requests of web pages.
fn check_page(headers: &HeaderMap) -> Result<(), AdminFailure> {
    // An address that is typed into a browser has the site `none`, a file of our own page `same-origin`. The host is an
    // address or `localhost`, so no page of others has the same origin.
    let is_own = headers.get_all("sec-fetch-site").iter().all(|site| site == "none" || site == "same-origin");
    if headers.contains_key(ORIGIN) || !is_own { Err(AdminFailure::BROWSER) } else { Ok(()) }
}

/// Refuses requests to a name, which a web page may have sent. A request's target may name a host, too.
fn check_host(uri: &Uri, headers: &HeaderMap) -> Result<(), AdminFailure> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    let is_own = hosts.next().is_none()
        && host.is_some_and(is_own_host)
        && uri.authority().is_none_or(|authority| is_own_host(authority.as_str()));
    if is_own { Ok(()) } else { Err(AdminFailure::WRONG_HOST) }
}

/// Returns whether the value of a `Host` header is an IP address or `localhost`, with or without a port.
fn is_own_host(value: &str) -> bool {
    let (host, port) = match value.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, port)) if host.parse::<Ipv6Addr>().is_ok() => (None, port),
            _ => return false,
        },
        None => {
            let end = value.find(':').unwrap_or(value.len());
            let (host, port) = value.split_at(end);
            (Some(host), port)
        }
    };
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    let is_host = host.is_none_or(|host| {
        host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4())
    });
    is_port && is_host
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ip_addresses_and_localhost_are_own_hosts() {
        for host in ["127.0.0.1", "127.0.0.1:9100", "[::1]:9100", "[::1]", "localhost", "LOCALHOST:1", "192.0.2.1"] {
            assert!(is_own_host(host), "{host}");
        }
        for host in ["", ":80", "evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example", "[::1", "::1"] {
            assert!(!is_own_host(host), "{host}");
        }
        for host in ["127.0.0.1:", "127.0.0.1:x", "127.0.0.1:99999", "[localhost]", "[127.0.0.1]", "[::1]x", "a@::1"] {
            assert!(!is_own_host(host), "{host}");
        }
    }

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        fields.iter().for_each(|(name, value)| _ = headers.append(*name, HeaderValue::from_static(value)));
        headers
    }

    #[test]
    fn requests_of_web_pages_are_refused() {
        let check = |fields: &[_]| check(None, &Uri::from_static("/clients"), &headers(fields));
        let own = ("host", "127.0.0.1:1");
        assert!(check(&[own]).is_ok());
        assert!(check(&[own, ("sec-fetch-site", "none")]).is_ok());
        assert!(check(&[own, ("sec-fetch-site", "same-origin")]).is_ok());
        assert!(check(&[own, ("sec-fetch-site", "same-origin"), ("origin", "http://127.0.0.1:1")]).is_err());
        for wrong in [
            &[][..],
            &[own, own],
            &[("host", "evil.example")],
            &[own, ("origin", "https://evil.example")],
            &[own, ("origin", "null")],
            &[own, ("sec-fetch-site", "cross-site")],
            &[own, ("sec-fetch-site", "none"), ("sec-fetch-site", "same-site")],
        ] {
            assert!(check(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn host_in_the_target_of_a_request_counts_too() {
        let own = headers(&[("host", "localhost")]);
        assert!(check(None, &Uri::from_static("http://127.0.0.1:9100/clients"), &own).is_ok());
        for target in ["http://evil.example/clients", "http://user@127.0.0.1/clients"] {
            assert!(check(None, &Uri::from_static(target), &own).is_err(), "{target}");
        }
    }

    #[test]
    fn names_of_proxies_are_allowed_with_the_token() {
        let text = "0123456789abcdef0123456789abcdef";
        let token = AdminToken::parse(text).unwrap();
        let check = |path: &'static str, fields: &[_]| check(Some(&token), &Uri::from_static(path), &headers(fields));
        let (host, right) = (("host", "admin.example"), ("authorization", "Bearer 0123456789abcdef0123456789abcdef"));
        assert!(check("/drain", &[host, right]).is_ok());
        assert!(check("/drain", &[host]).is_err());
        assert!(check("/drain", &[host, right, ("origin", "https://admin.example")]).is_err());
        assert!(check("/healthz", &[host]).is_ok());
        assert!(check("/healthz", &[host, ("sec-fetch-site", "cross-site")]).is_err());
    }
}
