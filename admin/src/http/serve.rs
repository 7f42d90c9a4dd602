//! Connections: their number, their time, and the thread that serves them.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use super::routes::router;
use crate::state::AdminState;

/// The maximum number of open connections. Further ones wait in the system's backlog.
const MAX_CONNECTIONS: u32 = 32;
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
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS as usize));
    loop {
        let place = tokio::select! {
            _ = &mut stop => break,
            // The semaphore is never closed.
            place = Arc::clone(&places).acquire_owned() => place,
        };
        let accepted = tokio::select! {
            _ = &mut stop => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection = timeout(CONNECTION_TIME, serve_connection(stream, router.clone()));
                tokio::spawn(async move {
                    let _ = connection.await;
                    drop(place);
                });
            }
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
    drop(listener);
    let _ = timeout(STOP_TIME, places.acquire_many(MAX_CONNECTIONS)).await;
}

/// Serves one request. Errors are ignored: the client disconnected, was too slow, or sent invalid HTTP.
async fn serve_connection(stream: TcpStream, router: Router) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_header_size(MAX_HEAD_BYTES)
        // One request for each connection, so that idle ones cannot take all places.
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let _ = served.await;
}
