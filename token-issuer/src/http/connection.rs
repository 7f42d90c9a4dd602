//! One connection: HTTP/1.1 on its socket, and the conditions on which it stays open.

use core::future::poll_fn;
use core::pin::pin;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::Response;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::HttpLimits;
use super::connection_io::ConnectionIo;
use super::connection_source::ConnectionSource;
use super::connection_state::{ConnectionState, RequestTiming};
use super::guard::closing;
use super::turns::Turns;

/// The maximum size of a request's head, in bytes: enough for a bearer key and the headers that proxies add.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// The pause before the response to a pipelined request, which closes the connection: requests without a reader of the
/// responses must not keep the service busy.
const PIPELINE_PAUSE: Duration = Duration::from_secs(1);

/// Serves one connection. Its errors are ignored: the client disconnected, was too slow, or sent invalid HTTP.
pub(super) async fn serve_connection(
    (stream, source): (TcpStream, ConnectionSource),
    router: Router,
    turns: Turns,
    state: Arc<ConnectionState>,
    limits: HttpLimits,
    mut stop: watch::Receiver<()>,
) {
    let turn = tokio::select! {
        turn = timeout(limits.header_timeout, turns.wait(&stream, source, &state)) => turn,
        _ = stop.changed() => return,
    };
    let Ok(Ok(turn)) = turn else { return };
    let mut turn = Some(turn);
    // Responses are written at once, so Nagle's algorithm would only delay them. A failure costs only that delay.
    let _ = stream.set_nodelay(true);
    let io = ConnectionIo::new(stream, Arc::clone(&state), limits);
    let router = TowerToHyperService::new(router);
    let respond = service_fn(|request| respond(request, &router, Arc::clone(&state)));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_header_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(io), respond);
    let mut served = pin!(served);
    // A request that has arrived is served in the first poll, and the turn ends with it.
    let serving = poll_fn(|cx| {
        let served = served.as_mut().poll(cx);
        turn.take();
        served
    });
    tokio::select! {
        _ = serving => return,
        _ = stop.changed() => state.stop(),
        () = sleep(limits.connection_age) => {}
    }
    served.as_mut().graceful_shutdown();
    tokio::select! {
        _ = timeout(limits.shutdown_timeout, served.as_mut()) => return,
        _ = stop.changed(), if !state.is_stopping() => state.stop(),
    }
    let _ = timeout(limits.shutdown_timeout, served).await;
}

/// Responds to a request. The connection stays open if its client has authenticated and waits for its responses.
async fn respond(
    mut request: Request<Incoming>,
    router: &TowerToHyperService<Router>,
    state: Arc<ConnectionState>,
) -> Result<Response, Infallible> {
    let arrival = state.arrival();
    if arrival == RequestTiming::Pipelined {
        sleep(PIPELINE_PAUSE).await;
    }
    state.on_head(Instant::now());
    request.extensions_mut().insert(Arc::clone(&state));
    let response = router.call(request).await?;
    state.on_response(Instant::now());
    let is_kept = state.is_authenticated() && arrival == RequestTiming::AfterResponse;
    Ok(if is_kept { response } else { closing(response) })
}
