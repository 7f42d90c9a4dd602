//! The limit of open event streams: of one API key, and of all together.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::{ApiError, ErrorCode};

/// The maximum number of open streams of server events.
pub const MAX_EVENT_STREAMS: usize = 32;
/// The maximum number of open streams of server events of one API key: one key does not take the places of all.
pub const MAX_EVENT_STREAMS_PER_KEY: usize = MAX_EVENT_STREAMS / 4;

/// The number of open streams by the id of their API key. Keys without a stream have no entry.
#[derive(Default)]
pub(super) struct StreamLimit(Mutex<BTreeMap<String, usize>>);

/// An open stream, which counts until this value is dropped.
pub(super) struct OpenStream {
    limit: Arc<StreamLimit>,
    key: String,
}

impl StreamLimit {
    /// Counts a stream of this key.
    ///
    /// # Errors
    /// [`ErrorCode::TooManyStreams`] if the key, or all keys together, have their maximum.
    pub(super) fn open(self: &Arc<Self>, key: &str) -> Result<OpenStream, ApiError> {
        let mut open = self.lock();
        let of_key = open.get(key).copied().unwrap_or_default();
        if of_key >= MAX_EVENT_STREAMS_PER_KEY {
            let message = format!("this API key has {of_key} event streams open, which is its maximum");
            return Err(ApiError::new(ErrorCode::TooManyStreams, message));
        }
        if open.values().sum::<usize>() >= MAX_EVENT_STREAMS {
            return Err(ApiError::new(ErrorCode::TooManyStreams, "the maximum number of event streams is open"));
        }
        open.insert(key.to_owned(), of_key + 1);
        Ok(OpenStream { limit: Arc::clone(self), key: key.to_owned() })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        // Poisoning is harmless: the critical sections only count.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut open = self.limit.lock();
        match open.get_mut(&self.key) {
            Some(count) if *count > 1 => *count -= 1,
            _ => _ = open.remove(&self.key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_limited_for_each_key_and_for_all() {
        let limit = Arc::new(StreamLimit::default());
        let mut streams: Vec<_> = (0..MAX_EVENT_STREAMS_PER_KEY).map(|_| limit.open("1").unwrap()).collect();
        assert!(limit.open("1").is_err());
        while let Ok(stream) = limit.open(&format!("{}", streams.len())) {
            streams.push(stream);
        }
        assert_eq!(streams.len(), MAX_EVENT_STREAMS);
        streams.remove(0);
        assert!(limit.open("1").is_ok(), "the dropped one was a stream of this key");
        drop(streams);
        assert!(limit.lock().is_empty());
    }
}
