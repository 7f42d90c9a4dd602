//! The order in which new connections are served: those with a valid API key at once, the others one after the other.
//!
//! ```text
//!  valid key ──────────────────────────────────────────────────────▶ served, a step at a time
//!  stranger ─▶ turn of its address ─▶ turn of all, one each 0.5 ms ─▶ served, a step at a time
//! ```
//!
//! Serving a request takes ten times as long as accepting its connection. Where hundreds of strangers connect together,
//! the requests of backends would wait for all of theirs. The interval also slows a stranger that opens a connection
//! again as soon as it was closed. At most one connection of each address waits for the turn of all, so that a health
//! check waits for one turn of each other address.
//!
//! A connection takes a step when its client has sent or closed. Where hundreds connect or close together, requests on
//! kept-alive connections would wait for the steps of all of them. So until a connection has authenticated, the runtime
//! looks for requests before each of its steps.

use core::array;
use core::future::poll_fn;
use core::pin::pin;
use core::task::Poll;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::TokenService;
use super::authorize::bearer;
use super::connection_state::ConnectionState;
use super::peer::ConnectionSource;

/// The minimum time between the beginnings of two turns of strangers. The runtime's timer makes it 1 to 1.5 ms where
/// several wait.
const TURN_INTERVAL: Duration = Duration::from_micros(500);
/// The number of groups of addresses. The addresses of a group, found by a keyed hash, share their turns.
const SOURCES: usize = 256;

/// The turns of connections without a valid API key. Clones share them.
#[derive(Clone)]
pub(super) struct Turns {
    service: TokenService,
    strangers: Arc<StrangerQueue>,
    steps: Arc<Steps>,
}

/// The steps of new connections. A mutex is locked during a step, and before it while the runtime looks for requests.
#[derive(Default)]
struct Steps {
    strangers: Mutex<()>,
    /// Those with a valid key at the beginning of their request, and those with TLS after their handshake.
    others: Mutex<()>,
}

struct StrangerQueue {
    /// The time of the next turn. Locked during a turn.
    next: Arc<Mutex<Instant>>,
    /// Locked while a connection of the group waits for its turn, and during the turn.
    sources: [Arc<Mutex<()>>; SOURCES],
    hasher: RandomState,
}

/// The turn of a stranger. It ends when this value is dropped.
pub(super) struct StrangerTurn {
    _all: OwnedMutexGuard<Instant>,
    _source: OwnedMutexGuard<()>,
}

impl StrangerQueue {
    /// Waits for the turn of a connection from `source`. Mutexes of tokio are locked in the order of the requests.
    async fn wait(&self, source: ConnectionSource) -> StrangerTurn {
        let group = usize::try_from(self.hasher.hash_one(source) % SOURCES as u64).unwrap_or_default();
        let source = Arc::clone(self.sources.get(group).unwrap_or(&self.sources[0])).lock_owned().await;
        let mut next = Arc::clone(&self.next).lock_owned().await;
        if Instant::now() < *next {
            sleep_until(*next).await;
        }
        *next = Instant::now() + TURN_INTERVAL;
        StrangerTurn { _all: next, _source: source }
    }
}

impl Turns {
    pub(super) fn new(service: TokenService) -> Self {
        let strangers = StrangerQueue {
            next: Arc::new(Mutex::new(Instant::now())),
            sources: array::from_fn(|_| Arc::default()),
            hasher: RandomState::new(),
        };
        Self { service, strangers: Arc::new(strangers), steps: Arc::default() }
    }

    /// Waits for the turn of a connection with these first bytes. The turn lasts until the returned value is dropped; a
    /// valid key needs none.
    ///
    /// The key only decides about the order. The route checks it again.
    pub(super) async fn wait(
        &self,
        head: &[u8],
        source: ConnectionSource,
        state: &ConnectionState,
    ) -> Option<StrangerTurn> {
        if self.has_key(head) {
            return None;
        }
        state.on_wait();
        let turn = self.strangers.wait(source).await;
        // The runtime looks for requests that have arrived before this task goes on. Without that, the requests of
        // backends would wait for many turns.
        yield_now().await;
        Some(turn)
    }

    /// Runs a new connection: until it has authenticated, one step each time that the runtime has looked for requests.
    pub(super) async fn run_new(
        &self,
        is_stranger: bool,
        state: &ConnectionState,
        connection: impl Future<Output = ()>,
    ) {
        let steps = if is_stranger { &self.steps.strangers } else { &self.steps.others };
        let mut connection = pin!(connection);
        while !state.is_authenticated() {
            let mut step = Some(steps.lock().await);
            yield_now().await;
            // The first poll is the step. The second one is due to the connection's next event.
            let has_ended = poll_fn(|cx| match step.take() {
                Some(_step) => connection.as_mut().poll(cx).map(|()| true),
                None => Poll::Ready(false),
            });
            if has_ended.await {
                return;
            }
        }
        connection.await;
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
    use core::net::IpAddr;
    use std::io::Write;

    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use slipgate_netcode::crypto::key::Key;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;
    use crate::api_key::ApiKey;
    use crate::callers::ApiKeys;
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

    fn source(number: u8) -> ConnectionSource {
        IpAddr::from([192, 0, 2, number]).into()
    }

    const HEALTH: &[u8] = b"GET /v1/health HTTP/1.1\r\n\r\n";

    #[tokio::test]
    async fn valid_key_does_not_wait_for_the_turn_of_strangers() {
        let (turns, key) = turns();
        let state = ConnectionState::new(Instant::now(), Arc::default());
        let request = |key: &str| format!("POST /v1/tokens HTTP/1.1\r\nAuthorization: Bearer {key}\r\n\r\n");
        let (stranger, backend) = (request("sgk_wrong"), request(key.expose()));

        let turn = turns.wait(HEALTH, source(1), &state).await.unwrap();
        let waiting = turns.wait(stranger.as_bytes(), source(1), &state);
        assert!(timeout(Duration::from_millis(50), waiting).await.is_err(), "one stranger at a time");
        let served = timeout(Duration::from_secs(60), turns.wait(backend.as_bytes(), source(1), &state)).await;
        assert!(served.unwrap().is_none());
        drop(turn);
        let served = timeout(Duration::from_secs(60), turns.wait(stranger.as_bytes(), source(1), &state)).await;
        assert!(served.unwrap().is_some());
    }

    /// Returns an address of another group than that of `source(1)`.
    fn other_source(strangers: &StrangerQueue) -> ConnectionSource {
        let group = |source| strangers.hasher.hash_one(source) % SOURCES as u64;
        (2..).map(source).find(|other| group(*other) != group(source(1))).unwrap()
    }

    #[tokio::test]
    async fn address_waits_for_one_turn_of_each_other_address() {
        let strangers = turns().0.strangers;
        let served = Arc::new(std::sync::Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        let sources = [source(1); 20].into_iter().enumerate().chain([(20, other_source(&strangers))]);
        for (number, source) in sources {
            let (strangers, served) = (Arc::clone(&strangers), Arc::clone(&served));
            tasks.spawn(async move {
                let turn = strangers.wait(source).await;
                served.lock().unwrap().push(number);
                drop(turn);
            });
        }
        tasks.join_all().await;
        let position = served.lock().unwrap().iter().position(|number| *number == 20).unwrap();
        assert!(position <= 2, "turn {position} of 20 others");
    }

    #[tokio::test]
    async fn turns_of_strangers_begin_half_a_millisecond_apart() {
        let strangers = turns().0.strangers;
        let start = Instant::now();
        for _ in 0..20 {
            drop(strangers.wait(source(1)).await);
        }
        assert!(start.elapsed() >= 19 * TURN_INTERVAL, "{:?}", start.elapsed());
    }

    #[tokio::test]
    async fn backend_that_has_sent_is_served_before_the_next_stranger() {
        let (turns, _) = turns();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (backend, _) = listener.accept().await.unwrap();
        let served = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (first, second) = (Arc::clone(&served), Arc::clone(&served));
        let backend = tokio::spawn(async move {
            backend.peek(&mut [0]).await.unwrap();
            first.lock().unwrap().push("backend");
        });
        let stranger = tokio::spawn(async move {
            // The system has this request, and the runtime does not know of it yet.
            client.write_all(b"POST").unwrap();
            turns.wait(HEALTH, source(1), &ConnectionState::new(Instant::now(), Arc::default())).await.unwrap();
            second.lock().unwrap().push("stranger");
        });
        backend.await.unwrap();
        stranger.await.unwrap();
        assert_eq!(*served.lock().unwrap(), ["backend", "stranger"]);
    }

    #[tokio::test]
    async fn backend_waits_for_few_steps_of_connections_that_close_together() {
        const CLOSING: usize = 40;
        let (turns, _) = turns();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for is_stranger in [true, false] {
            let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (backend, _) = listener.accept().await.unwrap();
            let close = Arc::new(tokio::sync::Barrier::new(CLOSING + 1));
            let served = Arc::new(std::sync::Mutex::new(Vec::new()));
            let mut tasks = tokio::task::JoinSet::new();
            for _ in 0..CLOSING {
                let (turns, close, served) = (turns.clone(), Arc::clone(&close), Arc::clone(&served));
                tasks.spawn(async move {
                    let state = ConnectionState::new(Instant::now(), Arc::default());
                    let connection = async {
                        close.wait().await;
                        served.lock().unwrap().push("closed");
                    };
                    turns.run_new(is_stranger, &state, connection).await;
                });
            }
            let backend_served = Arc::clone(&served);
            tasks.spawn(async move {
                backend.peek(&mut [0]).await.unwrap();
                backend_served.lock().unwrap().push("backend");
            });
            // All connections wait for their next event.
            tokio::time::sleep(Duration::from_millis(50)).await;
            client.write_all(b"POST").unwrap();
            close.wait().await;
            tasks.join_all().await;
            let position = served.lock().unwrap().iter().position(|served| *served == "backend").unwrap();
            assert!(position <= 2, "step {position} of {CLOSING} others, strangers: {is_stranger}");
        }
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
