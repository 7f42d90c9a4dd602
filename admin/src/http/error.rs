//! Error responses in JSON: a code for programs, and a message for humans.

use axum::Json;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::command::CommandError;

/// An error response.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdminFailure {
    status: StatusCode,
    code: &'static str,
    message: &'static str,
}

impl AdminFailure {
    pub(super) const NOT_FOUND: Self =
        Self::new(StatusCode::NOT_FOUND, "not_found", "unknown path; docs/operations.md lists the paths");
    pub(super) const METHOD_NOT_ALLOWED: Self = Self::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "method not allowed; the Allow header lists the methods of this path",
    );
    pub(super) const BODY_TOO_LARGE: Self =
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", "the body is longer than 4096 bytes");
    pub(super) const MALFORMED: Self =
        Self::new(StatusCode::BAD_REQUEST, "malformed_request", "the request is incomplete");
    pub(super) const WRONG_HOST: Self = Self::new(
        StatusCode::MISDIRECTED_REQUEST,
        "wrong_host",
        "the Host header must be an IP address or localhost: another name may be that of an attacker's page",
    );
    pub(super) const BROWSER: Self =
        Self::new(StatusCode::FORBIDDEN, "cross_origin", "requests from other web pages are refused");
    pub(super) const UNAUTHORIZED: Self = Self::new(
        StatusCode::UNAUTHORIZED,
        "unauthorized",
        "the header `Authorization: Bearer TOKEN` with the token of this server is required",
    );
    pub(super) const INVALID_QUERY: Self = Self::new(
        StatusCode::BAD_REQUEST,
        "invalid_query",
        "the only query is after=SHARD-SLOT of GET /clients, with the `next` of a list",
    );
    pub(super) const UNKNOWN_CLIENT: Self =
        Self::new(StatusCode::NOT_FOUND, "unknown_client", "no client with this id is connected");
    pub(super) const NOT_JSON: Self = Self::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported_media_type",
        "a body needs the header `Content-Type: application/json`, and no Content-Encoding",
    );
    pub(super) const INVALID_JSON: Self =
        Self::new(StatusCode::BAD_REQUEST, "invalid_json", "the body is not a JSON object with the known fields");
    pub(super) const TEXT_TOO_LONG: Self =
        Self::new(StatusCode::BAD_REQUEST, "text_too_long", "the text is longer than 256 bytes");
    pub(super) const ALREADY_DRAINING: Self =
        Self::new(StatusCode::CONFLICT, "already_draining", "the server is draining already");
    pub(super) const TOO_MANY_STREAMS: Self =
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", "8 pages with charts are open already");
    const BUSY: Self = Self::new(StatusCode::TOO_MANY_REQUESTS, "busy", "too many commands wait for the game's thread");
    const NO_SERVER: Self =
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "no_server", "the server has not started, or it ends");
    const NO_REPLY: Self =
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "no_reply", "the game's thread has not replied within 2 s");
    pub(super) const TIMEOUT: Self =
        Self::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", "the request took too long");
    pub(super) const INTERNAL: Self =
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the response cannot be written");

    pub(super) const fn new(status: StatusCode, code: &'static str, message: &'static str) -> Self {
        Self { status, code, message }
    }

    /// Returns the code for programs.
    pub(super) const fn code(self) -> &'static str {
        self.code
    }
}

#[derive(Serialize)]
struct FailureBody {
    error: FailureFacts,
}

#[derive(Serialize)]
struct FailureFacts {
    code: &'static str,
    message: &'static str,
}

impl IntoResponse for AdminFailure {
    fn into_response(self) -> Response {
        let error = FailureFacts { code: self.code, message: self.message };
        let mut response = (self.status, Json(FailureBody { error })).into_response();
        let headers = response.headers_mut();
        match self.status {
            StatusCode::UNAUTHORIZED => drop(headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            StatusCode::TOO_MANY_REQUESTS => drop(headers.insert(RETRY_AFTER, HeaderValue::from_static("1"))),
            _ => {}
        }
        response
    }
}

impl From<CommandError> for AdminFailure {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::NoServer => Self::NO_SERVER,
            CommandError::Busy => Self::BUSY,
            CommandError::NoReply => Self::NO_REPLY,
        }
    }
}
