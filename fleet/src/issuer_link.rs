//! Calls to the token issuer. Several issuers share one registry, so each of them will do.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use slipgate_os::authorities::{CertificateAuthorities, remedy_of_issuer_certificate};
use ureq::tls::{RootCerts, TlsConfig};

use crate::http::{CALL_TIMEOUT, CallMethod, CallResponse, HttpCaller, is_loopback};
use crate::population::lock;
use crate::registration_key::RegistrationKey;

/// The shortest time that an issuer gets: a new connection with TLS to another continent takes less.
const MIN_CALL_TIMEOUT: Duration = Duration::from_millis(500);

/// The reply to a request, of the issuer that was called last.
pub(crate) struct IssuerReply {
    /// The URL of the issuer.
    pub(crate) url: String,
    /// The response, or the text of what failed: no issuer can be reached.
    pub(crate) result: Result<CallResponse, String>,
}

impl IssuerReply {
    /// Returns a field of the error in the response.
    pub(crate) fn error(&self, field: &str) -> Option<&str> {
        self.result.as_ref().ok()?.body.get("error")?.get(field).and_then(Value::as_str)
    }

    /// Returns whether another issuer may take what this one did not: it cannot be reached, has no access to the
    /// registry, or is overloaded. A full group or registry is the same for all of them.
    fn has_failed(&self) -> bool {
        let Ok(response) = &self.result else { return true };
        response.status >= 500 && !matches!(self.error("code"), Some("no_free_slots" | "registry_full"))
    }
}

/// The issuers, of which the last one that responded is called first.
pub(crate) struct IssuerLink {
    issuers: Vec<LinkedIssuer>,
    current: AtomicUsize,
    key: RegistrationKey,
}

impl IssuerLink {
    pub(crate) fn new(urls: &[String], authorities: Option<&CertificateAuthorities>, key: RegistrationKey) -> Self {
        let issuers = urls.iter().map(|url| LinkedIssuer::new(url, authorities.cloned()));
        Self { issuers: issuers.collect(), current: AtomicUsize::new(0), key }
    }

    /// Sends a request to the issuers in turn until one of them takes it or refuses it. Each gets this time for its
    /// response: a request to all of them takes at most `timeout` for each issuer.
    pub(crate) fn call(
        &self,
        timeout: Duration,
        method: CallMethod,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> IssuerReply {
        let key = self.key.expose();
        let mut reply = IssuerReply { url: String::new(), result: Err("there is no issuer".to_owned()) };
        for _ in 0..self.issuers.len() {
            let current = self.current.load(Ordering::Relaxed);
            let Some(issuer) = self.issuers.get(current) else { break };
            let url = format!("{}{path}", issuer.url);
            let result = issuer.http().call_within(timeout, method, &url, Some(key.as_str()), body);
            reply = IssuerReply { url: issuer.url.clone(), result: result.map_err(with_remedy) };
            if !reply.has_failed() {
                break;
            }
            // Another thread may have moved on meanwhile.
            let next = (current + 1) % self.issuers.len();
            let _ = self.current.compare_exchange(current, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        reply
    }

    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.issuers.len()).unwrap_or(u32::MAX)
    }
}

/// One of the issuers.
struct LinkedIssuer {
    url: String,
    authorities: Option<CertificateAuthorities>,
    /// The client, with the configuration of TLS that it was created with.
    client: Mutex<(TlsConfig, HttpCaller)>,
}

impl LinkedIssuer {
    fn new(url: &str, authorities: Option<CertificateAuthorities>) -> Self {
        let url = url.trim_end_matches('/').to_owned();
        let tls = authorities.as_ref().map(CertificateAuthorities::tls_config).unwrap_or_default();
        let http = HttpCaller::with_tls(is_loopback(&url), tls.clone());
        Self { url, authorities, client: Mutex::new((tls, http)) }
    }

    /// Returns the client. Replaced authorities need another one, with connections of its own.
    fn http(&self) -> HttpCaller {
        let mut client = lock(&self.client);
        if let Some(tls) = self.authorities.as_ref().map(CertificateAuthorities::tls_config)
            && !has_same_roots(&tls, &client.0)
        {
            *client = (tls.clone(), HttpCaller::with_tls(is_loopback(&self.url), tls));
        }
        client.1.clone()
    }
}

fn has_same_roots(one: &TlsConfig, other: &TlsConfig) -> bool {
    let roots = (one.root_certs(), other.root_certs());
    matches!(roots, (RootCerts::Specific(one), RootCerts::Specific(other)) if Arc::ptr_eq(one, other))
}

/// Adds to the text of an error what to do about it, if it is about the certificate of the issuer.
fn with_remedy(error: String) -> String {
    match remedy_of_issuer_certificate(&error) {
        Some(remedy) => format!("{error}. {remedy}"),
        None => error,
    }
}

/// Returns the timeout of each call with which a request to this number of issuers takes at most `budget`.
pub(crate) fn share(budget: Duration, issuers: u32) -> Duration {
    (budget / issuers.max(1)).clamp(MIN_CALL_TIMEOUT, CALL_TIMEOUT)
}
