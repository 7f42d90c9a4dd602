//! The routes: authorization and responses.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::extract::State;
use axum::http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router, middleware};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use slipgate_netcode::time::UnixMillis;

use super::connection_state::ConnectionState;
use super::error::{ApiError, ErrorCode};
use super::guard::{RequestBody, guard};
use super::request_id::RequestId;
use super::{TokenService, request};
use crate::api_key::{ApiKeys, KeyNumber};
use crate::entropy::system_entropy;
use crate::issuer::{Issuer, Minted, TokenRequest};

/// Every route: its path, and its method in lower case.
pub const ROUTES: [(&str, &str); 2] = [(TOKENS, "post"), (HEALTH, "get")];

const TOKENS: &str = "/v1/tokens";
const HEALTH: &str = "/v1/health";

/// The fields of a successful response of `POST /v1/tokens`.
pub const RESPONSE_FIELDS: [&str; 7] =
    ["token", "protocol_id", "client_id", "created", "expires", "timeout_seconds", "server_addresses"];

/// Returns the service as an axum router, for an existing HTTP server.
///
/// It includes the request timeout, the body limit and the headers. The HTTP server must limit the number of
/// connections and their time, as [`serve`](super::serve()) does.
pub fn router(service: TokenService) -> Router {
    Router::new()
        .route(TOKENS, post(create_token))
        .route(HEALTH, get(health))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(service.clone(), guard))
        .with_state(service)
}

async fn health() -> Json<Health> {
    Json(Health { status: "ok" })
}

async fn not_found() -> ApiError {
    ApiError::new(ErrorCode::NotFound, format!("unknown path; the paths are {TOKENS} and {HEALTH}"))
}

async fn method_not_allowed() -> ApiError {
    ApiError::new(ErrorCode::MethodNotAllowed, "method not allowed; the Allow header lists the methods of this path")
}

/// Handles `POST /v1/tokens`. Authorization precedes all other checks, which an unauthorized caller must not probe.
async fn create_token(
    State(service): State<TokenService>,
    headers: HeaderMap,
    connection: Option<Extension<Arc<ConnectionState>>>,
    Extension(body): Extension<RequestBody>,
    Extension(request_id): Extension<RequestId>,
) -> Result<Response, ApiError> {
    let current = service.current();
    let key = authorize(&current.api_keys, &headers)?;
    if let Some(Extension(connection)) = connection {
        connection.authenticate();
    }
    let minted = body.complete().and_then(|body| read_and_mint(&service, &current.issuer, &headers, &body));
    let response = minted.and_then(|minted| {
        let body = token_body(&minted)?;
        service.observer.on_minted(&minted, &request_id, key);
        Ok((StatusCode::CREATED, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body))
    });
    let mut response = response.into_response();
    response.extensions_mut().insert(key);
    Ok(response)
}

/// Checks the request of a valid key and mints its token.
fn read_and_mint(
    service: &TokenService,
    issuer: &Issuer,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Minted, ApiError> {
    expect_json(headers)?;
    expect_no_coding(headers)?;
    let request = request::read(body)?;
    service.count_token(request.client_id).map_err(ApiError::too_many_tokens)?;
    mint(issuer, &request)
}

fn authorize(api_keys: &ApiKeys, headers: &HeaderMap) -> Result<KeyNumber, ApiError> {
    let presented = single_value(headers, &AUTHORIZATION).and_then(bearer);
    let message = "the header `Authorization: Bearer <API key>` with a valid key is required";
    presented.and_then(|key| api_keys.find(key)).ok_or_else(|| ApiError::new(ErrorCode::Unauthorized, message))
}

/// Returns the credentials of the scheme `Bearer`. Scheme names are case-insensitive (RFC 9110, section 11.1).
pub(super) fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(b"Bearer".len())?;
    let key = rest.strip_prefix(b" ")?;
    scheme.eq_ignore_ascii_case(b"Bearer").then_some(key.trim_ascii())
}

fn expect_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let essence = |value: &[u8]| value.split(|byte| *byte == b';').next().map(|name| name.trim_ascii().to_vec());
    let essence = single_value(headers, &CONTENT_TYPE).and_then(essence);
    if essence.is_some_and(|name| name.eq_ignore_ascii_case(b"application/json")) {
        return Ok(());
    }
    let message = "a JSON body and the header `Content-Type: application/json` are required";
    Err(ApiError::new(ErrorCode::UnsupportedMediaType, message))
}

/// Refuses a compressed body: it would be parsed as it is, and its error would be misleading.
fn expect_no_coding(headers: &HeaderMap) -> Result<(), ApiError> {
    if headers.get_all(CONTENT_ENCODING).iter().all(|value| value.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Ok(());
    }
    let message = "a body without Content-Encoding is required";
    let error = ApiError::new(ErrorCode::UnsupportedMediaType, message);
    // The header shows that the coding was refused, not the media type (RFC 9110, section 15.5.16).
    Err(error.with_header(ACCEPT_ENCODING, HeaderValue::from_static("identity")))
}

/// Returns the value of a header, or `None` if it is absent or ambiguous because it occurs twice.
fn single_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then_some(value.as_bytes())
}

fn mint(issuer: &Issuer, request: &TokenRequest) -> Result<Minted, ApiError> {
    let no_clock = |_| ApiError::new(ErrorCode::Internal, "the issuer's clock is before 1970");
    let no_entropy = |_| ApiError::new(ErrorCode::Internal, "the issuer's system provides no entropy");
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).map_err(no_clock)?;
    let now = UnixMillis(u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX));
    let mut entropy = system_entropy().map_err(no_entropy)?;
    Ok(issuer.mint(request, now, &mut entropy)?)
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
}

/// Returns the JSON body of a successful response.
///
/// The token is most of it. Base64 needs no escapes in JSON, so the token is encoded in its place instead of being
/// searched for them and copied.
fn token_body(minted: &Minted) -> Result<String, ApiError> {
    let facts = serde_json::to_string(&TokenFacts::from(minted));
    let facts = facts.map_err(|_| ApiError::new(ErrorCode::Internal, "the response cannot be written"))?;
    let token = minted.token.as_bytes();
    let mut body = String::with_capacity(token.len() * 4 / 3 + facts.len() + 32);
    body.push_str("{\"token\":\"");
    STANDARD.encode_string(token, &mut body);
    body.push_str("\",");
    // The fields of the other object follow.
    body.push_str(facts.trim_start_matches('{'));
    Ok(body)
}

/// The fields of a successful response beside the token. 64-bit integers are strings, because JavaScript numbers lose
/// precision.
#[derive(Serialize)]
struct TokenFacts {
    protocol_id: String,
    client_id: String,
    created: u64,
    expires: u64,
    timeout_seconds: i32,
    server_addresses: Vec<String>,
}

impl From<&Minted> for TokenFacts {
    fn from(minted: &Minted) -> Self {
        let facts = minted.token.facts();
        Self {
            protocol_id: facts.protocol_id.to_string(),
            client_id: minted.client_id.to_string(),
            created: facts.created.0,
            expires: facts.expires.0,
            timeout_seconds: facts.timeout_seconds,
            server_addresses: facts.servers.iter().map(ToString::to_string).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bearer_scheme_is_case_insensitive() {
        let cases: [(&str, Option<&str>); 7] = [
            ("Bearer sgk_1", Some("sgk_1")),
            ("bearer sgk_1", Some("sgk_1")),
            ("BEARER  sgk_1 ", Some("sgk_1")),
            ("Basic sgk_1", None),
            ("Bearersgk_1", None),
            ("Bearer", None),
            ("", None),
        ];
        for (header, key) in cases {
            assert_eq!(bearer(header.as_bytes()), key.map(str::as_bytes), "{header}");
        }
    }

    #[test]
    fn header_that_occurs_twice_is_refused() {
        let mut headers = HeaderMap::new();
        headers.append(AUTHORIZATION, "Bearer one".parse().unwrap());
        assert_eq!(single_value(&headers, &AUTHORIZATION), Some(b"Bearer one".as_slice()));
        headers.append(AUTHORIZATION, "Bearer other".parse().unwrap());
        assert_eq!(single_value(&headers, &AUTHORIZATION), None);
    }
}
