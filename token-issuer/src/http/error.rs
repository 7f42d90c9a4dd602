//! Error responses: a code for programs, a message for humans, and the name of the wrong field.

use core::time::Duration;

use axum::Json;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::issuer::MintError;

/// The error codes in JSON responses. A code is never renamed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ErrorCode {
    /// The body is not a JSON object or is incomplete.
    MalformedBody,
    /// A required field is missing.
    MissingField,
    /// A field is not defined.
    UnknownField,
    /// A field occurs twice.
    DuplicateField,
    /// A field has a value of the wrong form.
    InvalidField,
    /// A field's value is well-formed but exceeds a limit.
    OutOfRange,
    /// A server is not in the allow-list.
    ServerNotAllowed,
    /// The request has no valid API key.
    Unauthorized,
    /// The path does not exist.
    NotFound,
    /// The path does not support this method.
    MethodNotAllowed,
    /// The request took too long.
    RequestTimeout,
    /// The body is longer than 4 KiB.
    BodyTooLarge,
    /// The body is not declared as JSON, or is compressed.
    UnsupportedMediaType,
    /// The client id has had its tokens of this minute.
    TooManyTokens,
    /// The issuer's system has no valid clock or no entropy.
    Internal,
}

impl ErrorCode {
    /// All codes.
    pub const ALL: [Self; 15] = [
        Self::MalformedBody,
        Self::MissingField,
        Self::UnknownField,
        Self::DuplicateField,
        Self::InvalidField,
        Self::OutOfRange,
        Self::ServerNotAllowed,
        Self::Unauthorized,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::RequestTimeout,
        Self::BodyTooLarge,
        Self::UnsupportedMediaType,
        Self::TooManyTokens,
        Self::Internal,
    ];

    /// Returns the code as it is written in the response.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MalformedBody => "malformed_body",
            Self::MissingField => "missing_field",
            Self::UnknownField => "unknown_field",
            Self::DuplicateField => "duplicate_field",
            Self::InvalidField => "invalid_field",
            Self::OutOfRange => "out_of_range",
            Self::ServerNotAllowed => "server_not_allowed",
            Self::Unauthorized => "unauthorized",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::RequestTimeout => "request_timeout",
            Self::BodyTooLarge => "body_too_large",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::TooManyTokens => "too_many_tokens",
            Self::Internal => "internal",
        }
    }

    /// Returns the HTTP status of the response.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::MalformedBody
            | Self::MissingField
            | Self::UnknownField
            | Self::DuplicateField
            | Self::InvalidField
            | Self::OutOfRange
            | Self::ServerNotAllowed => 400,
            Self::Unauthorized => 401,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::RequestTimeout => 408,
            Self::BodyTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::TooManyTokens => 429,
            Self::Internal => 500,
        }
    }
}

/// An error response.
#[derive(Debug)]
pub(super) struct ApiError {
    code: ErrorCode,
    message: String,
    field: Option<String>,
    /// A header of the response, with what the client can do.
    header: Option<Box<(HeaderName, HeaderValue)>>,
}

impl ApiError {
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), field: None, header: None }
    }

    pub(super) fn of_field(code: ErrorCode, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), field: Some(field.into()), header: None }
    }

    /// Returns the refusal of a client id that has to wait this long for its next token.
    pub(super) fn too_many_tokens(wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let message = format!("this client id has had its tokens of this minute; try again in {seconds} s");
        Self::of_field(ErrorCode::TooManyTokens, "client_id", message).with_header(RETRY_AFTER, seconds.into())
    }

    /// Returns the error with this header in its response.
    pub(super) fn with_header(self, name: HeaderName, value: HeaderValue) -> Self {
        Self { header: Some(Box::new((name, value))), ..self }
    }

    #[cfg(test)]
    pub(super) fn code_and_field(&self) -> (ErrorCode, Option<&str>) {
        (self.code, self.field.as_deref())
    }
}

impl From<MintError> for ApiError {
    fn from(error: MintError) -> Self {
        let code = match error {
            MintError::NoServers => ErrorCode::MissingField,
            MintError::ServerNotAllowed(_) => ErrorCode::ServerNotAllowed,
            MintError::ServerTwice(_) => ErrorCode::InvalidField,
            MintError::ServerCount(_)
            | MintError::UserDataTooLong(_)
            | MintError::Lifetime(_)
            | MintError::Timeout(_) => ErrorCode::OutOfRange,
            MintError::Refused => ErrorCode::Internal,
        };
        Self { field: error.field().map(str::to_owned), ..Self::new(code, error.to_string()) }
    }
}

/// Marks the response of an error, for the observer.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefusedWith(pub(super) ErrorCode);

#[derive(Serialize)]
struct ErrorBody {
    error: ErrorFacts,
}

#[derive(Serialize)]
struct ErrorFacts {
    code: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let facts = ErrorFacts { code: self.code.name(), message: self.message, field: self.field };
        let mut response = (status, Json(ErrorBody { error: facts })).into_response();
        if self.code == ErrorCode::Unauthorized {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(header) = self.header {
            let (name, value) = *header;
            response.headers_mut().insert(name, value);
        }
        response.extensions_mut().insert(RefusedWith(self.code));
        response
    }
}
