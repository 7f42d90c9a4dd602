//! Error responses in JSON: a code for programs, and a message for humans.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// An error response.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdminFailure {
    status: StatusCode,
    code: &'static str,
    message: &'static str,
}

impl AdminFailure {
    pub(super) const NOT_FOUND: Self =
        Self::new(StatusCode::NOT_FOUND, "not_found", "unknown path; the paths are /healthz, /readyz and /metrics");
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
    pub(super) const BROWSER: Self = Self::new(
        StatusCode::FORBIDDEN,
        "cross_origin",
        "requests from web pages are refused: this service is for programs",
    );
    pub(super) const TIMEOUT: Self =
        Self::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", "the request took too long");
    pub(super) const INTERNAL: Self =
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the response cannot be written");

    pub(super) const fn new(status: StatusCode, code: &'static str, message: &'static str) -> Self {
        Self { status, code, message }
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
        (self.status, Json(FailureBody { error })).into_response()
    }
}
