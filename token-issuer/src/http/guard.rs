//! What every request passes: a time limit, the reading of its body, and the headers of its answer.
//!
//! The body is read here, before anything is judged: a client that is refused while it still sends sees a broken
//! stream instead of the refusal. What the body means is the routes' business.

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONNECTION, X_CONTENT_TYPE_OPTIONS};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use hyper::body::Body as _;

use super::HttpLimits;
use super::error::{ApiError, ErrorCode};

/// The most bytes of a request's body. The largest sensible request has about 2,100.
pub const MAX_BODY_BYTES: usize = 4096;
/// So many bytes of a longer body are read and thrown away before it is refused; then the connection is closed.
pub const DRAIN_BYTES: usize = 65_536;

/// A request's body as far as it was taken.
#[derive(Clone)]
pub(super) enum Received {
    /// All of it: up to [`MAX_BODY_BYTES`].
    Whole(Bytes),
    /// It was longer, and was read to its end.
    TooLong,
    /// It was longer than [`DRAIN_BYTES`] or announced to be, and its rest was not read.
    Unread,
    /// It broke off, or was not HTTP.
    Broken,
}

impl Received {
    /// The body, or the refusal of it.
    pub(super) fn whole(self) -> Result<Bytes, ApiError> {
        match self {
            Self::Whole(bytes) => Ok(bytes),
            Self::TooLong | Self::Unread => {
                Err(ApiError::new(ErrorCode::BodyTooLarge, format!("a body holds at most {MAX_BODY_BYTES} bytes")))
            }
            Self::Broken => Err(ApiError::new(ErrorCode::MalformedBody, "the body broke off before its end")),
        }
    }
}

/// Runs one request inside its limits.
pub(super) async fn guard(State(limits): State<HttpLimits>, request: Request, next: Next) -> Response {
    let answer = tokio::time::timeout(limits.request_timeout, answer(request, next)).await;
    let mut response = answer.unwrap_or_else(|_| closing(too_slow().into_response()));
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

async fn answer(request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let received = receive(body).await;
    let at_its_end = matches!(received, Received::Whole(_) | Received::TooLong);
    parts.extensions.insert(received);
    let response = next.run(Request::from_parts(parts, Body::empty())).await;
    if at_its_end { response } else { closing(response) }
}

async fn receive(mut body: Body) -> Received {
    if body.size_hint().lower() > DRAIN_BYTES as u64 {
        return Received::Unread;
    }
    let (mut kept, mut seen) = (Vec::new(), 0_usize);
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Received::Broken };
        let Some(data) = frame.data_ref() else { continue };
        seen = seen.saturating_add(data.len());
        if seen > DRAIN_BYTES {
            return Received::Unread;
        }
        if seen <= MAX_BODY_BYTES {
            kept.extend_from_slice(data);
        }
    }
    if seen > MAX_BODY_BYTES { Received::TooLong } else { Received::Whole(kept.into()) }
}

fn too_slow() -> ApiError {
    ApiError::new(ErrorCode::RequestTimeout, "the request took too long to arrive")
}

/// The rest of the request was not read, so nothing after it can be understood.
fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
