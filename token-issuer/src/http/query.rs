//! The query of a request: routes without parameters refuse one, so that a misspelled request does not look accepted.

use axum::extract::FromRequestParts;
use axum::http::Uri;
use axum::http::request::Parts;

use super::error::{ApiError, ErrorCode};

/// A request without a query, for a route that needs no key.
pub(super) struct NoQuery;

impl<S: Sync> FromRequestParts<S> for NoQuery {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        expect_no_query(&parts.uri).map(|()| Self)
    }
}

/// Refuses a query on a path without parameters. A `?` with nothing behind it is none.
pub(super) fn expect_no_query(uri: &Uri) -> Result<(), ApiError> {
    if uri.query().is_none_or(str::is_empty) {
        return Ok(());
    }
    Err(ApiError::new(ErrorCode::InvalidField, "this path and method have no parameters: send no query"))
}
