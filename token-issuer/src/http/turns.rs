//! The order in which new connections are served: those with a valid API key at once, the others one after the other.
//!
//! Serving a request takes ten times as long as accepting its connection. Where hundreds of strangers connect together,
//! the requests of backends would wait for all of theirs.

use core::future::poll_fn;
use core::task::Poll;
use std::io;
use std::sync::Arc;

use axum::http::header::AUTHORIZATION;
use tokio::io::ReadBuf;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;

use super::TokenService;
use super::connection_state::ConnectionState;
use super::routes::bearer;

/// The bytes of a request in which the key is looked for. Most backends send a head of less than 500 bytes.
const PEEK_BYTES: usize = 1024;

/// The turns of connections without a valid API key. Clones share them.
#[derive(Clone)]
pub(super) struct Turns {
    service: TokenService,
    strangers: Arc<Semaphore>,
}

impl Turns {
    pub(super) fn new(service: TokenService) -> Self {
        Self { service, strangers: Arc::new(Semaphore::new(1)) }
    }

    /// Waits for the first bytes of a connection and for its turn. The turn lasts until the returned permit is dropped;
    /// a valid key needs none.
    ///
    /// The key only decides about the order. The route checks it again.
    ///
    /// # Errors
    /// Returns the error of the socket.
    pub(super) async fn wait(
        &self,
        stream: &TcpStream,
        state: &ConnectionState,
    ) -> io::Result<Option<OwnedSemaphorePermit>> {
        let has_key = poll_fn(|cx| {
            let mut bytes = [0; PEEK_BYTES];
            let mut buf = ReadBuf::new(&mut bytes);
            match stream.poll_peek(cx, &mut buf) {
                Poll::Ready(peeked) => Poll::Ready(peeked.map(|_| self.has_key(buf.filled()))),
                Poll::Pending => {
                    state.on_wait();
                    Poll::Pending
                }
            }
        });
        if has_key.await? {
            return Ok(None);
        }
        state.on_wait();
        let turn = Arc::clone(&self.strangers).acquire_owned().await.ok();
        // The runtime looks for requests that have arrived before this task goes on. Without that, the requests of
        // backends would wait for many turns.
        yield_now().await;
        Ok(turn)
    }

    /// Returns whether a request's beginning has a valid API key.
    fn has_key(&self, head: &[u8]) -> bool {
        authorization(head).and_then(bearer).is_some_and(|key| self.service.current().api_keys.accept(key))
    }
}

/// Returns the value of the first complete line with this header.
fn authorization(head: &[u8]) -> Option<&[u8]> {
    let name = AUTHORIZATION.as_str().as_bytes();
    head.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\r\n")).find_map(|line| {
        let (start, rest) = line.split_at_checked(name.len())?;
        start.eq_ignore_ascii_case(name).then(|| rest.strip_prefix(b":")).flatten().map(<[u8]>::trim_ascii)
    })
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::io::Write;

    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use slipgate_netcode::crypto::key::Key;
    use tokio::net::TcpListener;
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::api_key::{ApiKey, ApiKeys};
    use crate::{Issuer, Limits};

    /// Returns the turns of a service, and its API key.
    fn turns() -> (Turns, ApiKey) {
        let mut entropy = StdRng::from_seed([1; 32]);
        let key = ApiKey::random(&mut entropy);
        let api_keys = ApiKeys::new(vec![key.digest(&mut entropy)]).unwrap();
        let servers = ["192.0.2.1:1".parse().unwrap()];
        let issuer = Issuer::new(7, Key::from([5; 32]).into(), &servers, Limits::default()).unwrap();
        (Turns::new(TokenService::new(issuer, api_keys)), key)
    }

    /// Returns an accepted connection on which these bytes have been sent.
    async fn accept(listener: &TcpListener, sent: &str) -> (TcpStream, std::net::TcpStream) {
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(sent.as_bytes()).unwrap();
        (listener.accept().await.unwrap().0, client)
    }

    #[tokio::test]
    async fn valid_key_does_not_wait_for_the_turn_of_strangers() {
        let (turns, key) = turns();
        let state = ConnectionState::new(Instant::now(), Arc::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let request = |key: &str| format!("POST /v1/tokens HTTP/1.1\r\nAuthorization: Bearer {key}\r\n\r\n");
        let (first, _client) = accept(&listener, "GET /v1/health HTTP/1.1\r\n\r\n").await;
        let (second, _client) = accept(&listener, &request("sgk_wrong")).await;
        let (backend, _client) = accept(&listener, &request(key.expose())).await;

        let turn = turns.wait(&first, &state).await.unwrap();
        let waiting = turns.wait(&second, &state);
        assert!(timeout(Duration::from_millis(50), waiting).await.is_err(), "one stranger at a time");
        timeout(Duration::from_secs(10), turns.wait(&backend, &state)).await.unwrap().unwrap();
        drop(turn);
        timeout(Duration::from_secs(10), turns.wait(&second, &state)).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn backend_that_has_sent_is_served_before_the_next_stranger() {
        let (turns, _) = turns();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (backend, mut client) = accept(&listener, "").await;
        let (stranger, _client) = accept(&listener, "GET /v1/health HTTP/1.1\r\n\r\n").await;
        let served = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (first, second) = (Arc::clone(&served), Arc::clone(&served));
        let backend = tokio::spawn(async move {
            backend.peek(&mut [0]).await.unwrap();
            first.lock().unwrap().push("backend");
        });
        let stranger = tokio::spawn(async move {
            stranger.peek(&mut [0]).await.unwrap();
            // The system has this request, and the runtime does not know of it yet.
            client.write_all(b"POST").unwrap();
            turns.wait(&stranger, &ConnectionState::new(Instant::now(), Arc::default())).await.unwrap();
            second.lock().unwrap().push("stranger");
        });
        backend.await.unwrap();
        stranger.await.unwrap();
        assert_eq!(*served.lock().unwrap(), ["backend", "stranger"]);
    }

    #[test]
    fn header_is_found_in_complete_lines_only() {
        let cases: [(&[u8], Option<&[u8]>); 6] = [
            (b"POST / HTTP/1.1\r\nAuthorization: Bearer a\r\nHost: x\r\n\r\n", Some(b"Bearer a")),
            (b"POST / HTTP/1.1\r\nauthorization:Bearer a \r\n", Some(b"Bearer a")),
            (b"POST / HTTP/1.1\r\nAuthorization: Bearer a", None),
            (b"POST / HTTP/1.1\r\nX-Authorization: Bearer a\r\n\r\n", None),
            (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", None),
            (b"", None),
        ];
        for (head, value) in cases {
            assert_eq!(authorization(head), value, "{}", String::from_utf8_lossy(head));
        }
    }
}
