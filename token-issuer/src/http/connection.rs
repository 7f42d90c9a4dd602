//! One connection: HTTP/1.1 on its socket, and the conditions on which it stays open.
//!
//! ```text
//!  TCP, Unix ─▶ first bytes ─▶ turn ─▶ HTTP
//!  TLS ───────▶ first bytes ─▶ turn ─▶ handshake ─▶ HTTP
//! ```

use core::future::poll_fn;
use core::pin::pin;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use hyper::Request;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::HttpLimits;
use super::answer::closing;
use super::connection_io::ConnectionIo;
use super::connection_state::{ConnectionState, RequestTiming};
use super::guard::GuardedService;
use super::listener::AcceptedStream;
use super::peer::ConnectionSource;
use super::refused_head::RefusedHead;
use super::turns::{StrangerTurn, Turns};

/// The maximum size of a request's head, in bytes: enough for a bearer key and the headers that proxies add.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// The pause before the response to a pipelined request, which closes the connection: requests without a reader of the
/// responses must not keep the service busy.
const PIPELINE_PAUSE: Duration = Duration::from_secs(1);

/// An accepted connection.
pub(super) struct HttpConnection {
    pub(super) source: ConnectionSource,
    pub(super) guarded: GuardedService,
    pub(super) turns: Turns,
    pub(super) state: Arc<ConnectionState>,
    pub(super) limits: HttpLimits,
    /// Completes when the service stops.
    pub(super) stop: watch::Receiver<()>,
}

impl HttpConnection {
    /// Serves the connection. Its errors are counted: the client was too slow, or sent invalid bytes.
    pub(super) async fn serve(mut self, stream: AcceptedStream) {
        match stream {
            AcceptedStream::Tcp(stream) => {
                // Responses are written at once, so Nagle's algorithm would only delay them. A failure costs only that
                // delay.
                let _ = stream.set_nodelay(true);
                self.serve_plain(stream).await;
            }
            #[cfg(unix)]
            AcceptedStream::Unix(stream) => self.serve_plain(stream).await,
            #[cfg(feature = "tls")]
            AcceptedStream::Tls(stream, config) => {
                let _ = stream.set_nodelay(true);
                let io = ConnectionIo::new(stream, Arc::clone(&self.state), self.limits);
                let mut stop = self.stop.clone();
                match before(&mut stop, self.limits.header_timeout, self.begin_tls(io, config)).await {
                    Start::Ready(tls) => self.serve_new(tls, None).await,
                    Start::Failed => self.on_refused_head(RefusedHead::Tls),
                    Start::TimedOut => self.on_refused_head(RefusedHead::Timeout),
                    Start::Stopped => {}
                }
            }
        }
    }

    pub(super) async fn serve_plain(&mut self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let mut io = ConnectionIo::new(stream, Arc::clone(&self.state), self.limits);
        let mut stop = self.stop.clone();
        match before(&mut stop, self.limits.header_timeout, self.wait_for_turn(&mut io)).await {
            Start::Ready(turn) => self.serve_new(io, turn).await,
            Start::TimedOut => self.on_refused_head(RefusedHead::Timeout),
            // The client has reset the connection.
            Start::Failed | Start::Stopped => {}
        }
    }

    fn on_refused_head(&self, reason: RefusedHead) {
        self.guarded.on_refused_head(reason, self.state.peer());
    }

    /// Waits for the first bytes and for the turn.
    async fn wait_for_turn<S: AsyncRead + Unpin>(&self, io: &mut ConnectionIo<S>) -> io::Result<Option<StrangerTurn>> {
        let head = io.peek().await?;
        Ok(self.turns.wait(head, self.source, &self.state).await)
    }

    /// Performs the handshake of TLS. It costs more than a request, and an API key arrives after it, so it needs the
    /// turn of a stranger, which ends with the answer to the client's first message.
    #[cfg(feature = "tls")]
    async fn begin_tls<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut io: ConnectionIo<S>,
        config: Arc<tokio_rustls::rustls::ServerConfig>,
    ) -> io::Result<tokio_rustls::server::TlsStream<ConnectionIo<S>>> {
        let turn = self.wait_for_turn(&mut io).await?;
        during_first_poll(tokio_rustls::TlsAcceptor::from(config).accept(io), turn).await
    }

    async fn serve_new(
        &mut self,
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        turn: Option<StrangerTurn>,
    ) {
        let (turns, state) = (self.turns.clone(), Arc::clone(&self.state));
        turns.run_new(turn.is_some(), &state, self.serve_http(io, turn)).await;
    }

    async fn serve_http(
        &mut self,
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        turn: Option<StrangerTurn>,
    ) {
        let (guarded, state) = (&self.guarded, &self.state);
        let respond = service_fn(|request| respond(request, guarded, Arc::clone(state)));
        // DECISION: without hyper's timeout of a head, which allocates a timer for each request.
        let served = http1::Builder::new().max_header_size(MAX_HEAD_BYTES).serve_connection(TokioIo::new(io), respond);
        let mut served = pin!(served);
        tokio::select! {
            // A request that has arrived is served in the first poll.
            served = during_first_poll(served.as_mut(), turn) => {
                if let Some(reason) = served.err().as_ref().and_then(RefusedHead::of_error) {
                    self.on_refused_head(reason);
                }
                return;
            }
            _ = self.stop.changed() => self.state.stop(),
            end = until_old_or_late(state, self.limits) => if matches!(end, End::HeadTimeout) {
                if state.has_unfinished_head() {
                    self.on_refused_head(RefusedHead::Timeout);
                }
                return;
            },
        }
        served.as_mut().graceful_shutdown();
        tokio::select! {
            _ = timeout(self.limits.shutdown_timeout, served.as_mut()) => return,
            _ = self.stop.changed(), if !self.state.is_stopping() => self.state.stop(),
        }
        let _ = timeout(self.limits.shutdown_timeout, served).await;
    }
}

/// How the beginning of a connection has ended.
enum Start<T> {
    Ready(T),
    Failed,
    TimedOut,
    /// The service stops.
    Stopped,
}

/// Waits for the beginning of a connection, at most this long and until the service stops.
async fn before<T>(
    stop: &mut watch::Receiver<()>,
    limit: Duration,
    start: impl Future<Output = io::Result<T>>,
) -> Start<T> {
    tokio::select! {
        started = timeout(limit, start) => match started {
            Ok(Ok(started)) => Start::Ready(started),
            Ok(Err(_)) => Start::Failed,
            Err(_) => Start::TimedOut,
        },
        _ = stop.changed() => Start::Stopped,
    }
}

/// Why a connection that serves requests ends.
enum End {
    /// It has its maximum age.
    Age,
    /// The head of its next request did not arrive in time.
    HeadTimeout,
}

/// Waits until the connection is old, or until it has waited for a head for too long. The timer is set again when it
/// ends, not at each request.
async fn until_old_or_late(state: &ConnectionState, limits: HttpLimits) -> End {
    let begin = Instant::now();
    let age_end = begin + limits.connection_age;
    let mut timer = pin!(sleep_until(age_end.min(begin + limits.header_timeout)));
    loop {
        timer.as_mut().await;
        let now = Instant::now();
        if now >= age_end {
            return End::Age;
        }
        // A connection with an open request will wait for a head from a later time on.
        let waits_since = state.waits_for_head_since().unwrap_or(now).max(begin);
        let deadline = waits_since + limits.header_timeout;
        if now >= deadline {
            return End::HeadTimeout;
        }
        timer.as_mut().reset(deadline.min(age_end));
    }
}

/// Runs a future with a turn that ends with the future's first poll.
async fn during_first_poll<F: Future>(future: F, mut turn: Option<StrangerTurn>) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let polled = future.as_mut().poll(cx);
        turn.take();
        polled
    })
    .await
}

/// Responds to a request. The connection stays open if its client has authenticated and waits for its responses.
async fn respond(
    request: Request<Incoming>,
    guarded: &GuardedService,
    state: Arc<ConnectionState>,
) -> Result<Response, Infallible> {
    let arrival = state.arrival();
    if arrival == RequestTiming::Pipelined {
        sleep(PIPELINE_PAUSE).await;
    }
    let begin = Instant::now();
    state.on_head(begin);
    let response = guarded.respond(request, Arc::clone(&state), begin).await;
    // A stream is the last response of its connection.
    let is_stream = response.body().size_hint().exact().is_none();
    let is_kept = state.is_authenticated() && arrival == RequestTiming::AfterResponse && !is_stream;
    state.on_response(Instant::now(), is_kept);
    Ok(if is_kept { response } else { closing(response) })
}
