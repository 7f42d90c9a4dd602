//! Authorization: the API key of a request, its limits and scopes, and the headers that a JSON body needs.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};

use super::connection_state::ConnectionState;
use super::error::{ApiError, ErrorCode};
use super::{Current, TokenService};
use crate::callers::{Caller, Permission};

/// A request with a valid API key, and the state of the service that the request uses from its start to its end.
pub(super) struct Authorized {
    pub(super) caller: Arc<Caller>,
    pub(super) current: Arc<Current>,
}

/// Why a request is not authorized.
pub(super) enum Unauthorized {
    /// It has no valid key.
    Key(ApiError),
    /// Its key has had its requests of this minute.
    Limit(Authorized, ApiError),
}

/// Checks the API key of a request and counts the request.
pub(super) fn authorize(
    service: &TokenService,
    headers: &HeaderMap,
    connection: Option<&ConnectionState>,
) -> Result<Authorized, Unauthorized> {
    let current = service.current();
    let presented = single_value(headers, &AUTHORIZATION).and_then(bearer);
    // A request without a key takes as long as one with a wrong key.
    let Some(caller) = current.api_keys.find(presented.unwrap_or_default()) else {
        return Err(Unauthorized::Key(refuse(service, connection)));
    };
    if let Some(connection) = connection {
        connection.authenticate();
    }
    let authorized = Authorized { caller, current };
    match authorized.caller.count_request() {
        Ok(()) => Ok(authorized),
        Err(wait) => Err(Unauthorized::Limit(authorized, ApiError::too_many_requests(wait))),
    }
}

/// Authorization precedes all other checks, which an unauthorized caller must not probe.
impl FromRequestParts<TokenService> for Authorized {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, service: &TokenService) -> Result<Self, Response> {
        let connection = parts.extensions.get::<Arc<ConnectionState>>();
        authorize(service, &parts.headers, connection.map(AsRef::as_ref)).map_err(|refused| match refused {
            Unauthorized::Key(error) => error.into_response(),
            Unauthorized::Limit(authorized, error) => with_caller(Err::<(), _>(error), &authorized),
        })
    }
}

/// Returns the refusal of a request without a valid key. An address that repeats such requests has to wait.
fn refuse(service: &TokenService, connection: Option<&ConnectionState>) -> ApiError {
    let peer = connection.and_then(ConnectionState::peer);
    if let Some(Err(wait)) = peer.map(|peer| service.count_wrong_key(peer.into())) {
        return ApiError::too_many_requests(wait);
    }
    let message = "the header `Authorization: Bearer <API key>` with a valid key is required; a named key is \
                   its id, a dot and the secret";
    ApiError::new(ErrorCode::Unauthorized, message)
}

/// Returns the credentials of the scheme `Bearer`. Scheme names are case-insensitive (RFC 9110, section 11.1).
pub(super) fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(b"Bearer".len())?;
    let key = rest.strip_prefix(b" ")?;
    scheme.eq_ignore_ascii_case(b"Bearer").then_some(key.trim_ascii())
}

/// Checks that a key has a permission.
pub(super) fn require(caller: &Caller, permission: Permission) -> Result<(), ApiError> {
    if caller.scopes().permissions.contains(&permission) {
        return Ok(());
    }
    Err(ApiError::forbidden(None, "this API key lacks the permission for this path"))
}

/// Returns the response with its key, for the observer.
pub(super) fn with_caller(response: Result<impl IntoResponse, ApiError>, authorized: &Authorized) -> Response {
    let mut response = response.into_response();
    response.extensions_mut().insert(Arc::clone(&authorized.caller));
    response
}

/// Refuses a body that is not declared as JSON.
pub(super) fn expect_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let value = single_value(headers, &CONTENT_TYPE).unwrap_or_default();
    let essence = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if essence.eq_ignore_ascii_case(b"application/json") {
        return Ok(());
    }
    let message = "a JSON body and the header `Content-Type: application/json` are required";
    Err(ApiError::new(ErrorCode::UnsupportedMediaType, message))
}

/// Refuses a compressed body: it would be parsed as it is, and its error would be misleading. `identity`, as each entry
/// of the list, is no coding (RFC 9110, section 8.4.1).
pub(super) fn expect_no_coding(headers: &HeaderMap) -> Result<(), ApiError> {
    let values = headers.get_all(CONTENT_ENCODING).iter();
    let mut codings = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    if codings.all(|coding| coding.is_empty() || coding.eq_ignore_ascii_case(b"identity")) {
        return Ok(());
    }
    let message = "a body without a Content-Encoding besides identity is required";
    let error = ApiError::new(ErrorCode::UnsupportedMediaType, message);
    // The header shows that the coding was refused, not the media type (RFC 9110, section 15.5.16).
    Err(error.with_header(ACCEPT_ENCODING, HeaderValue::from_static("identity")))
}

/// Returns the value of a header, or `None` if it is absent or ambiguous because it occurs twice.
pub(super) fn single_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then_some(value.as_bytes())
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
    fn identity_is_no_coding() {
        let is_plain = |values: &[&'static str]| {
            let headers = values.iter().map(|value| (CONTENT_ENCODING, HeaderValue::from_static(value)));
            expect_no_coding(&headers.collect()).is_ok()
        };
        for plain in [&[][..], &[""], &["identity"], &["IDENTITY"], &["identity, identity"], &["identity", "identity,"]]
        {
            assert!(is_plain(plain), "{plain:?}");
        }
        for coded in [&["gzip"][..], &["identity, gzip"], &["identity", "br"], &["identity;q=1"], &["x-identity"]] {
            assert!(!is_plain(coded), "{coded:?}");
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
