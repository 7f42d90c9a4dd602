//! A response on its way to the client.

use std::sync::Arc;

use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::response::Response;

use crate::callers::Caller;

/// A response, and what the observer and the metrics need to know of it.
pub(super) struct Answer {
    pub(super) response: Response,
    /// The valid key of the request.
    pub(super) caller: Option<Arc<Caller>>,
}

impl From<Response> for Answer {
    /// Takes the key that a route has left in the response.
    fn from(mut response: Response) -> Self {
        let caller = response.extensions_mut().remove::<Arc<Caller>>();
        Self { response, caller }
    }
}

/// Marks the response as the last one of its connection.
pub(super) fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
