//! Fetching a connect token from a token issuer over HTTP, for tools and tests.
//!
//! A shipped game does not do this: it asks its backend, which knows the player, and the backend asks the issuer. The
//! issuer's key must never be in a game's hands.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::wire::USER_DATA_BYTES;
use slipgate_netcode::wire::token::LayoutError;
use ureq::http::Uri;

/// How long an issuer may take to answer, all in all.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of an answer that are read: a token in base64 is 2,732 bytes, and 32 addresses are short.
const MAX_ANSWER_BYTES: u64 = 16 * 1024;

/// What to ask an issuer for; what is `None` is left to it.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Who the player is.
    pub client_id: u64,
    /// The servers, out of those that the issuer knows.
    pub servers: Option<Vec<SocketAddr>>,
    /// The application's own data, up to 256 bytes.
    pub user_data: Option<Vec<u8>>,
    /// How many seconds the token is accepted.
    pub lifetime_seconds: Option<u32>,
    /// Seconds of silence that end the connection.
    pub timeout_seconds: Option<u32>,
}

/// Why there is no token.
#[derive(Debug)]
#[non_exhaustive]
pub enum FetchError {
    /// More than 256 bytes of user data.
    UserData,
    /// The issuer's URL is none, or of another scheme than `http` and `https`.
    Url(String),
    /// The issuer could not be asked: the network, TLS, or its time.
    Transport {
        /// Where it was asked.
        url: String,
        /// What came in between.
        error: Box<ureq::Error>,
    },
    /// The issuer refused.
    Refused {
        /// The HTTP status.
        status: u16,
        /// The issuer's own code for the reason, where it gave one.
        code: Option<String>,
        /// The issuer's sentence, where it gave one.
        message: Option<String>,
    },
    /// The issuer's answer is none that we understand.
    Answer,
    /// The answer holds something that is no connect token.
    Token(LayoutError),
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UserData => write!(f, "user data has at most {USER_DATA_BYTES} bytes"),
            Self::Url(url) => write!(f, "an issuer's address starts with http:// or https://, and {url:?} is none"),
            Self::Transport { url, error } => write!(f, "the token issuer cannot be reached at {url}: {error}"),
            Self::Refused { status, message: Some(message), .. } => {
                write!(f, "the token issuer refused (HTTP {status}): {message}")
            }
            Self::Refused { status, .. } => write!(f, "the token issuer refused (HTTP {status})"),
            Self::Answer => f.write_str("the token issuer gave an answer that is none of its kind"),
            Self::Token(error) => write!(f, "the token issuer gave no connect token: {error}"),
        }
    }
}

impl std::error::Error for FetchError {}

#[derive(Serialize)]
struct Body {
    /// As text: JSON numbers lose precision above 2^53 in many readers.
    client_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_addresses: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lifetime_seconds: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_seconds: Option<u32>,
}

#[derive(Deserialize)]
struct Answer {
    token: String,
}

#[derive(Deserialize)]
struct Refusal {
    error: RefusalReason,
}

#[derive(Deserialize)]
struct RefusalReason {
    code: String,
    message: String,
}

/// Asks the issuer at `url` (`http://host:port` or `https://…`) for a token, with its bearer key. It blocks for at most
/// 10 s.
///
/// An issuer on this machine is asked directly; another one through the proxy that the environment names, if any.
///
/// # Errors
/// See [`FetchError`].
pub fn fetch(url: &str, bearer_key: &str, request: &Request) -> Result<ConnectToken, FetchError> {
    let body = body(request)?;
    let tokens = tokens_url(url)?;
    let unreachable = |error| FetchError::Transport { url: url.to_owned(), error: Box::new(error) };
    let mut response = agent(&tokens)
        .post(&tokens)
        .header("authorization", &format!("Bearer {bearer_key}"))
        .header("content-type", "application/json")
        .send(&body)
        .map_err(unreachable)?;
    let status = response.status();
    let answer = response.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_vec().map_err(unreachable)?;
    if status.is_success() { parse_token(&answer) } else { Err(refused(status.as_u16(), &answer)) }
}

/// Where the issuer at `url` makes tokens.
fn tokens_url(url: &str) -> Result<Uri, FetchError> {
    let tokens = format!("{}/v1/tokens", url.trim_end_matches('/')).parse::<Uri>();
    let has_place = |tokens: &Uri| matches!(tokens.scheme_str(), Some("http" | "https")) && tokens.host().is_some();
    tokens.ok().filter(has_place).ok_or_else(|| FetchError::Url(url.to_owned()))
}

fn agent(url: &Uri) -> ureq::Agent {
    let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false);
    // A proxy cannot know this machine's loopback, and the bearer key is none of its business.
    let config = if is_loopback(url) { config.proxy(None) } else { config };
    config.build().into()
}

fn is_loopback(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.map_or_else(|_| host.eq_ignore_ascii_case("localhost"), |address| address.to_canonical().is_loopback())
}

fn body(request: &Request) -> Result<Vec<u8>, FetchError> {
    if request.user_data.as_ref().is_some_and(|data| data.len() > USER_DATA_BYTES) {
        return Err(FetchError::UserData);
    }
    let body = Body {
        client_id: request.client_id.to_string(),
        server_addresses: request.servers.as_ref().map(|servers| servers.iter().map(SocketAddr::to_string).collect()),
        user_data: request.user_data.as_ref().map(|data| STANDARD.encode(data)),
        lifetime_seconds: request.lifetime_seconds,
        timeout_seconds: request.timeout_seconds,
    };
    serde_json::to_vec(&body).map_err(|_| FetchError::Answer)
}

fn parse_token(answer: &[u8]) -> Result<ConnectToken, FetchError> {
    let answer: Answer = serde_json::from_slice(answer).map_err(|_| FetchError::Answer)?;
    let bytes = STANDARD.decode(answer.token).map_err(|_| FetchError::Answer)?;
    ConnectToken::from_bytes(&bytes).map_err(FetchError::Token)
}

fn refused(status: u16, answer: &[u8]) -> FetchError {
    let reason = serde_json::from_slice::<Refusal>(answer).ok().map(|refusal| refusal.error);
    let (code, message) = reason.map(|reason| (reason.code, reason.message)).unzip();
    FetchError::Refused { status, code, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_issuer_on_this_machine_is_asked_without_the_environments_proxy() {
        for (url, loopback) in [
            ("http://127.0.0.1:8080", true),
            ("http://127.1.2.3/", true),
            ("http://[::1]:8080", true),
            ("http://[::ffff:127.0.0.1]:8080", true),
            ("http://LocalHost:8080", true),
            ("https://issuer.example", false),
            ("http://127.0.0.1.example:80", false),
            ("http://localhost.example", false),
            ("http://127.0.0.1@issuer.example", false),
            ("http://192.0.2.1", false),
        ] {
            assert_eq!(is_loopback(&tokens_url(url).expect("a URL")), loopback, "{url}");
        }
    }

    #[test]
    fn an_address_without_its_scheme_is_no_url() {
        for url in ["", "127.0.0.1:8080", "localhost:8080", "issuer.example", "ftp://issuer.example", "http://"] {
            assert!(matches!(tokens_url(url), Err(FetchError::Url(_))), "{url}");
        }
    }
}
