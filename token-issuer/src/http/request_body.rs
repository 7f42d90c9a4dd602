//! The body of a request and its limits.

use axum::body::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;

use super::error::{ApiError, ErrorCode};

/// The maximum size of a request's body, in bytes. The largest valid request has about 2,100.
pub const MAX_BODY_BYTES: usize = 4096;
/// The number of bytes that are read and discarded of a body that is too long, before the connection is closed.
pub const DRAIN_BYTES: usize = 65_536;

/// The result of reading a request's body.
#[derive(Clone)]
pub(super) enum RequestBody {
    /// The complete body, of at most [`MAX_BODY_BYTES`] bytes.
    Complete(Bytes),
    /// A longer body, which was read to its end.
    TooLong,
    /// A body that is longer than [`DRAIN_BYTES`], or is announced to be. Its rest was not read.
    Unread,
    /// An incomplete body or invalid HTTP.
    Broken,
}

impl RequestBody {
    /// Returns the body, or the error response.
    pub(super) fn complete(self) -> Result<Bytes, ApiError> {
        match self {
            Self::Complete(bytes) => Ok(bytes),
            Self::TooLong | Self::Unread => {
                Err(ApiError::new(ErrorCode::BodyTooLarge, format!("the body is longer than {MAX_BODY_BYTES} bytes")))
            }
            Self::Broken => Err(ApiError::new(ErrorCode::MalformedBody, "the body is incomplete")),
        }
    }
}

/// Reads a body to its end, within its limits.
pub(super) async fn read_body<B: Body<Data = Bytes> + Unpin>(mut body: B) -> RequestBody {
    if body.size_hint().lower() > DRAIN_BYTES as u64 {
        return RequestBody::Unread;
    }
    let (mut kept, mut seen) = (Bytes::new(), 0_usize);
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return RequestBody::Broken };
        let Ok(data) = frame.into_data() else { continue };
        seen = seen.saturating_add(data.len());
        if seen > DRAIN_BYTES {
            return RequestBody::Unread;
        }
        if seen <= MAX_BODY_BYTES {
            // Most bodies arrive in one piece, which is not copied.
            kept = if kept.is_empty() { data } else { [kept, data].concat().into() };
        }
    }
    if seen > MAX_BODY_BYTES { RequestBody::TooLong } else { RequestBody::Complete(kept) }
}
