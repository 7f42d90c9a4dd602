//! Runs the service in its own thread, for programs without a tokio runtime.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::{TokenService, serve};

/// A running service, which stops when this value is dropped.
#[derive(Debug)]
pub struct RunningService {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Starts the service on this listener, in a new thread.
///
/// # Examples
/// ```no_run
/// # fn service() -> slipgate_token_issuer::http::TokenService { unimplemented!() }
/// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let running = slipgate_token_issuer::http::spawn(listener, service())?;
/// println!("http://{}/v1/health", running.address());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Returns the system's error if the thread cannot be started or the listener's socket is invalid.
pub fn spawn(listener: TcpListener, service: TokenService) -> io::Result<RunningService> {
    let address = listener.local_addr()?;
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let (stop, stopped) = oneshot::channel();
    let run = move || {
        runtime.block_on(serve(listener, service, async {
            // Completes when the sender is dropped.
            let _ = stopped.await;
        }));
    };
    let thread = std::thread::Builder::new().name("token-issuer".to_owned()).spawn(run)?;
    Ok(RunningService { address, stop: Some(stop), thread: Some(thread) })
}

impl RunningService {
    /// Returns the address on which it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Stops the service: finishes open requests within their time limit, then joins the thread.
impl Drop for RunningService {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
