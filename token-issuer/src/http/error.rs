//! Error responses: a code for programs, a message for humans, and the name of the wrong field.

use core::time::Duration;

use axum::Json;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::issuer::MintError;
use crate::registry::{RegistryError, RegistryName};

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
    /// The issuer has no game with this protocol id.
    UnknownProtocolId,
    /// The request has no valid API key.
    Unauthorized,
    /// The API key may not do this.
    Forbidden,
    /// The player's JSON Web Token is not valid.
    InvalidPlayerJwt,
    /// The path does not exist.
    NotFound,
    /// The path does not support this method.
    MethodNotAllowed,
    /// The request took too long.
    RequestTimeout,
    /// Another server with this id has registered since.
    ServerReplaced,
    /// A later heartbeat or removal of the same run of the server was recorded already.
    LateHeartbeat,
    /// The body is longer than 4 KiB.
    BodyTooLarge,
    /// The body is not declared as JSON, or is compressed.
    UnsupportedMediaType,
    /// The `Host` header is missing or names another host.
    WrongHost,
    /// The client id has had its tokens of this minute.
    TooManyTokens,
    /// The API key, or an address without a valid one, has had its requests of this minute.
    TooManyRequests,
    /// The maximum number of event streams is open.
    TooManyStreams,
    /// No server of the group has a free slot without a reservation, or none is registered.
    NoFreeSlots,
    /// The registry has its maximum number of servers.
    RegistryFull,
    /// The store of the registry does not respond.
    StoreUnavailable,
    /// The store of the registry has started or lost its data, and issuers write their reservations again.
    StoreRecovering,
    /// The keys that verify players' JSON Web Tokens cannot be fetched.
    PlayerKeysUnavailable,
    /// The issuer's system has no valid clock or no entropy.
    Internal,
}

impl ErrorCode {
    /// All codes.
    pub const ALL: [Self; 28] = [
        Self::MalformedBody,
        Self::MissingField,
        Self::UnknownField,
        Self::DuplicateField,
        Self::InvalidField,
        Self::OutOfRange,
        Self::ServerNotAllowed,
        Self::UnknownProtocolId,
        Self::Unauthorized,
        Self::Forbidden,
        Self::InvalidPlayerJwt,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::RequestTimeout,
        Self::ServerReplaced,
        Self::LateHeartbeat,
        Self::BodyTooLarge,
        Self::UnsupportedMediaType,
        Self::WrongHost,
        Self::TooManyTokens,
        Self::TooManyRequests,
        Self::TooManyStreams,
        Self::Internal,
        Self::NoFreeSlots,
        Self::RegistryFull,
        Self::StoreUnavailable,
        Self::StoreRecovering,
        Self::PlayerKeysUnavailable,
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
            Self::UnknownProtocolId => "unknown_protocol_id",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::InvalidPlayerJwt => "invalid_player_jwt",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::RequestTimeout => "request_timeout",
            Self::ServerReplaced => "server_replaced",
            Self::LateHeartbeat => "late_heartbeat",
            Self::BodyTooLarge => "body_too_large",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::WrongHost => "wrong_host",
            Self::TooManyTokens => "too_many_tokens",
            Self::TooManyRequests => "too_many_requests",
            Self::TooManyStreams => "too_many_streams",
            Self::NoFreeSlots => "no_free_slots",
            Self::RegistryFull => "registry_full",
            Self::StoreUnavailable => "store_unavailable",
            Self::StoreRecovering => "store_recovering",
            Self::PlayerKeysUnavailable => "player_keys_unavailable",
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
            | Self::ServerNotAllowed
            | Self::UnknownProtocolId => 400,
            Self::Unauthorized => 401,
            Self::Forbidden | Self::InvalidPlayerJwt => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::RequestTimeout => 408,
            Self::ServerReplaced | Self::LateHeartbeat => 409,
            Self::BodyTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::WrongHost => 421,
            Self::TooManyTokens | Self::TooManyRequests | Self::TooManyStreams => 429,
            Self::Internal => 500,
            Self::NoFreeSlots
            | Self::RegistryFull
            | Self::StoreUnavailable
            | Self::StoreRecovering
            | Self::PlayerKeysUnavailable => 503,
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
    subject: Option<Box<TokenSubject>>,
}

/// The player and the group of a refused request, for the log. The response does not repeat them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct TokenSubject {
    pub(super) client_id: Option<u64>,
    pub(super) group: Option<RegistryName>,
}

impl ApiError {
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), field: None, header: None, subject: None }
    }

    pub(super) fn of_field(code: ErrorCode, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), field: Some(field.into()), header: None, subject: None }
    }

    /// Returns the refusal of a method that a path does not have.
    pub(super) fn method_not_allowed() -> Self {
        let message = "method not allowed; the Allow header lists the methods of this path";
        Self::new(ErrorCode::MethodNotAllowed, message)
    }

    /// Returns the refusal of a client id that has to wait this long for its next token.
    pub(super) fn too_many_tokens(wait: Duration) -> Self {
        let seconds = whole_seconds(wait);
        let message = format!("this client id has had its tokens of this minute; try again in {seconds} s");
        Self::of_field(ErrorCode::TooManyTokens, "client_id", message).with_retry_after(wait)
    }

    /// Returns the refusal of a key or an address that has to wait this long for its next request.
    pub(super) fn too_many_requests(wait: Duration) -> Self {
        let seconds = whole_seconds(wait);
        let message = format!("too many requests of this minute; try again in {seconds} s");
        Self::new(ErrorCode::TooManyRequests, message).with_retry_after(wait)
    }

    /// Returns the refusal of a reservation in this group. It names the group, because that may be misspelt.
    pub(super) fn not_reserved(error: RegistryError, group: &RegistryName) -> Self {
        let message = match &error {
            RegistryError::NoFreeSlots => {
                format!("no server of the group `{group}` is alive, admits clients and has a free slot")
            }
            RegistryError::NoServers => format!("no server of the group `{group}` is registered"),
            _ => return error.into(),
        };
        Self { message, ..Self::from(error) }
    }

    /// Returns the refusal of a game that the issuer does not have, or of a request that names none.
    pub(super) fn unknown_protocol_id(message: &str) -> Self {
        Self::of_field(ErrorCode::UnknownProtocolId, "protocol_id", message)
    }

    /// Returns the refusal of a key that lacks a scope. The field names what it may not use.
    pub(super) fn forbidden(field: Option<&str>, message: &str) -> Self {
        Self { field: field.map(str::to_owned), ..Self::new(ErrorCode::Forbidden, message) }
    }

    /// Returns the refusal of a key that may not use this group.
    pub(super) fn forbidden_group(group: &RegistryName) -> Self {
        Self::forbidden(Some("group"), &format!("this API key may not use the group `{group}`"))
    }

    /// Returns the error with the time until the next attempt, in whole seconds.
    pub(super) fn with_retry_after(self, wait: Duration) -> Self {
        self.with_header(RETRY_AFTER, whole_seconds(wait).into())
    }

    /// Returns the error of a request for this player and group.
    pub(super) fn about(self, subject: TokenSubject) -> Self {
        Self { subject: Some(Box::new(subject)), ..self }
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

/// Rounds up, because a request in the last fraction of a second would be refused again.
fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

impl From<&RegistryError> for ErrorCode {
    fn from(error: &RegistryError) -> Self {
        match error {
            RegistryError::OutOfScope => Self::Forbidden,
            RegistryError::Replaced(_) => Self::ServerReplaced,
            RegistryError::Late => Self::LateHeartbeat,
            RegistryError::NoFreeSlots | RegistryError::NoServers => Self::NoFreeSlots,
            RegistryError::Full => Self::RegistryFull,
            RegistryError::Unavailable | RegistryError::Unconfirmed => Self::StoreUnavailable,
            RegistryError::Recovering(_) => Self::StoreRecovering,
        }
    }
}

impl From<RegistryError> for ApiError {
    fn from(error: RegistryError) -> Self {
        let (code, message) = (ErrorCode::from(&error), error.to_string());
        match error {
            RegistryError::OutOfScope | RegistryError::Replaced(_) => Self::of_field(code, "id", message),
            RegistryError::Late => Self::of_field(code, "sequence", message),
            RegistryError::Recovering(left) => Self::new(code, message).with_retry_after(left),
            _ => Self::new(code, message).with_retry_after(Duration::from_secs(1)),
        }
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

/// The error of a response, for the observer.
#[derive(Clone, Debug)]
pub(super) struct RefusedWith {
    pub(super) code: ErrorCode,
    pub(super) message: String,
    pub(super) field: Option<String>,
    pub(super) subject: Option<Box<TokenSubject>>,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: ErrorFacts<'a>,
}

#[derive(Serialize)]
struct ErrorFacts<'a> {
    code: &'static str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let (message, field) = (self.message.as_str(), self.field.as_deref());
        let facts = ErrorFacts { code: self.code.name(), message, field };
        let mut response = (status, Json(ErrorBody { error: facts })).into_response();
        if self.code == ErrorCode::Unauthorized {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(header) = self.header {
            let (name, value) = *header;
            response.headers_mut().insert(name, value);
        }
        let Self { code, message, field, subject, .. } = self;
        let refused = RefusedWith { code, message, field, subject };
        response.extensions_mut().insert(refused);
        response
    }
}
