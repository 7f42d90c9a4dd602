//! Connections: their time, and the thread that serves them.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::places::{AdminPeer, Places};
use super::routes::router;
use crate::state::AdminState;

/// The maximum size of a request's head, in bytes.
const MAX_HEAD_BYTES: usize = 8 * 1024;
/// The maximum time for receiving a request's head.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum time of a connection: head, response, and the client's reading of it.
const CONNECTION_TIME: Duration = Duration::from_secs(15);
/// The maximum time to finish open requests when the service stops.
const STOP_TIME: Duration = Duration::from_secs(1);
/// The pause after a failed accept. Without file descriptors, an immediate retry would fail again and waste CPU time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Serves this listener on a new thread until `stop` completes.
pub(crate) fn spawn(
    listener: TcpListener,
    state: Arc<AdminState>,
    stop: oneshot::Receiver<()>,
) -> io::Result<JoinHandle<()>> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let run = move || runtime.block_on(serve(listener, router(state), stop));
    thread::Builder::new().name("admin".to_owned()).spawn(run)
}

async fn serve(listener: tokio::net::TcpListener, router: Router, mut stop: oneshot::Receiver<()>) {
    let places = Arc::new(Places::default());
    loop {
        let accepted = tokio::select! {
            _ = &mut stop => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, address)) = accepted else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let peer = tokio::select! {
            _ = &mut stop => break,
            peer = places.take(address) => peer,
        };
        let id = peer.id();
        let served = timeout(CONNECTION_TIME, serve_connection(stream, router.clone(), peer));
        let ends = Arc::clone(&places);
        let task = tokio::spawn(async move {
            let _ = served.await;
            ends.release(id);
        });
        places.occupy(id, task.abort_handle());
        // A replaced connection closes its file descriptor now.
        yield_now().await;
    }
    drop(listener);
    let _ = timeout(STOP_TIME, places.until_empty()).await;
}

/// Serves one request. Errors are ignored: the client disconnected, was too slow, or sent invalid HTTP.
pub(super) async fn serve_connection<S>(stream: S, router: Router, peer: AdminPeer)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let routes = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        routes.call(request)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_header_size(MAX_HEAD_BYTES)
        // One request for each connection, so that idle ones cannot take all places.
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    let _ = served.await;
}
