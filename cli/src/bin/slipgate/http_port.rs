//! Requests to the admin port of a server or to a token issuer, for `slipgate top` and `slipgate doctor`.

use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;
use slipgate_cli::Failure;
use slipgate_os::authorities::CertificateAuthorities;
use slipgate_os::key_file::read_secret_file;
use slipgate_session::connection::plain_text;
use zeroize::Zeroizing;

/// The maximum time of a request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum size of a response, in bytes: 256 clients have 150 KB.
const MAX_RESPONSE_BYTES: u64 = 1024 * 1024;

/// The admin port of one server, or the port of one token issuer.
pub(crate) struct HttpPort {
    base: String,
    token: Option<Zeroizing<String>>,
    agent: ureq::Agent,
}

/// A response: its status, its `Date`, and its body.
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) date: Option<String>,
    pub(crate) body: String,
}

impl HttpPort {
    /// Prepares requests to an admin port with a URL such as `http://127.0.0.1:9100`, or `127.0.0.1:9100`.
    ///
    /// # Errors
    /// A usage failure if the URL or the token file is wrong.
    pub(crate) fn of_admin(url: &str, token_file: Option<&Path>) -> Result<Self, Failure> {
        let token = token_file.map(read_secret_file).transpose();
        let token = token.map_err(|error| Failure::usage(format!("--admin-token-file: {error}")))?;
        let token = token.map(|text| Zeroizing::new(text.trim().to_owned()));
        Self::open(url, token, None)
            .ok_or_else(|| Failure::usage(format!("{url:?} is no address of an admin port, such as 127.0.0.1:9100")))
    }

    /// Prepares requests to a token issuer with this API key, whose certificate is one of these authorities, or of the
    /// public ones. Returns `None` if the URL is wrong.
    pub(crate) fn of_issuer(url: &str, key: &str, authorities: Option<&CertificateAuthorities>) -> Option<Self> {
        Self::open(url, Some(Zeroizing::new(key.to_owned())), authorities)
    }

    fn open(url: &str, token: Option<Zeroizing<String>>, authorities: Option<&CertificateAuthorities>) -> Option<Self> {
        let base = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let base = base.trim_end_matches('/').to_owned();
        let parsed = base.parse::<ureq::http::Uri>().ok().filter(|url| url.host().is_some());
        parsed.filter(|url| matches!(url.scheme_str(), Some("http" | "https")))?;
        // An admin port is in a private network: no proxy leads to it, and none must see the token.
        let config =
            ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false).proxy(None);
        let config = config.tls_config(authorities.map(CertificateAuthorities::tls_config).unwrap_or_default());
        Some(Self { base, token, agent: config.max_redirects(0).build().into() })
    }

    /// Returns the URL without a path.
    pub(crate) fn url(&self) -> &str {
        &self.base
    }

    /// Sends a GET request.
    ///
    /// # Errors
    /// The text of what failed, without control characters.
    pub(crate) fn get(&self, path: &str) -> Result<HttpResponse, String> {
        let mut request = self.agent.get(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header("authorization", Zeroizing::new(format!("Bearer {}", token.as_str())).as_str());
        }
        let mut response = request.call().map_err(|error| plain_text(&error.to_string()))?;
        let (status, headers) = (response.status().as_u16(), response.headers());
        let date = headers.get("date").and_then(|date| date.to_str().ok()).map(str::to_owned);
        let body = response.body_mut().with_config().limit(MAX_RESPONSE_BYTES).read_to_string();
        Ok(HttpResponse { status, date, body: body.map_err(|error| plain_text(&error.to_string()))? })
    }

    /// Sends a GET request and parses the JSON of its response.
    ///
    /// # Errors
    /// The text of what failed.
    pub(crate) fn get_json<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        let response = self.get(path)?;
        match response.status {
            200 => serde_json::from_str(&response.body).map_err(|_| format!("{path} is not that of a Slipgate server")),
            status => Err(self.explain_status(path, status)),
        }
    }

    /// Returns why an admin port has refused a request with this status.
    pub(crate) fn explain_status(&self, path: &str, status: u16) -> String {
        match status {
            401 if self.token.is_some() => {
                "the token of --admin-token-file is not that of this admin port: give the file that the server has"
                    .to_owned()
            }
            401 => "the admin port requires its token: give --admin-token-file".to_owned(),
            404 => format!("{path} returned HTTP 404: this is not the admin port of a server"),
            status => format!("{path} returned HTTP {status}"),
        }
    }
}
