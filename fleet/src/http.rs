//! HTTP calls with JSON bodies: bounded in time and size.

use std::io::Read;
use std::net::IpAddr;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tracing::warn;
use ureq::tls::TlsConfig;

/// The maximum time of a call, unless its caller has less.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// The maximum size of a response, in bytes. A game server's description in Kubernetes has some ten thousand.
const MAX_RESPONSE_BYTES: u64 = 1024 * 1024;

/// The response to a call.
#[derive(Debug)]
pub(crate) struct CallResponse {
    pub(crate) status: u16,
    /// The body, `Null` if it is no JSON.
    pub(crate) body: Value,
}

impl CallResponse {
    pub(crate) const fn is_success(&self) -> bool {
        self.status >= 200 && self.status < 300
    }
}

/// The methods of the calls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallMethod {
    Get,
    Post,
    Patch,
    Put,
    Delete,
}

/// A client for calls to one service.
#[derive(Clone)]
pub(crate) struct HttpCaller {
    agent: ureq::Agent,
}

impl HttpCaller {
    /// Creates a client. A service on loopback is reached directly, another one through the proxy in the environment.
    pub(crate) fn new(is_loopback: bool) -> Self {
        Self::with_tls(is_loopback, TlsConfig::default())
    }

    /// Creates a client with this configuration of TLS.
    pub(crate) fn with_tls(is_loopback: bool, tls: TlsConfig) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(CALL_TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0)
            .tls_config(tls)
            .allow_non_standard_methods(true);
        let config = if is_loopback { config.proxy(None) } else { config };
        Self { agent: config.build().into() }
    }

    /// Sends a request with a JSON body, and waits at most 3 s for the response.
    ///
    /// # Errors
    /// The text of what failed: the service cannot be reached, or its response is larger than 1 MiB.
    pub(crate) fn call(
        &self,
        method: CallMethod,
        url: &str,
        bearer: Option<&str>,
        body: Option<&impl Serialize>,
    ) -> Result<CallResponse, String> {
        self.call_within(CALL_TIMEOUT, method, url, bearer, body)
    }

    /// Does the same, and waits at most for this time.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub(crate) fn call_within(
        &self,
        timeout: Duration,
        method: CallMethod,
        url: &str,
        bearer: Option<&str>,
        body: Option<&impl Serialize>,
    ) -> Result<CallResponse, String> {
        let name = match method {
            CallMethod::Get => "GET",
            CallMethod::Post => "POST",
            CallMethod::Patch => "PATCH",
            CallMethod::Put => "PUT",
            CallMethod::Delete => "DELETE",
        };
        let mut request = ureq::http::Request::builder().method(name).uri(url);
        if let Some(bearer) = bearer {
            request = request.header("authorization", format!("Bearer {bearer}"));
        }
        let body = body.map(serde_json::to_vec).transpose().map_err(|error| error.to_string())?;
        let response = match body {
            Some(body) => {
                let request = request.header("content-type", "application/json").body(body);
                self.run(request.map_err(|error| error.to_string())?, timeout)
            }
            None => self.run(request.body(()).map_err(|error| error.to_string())?, timeout),
        };
        let mut response = response.map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(MAX_RESPONSE_BYTES).read_to_vec();
        let body = body.map_err(|error| error.to_string())?;
        Ok(CallResponse { status, body: serde_json::from_slice(&body).unwrap_or_default() })
    }

    fn run(
        &self,
        request: ureq::http::Request<impl ureq::AsSendBody>,
        timeout: Duration,
    ) -> Result<ureq::http::Response<ureq::Body>, ureq::Error> {
        self.agent.run(self.agent.configure_request(request).timeout_global(Some(timeout)).build())
    }

    /// Does the same as [`call`](Self::call) with a GET without a body.
    ///
    /// # Errors
    /// As [`call`](Self::call), and each status but 2xx.
    pub(crate) fn get(&self, url: &str) -> Result<CallResponse, String> {
        let response = self.call(CallMethod::Get, url, None, None::<&()>)?;
        if response.is_success() { Ok(response) } else { Err(format!("HTTP {}", response.status)) }
    }

    /// Opens a stream that lasts at most this long.
    ///
    /// # Errors
    /// The text of what failed: the service cannot be reached, or refuses.
    pub(crate) fn stream(&self, url: &str, limit: Duration) -> Result<impl Read + use<>, String> {
        let request = self.agent.get(url).config().timeout_global(Some(limit)).build();
        let response = request.call().map_err(|error| error.to_string())?;
        if !response.status().is_success() {
            return Err(format!("HTTP {}", response.status().as_u16()));
        }
        Ok(response.into_body().into_reader())
    }
}

/// Returns whether the host of a URL is this machine.
pub(crate) fn is_loopback(url: &str) -> bool {
    let Ok(url) = url.parse::<ureq::http::Uri>() else { return false };
    let host = url.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.map_or_else(|_| host.eq_ignore_ascii_case("localhost"), |address| address.to_canonical().is_loopback())
}

/// Logs that a service does not take a call. `url` names the service if there may be several.
pub(crate) fn warn_refused(service: &str, url: Option<&str>, call: &str, result: &Result<CallResponse, String>) {
    match result {
        Ok(CallResponse { status, body }) => {
            // The issuer says what it refuses; other services may not.
            let reason = body.pointer("/error/message").and_then(Value::as_str);
            warn!(service, url, call, status, reason, "a call was refused");
        }
        Err(error) => warn!(service, url, call, error, "a call failed"),
    }
}
