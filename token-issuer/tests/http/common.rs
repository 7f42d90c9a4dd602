//! A service on loopback and its clients: ureq for valid HTTP, raw bytes for invalid HTTP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::Value;
use slipgate_netcode::crypto::key::Key;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::token::redeem::{Redeemed, redeem};
use slipgate_token_issuer::api_key::ApiKey;
use slipgate_token_issuer::callers::ApiKeys;
use slipgate_token_issuer::http::{HttpLimits, RunningService, TokenService, spawn};
use slipgate_token_issuer::{Issuer, Limits};

pub(crate) const PROTOCOL_ID: u64 = u64::MAX - 1;
pub(crate) const PRIVATE_KEY: [u8; 32] = [0x5a; 32];
pub(crate) const SERVERS: [&str; 2] = ["192.0.2.1:40000", "[2001:db8::1]:40001"];
/// The longest time that a test may wait before it fails.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(30);

/// A running service and its API key.
pub(crate) struct Service {
    pub(crate) running: RunningService,
    pub(crate) handle: TokenService,
    pub(crate) api_key: ApiKey,
}

impl Service {
    pub(crate) fn start() -> Self {
        Self::start_with(HttpLimits::default(), &SERVERS)
    }

    pub(crate) fn start_with(limits: HttpLimits, servers: &[&str]) -> Self {
        Self::start_changed(limits, servers, |service| service)
    }

    /// Starts a service that `change` has changed.
    pub(crate) fn start_changed(
        limits: HttpLimits,
        servers: &[&str],
        change: impl FnOnce(TokenService) -> TokenService,
    ) -> Self {
        let mut entropy = StdRng::from_seed([1; 32]);
        let api_key = ApiKey::random(&mut entropy);
        let other = ApiKey::random(&mut entropy);
        let digests = vec![other.digest(&mut entropy), api_key.digest(&mut entropy)];
        let servers: Vec<SocketAddr> = servers.iter().map(|server| server.parse().unwrap()).collect();
        let issuer = Issuer::new(PROTOCOL_ID, Key::from(PRIVATE_KEY).into(), &servers, Limits::default()).unwrap();
        let service = TokenService::new(issuer, ApiKeys::new(digests).unwrap()).with_limits(limits);
        let service = change(service);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self { running: spawn(listener, service.clone()).unwrap(), handle: service, api_key }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.running.address())
    }

    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.api_key.expose())
    }

    /// Requests a token as a backend does.
    pub(crate) fn request_token(&self, body: &str) -> TestResponse {
        let request = agent().post(self.url("/v1/tokens")).header("Authorization", self.bearer());
        TestResponse::from(request.content_type("application/json").send(body).unwrap())
    }

    /// Sends these bytes and reads until the service closes the connection.
    pub(crate) fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        read_to_close(&mut stream)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.running.address()).unwrap();
        stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
        stream.set_write_timeout(Some(MAX_WAIT)).unwrap();
        stream
    }
}

impl Service {
    /// Returns the bytes of a request for a token, which keeps the connection open.
    pub(crate) fn raw_token_request(&self) -> Vec<u8> {
        let (bearer, body) = (self.bearer(), r#"{"client_id": 1}"#);
        let head = format!("POST /v1/tokens HTTP/1.1\r\nHost: x\r\nAuthorization: {bearer}\r\n");
        let json = "Content-Type: application/json\r\n";
        format!("{head}{json}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    }
}

/// Reads one response, with the length that its head gives.
pub(crate) fn read_response(stream: &mut TcpStream) -> String {
    let (mut response, mut byte) = (Vec::new(), [0]);
    while !response.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        response.push(byte[0]);
    }
    let head = String::from_utf8(response).unwrap();
    let (_, length) = head.split_once("content-length: ").unwrap();
    let mut body = vec![0; length.split_once("\r\n").unwrap().0.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    head + &String::from_utf8(body).unwrap()
}

pub(crate) fn read_to_close(stream: &mut TcpStream) -> String {
    let mut response = Vec::new();
    // A reset after the response counts as a close; a timeout does not.
    if let Err(error) = stream.read_to_end(&mut response) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    }
    String::from_utf8(response).unwrap()
}

/// Returns an HTTP client that treats error statuses as responses.
pub(crate) fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(MAX_WAIT));
    // The service listens on loopback, which a proxy of the environment cannot reach.
    config.proxy(None).build().into()
}

/// A response of the service.
pub(crate) struct TestResponse {
    pub(crate) status: u16,
    pub(crate) headers: ureq::http::HeaderMap,
    pub(crate) json: Value,
}

impl From<ureq::http::Response<ureq::Body>> for TestResponse {
    fn from(mut response: ureq::http::Response<ureq::Body>) -> Self {
        let text = response.body_mut().read_to_string().unwrap();
        Self {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            json: serde_json::from_str(&text).unwrap_or(Value::Null),
        }
    }
}

impl TestResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Asserts that this is the error response with this code and field, and that it has the security headers.
    pub(crate) fn assert_refused(&self, status: u16, code: &str, field: Option<&str>) {
        let error = &self.json["error"];
        assert_eq!((self.status, error["code"].as_str()), (status, Some(code)), "{}", self.json);
        assert_eq!(error["field"].as_str(), field, "{}", self.json);
        assert!(error["message"].as_str().is_some_and(|message| message.len() > 10), "{}", self.json);
        self.assert_guarded();
    }

    /// Asserts that the response has the security headers.
    pub(crate) fn assert_guarded(&self) {
        assert_eq!(self.header("cache-control"), Some("no-store"));
        assert_eq!(self.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(self.header("content-type"), Some("application/json"));
    }

    /// Returns the token of a successful response.
    pub(crate) fn token(&self) -> ConnectToken {
        assert_eq!(self.status, 201, "{}", self.json);
        let bytes = base64_decode(self.json["token"].as_str().unwrap());
        ConnectToken::from_bytes(&bytes).unwrap()
    }

    /// Returns the private part of the token, decrypted as a game server does.
    pub(crate) fn redeemed(&self) -> Redeemed {
        let token = self.token();
        let request = token.request();
        redeem(&request, PROTOCOL_ID, &Key::from(PRIVATE_KEY).into()).unwrap()
    }
}

/// Decodes base64 without the library that encodes it.
pub(crate) fn base64_decode(text: &str) -> Vec<u8> {
    const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    assert_eq!(text.len() % 4, 0, "padded");
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for digit in text.trim_end_matches('=').chars() {
        bits = bits << 6 | ALPHABET.find(digit).unwrap() as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
