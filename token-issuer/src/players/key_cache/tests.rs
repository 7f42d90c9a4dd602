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
    timeout: Duration::from_secs(2),
    max_age: Duration::from_secs(3600),
};
const MAX_WAIT: Duration = Duration::from_secs(30);

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
        KeyCache::open_with(PlayerKeySource::Url(self.url.clone()), times).unwrap()
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
    let cache = provider.open(SHORT);
    assert!(has(&cache, "a").await, "the first request waits for the first fetch");
    provider.set(http(200, &keys(&["b"])));
    assert!(has(&cache, "a").await && !has(&cache, "b").await, "the last fetch was just now");
    tokio::time::sleep(SHORT.min_interval).await;
    assert!(has(&cache, "b").await);
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
    let cache = provider.open(FetchTimes { max_age: Duration::from_secs(3), ..SHORT });
    assert!(has(&cache, "a").await);
    let start = Instant::now();
    provider.set(http(500, ""));
    while start.elapsed() < Duration::from_secs(1) {
        let _ = has(&cache, "b").await;
        assert!(has(&cache, "a").await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(provider.requests() > 1);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(matches!(cache.find(Some("a")).await, Err(PlayerRefusal::NoKeys)));
    provider.set(http(200, &keys(&["a"])));
    while !has(&cache, "a").await {
        assert!(start.elapsed() < MAX_WAIT, "the provider responds again");
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
        let provider = Provider::start(response);
        let cache = provider.open(FetchTimes { timeout: Duration::from_millis(500), ..SHORT });
        assert!(matches!(cache.find(Some("a")).await, Err(PlayerRefusal::NoKeys)));
        assert!(provider.requests() >= 1);
    }
}

#[tokio::test]
async fn file_is_read_again_and_a_wrong_one_changes_nothing() {
    let path = std::env::temp_dir().join(format!("slipgate-key-set-{}", std::process::id()));
    std::fs::write(&path, keys(&["a"])).unwrap();
    let cache = KeyCache::open(PlayerKeySource::File(path.clone())).unwrap();
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
    assert!(KeyCache::open(PlayerKeySource::File(path)).is_err());
}
