//! The id of a request, which is in its response and in its log lines.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::hash::{BuildHasher, RandomState};

use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// The header of the id, in requests and in responses.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The maximum length of a client's own id, in bytes. Longer ones would let strangers fill the log.
const MAX_BYTES: usize = 64;

/// The id of one request: 1 to 64 visible ASCII characters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RequestId(HeaderValue);

impl RequestId {
    /// Returns the value of the response's header.
    pub(super) fn to_header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_str().unwrap_or_default())
    }
}

/// Creates the ids of requests that have none.
pub(super) struct RequestIds {
    next: AtomicU64,
}

impl Default for RequestIds {
    /// Creates ids from a random first one, so that the ids of two issuers differ.
    fn default() -> Self {
        Self { next: AtomicU64::new(RandomState::new().hash_one(())) }
    }
}

impl RequestIds {
    /// Returns the id that the request has, or a new one if it has none, several, or one of another form.
    pub(super) fn of(&self, headers: &HeaderMap) -> RequestId {
        let mut values = headers.get_all(REQUEST_ID).iter();
        match (values.next(), values.next()) {
            (Some(value), None) if is_valid(value.as_bytes()) => RequestId(value.clone()),
            _ => self.create(),
        }
    }

    fn create(&self) -> RequestId {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut digits = [0; 16];
        // 8 bytes have 16 digits, so this does not fail.
        let _ = hex::encode_to_slice(number.to_be_bytes(), &mut digits);
        // Hexadecimal digits are always a valid header.
        RequestId(HeaderValue::from_bytes(&digits).unwrap_or(HeaderValue::from_static("0")))
    }
}

/// Returns whether a client's id may be written to the log: spaces and control characters would forge fields and lines.
fn is_valid(id: &[u8]) -> bool {
    (1..=MAX_BYTES).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(ids: &[&[u8]]) -> HeaderMap {
        ids.iter().map(|id| (REQUEST_ID, HeaderValue::from_bytes(id).unwrap())).collect()
    }

    #[test]
    fn request_keeps_its_own_id_if_that_is_harmless() {
        let ids = RequestIds::default();
        let longest = [b'~'; MAX_BYTES];
        for id in [b"a".as_slice(), b"7f3c-42/!\"", &longest] {
            assert_eq!(ids.of(&headers(&[id])).to_header().as_bytes(), id);
        }
        let too_long = [b'a'; MAX_BYTES + 1];
        for wrong in [b"".as_slice(), b"a b", b"a\tb", b"\xc3\xa9", &too_long] {
            let id = ids.of(&headers(&[wrong])).to_string();
            assert!(id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        }
    }

    #[test]
    fn new_ids_differ() {
        let ids = RequestIds::default();
        let two = headers(&[b"a", b"b"]);
        assert_ne!(ids.of(&two), ids.of(&two));
        assert_ne!(ids.of(&two), RequestIds::default().of(&two));
    }
}
