//! The cache against an HTTP server on loopback.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// An interval that a test can wait for.
const SHORT: FetchTimes = FetchTimes {
    interval: Duration::from_secs(3600),
    min_interval: Duration::from_millis(300),
    timeout: Duration::from_secs(30),
    max_age: Duration::from_secs(3600),
};
const MAX_WAIT: Duration = Duration::from_secs(60);

/// An identity provider, and the number of requests that it got.
struct Provider {
    url: String,
    response: Arc<Mutex<Vec<u8>>>,
    requests: Arc<AtomicUsize>,
}

impl Provider {
    fn start(response: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap());
        let (response, requests) = (Arc::new(Mutex::new(response)), Arc::new(AtomicUsize::new(0)));
        let (shared, count) = (Arc::clone(&response), Arc::clone(&requests));
        thread::spawn(move || {
            for stream in listener.incoming() {
                count.fetch_add(1, Ordering::SeqCst);
                let response = shared.lock().unwrap().clone();
                thread::spawn(move || respond(stream.unwrap(), &response));
            }
        });
        Self { url, response, requests }
    }

    fn open(&self, times: FetchTimes) -> KeyCache {
        KeyCache::open_with(PlayerKeySource::Url(self.url.clone()), None, times).unwrap()
    }

    fn set(&self, response: Vec<u8>) {
        *self.response.lock().unwrap() = response;
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Reads a request and writes this response. Without one, keeps the connection open.
fn respond(mut stream: TcpStream, response: &[u8]) {
    let _ = stream.read(&mut [0; 4096]);
    if response.is_empty() {
        thread::sleep(MAX_WAIT);
    }
    let _ = stream.write_all(response);
}

fn http(status: u16, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len()).into_bytes()
}

/// Returns a set with keys of these ids.
fn keys(ids: &[&str]) -> String {
    let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
    let key = |id: &&str| serde_json::json!({"kty": "OKP", "crv": "Ed25519", "x": x, "kid": id});
    serde_json::json!({"keys": ids.iter().map(key).collect::<Vec<_>>()}).to_string()
}

async fn has(cache: &KeyCache, id: &str) -> bool {
    cache.find(Some(id)).await.is_ok()
}

#[tokio::test]
async fn new_key_is_fetched_when_a_token_names_it() {
    let provider = Provider::start(http(200, &keys(&["a"])));
    let (cache, start) = (provider.open(SHORT), Instant::now());
    assert!(has(&cache, "a").await, "the first request waits for the first fetch");
    provider.set(http(200, &keys(&["b"])));
    let is_early = has(&cache, "b").await;
    assert!(!is_early || start.elapsed() >= SHORT.min_interval, "the last fetch was just now");
    while !has(&cache, "b").await {
        assert!(start.elapsed() < MAX_WAIT, "the key is not fetched");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!has(&cache, "a").await, "the provider has withdrawn it");
}

#[tokio::test]
async fn unknown_key_ids_cause_few_fetches() {
    let provider = Provider::start(http(200, &keys(&["a"])));
    let cache = provider.open(FetchTimes { min_interval: MAX_WAIT, ..SHORT });
    assert!(has(&cache, "a").await);
    for id in 0..1000 {
        assert!(!has(&cache, &id.to_string()).await);
    }
    assert_eq!(provider.requests(), 1);
}

#[tokio::test]
async fn keys_stay_while_the_provider_fails_until_they_are_old() {
    let provider = Provider::start(http(200, &keys(&["a"])));
    let times = FetchTimes { max_age: Duration::from_secs(3), ..SHORT };
    let (cache, start) = (provider.open(times), Instant::now());
    assert!(has(&cache, "a").await);
    provider.set(http(500, ""));
    while start.elapsed() < Duration::from_secs(1) || provider.requests() < 2 {
        let _ = has(&cache, "b").await;
        assert!(has(&cache, "a").await || start.elapsed() >= times.max_age);
        assert!(start.elapsed() < MAX_WAIT, "no further fetch");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    while !matches!(cache.find(Some("a")).await, Err(PlayerRefusal::NoKeys)) {
        assert!(start.elapsed() < MAX_WAIT, "the keys are old");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(start.elapsed() >= times.max_age, "the keys were used until they were old");
    provider.set(http(200, &keys(&["a"])));
    while !has(&cache, "a").await {
        assert!(start.elapsed() < 2 * MAX_WAIT, "the provider responds again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn response_without_a_small_key_set_is_refused() {
    let large = format!("{}{}", keys(&["a"]), " ".repeat(64 * 1024));
    let moved = format!("HTTP/1.1 302 x\r\nLocation: /keys\r\nContent-Length: 0\r\n\r\n{}", keys(&["a"]));
    let cases =
        [http(404, &keys(&["a"])), http(200, "{}"), http(200, &keys(&[])), http(200, &large), moved.into(), Vec::new()];
    for response in cases {
        // Only the provider that does not respond uses the time up.
        let timeout = if response.is_empty() { Duration::from_millis(500) } else { SHORT.timeout };
        let provider = Provider::start(response);
        let (cache, start) = (provider.open(FetchTimes { timeout, ..SHORT }), Instant::now());
        assert!(matches!(cache.find(Some("a")).await, Err(PlayerRefusal::NoKeys)));
        while provider.requests() == 0 {
            assert!(start.elapsed() < MAX_WAIT, "no request arrives");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn file_is_read_again_and_a_wrong_one_changes_nothing() {
    let path = std::env::temp_dir().join(format!("slipgate-key-set-{}", std::process::id()));
    std::fs::write(&path, keys(&["a"])).unwrap();
    let cache = KeyCache::open(PlayerKeySource::File(path.clone()), None).unwrap();
    assert!(has(&cache, "a").await && !has(&cache, "b").await);
    std::fs::write(&path, keys(&["b"])).unwrap();
    cache.reload().unwrap();
    assert!(has(&cache, "b").await && !has(&cache, "a").await);
    for wrong in ["", "{}", &" ".repeat(64 * 1024 + 1)] {
        std::fs::write(&path, wrong).unwrap();
        cache.reload().unwrap_err();
        assert!(has(&cache, "b").await);
    }
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(cache.reload(), Err(PlayersError::File(..))));
    assert!(KeyCache::open(PlayerKeySource::File(path), None).is_err());
}

#[cfg(feature = "tls")]
mod tls {
    //! The cache against an HTTPS server on loopback, whose certificate is of an authority that no system knows.

    use std::fs;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use tokio_rustls::rustls::pki_types::PrivateKeyDer;
    use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

    use super::*;

    /// An authority, and a file with its certificate.
    struct Authority {
        issuer: CertifiedIssuer<'static, KeyPair>,
        file: PathBuf,
    }

    impl Authority {
        fn new(name: &str) -> Self {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
            let file = std::env::temp_dir().join(format!("slipgate-authority-{}-{name}", std::process::id()));
            fs::write(&file, issuer.pem()).unwrap();
            Self { issuer, file }
        }

        /// Starts an identity provider with a certificate for this host. Returns its port.
        fn start(&self, host: &str, response: Vec<u8>) -> u16 {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
            let certificate = params.signed_by(&key, &self.issuer).unwrap();
            let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
            let provider = tokio_rustls::rustls::crypto::ring::default_provider();
            let config = ServerConfig::builder_with_provider(provider.into()).with_safe_default_protocol_versions();
            let config = config.unwrap().with_no_client_auth();
            let config = Arc::new(config.with_single_cert(vec![certificate.der().clone()], key).unwrap());
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                    let mut stream = StreamOwned::new(connection, stream.unwrap());
                    // A client that does not trust the certificate ends the connection here.
                    if stream.read(&mut [0; 4096]).is_ok() {
                        let _ = stream.write_all(&response);
                        stream.conn.send_close_notify();
                        let _ = stream.flush();
                    }
                }
            });
            port
        }
    }

    impl Drop for Authority {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.file);
        }
    }

    fn open(url: String, authorities: Option<&Authority>) -> Result<KeyCache, PlayersError> {
        let authorities = authorities.map(|authority| authority.file.clone());
        KeyCache::open_with(PlayerKeySource::Url(url), authorities, SHORT)
    }

    /// Returns whether the first fetch from this URL has the key.
    async fn is_fetched(url: String, authorities: Option<&Authority>) -> bool {
        has(&open(url, authorities).unwrap(), "a").await
    }

    #[tokio::test]
    async fn keys_are_fetched_over_tls_from_a_trusted_provider_alone() {
        let [ours, other] = ["ours", "other"].map(Authority::new);
        let port = ours.start("localhost", http(200, &keys(&["a"])));
        let url = |host: &str| format!("https://{host}:{port}/keys");
        assert!(is_fetched(url("localhost"), Some(&ours)).await);
        assert!(!is_fetched(url("localhost"), Some(&other)).await, "another authority");
        assert!(!is_fetched(url("localhost"), None).await, "the public authorities");
        assert!(!is_fetched(url("127.0.0.1"), Some(&ours)).await, "the certificate is for another host");
    }

    #[tokio::test]
    async fn redirect_leads_to_encrypted_urls_alone() {
        let authority = Authority::new("redirect");
        let redirect = |url: String| {
            format!("HTTP/1.1 302 x\r\nLocation: {url}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").into_bytes()
        };
        let encrypted = authority.start("localhost", http(200, &keys(&["a"])));
        let plain = Provider::start(http(200, &keys(&["a"])));
        for (target, is_allowed) in [(format!("https://localhost:{encrypted}/"), true), (plain.url.clone(), false)] {
            let port = authority.start("localhost", redirect(target));
            assert_eq!(is_fetched(format!("https://localhost:{port}/"), Some(&authority)).await, is_allowed);
        }
        assert_eq!(plain.requests(), 0);
    }

    #[tokio::test]
    async fn authorities_are_read_for_each_fetch() {
        let [ours, other] = ["changed", "changed-other"].map(Authority::new);
        let port = ours.start("localhost", http(200, &keys(&["a"])));
        let cache = open(format!("https://localhost:{port}/"), Some(&other)).unwrap();
        assert!(!has(&cache, "a").await);
        fs::copy(&ours.file, &other.file).unwrap();
        let begin = Instant::now();
        while !has(&cache, "a").await {
            assert!(begin.elapsed() < MAX_WAIT);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    #[test]
    fn wrong_authorities_are_refused_at_the_start() {
        let authority = Authority::new("wrong");
        let source = PlayerKeySource::Url("http://127.0.0.1:1/".to_owned());
        let refused = KeyCache::open_with(source, Some(authority.file.clone()), SHORT);
        assert!(matches!(refused, Err(PlayersError::UnusedAuthorities)));
        for content in ["", "no PEM", "-----BEGIN CERTIFICATE-----\nAAAA"] {
            fs::write(&authority.file, content).unwrap();
            let refused = open("https://localhost:1/".to_owned(), Some(&authority));
            assert!(matches!(refused, Err(PlayersError::Authorities(..))), "{content}");
        }
    }
}
