//! Calls to the token issuer. Several issuers share one registry, so each of them will do.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;

use crate::http::{CallMethod, CallResponse, HttpCaller, is_loopback};
use crate::registration_key::RegistrationKey;

/// The issuers, of which the last one that responded is called first.
pub(crate) struct IssuerLink {
    issuers: Vec<(String, HttpCaller)>,
    current: AtomicUsize,
    key: RegistrationKey,
}

impl IssuerLink {
    pub(crate) fn new(urls: &[String], key: RegistrationKey) -> Self {
        let issuers = urls.iter().map(|url| {
            let url = url.trim_end_matches('/').to_owned();
            let http = HttpCaller::new(is_loopback(&url));
            (url, http)
        });
        Self { issuers: issuers.collect(), current: AtomicUsize::new(0), key }
    }

    /// Sends a request to the issuers in turn until one responds, whatever its response is.
    ///
    /// # Errors
    /// The text of what failed last: no issuer can be reached.
    pub(crate) fn call(
        &self,
        method: CallMethod,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<CallResponse, String> {
        let mut result = Err("there is no issuer".to_owned());
        for _ in 0..self.issuers.len() {
            let current = self.current.load(Ordering::Relaxed);
            let Some((url, http)) = self.issuers.get(current) else { break };
            result = http.call(method, &format!("{url}{path}"), Some(self.key.expose()), body);
            if result.is_ok() {
                break;
            }
            // Another thread may have moved on meanwhile.
            let next = (current + 1) % self.issuers.len();
            let _ = self.current.compare_exchange(current, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        result
    }
}
